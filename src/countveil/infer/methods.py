"""One call for the posterior, whichever way it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InputError
from countveil.infer.augmented import Progress, augmented_posterior
from countveil.infer.evidence import read_evidence
from countveil.infer.exact import exact_posterior
from countveil.infer.importance import importance_posterior
from countveil.infer.model import Model
from countveil.infer.rejection import rejection_posterior
from countveil.infer.result import Method, Posterior


def posterior(
    *,
    model: Model,
    released: Any,
    mechanism: Wasserstein,
    public: Mapping[str, Any] | None = None,
    method: Method = "exact",
    draws: int = 4_000,
    seed: int = 0,
    chains: int = 4,
    warmup: int = 500,
    proposal: Model | None = None,
    progress: Progress = lambda done, of: None,
) -> Posterior:
    """Return what is known of the model's parameters given a release and what is public.

    Noise counts as the mechanism's own law, and the public facts as conditions on the counts. Numbers
    are drawn by NumPy from `seed`, as no privacy hangs on them. "augmented" takes `draws` of each of
    its chains after `warmup`, and tells `progress` how many sweeps are done; `proposal` is the g of
    "importance".
    """
    evidence = read_evidence(model, released, mechanism, public)
    for name, value, least in (("draws", draws, 4), ("chains", chains, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"{name}: {value!r} is not allowed; it is a whole number, {least} or more"
            )
    if proposal is not None and method != "importance":
        raise InputError('proposal: only method="importance" has one; leave it out')
    if method == "exact":
        return exact_posterior(evidence)
    if method == "rejection":
        return rejection_posterior(evidence, draws=draws, seed=seed)
    if method == "importance":
        return importance_posterior(evidence, draws=draws, seed=seed, proposal=proposal)
    if method == "augmented":
        return augmented_posterior(
            evidence, draws=draws, warmup=warmup, chains=chains, seed=seed, progress=progress
        )
    raise InputError(
        f'method: {method!r} is not known; choose "exact", "rejection", "importance" or "augmented"'
    )
