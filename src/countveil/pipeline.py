"""The whole flow on one screen: describe, tabulate, measure, post-process. Read this file first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from countveil import measure, postprocess, storage
from countveil.assess.plan_risk import risks_above_limit
from countveil.assess.pricing import Price, price
from countveil.assess.release_error import accuracy
from countveil.engines.registry import open_engine
from countveil.errors import (
    INTERRUPTIONS,
    CertificateError,
    InfeasibleError,
    InputError,
    Interrupted,
    RiskAboveLimit,
)
from countveil.infer import least_squares
from countveil.measure.progress import Progress, silent, watched
from countveil.measure.run import LOCK, internal_of, refuse_links, release_of
from countveil.measure.run_log import RunLog
from countveil.postprocess.constraints import KnownCounts, read_facts, refuse_impossible_units
from countveil.postprocess.error_columns import Errors, Unbiased
from countveil.postprocess.estimates import Estimates
from countveil.privacy.ledger_file import recover
from countveil.randomness import BitSource
from countveil.release import Release, is_current, refuse_damaged, write_estimates
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL
from countveil.tabulate.engine import Engine
from countveil.workers import Workers, hired

__all__ = ["Price", "check", "estimate", "price", "refuse_risk_above_limit", "release"]

_WORK = "estimates"  # unfinished ones, in the internal folder


def release(
    plan: Plan,
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
) -> Release:
    """Take a plan to a release folder; `above_limit` accepts a risk past the plan's limit.

    Without a ledger the plan's own is charged, except for a simulation with seeded noise. An unfinished
    release is taken up where it stopped; `restart` begins it anew, and needs `charge_again` once it was
    charged.
    """
    if ledger is None and not rng.reproducible:
        ledger = plan.ledger_path
    if ledger is not None:
        recover(Path(ledger))
    place = open_engine(engine, show_values=show_values) if isinstance(engine, str) else engine
    anew = measure.Restart(charge_again) if restart else None
    if plan.one_table is not None:
        return _release_table(plan, to, rng, ledger, place, anew, progress)
    refuse_risk_above_limit(plan, accepted=above_limit)
    refuse_contradictions(plan)
    if ledger is not None and not internal_of(Path(to)).exists():
        plan.ledger(ledger).check(plan.cost)  # before hours of counting
    begun = not restart and release_of(Path(to)) is not None  # charged, or about to be
    if not begun:
        _rehearse(plan, workers=workers, progress=progress)
    counts = place.tabulate(plan)
    if not begun:
        refuse_contradictions(plan, measure.declared_counts(counts, plan))

    def report(estimates: Estimates) -> None:
        accuracy(estimates, counts).write(internal_of(Path(to)))

    with place.workers(workers) as team:
        watch = watched(internal_of(Path(to)), plan, counts.geography, place.name, team, progress)
        measure.take(
            counts,
            plan,
            rng=rng,
            ledger=ledger,
            to=to,
            workers=team,
            progress=watch,
            restart=anew,
        )
        return estimate(
            to,
            plan,
            again=False,
            report=report,
            rng=rng,
            engine=place.name,
            workers=team,
            progress=progress,
        )


def _release_table(
    plan: Plan,
    to: str | Path,
    rng: BitSource,
    ledger: str | Path | None,
    engine: Engine,
    anew: measure.Restart | None,
    progress: Progress,
) -> Release:
    """Draw one table that agrees with what is public."""
    counts = engine.tabulate(plan)
    mechanism = measure.mechanism_of(plan, measure.totals_of(plan, counts), counts.geography)
    measure.draw(
        mechanism, counts, plan, rng=rng, ledger=ledger, to=to, progress=progress, restart=anew
    )
    return Release.read(to)


def estimate(
    folder: str | Path,
    plan: Plan | None = None,
    *,
    again: bool = True,
    report: Callable[[Estimates], None] | None = None,
    rng: BitSource | None = None,
    engine: str = "local",
    workers: int | Workers | None = None,
    progress: Progress = silent,
) -> Release:
    """Post-process a release as its plan says, or another that measures the same; charge nothing.

    Not `again`: keep estimates that are already as the plan says. `report` is called with the
    estimates before they are published. `workers` are a number of processes, or those of an
    engine, whose name the run log tells.
    """
    done = Release.read(folder)
    if done.plan.one_table is not None:
        raise InputError(
            f"{folder}: its table was drawn in agreement with what is public; nothing is to be "
            f"post-processed"
        )
    if again:
        refuse_damaged(done, facts=plan is None)
    plan = done.plan if plan is None else plan
    internal = internal_of(Path(folder))
    if not again and is_current(done, plan):
        if report is not None and plan.method != "none" and not any(internal.glob("error*")):
            report(done.estimates)  # they were made where the counts were not at hand
        if (internal / _WORK).exists():
            with storage.held(internal / LOCK):
                _tidy(internal)  # a crash left that
        return done
    refuse_links(Path(folder))
    storage.make_folder(internal, 0o700)
    internal.chmod(0o700)
    work, log = internal / _WORK, RunLog(internal)
    workers = workers or len(os.sched_getaffinity(0))
    with _resumable(folder), storage.held(internal / LOCK), hired(workers) as team:
        if plan.method == "none":
            _forget_errors(internal)
            return write_estimates(done, plan, None)
        estimates = postprocess.top_down(
            done.measurements,
            plan,
            workers=team,
            geography=done.geography,
            work=work,
            rng=rng if rng is not None and rng.reproducible else None,
            progress=watched(internal, plan, done.geography, engine, team, progress),
        )
        log.write("estimated")
        _forget_errors(internal)
        if report is not None:
            report(estimates)
        done = write_estimates(done, plan, estimates, errors=_errors(done, plan))
        del estimates  # it maps the files that go now
        _tidy(internal)
    return done


def _tidy(internal: Path) -> None:
    """Say in the log that the estimates are published, and delete the work they were made of."""
    RunLog(internal).write("released")
    storage.remove(internal / _WORK)  # whatever is at that name


def _errors(done: Release, plan: Plan) -> Errors | str | None:
    """Return the errors of all counts by least squares, or why there are none."""
    if not plan.confidence:
        return None
    cells = "*".join(item.name for item in plan.schema.attributes) or TOTAL
    try:
        # Not by an engine's workers: every cell of every unit would have to come back from them.
        found = least_squares(done.measurements, plan, geography=done.geography)
        known = {level for level in plan.levels if found.determines(level, cells)}
    except InputError as error:  # more than it can do: the estimates stand without errors
        return str(error)

    def batches(level: str) -> Iterator[Unbiased] | None:
        if level not in known:
            return None
        parts = found.batches(level, cells)
        return ((part.start, part.stop, part.value, part.standard_error) for part in parts)

    return Errors(plan.confidence, batches)


def _forget_errors(internal: Path) -> None:
    """Take away the error report: it is of estimates that are about to be replaced."""
    for path in internal.glob("error*"):
        path.unlink()


@contextmanager
def _resumable(folder: str | Path) -> Iterator[None]:
    """Say of anything that stops post-processing that the measurements are safe."""
    again = f"the measurements of {folder} are kept; `countveil postprocess {folder}` goes on"
    try:
        yield
    except InfeasibleError as error:
        other = 'with other constraints by --plan, or without estimates by method = "none"'
        raise Interrupted(f"{error}; {again}, {other}") from error
    except CertificateError as error:
        larger = "with other passes, or a larger residual in [postprocess], by --plan"
        raise CertificateError(f"{error}; {again}, {larger}") from error
    except INTERRUPTIONS as error:
        what = str(error) or type(error).__name__
        RunLog(internal_of(Path(folder))).write_stop(error)
        raise Interrupted(f"{folder}: stopped while estimating ({what}); {again}") from error


def check(
    plan: Plan,
    *,
    engine: str = "local",
    show_values: bool = False,
    progress: Progress = silent,
) -> None:
    """Raise what `release` would raise for the plan, its crosswalk, its records and its ledger."""
    if plan.one_table is None:
        refuse_contradictions(plan)
        plan.ledger().check(plan.cost)
        _rehearse(plan, progress=progress)
    counts = None
    if plan.records is not None:
        counts = open_engine(engine, show_values=show_values).tabulate(plan)
    elif plan.crosswalk is not None:
        plan.geography()
    if counts is not None and plan.one_table is None:
        refuse_contradictions(plan, measure.declared_counts(counts, plan))
    if plan.one_table is not None:
        if counts is not None:
            measure.refuse_draw(counts, plan)
        elif plan.crosswalk is not None:
            codes = plan.geography().geocodes(plan.one_table.level).to_pylist()
            plan.one_table.previous_counts(codes)


def _rehearse(plan: Plan, *, workers: int | None = None, progress: Progress = silent) -> None:
    """Raise where simulated people cannot be post-processed: before anything is charged."""
    if plan.crosswalk is not None:
        workers = workers or len(os.sched_getaffinity(0))
        postprocess.rehearse(plan, plan.geography(), workers=workers, progress=progress)


def refuse_contradictions(plan: Plan, known: KnownCounts | None = None) -> None:
    """Raise when public facts of a plan contradict each other, before anything is spent.

    `known` are the counts that the plan declares public; without them, only its files are compared.
    """
    if plan.method == "none":
        known = None  # no table has to meet them, but files of facts are published all the same
    if plan.crosswalk is not None and (plan.constraints or (known is not None and plan.invariants)):
        geography = plan.geography()
        refuse_impossible_units(plan, geography, read_facts(plan, geography, known))


def refuse_risk_above_limit(plan: Plan, *, accepted: bool = False) -> None:
    """Raise when the plan's risk passes its own limit: judged on the plan, never on a release."""
    if accepted or plan.one_table is not None:
        return
    above = risks_above_limit(plan)
    if above:
        worst = max(above, key=lambda risk: risk.marginal_risk)
        told = (
            f"{plan.name}: at level {worst.level}, an intruder with prior {worst.prior:g} ends at "
            f"{worst.marginal_risk:.3f} times his prior on average, above intruder.limit = "
            f"{plan.intruder.limit:g}"
        )
        change = "lower the budget of that level"
        if worst.settled:
            told += ", as what is published as counted settles who is there"
            change = "measure it with noise instead (no budget changes what is public)"
        raise RiskAboveLimit(f"{told}; {change}, or release it with --above-limit")
