"""Count the records of a release once more, for what is internal."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.errors import CountveilError, FolderError, InputError

if TYPE_CHECKING:
    from countveil.publish.release_folder import Release

_RUN = "run.json"


def counts_again(
    out: Path, internal: bool, plan: Path | None, show_values: bool, engine: str = "local"
) -> tuple[Release, Any]:
    """Return a release and the counts it was made from, once more from the records of its plan.

    Other records than those are refused: the run keeps a keyed hash of them.
    """
    from countveil.engines.engine import open_engine
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release

    done = Release.read(out)
    if not internal:
        raise InputError(
            f"assess: {out} is compared with its records, so the result is internal; say --internal"
        )
    path = _plan_of(out, done.plan.measuring_digest) if plan is None else plan
    loaded = require_counts(Plan.load(path), "a comparison with records")
    if loaded.measuring_digest != done.plan.measuring_digest:
        raise InputError(f"{path}: measures something else than {out}; name that release's plan")
    key, hashed = _hash_of_records(out, done.manifest.get("release"))
    counts = open_engine(engine, show_values=show_values).tabulate(loaded)
    if not hmac.compare_digest(counts.keyed_hash(key), hashed):
        raise InputError(
            f"{path}: its records are not those that {out} was released from; restore them, or name "
            f"a plan that reads them with --plan"
        )
    return done, counts


def _hash_of_records(out: Path, release: object) -> tuple[bytes, str]:
    """Return the key and the hash that the run of a release keeps of its records."""
    from countveil.measure.run import internal_of, read_state

    path = internal_of(out) / _RUN
    state = read_state(out)
    if state is None:
        raise FolderError(
            f"{path}: is not there, so nobody can tell whether the records are still those of {out}; "
            f"restore the internal folder beside it"
        )
    if state["release"] != release:
        raise FolderError(
            f"{path}: is of another release than {out}; put its own internal folder beside it"
        )
    return bytes.fromhex(state["key"]), state["records"]


def _plan_of(out: Path, digest: str) -> Path:
    """Find the plan of a release beside it or here."""
    from countveil.plan.plans import Plan

    for path in (out.absolute().parent / "plan.toml", Path("plan.toml")):
        try:
            if path.is_file() and Plan.load(path).measuring_digest == digest:
                return path
        except CountveilError:
            continue  # a plan of something else, or none
    raise InputError(
        f"{out}: --internal reads records, and no plan.toml beside it or here is that of the release; "
        f"name it with --plan"
    )
