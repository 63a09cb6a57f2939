"""One call for the posterior, by any of its four methods."""

from __future__ import annotations

from numpy.typing import ArrayLike

from countveil.congenial.inference.augmented_chain import SweepProgress, augmented_posterior
from countveil.congenial.inference.count_models import Model
from countveil.congenial.inference.exact_mixtures import exact_posterior
from countveil.congenial.inference.importance_sampler import importance_posterior
from countveil.congenial.inference.posterior_problem import read_problem
from countveil.congenial.inference.posterior_result import Posterior, PosteriorMethod
from countveil.congenial.inference.public_sums import StatedSums
from countveil.congenial.inference.rejection_sampler import rejection_posterior
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError


def posterior(
    *,
    model: Model,
    released: ArrayLike,
    mechanism: Wasserstein,
    public: StatedSums | None = None,
    method: PosteriorMethod = "exact",
    draws: int = 4_000,
    seed: int = 0,
    chains: int = 4,
    warmup: int = 500,
    proposal: Model | None = None,
    progress: SweepProgress = lambda sweep, sweeps: None,
) -> Posterior:
    """Return what is known about the model's parameters, given a release and what is public.

    The mechanism's own law accounts for the noise, and the public facts are conditions on the counts.
    Random numbers come from NumPy, as no privacy depends on them.

    Parameters
    ----------
    model
        A model of the confidential counts, such as `GammaPoisson`.
    released
        The released table: (places,), or (places, 2) for cases and deaths.
    mechanism
        The mechanism that drew it.
    public
        Public sums and bounds: ``{"total": …, "subtotals": [(places, sum), …], "upper": […]}``. The
        mechanism's own sums are known already.
    method
        "exact", "rejection", "importance" or "augmented".
    draws
        The number of draws, of each chain for "augmented".
    seed
        The seed of the draws.
    chains, warmup
        The chains of "augmented", and the sweeps of each that are discarded.
    proposal
        The g of "importance"; a model of the same kind.
    progress
        Called by "augmented" with the number of sweeps so far and in all.

    Returns
    -------
    Posterior
        Means, variances and quantiles of every place's parameter.

    Examples
    --------
    >>> from countveil.congenial import GammaPoisson, Wasserstein
    >>> mechanism = Wasserstein(loss="L1", epsilon="1", total=20, base="naive")
    >>> rates = posterior(
    ...     model=GammaPoisson(shape=1.5, rate=0.1), released=[14, 3, -4], mechanism=mechanism
    ... )
    >>> rates.mean.round(1)
    array([13.2,  5.1,  4. ])
    """
    problem = read_problem(model, released, mechanism, public)
    for name, value, least in (("draws", draws, 4), ("chains", chains, 1), ("warmup", warmup, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"{name}: {value!r} is not allowed; give a whole number, {least} or more"
            )
    if proposal is not None and method != "importance":
        raise InputError('proposal: only method="importance" uses one; leave it out')
    if method == "exact":
        return exact_posterior(problem)
    if method == "rejection":
        return rejection_posterior(problem, draws=draws, seed=seed)
    if method == "importance":
        return importance_posterior(problem, draws=draws, seed=seed, proposal=proposal)
    if method == "augmented":
        return augmented_posterior(
            problem, draws=draws, warmup=warmup, chains=chains, seed=seed, progress=progress
        )
    raise InputError(
        f'method: unknown method {method!r}; choose "exact", "rejection", "importance" or "augmented"'
    )
