"""The whole flow on one screen: describe, tabulate, measure, post-process. Start reading here."""

from __future__ import annotations

import os
from pathlib import Path

from countveil import measure, postprocess
from countveil.assess.pricing import Price, price
from countveil.assess.verdict import judge
from countveil.base.randomness import BitSource
from countveil.engines.engine import Engine, open_engine
from countveil.errors import RiskAboveLimit
from countveil.estimate.release_error import accuracy
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.progress import Progress, silent, watched
from countveil.measure.run import internal_of, release_of
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plans import AnyPlan, Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.family_facts import (
    KnownCounts,
    read_facts,
    refuse_impossible_units,
)
from countveil.privacy.ledger_file import recover
from countveil.publish.release_folder import AnyRelease, Release, TableRelease
from countveil.published_estimates import make_estimates

__all__ = [
    "Price",
    "check",
    "make_estimates",
    "price",
    "refuse_risk_above_limit",
    "refuse_unfinishable",
    "release",
]


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
