"""Petti and Flaxman (paper 001): Table SA1 and Figures SA1 to SA4."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from countveil import Seeded
from countveil.assess import empirical_loss
from countveil.assess.empirical_loss.paper_table import Arguments, Panel, Row, geometric_noise
from countveil.numerics import Array
from countveil.papers.curves import long
from countveil.papers.districts import synthetic_state
from countveil.papers.item import Content, Entry, Picture, Rule, Setting, Value

PAPER = "001"
_SEED = 12_345  # of the authors' single runs, in NumPy's old generator
_SYNTHETIC = (
    "On a synthetic population: the authors' records of 1940 may not be published. The order of "
    "magnitude is to be compared, not the digits."
)
_NEEDS = "The authors' records of 1940 may not be published; a synthetic state stands in for them."
_VOID = "The function that made the panel ignored this argument; it is applied here."
_TABLE = {
    "a": (
        (0.0010, 0.0008, 0.0013),
        (0.0048, 0.0039, 0.0068),
        (0.0099, 0.0076, 0.0130),
        (0.0490, 0.0390, 0.0673),
        (0.0980, 0.0752, 0.1262),
        (0.1475, 0.1181, 0.1941),
        (0.1988, 0.1521, 0.2639),
        (0.2429, 0.1853, 0.3493),
        (0.2824, 0.2228, 0.3806),
        (0.3252, 0.2651, 0.4116),
        (0.3482, 0.2717, 0.4360),
        (0.3827, 0.3140, 0.4807),
        (0.4052, 0.3434, 0.5195),
    ),
    "b": (
        (0.2385, 0.1872, 0.3257),
        (0.2327, 0.1853, 0.3130),
        (0.2396, 0.1837, 0.3410),
        (0.2364, 0.1911, 0.3246),
        (0.2410, 0.1858, 0.3195),
        (0.2366, 0.1842, 0.3146),
        (0.2431, 0.1946, 0.3251),
        (0.2429, 0.1853, 0.3493),
    ),
    "c": (
        (0.2385, 0.1872, 0.3257),
        (0.2327, 0.1853, 0.3130),
        (0.2396, 0.1837, 0.3410),
        (0.2364, 0.1911, 0.3246),
        (0.2410, 0.1858, 0.3195),
    ),
}
_PARAMETERS = {"a": ("eps", "epsilon"), "b": ("bw", "bandwidth"), "c": ("pct", "percentile")}
_PANELS: tuple[tuple[Panel, Arguments, str], ...] = (
    ("a", "applied", ""),
    ("b", "ignored", ".as_printed"),
    ("b", "applied", ".true"),
    ("c", "ignored", ".as_printed"),
    ("c", "applied", ".true"),
)


def table_sa1(_: Setting) -> Content:
    """Repeat the table draw for draw, with its arguments ignored as printed, and applied."""
    values = []
    for panel, arguments, ending in _PANELS:
        short, name = _PARAMETERS[panel]
        rows = empirical_loss.table_sa1(panel, arguments=arguments)
        for row, printed in zip(rows, _TABLE[panel], strict=True):
            label = f"({panel}) {name} {row.parameter:g}, mean and 95 % range"
            label += {"": "", ".as_printed": ", argument ignored", ".true": ""}[ending]
            applied = ending == ".true"
            value = Value(
                f"epl.SA1{panel}.{short}{row.parameter:g}{ending}",
                label,
                printed,
                (row.mean, row.low, row.high),
                tolerance=0.02 if applied else 0.0001,
            )
            values.append(value.explained(_VOID))
    note = (
        "Panels (b) and (c) as printed are void. That the loss is about epsilon is a coincidence: the "
        f"noise of epsilon = 0.25 has a loss of {-math.log1p(-0.125):.4f}, and the maximum over a "
        "rough density is biased upward."
    )
    return Content(tuple(values), (_by_epsilon(),), note)


def figure_sa1(_: Setting) -> Content:
    """Draw released totals of districts against exact ones, and residuals."""
    exact = synthetic_state().totals
    noise = geometric_noise(np.random.RandomState(_SEED), 0.25, len(exact))
    seen = slice(None, None, 4)  # every fourth district, so that the drawing stays small
    pictures = tuple(
        Picture(
            title,
            "points",
            pa.table({"exact": exact[seen], "released": y[seen]}),
            "exact",
            "released",
            x_title="people of a district",
            y_title=title,
        )
        for title, y in (("released people", exact + noise), ("released minus exact", noise))
    )
    widest = float(np.abs(noise).max())
    values = (Value("001.figureSA1.widest", "largest residual of all districts", None, widest),)
    return Content(values, pictures, f"{len(exact):,} districts, epsilon = 0.25.", _NEEDS)


def figure_sa2(_: Setting) -> Content:
    """Draw density and loss of the authors' noise, draw for draw."""
    runs = {
        epsilon: empirical_loss.kde(geometric_noise(np.random.RandomState(_SEED), epsilon))
        for epsilon in (0.25, 0.05)
    }
    residuals = geometric_noise(np.random.RandomState(_SEED), 0.25)
    values = (
        Value("epl.SA2.eps.25", "loss, epsilon = 0.25", 0.18, runs[0.25].value, None, 0.005),
        Value("epl.text.eps.05", "loss, epsilon = 0.05", 0.043, runs[0.05].value, None, 0.0005),
    )
    true = -math.log1p(-0.125)
    note = (
        f"The loss of this noise, Geometric(epsilon/2) - Geometric(epsilon/2), is {true:.4f} at 0.25. "
        "The caption of Figure SA1 and the text name different epsilons; both runs are shown."
    )
    return Content(values, _density_and_loss(residuals, Rule("y", true, "true loss")), note)


