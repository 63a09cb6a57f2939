"""Prices and releases as terminal tables and as JSON documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from decimal import ROUND_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.assess.intruder.ladder import LevelRisk
from countveil.assess.pricing import Price
from countveil.base.words import brief
from countveil.estimate.plan_error import ExpectedError
from countveil.measure.manifest import cost_document
from countveil.noise.law import central_half_width
from countveil.plan.workload import TOTAL
from countveil.postprocess.certificate import LevelCertificate
from countveil.publish.release_folder import Release
from countveil.report.terminal.risk_terminal import verdict_line
from countveil.report.terminal.terminal_tables import plain_table


def price_document(price: Price) -> dict[str, Any]:
    """Return a price as a JSON document."""
    plan = price.plan
    levels = []
    for level in plan.levels:
        noises = [(item, noise) for item, noise in price.noises if item.level == level]
        levels.append(
            {
                "level": level,
                **_level_cost(price, level),
                "queries": [
                    {
                        "query": item.query.name,
                        "cells": item.query.cells,
                        **cost_document(item.cost),
                        "mechanism": {"name": noise.name, **noise.parameters},
                        "standard_deviation": math.sqrt(noise.variance),
                    }
                    for item, noise in noises
                ],
                "expected_error": [
                    _error_document(error) for error in price.errors if error.level == level
                ],
                "risk": [_risk_document(risk) for risk in price.risks if risk.level == level],
            }
        )
    return {
        "title": plan.title,
        "unit": plan.unit,
        "neighbors": plan.neighbors,
        **cost_document(price.cost, plan),
        "tight_epsilon": price.tight_epsilon,
        "levels": levels,
        "invariants": [f"{item.level} {item.query.name}" for item in plan.invariants],
        "risk": {"level": price.verdict.level, **_risk_document(price.verdict.worst)},
        "limit": plan.intruder.limit,
        "within_limit": price.verdict.status != "above",
        "verdict": price.verdict.sentence,
        "ladder": price.verdict.knowledge,
    }


def _risk_document(risk: LevelRisk) -> dict[str, Any]:
    return {name: value for name, value in asdict(risk).items() if name != "level"}


def price_view(price: Price, *, every_query: bool = False) -> RenderableType:
    """Return a price as sentences and tables."""
    plan = price.plan
    parts: list[RenderableType] = [Text(plan.title, style="bold"), Text(_cost_sentence(price))]
    if plan.invariants:
        names = ", ".join(f"{item.query.name} of every {item.level}" for item in plan.invariants)
        parts.append(
            Text(
                f"Published exactly, outside the guarantee: {names}. The guarantee compares only "
                f"databases that agree on these counts."
            )
        )
    if plan.chosen_from_records:
        parts.append(
            Text(
                "The budget was chosen by looking at the records. The guarantee does not cover "
                "that choice, as the manifest states."
            )
        )
    if plan.attests_each_person_alone:
        parts.append(
            Text(
                "The plan attests that no person's rows depend on other people's records. The "
                "guarantee relies on that, as the manifest states."
            )
        )
    parts += [Text(""), _noise_table(price, every_query)]
    parts += [Text(""), _error_table(price, every_query), Text(_error_note(price))]
    parts += [Text(""), _risk_table(price)]
    parts.append(verdict_line(price.verdict))
    return Group(*parts)


def released_totals(release: Release, level: str, most: int = 8) -> Table:
    """List the first units of a level: noisy total, 95 % noise interval, and estimate."""
    measurement = release.measurements.read(level, TOTAL)
    half = central_half_width(measurement.mechanism, 0.95)
    estimates = release.estimates.table(level, TOTAL)["estimate"].to_pylist()
    table = plain_table(f"Released totals by {level}")
    table.add_column(level)
    for name in ("noisy count", "95 % interval", "consistent estimate"):
        table.add_column(name, justify="right")
    rows = zip(measurement.geocodes.to_pylist(), measurement.values[:, 0], estimates, strict=True)
    for code, value, estimate in list(rows)[:most]:
        low, high = max(0, value - half), value + half
        table.add_row(code, f"{value:,}", f"{low:,} to {high:,}", f"{estimate:,}")
    return table


def certificate_table(certificate: Sequence[LevelCertificate]) -> Table:
    """List how well the estimates of each level were solved."""
    table = plain_table("How well the estimates were solved")
    for name in ("level", "families", "worst residual", "most iterations", "fallbacks"):
        table.add_column(name, justify="left" if name == "level" else "right")
    for item in certificate:
        table.add_row(
            item.level,
            f"{item.families:,}",
            _residual(item.kkt_residual),
            str(item.most_iterations),
            str(item.fallbacks),
        )
    return table


def _residual(value: float) -> str:
    """Show a residual; below 1e-12 its digits depend on the machine."""
    return f"{value:.0e}" if value > 1e-12 else "below 1e-12"


def _cost_sentence(price: Price) -> str:
    plan = price.plan
    cost = price.cost
    if cost.pure_epsilon is not None:
        return (
            f"The plan spends epsilon = {cost.pure_epsilon} of pure differential privacy per "
            f"{plan.unit}, with {plan.neighbors} neighbours."
        )
    delta = float(plan.delta)
    converted, implied = _up(cost.epsilon_at(plan.delta)), _up(cost.implied_epsilon)
    spent = (
        f"The plan spends rho = {_digits_up(cost.amount)} per {plan.unit}, with {plan.neighbors} "
        f"neighbours: epsilon = "
    )
    if plan.certified:
        return (
            f"{spent}{_up(plan.epsilon)} at delta = {delta:g}, certified for this release alone; "
            f"{converted} by the zCDP bound, which adds up with other releases; the implied "
            f"epsilon is {implied}."
        )
    return (
        f"{spent}{converted} at delta = {delta:g} by the zCDP bound, {_up(price.tight_epsilon or 0.0)} "
        f"by the tight bound; the implied epsilon is {implied}."
    )


def _digits_up(value: Fraction) -> str:
    """Show an exact number with at most seven digits, rounded up if there are more."""
    with localcontext(prec=7, rounding=ROUND_UP):
        return str((Decimal(value.numerator) / Decimal(value.denominator)).normalize())


def _up(value: float) -> str:
    """Show a guarantee with two decimals, rounded up."""
    return f"{math.ceil(value * 100) / 100:.2f}"


def _level_cost(price: Price, level: str) -> dict[str, Any]:
    amounts = [item.cost.amount for item in price.plan.at(level)]
    return {price.cost.currency: str(sum(amounts))}


def _noise_table(price: Price, every_query: bool) -> Table:
    currency = price.cost.currency
    table = plain_table("Noise")
    for name in ("level", currency, "query", "cells", "standard deviation"):
        left = name in ("level", "query")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for level in price.plan.levels:
        noises = [(item, noise) for item, noise in price.noises if item.level == level]
        if not noises:
            table.add_row(level, "0", "not measured", "", "")
            continue
        widest = sorted(noises, key=lambda pair: pair[1].variance)
        rows = noises if every_query else widest[:2]
        cost = float(sum(getattr(item.cost, currency) for item, _ in noises))
        for number, (item, noise) in enumerate(rows):
            first = (level, f"{cost:.4f}") if number == 0 else ("", "")
            deviation = brief(math.sqrt(noise.variance))
            table.add_row(*first, item.query.name, f"{item.query.cells:,}", deviation)
        if len(rows) < len(noises):
            table.add_row("", "", f"… and {len(noises) - len(rows)} more", "", "")
    return table


def _error_note(price: Price) -> str:
    """Explain the columns of the error table."""
    error = price.errors[0]
    alone = ", because the plan has no crosswalk yet" if error.basis == "level" else ""
    return (
        f"Noise: standard deviation of the count's own measurement. Estimate: standard error of "
        f"{error.basis_in_words}{alone}. Published counts are rounded, and small ones are closer, "
        f"because no count is negative. Absolute: approximate mean absolute error of the estimate. "
        f"Exact: published without noise."
    )


def _error_table(price: Price, every_query: bool) -> Table:
    table = plain_table("Expected error of a count, by level")
    for name in ("level", "query", "noise", "estimate", "absolute"):
        left = name in ("level", "query")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for level in price.plan.levels:
        errors = [error for error in price.errors if error.level == level]
        if not every_query and errors:
            finest = max(errors, key=lambda error: error.cells)
            errors = [error for error in errors if error.query == TOTAL or error is finest]
        for number, error in enumerate(errors):
            combined = (error.standard_error, error.combined_absolute_error)
            table.add_row(
                level if number == 0 else "",
                error.query,
                _rounded(error.standard_deviation),
                *(("exact", "0") if error.as_counted else map(_rounded, combined)),
            )
    return table


def _rounded(value: float | None) -> str:
    return "" if value is None else brief(value)


def _error_document(error: ExpectedError) -> dict[str, Any]:
    """Return an expected error as a JSON document."""
    return {
        "query": error.query,
        "standard_deviation": error.standard_deviation,
        "absolute_error": error.absolute_error,
        "standard_error": 0.0 if error.as_counted else error.standard_error,
        "smallest_standard_error": 0.0 if error.as_counted else error.smallest_standard_error,
        "largest_standard_error": 0.0 if error.as_counted else error.largest_standard_error,
        "combined_absolute_error": 0.0 if error.as_counted else error.combined_absolute_error,
        "as_counted": error.as_counted,
        "basis": error.basis,
    }


def _risk_table(price: Price) -> Table:
    """Return the ladder: the largest risk if the intruder knew everyone else in a place of a level."""
    table = plain_table(
        "Marginal risk: average posterior over prior, for someone who knows everyone else in the place "
        "and sees the whole release"
    )
    table.add_column("knows")
    for prior in price.plan.intruder.priors:
        table.add_column(f"prior {prior:g}", justify="right")
    table.add_column("learns most about", overflow="fold")
    for level in reversed(price.plan.estimated_levels):
        risks = [risk for risk in price.risks if risk.level == level]
        mark = "→ " if level == price.plan.judged_level else "  "
        worst = max(risks, key=lambda risk: risk.marginal_risk)
        times = [risk.in_table(limit=price.plan.intruder.limit) for risk in risks]
        table.add_row(mark + level, *times, worst.about)
    return table
