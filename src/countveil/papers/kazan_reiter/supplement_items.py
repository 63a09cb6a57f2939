"""Kazan and Reiter, supplement (paper 000): Figures 1 and 4 to 6, and numbers in the text."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa

from countveil import assess
from countveil.assess.intruder.composition import sequential_risk
from countveil.assess.intruder.decision import Ties, sigmoid
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels import hierarchy
from countveil.assess.intruder.several_levels.hierarchy_level import (
    Exactly,
    Flat,
    Level,
    ParentPrior,
    UpTo,
)
from countveil.assess.intruder.several_levels.two_levels import decision_threshold
from countveil.assess.risk import Risk
from countveil.base.bounded_averages import expectation
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.summed_noise import Addition, SummedNoise, half_width
from countveil.papers.curves import evaluate_curves, log_spaced, long_table
from countveil.papers.item import Content, ItemChart, ReferenceLine, Setting, Value
from countveil.papers.kazan_reiter import census_2020
from countveil.papers.kazan_reiter.census_2020 import EVEN, PRIORS, SIBLINGS, intruder_with

HalfRounding: TypeAlias = Literal["half even", "half up"]

_LEVELS = range(1, 7)
_RELEASED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TIES = "Ties occur here and are split. Decided as no they give {no:.2%}, as yes {yes:.2%}."


def figure_1(_: Setting) -> Content:
    """Draw posterior and risk against the number of levels at which the target is unique."""
    values = [
        Value(
            f"rho_level{level}_detail",
            f"rho of the detailed table, level {level}",
            0.05,
            float(census_2020.detail_rho(level)),
            None,
            0.005,
        )
        for level in (3, 4, 5, 6)
    ]
    rows: dict[str, list[tuple[float, float, str]]] = {"posterior": [], "risk": []}
    for prior in PRIORS:
        for levels in _LEVELS:
            noises = [census_2020.detail_noise(level) for level in range(1, levels + 1)]
            risk = assess.marginal_risk(noises, intruder=intruder_with(prior))
            after = float(risk.posterior or 0.0)
            rows["posterior"].append((levels, after, f"p = {prior}"))
            rows["risk"].append((levels, after / float(Fraction(prior)), f"p = {prior}"))
            label = f"posterior, {levels} levels, p = {prior}"
            values.append(Value(f"s13_l{levels}_p{float(Fraction(prior)):g}", label, None, after))
    charts = tuple(
        ItemChart(
            f"{name} by levels known",
            "lines",
            long_table("levels", "y", "prior", points),
            "levels",
            "y",
            "prior",
            "levels at which the target is unique",
            f"marginal {name}",
        )
        for name, points in rows.items()
    )
    return Content(tuple(values), charts)


def figure_4(_: Setting) -> Content:
    """Draw decisions under a flat prior of the count above, and under a uniform prior on 0 to 10."""
    bounded = _correct(UpTo(10), 1)
    free = _correct(Flat(), 1)
    why = f"By the posterior with a normalized prior; without, it is {free:.2%}, as in paper 002."
    values = (
        Value("s4_unif10", "correct decision, uniform on 0 to 10", 0.59, bounded, why, 0.005),
    )
    charts = tuple(
        _decisions(name, prior)
        for name, prior in (("flat prior", Flat()), ("uniform on 0 to 10", UpTo(10)))
    )
    return Content(values, charts, "Figure 4 of paper 002 has the paper's sampler as well.")


def figure_5(_: Setting) -> Content:
    """Draw decisions with a known count above, and with a wrong one."""
    cases = (
        ("s4_point1", "count above known to be 1", 0.59, 1, 1),
        ("s4_point25", "count above believed to be 25, target there", 0.74, 25, 1),
        ("s4_point25_cf", "count above believed to be 25, target not there", 0.42, 25, 0),
    )
    values = []
    for key, label, printed, parent, count in cases:
        split, no, yes = (_correct(Exactly(parent), count, ties) for ties in ("split", "no", "yes"))
        value = Value(key, f"correct decision, {label}", printed, split, None, 0.005)
        values.append(value.explained(_TIES.format(no=no, yes=yes)))
    charts = tuple(
        _decisions(f"count above known to be {parent}", Exactly(parent)) for parent in (1, 25)
    )
    return Content(tuple(values), charts)


def figure_6(setting: Setting) -> Content:
    """Draw the risk after post-processing against the released count above, and against rho."""
    low = census_2020.block_levels()[0]
    alone = _marginal(census_2020.detail_rho(1))
    both = _marginal(census_2020.detail_rho(1) * Fraction(SIBLINGS + 1, SIBLINGS))
    why = (
        "Post-processing mixes in the siblings' counts, so the bound that holds is that of both, "
        f"{both:.6f}."
    )
    values = [
        Value("s6_nopp", "risk without post-processing", None, alone),
        Value(
            "s6_joint", "risk of the count and the siblings' sum: the bound that holds", None, both
        ),
    ]
    for released in _RELEASED:
        value = Value(
            f"s6_R_x{released}",
            f"risk, released count above {released}",
            "<=1.04733",
            _after(low, released),
        )
        values.append(value.explained(why))
    first = ItemChart(
        "risk after post-processing, rho = 0.099",
        "lines",
        pa.table({"released": _RELEASED, "risk": [_after(low, x) for x in _RELEASED]}),
        "released",
        "risk",
        x_title="released count above",
        y_title="marginal risk",
        log_x=True,
        reference_lines=(
            ReferenceLine("y", alone, "without post-processing"),
            ReferenceLine("y", both, "the bound that holds"),
        ),
    )
    lines: dict[str, Callable[[float], float]] = {
        f"count above {released}": partial(_after_at, released=released)
        for released in (1, 10, 100)
    }
    lines["without post-processing"] = _marginal
    at = log_spaced(0.02, 2, 7 if setting.quick else 21)
    second = ItemChart(
        "risk after post-processing by rho",
        "lines",
        evaluate_curves("rho", "risk", "released", at, lines),
        "rho",
        "risk",
        "released",
        "rho",
        "marginal risk",
        True,
    )
    return Content(tuple(values), (first, second))


def text(_: Setting) -> Content:
    """Compute an attack on an unknown attribute (S1.2), and two consecutive releases (S5)."""
    values = []
    one = census_2020.detail_noise(1)
    for prior in PRIORS:
        risk = assess.marginal_risk([one, one], intruder=intruder_with(prior))
        label = f"S1.2, unknown attribute, p = {prior}: posterior from both cells"
        values.append(
            Value(
                f"s12_twocell_p{float(Fraction(prior)):g}",
                label,
                None,
                float(risk.posterior or 0.0),
            )
        )
    sequel = sequential_risk([one, one], observed=[2, 3], intruder=EVEN)
    together = float(sequel.together.value)
    product = sequel.each[0] * sequel.each[1]
    values += [
        Value("s5_2_3_0.5", "S5, releases of 2 and 3, p = 1/2: risk of both", None, together),
        Value(
            "000.s5.product", "S5, product of the successive risks", together, product, None, 1e-12
        ),
    ]
    note = (
        "S1.2 says to replace p; both cells carry information, so the attack is that of twice the rho. "
        "S5 is right: successive risks multiply."
    )
    return Content(tuple(values), note=note)


def _correct(prior: ParentPrior, count: int, ties: Ties = "split") -> float:
    """Return how often the intruder is right; `count` is the truth at both levels."""
    levels = [
        Level(census_2020.detail_noise(1), SIBLINGS, prior),
        Level(census_2020.detail_noise(2)),
    ]
    # With a known count above, use the papers' sum of siblings, in which ties are exact.
    siblings: Addition = "gaussian" if isinstance(prior, Exactly) else "convolution"
    risk = hierarchy.correct_decision(
        levels,
        truth=[count, count],
        intruder=EVEN,
        ties=ties,
        siblings=siblings,
    )
    return float(risk.value)


def _decisions(name: str, prior: ParentPrior) -> ItemChart:
    low, high = (
        Level(census_2020.detail_noise(1), SIBLINGS, prior),
        Level(census_2020.detail_noise(2)),
    )
    observed = [(x2, y1) for x2 in range(-3, 6) for y1 in range(-30, 31)]
    # If the count is known, its noisy version says nothing and must not break ties by rounding.
    known = prior.count if isinstance(prior, Exactly) else None
    first = [
        decision_threshold(
            low, high, parent=x2 if known is None else known, sibling_sum=y1, intruder=EVEN
        )
        for x2, y1 in observed
    ]
    table = pa.table(
        {"y1": [y for _x, y in observed], "x2": [x for x, _y in observed], "first": first}
    )
    return ItemChart(
        f"smallest X1* at which the intruder says yes: {name}",
        "tiles",
        table,
        "y1",
        "x2",
        "first",
        "released sum of the siblings, Y1*",
        "released count above, X2*",
    )


def _after(low: Level, released: int) -> float:
    risk = illustrated_risk(low, released_parent=released, parent=1, intruder=EVEN)
    return float(risk.value)


def _after_at(rho: float, released: int) -> float:
    noise = DiscreteGaussian.from_rho(Fraction(rho))
    return _after(Level(noise, siblings=SIBLINGS), released)


def _marginal(rho: float | Fraction, intruder: Intruder = EVEN) -> float:
    noise = DiscreteGaussian.from_rho(Fraction(rho))
    return float(assess.marginal_risk(noise, intruder=intruder).value)


def illustrated_risk(
    low: Level,
    *,
    released_parent: int,
    parent: int,
    intruder: Intruder,
    siblings: Addition = "gaussian",
    rounding: HalfRounding = "half even",
) -> Risk:
    """Return the risk after the least squares of (S6.1), clipped to 0 and the parent, and rounded.

    The intruder knows everyone else in the unit and the parent's true count. They see the parent's
    released count, which is fixed, and the unit's post-processed count. The risk is (S6.8) over their
    prior.

    Parameters
    ----------
    low
        The lower level: its noise and its number of siblings.
    released_parent, parent
        The released and the true count of the parent.
    intruder
        The intruder's prior and what they know.
    siblings
        How the noise of the siblings is added up.
    rounding
        Where halves are rounded to.

    Returns
    -------
    Risk
        The marginal risk, with the posterior.
    """
    if low.siblings < 1:
        raise InputError("siblings: the illustration needs at least one sibling")
    if released_parent < 0 or parent < intruder.known + intruder.rows:
        raise InputError("parent: counts are 0 or more, and the parent contains the target")
    law = SummedNoise(low.noise, low.siblings, siblings)
    reach, sum_reach = half_width(low.noise), half_width(law)
    there, away = intruder.known + intruder.rows, intruder.known
    x = np.arange(away - reach, there + reach + 1.0)
    y = np.arange(parent - there - sum_reach, parent - away + sum_reach + 1.0)
    rounded = _post_process(x[:, None], y, low.siblings, released_parent, rounding)
    laws = []
    for count in (there, away):
        weights = np.exp(low.noise.log_pmf(x - count))[:, None]
        weights = weights * np.exp(law.log_pmf(y - (parent - count)))
        masses = np.bincount(rounded.ravel().astype(np.int64), weights.ravel(), released_parent + 1)
        laws.append(masses / masses.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(laws[0]) - np.log(laws[1])
    possible = laws[0] > 0
    after = expectation(laws[0][possible], sigmoid(intruder.log_odds + log_ratio[possible]))
    return Risk("marginal risk", after / intruder.prior, posterior=after)


def _post_process(
    x: FloatArray, y: FloatArray, siblings: int, parent: int, rounding: HalfRounding
) -> FloatArray:
    """Return f of (S6.3), comparing sums as whole numbers so that halves are exact."""
    numerator, denominator = siblings * x + (parent - y), siblings + 1
    if rounding not in ("half even", "half up"):
        raise InputError(
            f'rounding: unknown rounding {rounding!r}; choose "half even" or "half up"'
        )
    down = np.floor_divide(numerator, denominator)
    twice = 2 * (numerator - down * denominator)
    up = twice > denominator
    if rounding == "half up":
        up |= twice == denominator
    else:
        up |= (twice == denominator) & (down % 2 == 1)
    whole = down + up
    # Beyond the ends the result is the end; in between, the nearest whole number may still be one.
    whole = np.where(numerator < 0, 0, np.where(numerator > parent * denominator, parent, whole))
    return np.asarray(np.clip(whole, 0, parent), float)
