"""Count the records of a release again, for internal results."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.errors import CountveilError, FolderError, InputError

if TYPE_CHECKING:
    from countveil.base.numerics import IntArray
    from countveil.engines.counts import Counts
    from countveil.plan.geography import Geography
    from countveil.plan.plans import Plan
    from countveil.publish.release_folder import Release

_RUN = "run.json"


def counts_again(
    release: Release, plan: Path | None, show_values: bool, engine: str = "local"
) -> Counts:
    """Return the confidential counts that a release was made from, counted again by its plan.

    They are counted in the places of the release. The run keeps a keyed hash of its counts, so records
    that changed since are refused.
    """
    from countveil.engines.engine import open_engine
    from countveil.plan.plans import Plan, require_counts

    out, digest = release.folder, release.plan.measuring_digest
    if plan is None:
        loaded = _plan_of(out, digest)
    else:
        loaded = require_counts(Plan.load(plan), "a comparison with records")
    if loaded.measuring_digest != digest:
        raise InputError(
            f"{loaded.name}: measures something other than {out}; name the plan of that release with "
            f"--plan"
        )
    key, hashed = _hash_of_records(out, release.manifest.get("release"))
    loaded.keep_places(release.geography)
    counts = open_engine(engine, show_values=show_values).tabulate(loaded)
    if not hmac.compare_digest(counts.keyed_hash(key), hashed):
        raise InputError(
            f"{loaded.name}: its records differ from those that {out} was made from; restore them, or "
            f"name a plan that reads the original records with --plan"
        )
    return counts


def lowest_histograms(plan: Plan, geography: Geography, counts: Counts) -> IntArray:
    """Return the exact histograms of the lowest units, units × cells; internal."""
    import numpy as np

    lowest = plan.levels[-1]
    table = np.zeros((geography.units(lowest), plan.schema.cells), np.int64)
    where, cells, numbers = counts.entries(lowest, 0, len(table))
    table[where, cells] = numbers
    return table


def _hash_of_records(out: Path, release: object) -> tuple[bytes, str]:
    """Return the key and the hash of the records that the run of a release keeps."""
    from countveil.measure.run import internal_of, read_state

    path = internal_of(out) / _RUN
    state = read_state(out)
    if state is None:
        raise FolderError(
            f"{path}: missing, so the records cannot be compared with those of {out}; restore the "
            f"internal folder next to it"
        )
    if state["release"] != release:
        raise FolderError(
            f"{path}: belongs to another release than {out}; put its own internal folder next to it"
        )
    return bytes.fromhex(state["key"]), state["records"]


def _plan_of(out: Path, digest: str) -> Plan:
    """Return the plan of a release: plan.toml next to it or in the current folder."""
    from countveil.plan.plans import Plan

    for path in (out.absolute().parent / "plan.toml", Path("plan.toml")):
        try:
            plan = Plan.load(path) if path.is_file() else None
        except CountveilError:
            continue  # not a plan of this release
        if isinstance(plan, Plan) and plan.measuring_digest == digest:
            return plan
    raise InputError(
        f"{out}: --internal reads records, but there is no plan.toml of this release next to it or "
        f"here; name its plan with --plan"
    )