def figure_sa3(_: Setting) -> Content:
    """Draw density and loss where totals and strata are made to agree."""
    given = synthetic_state().strata
    residuals = empirical_loss.totals_and_strata(given, rng=Seeded(2))
    literal = empirical_loss.totals_and_strata(given, objective="absolute", rng=Seeded(2))
    totals = residuals.reshape(given.shape).sum(axis=1)
    values = (
        Value("epl.SA3", "loss of strata, squares", 0.54, _loss(residuals), _SYNTHETIC),
        Value("001.figureSA3.totals", "loss of totals, squares", None, _loss(totals)),
        Value(
            "001.figureSA3.absolute", "loss of strata, absolute differences", None, _loss(literal)
        ),
    )
    note = (
        "The text minimises absolute differences; the authors' code, by our reading, squares. "
        "Composition proves 1.0. Where whole numbers are left, the estimate depends on how a density "
        "is drawn through them, and need not stay below."
    )
    return Content(values, _density_and_loss(residuals), note, _NEEDS)


def figure_sa4(_: Setting) -> Content:
    """Draw density and loss where the totals of counties are kept."""
    given = synthetic_state()
    residuals = empirical_loss.invariant_total(given.strata, given.county, rng=Seeded(3))
    hard = empirical_loss.invariant_total(given.strata, given.county, weight=None, rng=Seeded(3))
    noise = empirical_loss.parallel(given.strata.ravel(), epsilon="1/4", rng=Seeded(3))
    clipped = np.maximum(given.strata.ravel() + noise, 0) - given.strata.ravel()
    values = (
        Value(
            "epl.SA4",
            "loss of strata, totals by a penalty of 100",
            2.3,
            _loss(residuals),
            _SYNTHETIC,
        ),
        Value("001.figureSA4.hard", "loss of strata, totals met exactly", None, _loss(hard)),
        Value(
            "001.figureSA4.clipped", "loss of strata, no total, cut off at 0", None, _loss(clipped)
        ),
        Value("001.figureSA4.noise", "loss of strata, noise alone", None, _loss(noise)),
    )
    note = (
        "The loss is not that of the invariant: noise that is merely cut off at 0, which is still "
        "0.25-differentially private, has it too, from an atom at cells that are empty. The empirical "
        "loss is no bound in either direction."
    )
    return Content(values, _density_and_loss(residuals), note, _NEEDS)


def _by_epsilon() -> Picture:
    rows: list[Row] = empirical_loss.table_sa1("a")
    table = pa.table(
        {
            "epsilon": [f"{row.parameter:g}" for row in rows],
            "loss": [row.mean for row in rows],
            "low": [row.low for row in rows],
            "high": [row.high for row in rows],
        }
    )
    title = "empirical loss by epsilon: mean and 95 % range"
    return Picture(
        title,
        "intervals",
        table,
        "epsilon",
        "loss",
        None,
        "epsilon",
        "loss",
        low="low",
        high="high",
    )


def _density_and_loss(residuals: Array, *rules: Rule) -> tuple[Picture, Picture]:
    found = empirical_loss.kde(residuals)
    x = np.asarray(found.x)
    at, counts = np.unique(np.rint(residuals), return_counts=True)
    inside = (at >= x[0]) & (at <= x[-1])
    rows = [(float(a), float(d), "smoothed") for a, d in zip(x, found.density, strict=True)]
    rows += [
        (float(a), float(c) / len(residuals), "direct")
        for a, c in zip(at[inside], counts[inside], strict=True)
    ]
    curve = found.curve
    return (
        Picture(
            "density of residuals",
            "lines",
            long("residual", "density", "estimate", rows),
            "residual",
            "density",
            "estimate",
            "released minus exact",
            "density",
        ),
        Picture(
            "log-ratio of neighbouring densities",
            "lines",
            pa.table({"x": curve["x"], "loss": curve["loss"]}),
            "x",
            "loss",
            x_title="released minus exact",
            y_title="log f(x)/f(x + 1)",
            rules=rules,
        ),
    )


def _loss(residuals: Array) -> float:
    return float(empirical_loss.kde(residuals).value)


ENTRIES = (
    Entry(PAPER, "Table SA1", "The estimate against its parameters", table_sa1),
    Entry(PAPER, "Figure SA1", "Released against exact totals", figure_sa1, _NEEDS),
    Entry(PAPER, "Figure SA2", "Density and loss of geometric noise", figure_sa2),
    Entry(PAPER, "Figure SA3", "Totals and strata made to agree", figure_sa3, _NEEDS),
    Entry(PAPER, "Figure SA4", "Totals of counties kept", figure_sa4, _NEEDS),
)
