"""Whether draws follow their law: chi-square of 1e8 draws each, and all table entries against arb."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import erfc, ndtri
from scipy.stats import chi2

from benchmarks import reference_law as reference
from benchmarks.table import Missed, show, verdict
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import Secure
from countveil.noise import discrete_gaussian, discrete_laplace, rejection
from countveil.noise.inversion import Inversion

_AT_ONCE = 10**6
_LEAST_EXPECTED = 25
_REJECTION_CELLS = 24  # few, so that some 10,000 draws can tell a law from its neighbour
_LEAST_P = 1e-4
_DEPTH = 100  # bits: events less likely than 2**-100 are pooled before counting


@dataclass(frozen=True, slots=True)
class _Law:
    name: str
    parameter: Fraction  # sigma² or scale
    gaussian: bool

    def exact(self, depth: int = _DEPTH) -> reference.Gaussian | reference.Laplace:
        law = reference.Gaussian if self.gaussian else reference.Laplace
        return law(self.parameter, depth)

    def tables(self) -> Inversion:
        if self.gaussian:
            return discrete_gaussian._tables(self.parameter)
        return discrete_laplace._tables(self.parameter)

    def sample(self, size: int, rng: Secure, *, by_rejection: bool) -> IntArray:
        if by_rejection:
            draw = (
                rejection.draw_discrete_gaussian
                if self.gaussian
                else rejection.draw_discrete_laplace
            )
            return draw(self.parameter, size, rng)
        if self.gaussian:
            return discrete_gaussian.DiscreteGaussian(self.parameter).sample(size, rng=rng)
        return discrete_laplace.DiscreteLaplace(self.parameter).sample(size, rng=rng)

    def quantiles(self, cells: int) -> list[int]:
        """Return integers that divide the law into about equal parts."""
        p = np.arange(1, cells) / cells
        if self.gaussian:
            cuts = math.sqrt(self.parameter) * ndtri(p)
        else:
            cuts = -float(self.parameter) * np.sign(p - 0.5) * np.log(2 * np.minimum(p, 1 - p))
        return sorted(set(np.ceil(cuts).astype(np.int64).tolist()))

    def shrunk(self, percent: float) -> _Law:
        return _Law(self.name, self.parameter * (1 - Fraction(str(percent)) / 100), self.gaussian)


def _laws(kind: str, *parameters: str) -> list[_Law]:
    gaussian = kind == "Gaussian"
    label = "sigma²" if gaussian else "scale"
    return [_Law(f"{kind}, {label} {text}", Fraction(text), gaussian) for text in parameters]


_TABLED = [
    *_laws("Gaussian", "0.3", "500/99", "100", "5000", "1e6"),
    *_laws("Laplace", "20", "1/2"),
]
_REJECTED = [*_laws("Gaussian", "500/99", "1e9"), *_laws("Laplace", "1e5")]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=10**8, help="draws from each law by table")
    parser.add_argument(
        "--rejection-draws", type=int, default=100_000, help="draws from each law by rejection"
    )
    parser.add_argument(
        "--plant-bug",
        type=float,
        nargs="?",
        const=5.0,
        metavar="PERCENT",
        help="draw with sigma² or scale this many percent too small (default: 5) and expect "
        "every test to notice",
    )


def run(options: argparse.Namespace) -> None:
    """Test all laws; with a planted bug, require every test to notice it."""
    percent = options.plant_bug
    outcomes: dict[str, bool] = {}
    for by_rejection, laws, draws in (
        (False, _TABLED, options.draws),
        (True, _REJECTED, options.rejection_draws),
    ):
        how, rows = "rejection" if by_rejection else "table", []
        for law in laws:
            drawn_from = law if percent is None else law.shrunk(percent)
            test = _test(law, drawn_from, draws, by_rejection=by_rejection)
            outcomes[f"{law.name}, by {how}"] = test.p >= _LEAST_P
            rows.append((law.name, *test.row()))
        show(f"{draws:,} draws from each law by {how}", _COLUMNS, rows)
    rows = []
    for law in _TABLED:
        used = law if percent is None else law.shrunk(percent)
        row, outcomes[f"tables of {law.name}"] = _compare(law, used.tables())
        rows.append((law.name, *row))
    columns = ("law", "boundaries", "floor(2^64 F(k))", "table cells", "deciding cells")
    show(f"Tables compared with python-flint's arb at {reference.BITS} bits", columns, rows)
    _conclude(outcomes, percent)


def _conclude(outcomes: dict[str, bool], percent: float | None) -> None:
    right = [name for name, followed in outcomes.items() if followed]
    wrong = [name for name, followed in outcomes.items() if not followed]
    if percent is None:
        print(
            f"\n  Target: p at least {_LEAST_P} and all entries equal, in {len(outcomes)} tests: "
            f"{verdict(not wrong)}."
        )
        if wrong:
            raise Missed("; ".join(wrong))
        return
    print(
        f"\n  Planted: sigma² and scale {percent:g} % too small. Target: p below {_LEAST_P} or "
        f"entries unequal, in {len(outcomes)} tests: {verdict(not right)}."
    )
    if right:
        raise Missed(f"these tests missed the planted bug: {'; '.join(right)}")


_COLUMNS = (
    *("law", "chi-square", "df", "p", "bulk cells", "max |o/e - 1|", "in sd"),
    *("mean z", "variance z", "p of all three"),
)


@dataclass(frozen=True, slots=True)
class _Test:
    """How far counts of draws are from their expectations."""

    chi_square: float
    freedom: int
    bulk: int
    deviation: float
    deviation_sd: float
    mean_z: float
    variance_z: float

    @property
    def _chi_square_p(self) -> float:
        return float(chi2.sf(self.chi_square, self.freedom))

    @property
    def p(self) -> float:
        """Three times the smallest of three p-values."""
        moments = (float(erfc(abs(z) / math.sqrt(2))) for z in (self.mean_z, self.variance_z))
        return min(1.0, 3 * min(self._chi_square_p, *moments))

    def row(self) -> tuple[str, ...]:
        """Write the test as cells of a table."""
        return (
            *(f"{self.chi_square:,.1f}", f"{self.freedom:,}", f"{self._chi_square_p:.3g}"),
            *(f"{self.bulk:,}", f"{self.deviation:.2e}", f"{self.deviation_sd:.2f}"),
            *(f"{self.mean_z:.2f}", f"{self.variance_z:.2f}", f"{self.p:.3g}"),
        )


def _test(law: _Law, drawn_from: _Law, draws: int, *, by_rejection: bool) -> _Test:
    """Draw from one law and compare with the expectations of the same or another law."""
    exact = law.exact()
    edges: Sequence[int] = range(1 - exact.reach, exact.reach + 1)
    if by_rejection:
        edges = law.quantiles(_REJECTION_CELLS)
    expected = draws * reference.probabilities(exact, edges)
    observed, total, squares = _tally(drawn_from, draws, edges, by_rejection=by_rejection)
    observed, expected = _pooled(observed, expected)
    residual = (observed - expected) / np.sqrt(expected * (1 - expected / draws))
    bulk = expected >= expected.max() / 4
    worst = np.abs(observed[bulk] / expected[bulk] - 1)
    variance, fourth = exact.moments()
    return _Test(
        chi_square=float(((observed - expected) ** 2 / expected).sum()),
        freedom=len(expected) - 1,
        bulk=int(bulk.sum()),
        deviation=float(worst.max()),
        deviation_sd=float(np.abs(residual[bulk]).max()),
        mean_z=total / math.sqrt(draws * variance),
        variance_z=(squares - draws * variance) / math.sqrt(draws * (fourth - variance**2)),
    )


def _tally(
    law: _Law, draws: int, edges: Sequence[int], *, by_rejection: bool
) -> tuple[FloatArray, int, int]:
    """Return the draws in each cell, their sum and the sum of their squares."""
    rng = Secure()
    counts = np.zeros(len(edges) + 1, np.int64)
    total = squares = 0
    for start in range(0, draws, _AT_ONCE):
        values = law.sample(min(_AT_ONCE, draws - start), rng, by_rejection=by_rejection)
        total += int(values.sum())
        squares += int(np.dot(values, values))
        if isinstance(edges, range):
            cell = np.clip(values, edges[0] - 1, edges[-1]) - (edges[0] - 1)
        else:
            cell = np.searchsorted(edges, values, side="right")
        counts += np.bincount(cell, minlength=len(counts))
    return counts.astype(np.float64), total, squares


def _pooled(observed: FloatArray, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Join neighbouring cells until each expects enough for a chi-square."""
    starts, room = [0], 0.0
    for index, value in enumerate(expected):
        if room >= _LEAST_EXPECTED:
            starts.append(index)
            room = 0.0
        room += value
    if room < _LEAST_EXPECTED and len(starts) > 1:
        starts.pop()
    return np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)


def _compare(law: _Law, tables: Inversion) -> tuple[tuple[str, ...], bool]:
    """Check every boundary, and that every deciding cell of the table is correct."""
    exact = law.exact(reference.BITS)
    floors = reference.floors(exact, tables.lowest, len(tables.boundaries))
    unequal = int((floors != tables.boundaries).sum())
    # With these floors at the ends, 64 bits never decide for a k outside the table.
    whole = bool(floors[0] == 0 and floors[-1] == np.iinfo(np.uint64).max)
    bits = len(tables.table).bit_length() - 1
    cell = np.flatnonzero(tables.table != np.iinfo(np.int64).min)
    index = tables.table[cell] - tables.lowest
    boundary_cell = (floors >> np.uint64(64 - bits)).astype(np.int64)
    above = boundary_cell[index] > cell
    below = (index == 0) | (boundary_cell[index - 1] < cell)
    wrong = int((~(above & below)).sum())
    equal = f"{unequal:,} DIFFER" if unequal else "all equal" if whole else "CUT OFF"
    right = f"{wrong:,} WRONG" if wrong else "all correct"
    row = (f"{len(floors):,}", equal, f"{len(cell):,}", right)
    return row, whole and unequal + wrong == 0
