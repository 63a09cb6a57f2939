"""From measurements to published estimates: post-process, compute errors, publish.

Nothing is charged and no record is read; an interrupted run continues from its finished parts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from countveil import postprocess
from countveil.base import storage
from countveil.base.randomness import BitSource
from countveil.engines.workers import Workers, beyond_here, hired
from countveil.errors import (
    INTERRUPTIONS,
    CertificateError,
    InfeasibleError,
    InputError,
    Interrupted,
)
from countveil.estimate.unbiased import least_squares
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.progress import Progress, silent, watched
from countveil.measure.run import LOCK, RunLog, internal_of, refuse_links
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.topdown import SubtreesOfRelease
from countveil.publish.additions import is_current, write_estimates
from countveil.publish.columns import Errors, Unbiased
from countveil.publish.release_folder import Release, TableRelease, open_release
from countveil.publish.verification import refuse_damaged

_WORK = "estimates"  # unfinished estimates, in the internal folder


def make_estimates(
    folder: str | Path,
    plan: Plan | None = None,
    *,
    again: bool = True,
    geography: Geography | None = None,
    report: Callable[[Estimates], None] | None = None,
    rng: BitSource | None = None,
    engine: str = "local",
    workers: int | Workers | None = None,
    progress: Progress = silent,
    sizes: BatchSizes = USUAL_SIZES,
) -> Release:
    """Post-process the measurements of a release and publish the estimates; nothing is charged.

    Parameters
    ----------
    folder
        A release whose measurements are complete.
    plan
        A plan with the same measurements but different post-processing; by default its own plan.
    again
        Make estimates even if the release already has those of the plan.
    geography
        Its places, if they were read already.
    report
        Called with the estimates before they are published.
    rng
        Seeded randomness for unbiased rounding in a simulation.
    engine, workers
        A number of processes, or the workers of an engine, whose name goes into the run log.
    progress
        Called with the stage, the level, the number of units done and the number of units.
    sizes
        How much is drawn and solved at a time.

    Returns
    -------
    Release
        The release with its estimates.

    """
    done = open_release(folder)
    if isinstance(done, TableRelease):
        raise InputError(
            f"{folder}: is a release of one table that agrees with public totals, which needs no "
            f"post-processing; name a release of counts"
        )
    if again:
        refuse_damaged(done, facts=plan is None)
    plan = done.plan if plan is None else plan
    places = done.geography if geography is None else geography
    internal = internal_of(Path(folder))
    if not again and is_current(done, plan):
        if report is not None and plan.method != "none" and not any(internal.glob("error*")):
            report(done.estimates)  # they were made without the counts
        if (internal / _WORK).exists():
            with storage.held(internal / LOCK):
                _tidy(internal)  # left behind by a crash
        return done
    if again:
        postprocess.refuse_unmeasured(plan)
    refuse_links(Path(folder))
    storage.make_folder(internal, 0o700)
    internal.chmod(0o700)
    work, log = internal / _WORK, RunLog(internal)
    workers = workers or len(os.sched_getaffinity(0))
    with _resumable(folder), storage.held(internal / LOCK), hired(workers) as team:
        if plan.method == "none":
            _forget_errors(internal)
            return write_estimates(done, plan, None)
        below = _subtrees(done, plan, places, team)
        estimates = postprocess.top_down(
            done.measurements,
            plan,
            workers=team,
            geography=places,
            subtrees=below,
            work=work,
            rng=rng if rng is not None and rng.reproducible else None,
            progress=watched(internal, plan, places, engine, team, progress),
            sizes=sizes,
        )
        log.write("estimated")
        _forget_errors(internal)
        if report is not None:
            report(estimates)
        done = write_estimates(done, plan, estimates, errors=_errors(done, plan, places, below))
        del estimates  # it maps files that are deleted next
        _tidy(internal)
    return done


def _tidy(internal: Path) -> None:
    """Log that the estimates are published, and delete the files they were made from."""
    RunLog(internal).write("released")
    storage.remove(internal / _WORK)


def _subtrees(
    done: Release, plan: Plan, places: Geography, team: Workers
) -> SubtreesOfRelease | None:
    """Go up the tree once, for estimates and their errors; None if the tree is too large."""
    if plan.information != "tree":
        return None
    measured = replace(done.measurements, folder=done.folder.absolute())  # for workers elsewhere
    try:
        return SubtreesOfRelease.of(measured, plan, places, workers=beyond_here(team))
    except InputError:
        return None  # top_down finds the same, and says so in its result


def _errors(
    done: Release, plan: Plan, places: Geography, below: SubtreesOfRelease | None
) -> Errors | str | None:
    """Return the errors of all counts by least squares, or the reason that there are none."""
    if not plan.confidence:
        return None
    cells = plan.schema.every_cell.name
    try:
        # Not on the workers of an engine: they would have to return every cell of every unit.
        solution = least_squares(
            done.measurements,
            plan,
            geography=places,
            upward=None if below is None else below.subtrees.up,
        )
        known = {level for level in plan.levels if solution.determines(level, cells)}
    except InputError as error:  # too large for least squares: publish estimates without errors
        return str(error)

    def batches(level: str) -> Iterator[Unbiased] | None:
        if level not in known:
            return None
        parts = solution.batches(level, cells)
        return ((part.start, part.stop, part.value, part.standard_error) for part in parts)

    return Errors(plan.confidence, batches)


def _forget_errors(internal: Path) -> None:
    """Delete the error report, which describes estimates that are about to be replaced."""
    for path in internal.glob("error*"):
        path.unlink()


@contextmanager
def _resumable(folder: str | Path) -> Iterator[None]:
    """Add to any error that stops post-processing that the measurements are safe."""
    again = f"the measurements are safe; continue with `countveil postprocess {folder}`"
    try:
        yield
    except InfeasibleError as error:
        other = 'and a --plan with other constraints, or with method = "none"'
        raise Interrupted(f"{error}; {again} {other}") from error
    except CertificateError as error:
        larger = "and a --plan with other passes, or a larger residual in [postprocess]"
        raise CertificateError(f"{error}; {again} {larger}") from error
    except INTERRUPTIONS as error:
        what = str(error) or type(error).__name__
        RunLog(internal_of(Path(folder))).write_stop(error)
        raise Interrupted(f"{folder}: stopped while estimating ({what}); {again}") from error
