"""The error of a state's estimates, by the passes and the rounding of each level."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Missed, show, verdict
from countveil import postprocess
from countveil.base.randomness import Seeded
from countveil.engines.engine import open_engine
from countveil.estimate.release_error import accuracy
from countveil.measure import take
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL

NAIVE, PRESET, TWO_PASS = "naive", "the preset", "total first"
_BELOW_NAIVE = 1 / 3  # of the error of county, tract and block-group totals
_CHECKED = ("county", "tract", "block_group")
_WITHIN = 0.02  # of an error: the variation between seeds
_EVERY_SIZE = "all"  # of the size classes of a report on errors

Section = dict[str, Any]
Errors = dict[tuple[str, str, str], list[float]]  # variant, level, query: one for each seed

_CELLS: Section = {"rounding": "cells"}
_TOTALS: Section = {"rounding": "totals"}
_FIRST: Section = {"passes": [TOTAL], "rounding": "totals"}
_BELOW: Section = {"passes": [TOTAL], "rounding": "totals", "look_below": True}

# None keeps the plan unchanged.
VARIANTS: dict[str, dict[str, Section] | None] = {
    NAIVE: {"*": _CELLS},
    PRESET: None,
    TWO_PASS: {"*": _FIRST},
    "one pass, rounding totals": {"*": _TOTALS},
    "one pass, unbiased": {"*": {"rounding": "unbiased"}},
    "total first, not at blocks": {"*": _FIRST, "block": _TOTALS},
    "total first at counties": {"*": _TOTALS, "county": _FIRST},
    "total first at tracts": {"*": _TOTALS, "tract": _FIRST},
    "total first at block groups": {"*": _TOTALS, "block_group": _FIRST},
    "look below: tracts": {"*": _TOTALS, "tract": _BELOW},
    "look below: tracts, block groups": {"*": _TOTALS, "tract": _BELOW, "block_group": _BELOW},
    "look below: counties to block groups": {
        "*": _TOTALS,
        "county": _BELOW,
        "tract": _BELOW,
        "block_group": _BELOW,
    },
}


def compare(plan: Plan, folder: Path, *, seeds: int, workers: int) -> None:
    """Measure a state with several seeds; estimate each with every variant; print the errors."""
    counts = open_engine("local").tabulate(plan)
    errors: Errors = {}
    for seed in range(1, seeds + 1):
        measurements = take(
            counts, plan, rng=Seeded(seed), ledger=None, to=folder / f"measured-{seed}"
        )
        for number, (name, sections) in enumerate(VARIANTS.items(), 1):
            print(
                f"  error: seed {seed} of {seeds}, variant {number} of {len(VARIANTS)}: {name}",
                file=sys.stderr,
                flush=True,
            )
            estimates = postprocess.top_down(
                measurements,
                with_passes(plan, sections),
                workers=workers,
                geography=counts.geography,
                rng=Seeded(seed),
            )
            for row in accuracy(estimates, counts).errors.to_pylist():
                if row["size_class"] == _EVERY_SIZE:
                    key = (name, row["level"], row["query"])
                    errors.setdefault(key, []).append(row["mean_absolute_error"])
    _show_totals(errors, plan.levels, seeds)
    _show_queries(errors, plan, seeds)
    _show_best(errors, plan)
    _show_targets(errors, plan.levels)


def with_passes(plan: Plan, sections: dict[str, Section] | None) -> Plan:
    """Return the plan with other passes; None keeps its own."""
    if sections is None:
        return plan
    document = copy.deepcopy(dict(plan.document))
    document["postprocess"]["levels"] = sections
    return plan.with_document(document)


def _mean(errors: Errors, variant: str, level: str, query: str) -> float:
    return float(np.mean(errors[variant, level, query]))


def _show_totals(errors: Errors, levels: Sequence[str], seeds: int) -> None:
    rows = []
    for name in VARIANTS:
        row = [name]
        for level in levels:
            error, naive = (_mean(errors, item, level, TOTAL) for item in (name, NAIVE))
            change = f" ({100 * (error / naive - 1):+.0f} %)" if naive > 0 and name != NAIVE else ""
            row.append(f"{error:.2f}{change}")
        rows.append(row)
    columns = ("passes", *levels)
    show(f"Mean absolute error of TOTAL, seeds: {seeds}, and its change from naive", columns, rows)


def relative(errors: Errors, plan: Plan, variant: str, level: str) -> float:
    """Return the error of a level's measured queries relative to naive: their geometric mean."""
    logs = []
    for query in dict.fromkeys([TOTAL, *(item.query.name for item in plan.at(level))]):
        error, naive = (_mean(errors, item, level, query) for item in (variant, NAIVE))
        if naive > 0 and error > 0:
            logs.append(np.log(error / naive))
    return float(np.exp(np.mean(logs)))


def _show_queries(errors: Errors, plan: Plan, seeds: int) -> None:
    rows = []
    for name in VARIANTS:
        each = [relative(errors, plan, name, level) for level in plan.levels]
        together = float(np.exp(np.mean(np.log(each))))
        rows.append((name, *(f"{value:.3f}" for value in each), f"{together:.4f}"))
    columns = ("passes", *plan.levels, "all levels")
    title = (
        "Error of all measured queries relative to naive: the geometric mean of a level's queries"
    )
    show(title, columns, rows)
    rows = []
    for query in (item.query.name for item in plan.at(plan.levels[-1])):
        cells = [(PRESET, level, query) for level in plan.levels]
        rows.append((query, *(f"{np.mean(errors[c]):.3f}" if c in errors else "" for c in cells)))
    show(f"Mean absolute error of a cell, {PRESET}, seeds: {seeds}", ("query", *plan.levels), rows)


def _show_best(errors: Errors, plan: Plan) -> None:
    """Print the best variant of each level, and those that are about as good."""
    rows = []
    for level in plan.levels:
        totals = {name: _mean(errors, name, level, TOTAL) for name in VARIANTS}
        queries = {name: relative(errors, plan, name, level) for name in VARIANTS}
        row = [level]
        for found in (totals, queries):
            best = min(found, key=lambda name: found[name])
            same = found[PRESET] <= found[best] * (1 + _WITHIN)
            row += [best, f"{found[best]:.3f}", f"{found[PRESET]:.3f}", "yes" if same else "NO"]
        rows.append(row)
    columns = ("level", "best for TOTAL", "error", "preset's", "as good")
    more = ("best for all queries", "error relative to naive", "preset's", "as good")
    title = f"The passes with the smallest error; within {100 * _WITHIN:.0f} % of it is as good"
    show(title, (*columns, *more), rows)


def _show_targets(errors: Errors, levels: Sequence[str]) -> None:
    below = {
        level: 1 - _mean(errors, PRESET, level, TOTAL) / _mean(errors, NAIVE, level, TOTAL)
        for level in levels
        if level in _CHECKED
    }
    worse = [
        level
        for level in levels
        if _mean(errors, PRESET, level, TOTAL)
        > _mean(errors, TWO_PASS, level, TOTAL) * (1 + _WITHIN)
    ]
    shares = (
        f"{level} {100 * share:.0f} % ({verdict(share >= _BELOW_NAIVE)})"
        for level, share in below.items()
    )
    where = f" at {', '.join(worse)}" if worse else ""
    print(
        f"  Targets: totals of {PRESET} at least a third below naive: {', '.join(shares)}; no worse "
        f"than {TWO_PASS!r} at any level: {verdict(not worse)}{where}."
    )
    if worse or min(below.values()) < _BELOW_NAIVE:
        raise Missed(f"the totals of {PRESET} are not as good as they should be")
