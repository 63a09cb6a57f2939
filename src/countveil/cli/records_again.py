"""Count the records of a release once more, for what is internal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.errors import CountveilError, InputError

if TYPE_CHECKING:
    from countveil.release import Release


def counts_again(
    out: Path, internal: bool, plan: Path | None, show_values: bool, engine: str = "local"
) -> tuple[Release, Any]:
    """Return a release and the counts it was made from, once more from the records of its plan."""
    from countveil.engines.registry import open_engine
    from countveil.release import Release
    from countveil.schema.plan import Plan

    done = Release.read(out)
    if not internal:
        raise InputError(
            f"assess: {out} is compared with its records, so the result is internal; say --internal"
        )
    path = _plan_of(out, done.plan.measuring_digest) if plan is None else plan
    loaded = Plan.load(path)
    if loaded.measuring_digest != done.plan.measuring_digest:
        raise InputError(f"{path}: measures something else than {out}; name that release's plan")
    return done, open_engine(engine, show_values=show_values).tabulate(loaded)


def _plan_of(out: Path, digest: str) -> Path:
    """Find the plan of a release beside it or here."""
    from countveil.schema.plan import Plan

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
