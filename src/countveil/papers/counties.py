"""Cases and deaths by county for paper 003: the reader's files, or an epidemic that is made up."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countveil.numerics import IntArray

_COUNTS, _PEOPLE = "pa_county_monthly_jhu.csv", "pa_county_population_jhu.csv"
_SEED = 2020
FILES = f"{_COUNTS} (fips, county, month, new_cases, new_deaths) and {_PEOPLE} (fips, population)"


@dataclass(frozen=True, slots=True, eq=False)
class Counties:
    """Two months in a row: cases of the one before, cases and deaths of the one released."""

    names: tuple[str, ...]
    people: IntArray
    before: IntArray
    counts: IntArray
    source: str

    @property
    def total(self) -> int:
        """The public total of cases."""
        return int(self.counts[:, 0].sum())

    def chosen(self) -> dict[str, int]:
        """Return the rows of a large, a middling and a small county, by name."""
        order = np.argsort(self.people)[::-1]
        rows = (order[0], order[len(order) // 6], order[-1])
        return {f"{self.names[row]} ({self.people[row]:,})": int(row) for row in rows}


def counties_of(folder: Path | None) -> Counties:
    """Read the counties of a folder, or make some up if it has none."""
    if folder is not None and (folder / _COUNTS).exists() and (folder / _PEOPLE).exists():
        return _read(folder)
    return _made_up()


def _made_up() -> Counties:
    """67 counties from 4,500 to 1.2 million people, of whom one in 80 falls ill in a month."""
    rng = np.random.default_rng(_SEED)
    people = np.exp(np.linspace(np.log(1.2e6), np.log(4_500), 67)).astype(np.int64)
    before = rng.poisson(people / 90)
    cases = rng.poisson(people / 80)
    deaths = rng.binomial(cases, 0.01)
    names = tuple(f"County {number + 1}" for number in range(len(people)))
    counts = np.stack((cases, deaths), axis=1).astype(np.int64)
    source = "67 synthetic counties"
    return Counties(names, people, before.astype(np.int64), counts, source)


def _read(folder: Path) -> Counties:
    """Read the last two months; negative corrections become 0, and deaths at most cases."""
    with (folder / _PEOPLE).open(encoding="utf-8") as file:
        people = {row["fips"]: int(float(row["population"])) for row in csv.DictReader(file)}
    with (folder / _COUNTS).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    codes = sorted(people)
    names = {row["fips"]: row["county"] for row in rows}
    last_two = sorted({row["month"] for row in rows})[-2:]
    at = {(row["month"], row["fips"]): row for row in rows}
    kinds = ("new_cases", "new_deaths")
    both = np.array(
        [[[int(at[month, code][kind]) for kind in kinds] for code in codes] for month in last_two]
    )
    both = np.maximum(both, 0)
    both[..., 1] = np.minimum(both[..., 1], both[..., 0])
    return Counties(
        tuple(names[code] for code in codes),
        np.array([people[code] for code in codes]),
        both[0, :, 0],
        both[1],
        f"{len(codes)} counties, {last_two[1]}, from {_COUNTS}",
    )
