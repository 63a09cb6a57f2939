"""The whole flow on one screen: describe, tabulate, measure, assess. Read this file first."""

from __future__ import annotations

from pathlib import Path

from countveil import measure
from countveil.assess.plan_risk import judged, risk_by_level
from countveil.assess.pricing import Price, price
from countveil.engines.registry import open_engine
from countveil.errors import RiskAboveLimit
from countveil.measure.boundary import Progress, silent
from countveil.measure.run import internal_of
from countveil.randomness import BitSource
from countveil.release import Release
from countveil.schema.plan import Plan

__all__ = ["Price", "check", "price", "refuse_risk_above_limit", "release"]


def release(
    plan: Plan,
    *,
    to: str | Path,
    rng: BitSource,
    ledger: str | Path | None = None,
    engine: str = "local",
    show_values: bool = False,
    above_limit: bool = False,
    progress: Progress = silent,
) -> Release:
    """Take a plan to a release folder; `above_limit` accepts a risk past the plan's limit.

    Without a ledger the plan's own is charged, except for a simulation with seeded noise.
    """
    refuse_risk_above_limit(plan, accepted=above_limit)
    if ledger is None and not rng.reproducible:
        ledger = plan.ledger_path
    if ledger is not None and not internal_of(Path(to)).exists():
        plan.ledger(ledger).check(plan.cost)  # before hours of counting
    counts = open_engine(engine, show_values=show_values).tabulate(plan)
    measure.take(
        counts,
        plan,
        rng=rng,
        ledger=ledger,
        to=to,
        progress=progress,
    )
    return Release.read(to)


def check(plan: Plan, *, engine: str = "local", show_values: bool = False) -> None:
    """Raise what `release` would raise for the plan, its crosswalk, its records and its ledger."""
    if plan.records is not None:
        open_engine(engine, show_values=show_values).tabulate(plan)
    elif plan.crosswalk is not None:
        plan.geography()
    plan.ledger().check(plan.cost)


def refuse_risk_above_limit(plan: Plan, *, accepted: bool = False) -> None:
    """Raise when the plan's risk passes its own limit: judged on the plan, never on a release."""
    limit = plan.intruder.limit
    if limit is None or accepted:
        return
    worst = max(judged(plan, risk_by_level(plan)), key=lambda risk: risk.marginal_risk)
    if worst.marginal_risk > limit:
        raise RiskAboveLimit(
            f"{plan.name}: at level {worst.level}, an intruder with prior {worst.prior:g} ends at "
            f"{worst.marginal_risk:.3f} times his prior on average, above intruder.limit = {limit:g}; "
            f"lower the budget of that level, or accept it with --above-limit"
        )
