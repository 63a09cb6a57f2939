"""INTERNAL: the homogeneity attack on what TopDown releases: as it came out, and over many releases.

Whoever knows a person's place and identifiers looks his cell up. If all people there show one sensitive
value he believes it; he is right for those who have it, and wrong for the others.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from countveil.assess.exact_answers import exact_answers
from countveil.errors import InputError
from countveil.measure.boundary import take
from countveil.numerics import IntArray
from countveil.postprocess.descent import top_down
from countveil.postprocess.estimates import Estimates
from countveil.randomness import Seeded
from countveil.schema.plan import Plan
from countveil.schema.workload import Query
from countveil.tabulate.counts import Counts

_VALUES = 4_000_000  # numbers held at a time


@dataclass(frozen=True, slots=True)
class ReleasedAttack:
    """Internal. What the attack tells of a release, over cells of place × identifiers with people.

    `disclosed` is the share of people whose value is told rightly, `misled` of those it is told wrongly
    of; `cells_right` and `cells_wrong` are shares of cells that show one value in the release, which
    occurs there, or does not; the others show several or nobody. `before` is the share of people whose
    cell the exact table gives away. `errors` are standard errors of the first four over releases.
    """

    disclosed: float
    misled: float
    cells_right: float
    cells_wrong: float
    before: float
    cells: int
    releases: int
    errors: tuple[float, ...] | None = None
    audience: ClassVar[Literal["internal"]] = "internal"


def attack(
    estimates: Estimates,
    counts: Counts,
    *,
    level: str,
    sensitive: str,
    identifiers: Sequence[str] = (),
) -> ReleasedAttack:
    """Return what the attack on these estimates tells, place and identifiers being known."""
    plan = estimates.plan
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    query = _query(plan, level, sensitive, identifiers)
    every, units = max(1, _VALUES // query.cells), estimates.geography.units(level)
    found = _Sums()
    for start in range(0, units, every):
        stop = min(start + every, units)
        shown = estimates.counts(level, query, start, stop)
        found.add(exact_answers(counts, level, start, stop, query), shown, _labels(query))
    return found.result()


def simulated(
    plan: Plan,
    counts: Counts,
    *,
    level: str,
    sensitive: str,
    identifiers: Sequence[str] = (),
    releases: int = 20,
    seed: int = 1,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> ReleasedAttack:
    """Return what the attack tells on average over releases that might have been, with errors.

    Each is measured with seeded noise and post-processed in a temporary folder; none can be published,
    and none is charged.
    """
    if releases < 2:
        raise InputError(f"releases: {releases} is not allowed; at least 2 are needed")
    _query(plan, level, sensitive, identifiers)
    each = []
    for number in range(releases):
        with tempfile.TemporaryDirectory() as folder:
            rng = Seeded(seed + number)
            to = Path(folder) / "out"
            taken = take(counts, plan, rng=rng, ledger=Path(folder) / "ledger.sqlite", to=to)
            estimates = top_down(taken, plan, rng=rng)
            given = {"level": level, "sensitive": sensitive}
            each.append(attack(estimates, counts, identifiers=identifiers, **given))
        progress(number + 1, releases)
    names = ("disclosed", "misled", "cells_right", "cells_wrong")
    values = np.array([[getattr(item, name) for name in names] for item in each])
    errors = values.std(axis=0, ddof=1) / math.sqrt(releases)
    means = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
    return replace(each[0], **means, releases=releases, errors=tuple(errors.tolist()))


class _Sums:
    """What was counted so far: people and cells."""

    def __init__(self) -> None:
        self.people = self.cells = self.right = self.wrong = self.before = 0
        self.cells_right = self.cells_wrong = 0

    def add(self, exact: IntArray, shown: IntArray, labels: int) -> None:
        """Take in some units; the sensitive attribute is the last of the query."""
        exact, shown = exact.reshape(-1, labels), shown.reshape(-1, labels)
        people = exact.sum(axis=1)
        exact, shown, people = (item[people > 0] for item in (exact, shown, people))
        alone = (shown > 0).sum(axis=1) == 1
        rightly = np.where(alone, exact[np.arange(len(exact)), shown.argmax(axis=1)], 0)
        self.cells += len(exact)
        self.people += int(people.sum())
        self.right += int(rightly.sum())
        self.wrong += int((people - rightly)[alone].sum())
        self.cells_right += int((rightly > 0).sum())
        self.cells_wrong += int((alone & (rightly == 0)).sum())
        self.before += int(people[(exact > 0).sum(axis=1) == 1].sum())

    def result(self) -> ReleasedAttack:
        """Return the shares."""
        if self.people == 0:
            raise InputError("counts: nobody is counted, so nothing can be told of anybody")
        of_people = (self.right / self.people, self.wrong / self.people)
        of_cells = (self.cells_right / self.cells, self.cells_wrong / self.cells)
        return ReleasedAttack(*of_people, *of_cells, self.before / self.people, self.cells, 1)


def _query(plan: Plan, level: str, sensitive: str, identifiers: Sequence[str]) -> Query:
    """Return identifiers × sensitive attribute as a query; refuse what cannot be one."""
    if level not in plan.measured_levels:
        raise InputError(
            f"level: {level!r} is not measured; choose from {', '.join(plan.measured_levels)}"
        )
    known = [item.name for item in plan.schema.attributes]
    known += [item.name for item in plan.schema.recodes]
    for name in (*identifiers, sensitive):
        if name not in known:
            raise InputError(f"no attribute or recode {name!r}; choose from {', '.join(known)}")
    if sensitive in identifiers:
        raise InputError(f"sensitive: {sensitive!r} is among the identifiers; name another one")
    query = plan.schema.query("*".join((*identifiers, sensitive)))
    if _labels(query) < 2:
        raise InputError(f"sensitive: {sensitive!r} has one value, so everybody knows it")
    return query


def _labels(query: Query) -> int:
    return len(query.labels[-1][1])
