"""Whether draws follow their law: chi-square of 1e8 draws, and every table entry against arb."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from flint import arb, ctx
from scipy.special import erfc
from scipy.stats import chi2

from benchmarks.table import Missed, show, verdict
from countveil.mechanisms import discrete_gaussian, discrete_laplace, rejection
from countveil.mechanisms.inversion import Inversion
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource, Secure

_BITS = 400
_AT_ONCE = 10**6
_LEAST_EXPECTED = 25
_REJECTION_CELLS = 24  # few, so that 20,000 draws tell a law from its neighbour
_LEAST_P = 1e-4  # of the three tests of a law together


@dataclass(frozen=True, slots=True)
class _Law:
    """P(k) ∝ exp(-k²/(2 parameter)) or exp(-|k|/parameter), computed by arb alone."""

    kind: str
    parameter: Fraction

    def __str__(self) -> str:
        name = "Gaussian, sigma²" if self.kind == "gaussian" else "Laplace, scale"
        value = self.parameter
        return f"{name} {float(value):.10g}" if value.denominator != 99 else f"{name} {value}"

    def weights(self, down_to_bits: int) -> list[arb]:
        """Enclose exp(-…) for k = 0, 1, … until it is below 2**-down_to_bits."""
        gaussian = self.kind == "gaussian"
        rate = _arb(1 / (2 * self.parameter if gaussian else self.parameter))
        square = float(down_to_bits * math.log(2) / float(rate))
        reach = math.ceil(math.sqrt(square) if gaussian else square) + 1
        return [(-rate * (k * k if gaussian else k)).exp() for k in range(reach + 1)]

    def beyond(self, last: arb, reach: int) -> arb:
        """Enclose the sum of all weights after the last, of k = reach: at most a geometric one."""
        steps = 2 * reach + 1 if self.kind == "gaussian" else 1
        halves = 2 * self.parameter if self.kind == "gaussian" else self.parameter
        ratio = (-_arb(steps / halves)).exp()
        half = last * ratio / (1 - ratio) / 2
        return arb(half.mid(), (half + half.rad()).upper())

    def sample(self, size: int, rng: BitSource, *, by_rejection: bool) -> IntArray:
        """Draw from this law by the package."""
        if self.kind == "gaussian":
            if by_rejection:
                return rejection.discrete_gaussian(self.parameter, size, rng)
            return discrete_gaussian.DiscreteGaussian(self.parameter).sample(size, rng=rng)
        if by_rejection:
            return rejection.discrete_laplace(self.parameter, size, rng)
        return discrete_laplace.DiscreteLaplace(self.parameter).sample(size, rng=rng)

    def tables(self) -> Inversion:
        """Return the tables the package draws with."""
        module = discrete_gaussian if self.kind == "gaussian" else discrete_laplace
        return module._tables(self.parameter)

    def shifted(self, percent: float) -> _Law:
        """Return the law with a parameter that is too small."""
        return _Law(self.kind, self.parameter * (1 - Fraction(str(percent)) / 100))


_TABLED = (
    _Law("gaussian", Fraction("0.3")),
    _Law("gaussian", Fraction(500, 99)),
    _Law("gaussian", Fraction(100)),
    _Law("gaussian", Fraction(5000)),
    _Law("gaussian", Fraction(10**6)),
    _Law("laplace", Fraction(20)),
    _Law("laplace", Fraction(1, 2)),
)
_REJECTED = (
    _Law("gaussian", Fraction(500, 99)),
    _Law("gaussian", Fraction(10**9)),
    _Law("laplace", Fraction(10**5)),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--draws", type=int, default=10**8, help="draws from each tabled law")
    parser.add_argument(
        "--rejection-draws", type=int, default=20_000, help="draws from each law by rejection"
    )
    parser.add_argument(
        "--plant-bug",
        type=float,
        nargs="?",
        const=5.0,
        metavar="PERCENT",
        help="draw with sigma² or scale that much too small, and expect to be caught (5 if bare)",
    )


def run(options: argparse.Namespace) -> None:
    """Test all laws; with a planted bug, demand that every test notices it."""
    ctx.prec = _BITS
    planted = options.plant_bug
    failed: list[str] = []
    kept: list[str] = []

    def judge(what: str, right: bool) -> str:
        (kept if right else failed).append(what)
        return "follows" if right else "DIFFERS"

    rows = []
    for law in _TABLED:
        drawn_from = law if planted is None else law.shifted(planted)
        test = _test(law, drawn_from, options.draws, by_rejection=False)
        rows.append((str(law), *test.cells(), judge(str(law), test.p >= _LEAST_P)))
    show(f"{options.draws:,} draws of each law by table, Secure()", _COLUMNS, rows)

    rows = []
    for law in _REJECTED:
        drawn_from = law if planted is None else law.shifted(planted)
        test = _test(law, drawn_from, options.rejection_draws, by_rejection=True)
        name = f"{law}, rejection"
        rows.append((str(law), *test.cells(), judge(name, test.p >= _LEAST_P)))
    show(f"{options.rejection_draws:,} draws of each law by rejection, Secure()", _COLUMNS, rows)

    rows = []
    for law in _TABLED:
        compared, unequal, cells, wrong = _compare(law, law if planted is None else law.shifted(planted))
        right = unequal == 0 and wrong == 0
        equal = "all equal" if unequal == 0 else f"{unequal:,} DIFFER"
        decided = "all right" if wrong == 0 else f"{wrong:,} WRONG"
        judge(f"tables of {law}", right)
        rows.append((str(law), f"{compared:,}", equal, f"{cells:,}", decided))
    columns = ("law", "boundaries", "floor(2^64 F(k))", "table cells", "decided")
    show(f"Tables against arb at {_BITS} bits", columns, rows)

    if planted is None:
        print(f"\n  Target: all {len(kept) + len(failed)} follow: {verdict(not failed)}.")
        if failed:
            raise Missed("; ".join(failed))
    else:
        print(f"\n  Parameters {planted:g} % too small. Target: all caught: {verdict(not kept)}.")
        if kept:
            raise Missed(f"a planted bug was not noticed: {'; '.join(kept)}")


_COLUMNS = (
    *("law", "cells", "chi-square", "df", "p", "bulk cells", "max |o/e - 1|", "in sd"),
    *("mean z", "variance z", "p of all", "draws"),
)


@dataclass(frozen=True, slots=True)
class _Test:
    """How far counts of draws are from what the law expects."""

    cells: int
    chi_square: float
    bulk: int
    deviation: float
    deviation_sd: float
    mean_z: float
    variance_z: float

    @property
    def chi_square_p(self) -> float:
        return float(chi2.sf(self.chi_square, self.cells - 1))

    @property
    def p(self) -> float:
        """The smallest of three p-values, times three."""
        moments = (float(erfc(abs(z) / math.sqrt(2))) for z in (self.mean_z, self.variance_z))
        return min(1.0, 3 * min(self.chi_square_p, *moments))

    def cells_of_row(self) -> tuple[str, ...]:
        return ()
