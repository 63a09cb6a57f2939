"""Kazan and Reiter, supplement (paper 000): Figures 1 and 4 to 6, attacks and sequels."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pyarrow as pa

from countveil import DiscreteGaussian, Intruder, assess
from countveil.assess import Exactly, Flat, Level, UpTo, hierarchy
from countveil.assess.composition import sequential_risk
from countveil.assess.decision import Ties
from countveil.assess.parent_prior import ParentPrior
from countveil.assess.post_processing import illustrated_risk
from countveil.assess.two_levels import decision_threshold
from countveil.papers import census_2020
from countveil.papers.census_2020 import EVEN, PRIORS, SIBLINGS, believes
from countveil.papers.curves import evaluated, long, spaced
from countveil.papers.item import Content, Entry, Picture, Rule, Setting, Value

PAPER = "000"
_LEVELS = range(1, 7)
_RELEASED = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TIES = (
    "Ties are real here; they are split. With ties to no and to yes it is {no:.2%} and {yes:.2%}."
)


def figure_1(_: Setting) -> Content:
    """Draw posterior and risk against the number of levels at which the target is unique."""
    values = [
        Value(
            f"rho_level{level}_detail",
            f"rho of the detailed table, level {level}",
            0.05,
            float(census_2020.detail(level)),
            None,
            0.005,
        )
        for level in (3, 4, 5, 6)
    ]
    rows: dict[str, list[tuple[float, float, str]]] = {"posterior": [], "risk": []}
    for prior in PRIORS:
        for levels in _LEVELS:
            noises = [census_2020.noise(level) for level in range(1, levels + 1)]
            found = assess.marginal_risk(noises, intruder=believes(prior))
            after = float(found.posterior or 0.0)
            rows["posterior"].append((levels, after, f"p = {prior}"))
            rows["risk"].append((levels, after / float(Fraction(prior)), f"p = {prior}"))
            label = f"posterior, {levels} levels, p = {prior}"
            values.append(Value(f"s13_l{levels}_p{float(Fraction(prior)):g}", label, None, after))
    pictures = tuple(
        Picture(
            f"{name} by levels known",
            "lines",
            long("levels", "y", "prior", found_rows),
            "levels",
            "y",
            "prior",
            "levels at which the target is unique",
            f"marginal {name}",
        )
        for name, found_rows in rows.items()
    )
    return Content(tuple(values), pictures)


def figure_4(_: Setting) -> Content:
    """Draw decisions under a flat prior of the count above, and under one on 0 to 10."""
    bounded = _right(UpTo(10), 1)
    free = _right(Flat(), 1)
    why = f"By the posterior, each prior normalised; not normalised it is {free:.2%}, as in paper 002."
    values = (
        Value("s4_unif10", "correct decision, uniform on 0 to 10", 0.59, bounded, why, 0.005),
    )
    pictures = tuple(
        _decisions(name, prior)
        for name, prior in (("flat prior", Flat()), ("uniform on 0 to 10", UpTo(10)))
    )
    return Content(values, pictures, "Figure 4 of paper 002 has the paper's sampler as well.")


def figure_5(_: Setting) -> Content:
    """Draw decisions under a known count above, and a wrong one."""
    cases = (
        ("s4_point1", "count above known to be 1", 0.59, 1, 1),
        ("s4_point25", "count above believed to be 25, target there", 0.74, 25, 1),
        ("s4_point25_cf", "count above believed to be 25, nobody there", 0.42, 25, 0),
    )
    values = []
    for key, label, printed, parent, count in cases:
        split, no, yes = (_right(Exactly(parent), count, ties) for ties in ("split", "no", "yes"))
        value = Value(key, f"correct decision, {label}", printed, split, None, 0.005)
        values.append(value.explained(_TIES.format(no=no, yes=yes)))
    pictures = tuple(
        _decisions(f"count above known to be {parent}", Exactly(parent)) for parent in (1, 25)
    )
    return Content(tuple(values), pictures)


def figure_6(setting: Setting) -> Content:
    """Draw the risk after post-processing against the released count above, and against rho."""
    low = census_2020.two_levels()[0]
    alone = _marginal(census_2020.detail(1))
    both = _marginal(census_2020.detail(1) * Fraction(SIBLINGS + 1, SIBLINGS))
    why = (
        "Post-processing mixes in the siblings' counts, so that the bound is that of both, "
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
    first = Picture(
        "risk after post-processing, rho = 0.099",
        "lines",
        pa.table({"released": _RELEASED, "risk": [_after(low, x) for x in _RELEASED]}),
        "released",
        "risk",
        x_title="released count above",
        y_title="marginal risk",
        log_x=True,
        rules=(
            Rule("y", alone, "without post-processing"),
            Rule("y", both, "the bound that holds"),
        ),
    )
    lines: dict[str, Callable[[float], float]] = {
        f"count above {released}": partial(_after_at, released=released)
        for released in (1, 10, 100)
    }
    lines["without post-processing"] = _marginal
    at = spaced(0.02, 2, 7 if setting.quick else 21)
    second = Picture(
        "risk after post-processing by rho",
        "lines",
        evaluated("rho", "risk", "released", at, lines),
        "rho",
        "risk",
        "released",
        "rho",
        "marginal risk",
        True,
    )
    return Content(tuple(values), (first, second))


def text(_: Setting) -> Content:
    """Compute an attack on an unknown attribute (S1.2), and two releases in a row (S5)."""
    values = []
    one = census_2020.noise(1)
    for prior in PRIORS:
        found = assess.marginal_risk([one, one], intruder=believes(prior))
        label = f"S1.2, unknown attribute, p = {prior}: posterior from both cells"
        values.append(
            Value(
                f"s12_twocell_p{float(Fraction(prior)):g}",
                label,
                None,
                float(found.posterior or 0.0),
            )
        )
    sequel = sequential_risk([one, one], observed=[2, 3], intruder=EVEN)
    together = float(sequel.together.value)
    product = sequel.each[0] * sequel.each[1]
    values += [
        Value("s5_2_3_0.5", "S5, releases of 2 and 3, p = 1/2: risk of both", None, together),
        Value("000.s5.product", "S5, product of the risks in turn", together, product, None, 1e-12),
    ]
    note = (
        "S1.2 says to replace p; both cells inform, so that the attack is that of twice the rho. "
        "S5 is right: risks in turn multiply."
    )
    return Content(tuple(values), note=note)


def _right(prior: ParentPrior, count: int, ties: Ties = "split") -> float:
    """Return how often he decides rightly; `count` is the truth of both levels."""
    levels = [Level(census_2020.noise(1), SIBLINGS, prior), Level(census_2020.noise(2))]
    # The papers' sum of siblings, in which ties are exact.
    siblings = {"siblings": "gaussian"} if isinstance(prior, Exactly) else {}
    found = hierarchy.correct_decision(
        levels,
        truth=[count, count],
        intruder=EVEN,
        ties=ties,
        **siblings,  # type: ignore[arg-type]
    )
    return float(found.value)


def _decisions(name: str, prior: ParentPrior) -> Picture:
    low, high = Level(census_2020.noise(1), SIBLINGS, prior), Level(census_2020.noise(2))
    seen = [(x2, y1) for x2 in range(-3, 6) for y1 in range(-30, 31)]
    # Beside a known count its noisy one says nothing, and is not let break ties by rounding.
    known = prior.count if isinstance(prior, Exactly) else None
    first = [
        decision_threshold(
            low, high, parent=x2 if known is None else known, sibling_sum=y1, intruder=EVEN
        )
        for x2, y1 in seen
    ]
    table = pa.table({"y1": [y for _x, y in seen], "x2": [x for x, _y in seen], "first": first})
    return Picture(
        f"first X1* at which he says yes: {name}",
        "tiles",
        table,
        "y1",
        "x2",
        "first",
        "released sum of the siblings, Y1*",
        "released count above, X2*",
    )


def _after(low: Level, released: int) -> float:
    found = illustrated_risk(low, released_parent=released, parent=1, intruder=EVEN)
    return float(found.value)


def _after_at(rho: float, released: int) -> float:
    noise = DiscreteGaussian.from_rho(Fraction(rho))
    return _after(Level(noise, siblings=SIBLINGS), released)


def _marginal(rho: float | Fraction, intruder: Intruder = EVEN) -> float:
    noise = DiscreteGaussian.from_rho(Fraction(rho))
    return float(assess.marginal_risk(noise, intruder=intruder).value)


ENTRIES = (
    Entry(PAPER, "Figure 1", "Risk by levels at which the target is unique", figure_1),
    Entry(PAPER, "Figure 4", "Decisions under two priors", figure_4),
    Entry(PAPER, "Figure 5", "Decisions with a known count above", figure_5),
    Entry(PAPER, "Figure 6", "Risk after post-processing", figure_6),
    Entry(PAPER, "Text", "Other attacks, and releases in a row", text),
)
