"""The whole flow on one screen: describe, tabulate, measure, post-process. Start reading here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from countveil import measure, postprocess
from countveil.assess.pricing import Price, price
from countveil.assess.verdict import judge
from countveil.base import storage
from countveil.base.randomness import BitSource
from countveil.engines.engine import Engine, open_engine
from countveil.engines.workers import Workers, beyond_here, hired
from countveil.errors import (
    INTERRUPTIONS,
    CertificateError,
    InfeasibleError,
    InputError,
    Interrupted,
    RiskAboveLimit,
)
from countveil.estimate.release_error import accuracy
from countveil.estimate.unbiased import least_squares
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.progress import Progress, silent, watched
from countveil.measure.run import LOCK, RunLog, internal_of, refuse_links, release_of
from countveil.plan.geography import Geography
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plans import AnyPlan, Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.family_facts import (
    KnownCounts,
    read_facts,
    refuse_impossible_units,
)
from countveil.postprocess.topdown import SubtreesOfRelease
from countveil.privacy.ledger_file import recover
from countveil.publish.additions import is_current, write_estimates
from countveil.publish.columns import Errors, Unbiased
from countveil.publish.release_folder import AnyRelease, Release, TableRelease, open_release
from countveil.publish.verification import refuse_damaged

__all__ = [
    "Price",
    "check",
    "make_estimates",
    "price",
    "refuse_risk_above_limit",
    "refuse_unfinishable",
    "release",
]

_WORK = "estimates"  # unfinished estimates, in the internal folder


def release(
    plan: AnyPlan,
    *,
    to: str | Path,
    rng: BitSource,
    ledger: str | Path | None = None,
    engine: str | Engine = "local",
    show_values: bool = False,
    above_limit: bool = False,
    restart: bool = False,
    charge_again: bool = False,
    workers: int | None = None,
    progress: Progress = silent,
    sizes: BatchSizes = USUAL_SIZES,
) -> AnyRelease:
    """Release a plan into a folder, if its risk is within its limit and its tables can be made.

    Both are known before anything is charged. An unfinished release in the same folder is resumed.

    Parameters
    ----------
    plan
        A plan of counts, or of one table that agrees with public totals.
    to
        The public folder. Files derived from records go to its sibling `TO-internal`.
    rng
        `Secure()` for a release; `Seeded(n)` for a simulation, which cannot be published.
    ledger
        The ledger to charge: by default that of the plan, or none for a simulation.
    engine
        The name of an engine, or an open engine.
    show_values
        Whether error messages may quote values from records.
    above_limit
        Release even if the plan's risk is above its limit.
    restart, charge_again
        Set an unfinished release aside and start over; if it was charged, `charge_again` accepts a
        second charge in full.
    workers
        The number of processes; by default one per core.
    progress
        Called with the stage, the level, the number of units done and the number of units.
    sizes
        How much is drawn and solved at a time.

    Returns
    -------
    Release or TableRelease
        The finished release.

    Examples
    --------
    >>> from countveil import Plan, Secure, release
    >>> plan = Plan.load("plan.toml")
    >>> release(plan, to="out", rng=Secure())
    <Release 'A small place, by age, ethnicity and race' in out: rho = 1, with estimates>
    >>> print(plan.ledger().left())
    rho = 2

    """
    if ledger is None and not rng.reproducible:
        ledger = plan.ledger_path
    if ledger is not None:
        recover(Path(ledger))
    place = open_engine(engine, show_values=show_values) if isinstance(engine, str) else engine
    again = measure.Restart(charge_again) if restart else None
    if isinstance(plan, OneTablePlan):
        return _release_table(plan, Path(to), rng, ledger, place, again, progress)
    refuse_risk_above_limit(plan, accepted=above_limit)
    return _release_counts(plan, Path(to), rng, ledger, place, again, workers, progress, sizes)


def _release_counts(
    plan: Plan,
    to: Path,
    rng: BitSource,
    ledger: str | Path | None,
    engine: Engine,
    restart: measure.Restart | None,
    workers: int | None,
    progress: Progress,
    sizes: BatchSizes,
) -> Release:
    """Rehearse, count, measure, post-process and publish."""
    begun = restart is None and release_of(to) is not None  # charged, or about to be
    if not begun:
        postprocess.refuse_unmeasured(plan)
    refuse_contradictions(plan)
    if ledger is not None and not internal_of(to).exists():
        plan.ledger(ledger).check(plan.cost)  # before hours of counting
    if not begun:
        _rehearse(plan, workers=workers, progress=progress)
    counts = engine.tabulate(plan)

    def report(estimates: Estimates) -> None:
        accuracy(estimates, counts).write(internal_of(to))

    with engine.workers(workers) as team:
        watch = watched(internal_of(to), plan, counts.geography, engine.name, team, progress)
        measure.take(
            counts,
            plan,
            rng=rng,
            ledger=ledger,
            to=to,
            check=refuse_contradictions,
            workers=team,
            progress=watch,
            restart=restart,
            sizes=sizes,
        )
        return make_estimates(
            to,
            plan,
            again=False,
            geography=counts.geography,
            report=report,
            rng=rng,
            engine=engine.name,
            workers=team,
            progress=progress,
            sizes=sizes,
        )


def _release_table(
    plan: OneTablePlan,
    to: Path,
    rng: BitSource,
    ledger: str | Path | None,
    engine: Engine,
    restart: measure.Restart | None,
    progress: Progress,
) -> TableRelease:
    """Count, then draw and publish one table that agrees with public totals."""
    counts = engine.tabulate(plan)
    mechanism = measure.mechanism_of(plan, measure.totals_of(plan, counts), counts.geography)
    measure.draw(
        mechanism, counts, plan, rng=rng, ledger=ledger, to=to, progress=progress, restart=restart
    )
    return TableRelease.read(to)


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


def check(
    plan: AnyPlan,
    *,
    engine: str = "local",
    show_values: bool = False,
    progress: Progress = silent,
) -> None:
    """Check that a plan can be released; nothing is written or charged.

    Parameters
    ----------
    plan
        The plan; its crosswalk, records and ledger are read.
    engine
        The name of the engine that counts the records.
    show_values
        Whether error messages may quote values from records.
    progress
        Called with the stage, the level, the number of units done and the number of units.

    Raises
    ------
    CountveilError
        What `release` would raise.

    Examples
    --------
    >>> from countveil import Plan, pipeline
    >>> pipeline.check(Plan.load("plan.toml"))  # nothing to say: it can be released

    """
    if isinstance(plan, OneTablePlan):
        _check_table(plan, engine, show_values)
        return
    postprocess.refuse_unmeasured(plan)
    refuse_contradictions(plan)
    plan.ledger().check(plan.cost)
    _rehearse(plan, progress=progress)
    if plan.records is not None:
        counts = open_engine(engine, show_values=show_values).tabulate(plan)
        refuse_contradictions(plan, measure.declared_counts(counts, plan))
    elif plan.crosswalk is not None:
        plan.geography()


def _check_table(plan: OneTablePlan, engine: str, show_values: bool) -> None:
    if plan.records is not None:
        counts = open_engine(engine, show_values=show_values).tabulate(plan)
        measure.refuse_draw(counts, plan)
    elif plan.crosswalk is not None:
        plan.previous_counts(plan.geography().geocodes(plan.level).to_pylist())


def _rehearse(plan: Plan, *, workers: int | None = None, progress: Progress = silent) -> None:
    """Raise if post-processing fails on simulated people, before anything is charged."""
    if plan.crosswalk is not None:
        workers = workers or len(os.sched_getaffinity(0))
        postprocess.rehearse(plan, plan.geography(), workers=workers, progress=progress)


def refuse_unfinishable(plan: Plan, known: KnownCounts | None = None) -> None:
    """Raise if the tables of a plan cannot be made, before anything is charged.

    Pass it to `measure.take` as its check. `release` does the same, in an order that saves time.

    Parameters
    ----------
    plan
        A plan of counts.
    known
        The counts of its invariants.

    Raises
    ------
    InputError
        If tables need what the plan does not measure, or a rehearsal with simulated people fails.
    InfeasibleError
        If no table can satisfy the public facts.

    """
    postprocess.refuse_unmeasured(plan)
    refuse_contradictions(plan, known)
    _rehearse(plan)


def refuse_contradictions(plan: Plan, known: KnownCounts | None = None) -> None:
    """Raise if public facts of a plan contradict each other, before anything is charged.

    Parameters
    ----------
    plan
        A plan of counts.
    known
        The counts of its invariants; without them, only its files are compared.

    Raises
    ------
    InfeasibleError
        If no table can satisfy all of them.

    """
    if plan.method == "none":
        known = None  # no table has to meet them, but files of facts are still published
    if plan.crosswalk is not None and (plan.constraints or (known is not None and plan.invariants)):
        geography = plan.geography()
        refuse_impossible_units(plan, geography, read_facts(plan, geography, known))


def refuse_risk_above_limit(plan: Plan, *, accepted: bool = False) -> None:
    """Raise if the risk of a plan is above its own limit.

    Parameters
    ----------
    plan
        A plan of counts; a release is never judged, only its plan.
    accepted
        Do not raise.

    Raises
    ------
    RiskAboveLimit
        With a remedy.

    """
    if accepted:
        return
    judgement = judge(plan)
    if judgement.status == "above":
        raise RiskAboveLimit(
            f"{plan.name}: {judgement.sentence} To stay within it, {judgement.remedy}; or release it "
            f"with --above-limit"
        )
