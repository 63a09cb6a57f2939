"""Seeman, Reimherr and Slavkovic (paper 003): Figures 1 to 4, Examples 1 and 2, and the lemmas."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pyarrow as pa

from countveil import Seeded, congenial
from countveil.congenial import contraction, projection
from countveil.numerics import IntArray
from countveil.papers.counties import FILES, Counties, counties_of
from countveil.papers.curves import long
from countveil.papers.item import Content, Entry, Picture, Setting, Value

PAPER = "003"
_EPSILONS = ("0.01", "1")
_SEED = 7
_NEEDS = (
    "The paper's counts are those of the Pennsylvania Department of Health. With --data a folder that "
    f"has {FILES} is used instead."
)
_NOTE = (
    "Drawn exactly, with an L1 loss; the paper draws by a Markov chain, with an L2 loss, and its "
    "figures print no numbers. Methods: noise and projection; weights without and with the public "
    "total; weights that also expect the shares of the month before."
)
_METHODS = ("projection", "naive", "congenial", "prior")


def figure_1(setting: Setting) -> Content:
    """Draw released case rates of three counties by method and budget."""
    data = counties_of(setting.data)
    pictures, values = [], []
    for epsilon in _EPSILONS:
        columns: dict[str, list[object]] = {
            k: [] for k in ("method", "county", "rate", "low", "high")
        }
        drawn = {name: _released(data, name, epsilon, setting)[..., 0] for name in _METHODS}
        for method, released in {"true": data.counts[None, :, 0], **drawn}.items():
            for county, row in data.chosen().items():
                rates = 1_000 * released[:, row] / data.people[row]
                low, middle, high = (float(q) for q in np.quantile(rates, (0.05, 0.5, 0.95)))
                for name, cell in zip(columns, (method, county, middle, low, high), strict=True):
                    columns[name].append(cell)
        pictures.append(
            Picture(
                f"case rates, epsilon = {epsilon}: median, 5 % to 95 %",
                "intervals",
                pa.table(columns),
                "method",
                "rate",
                "county",
                "",
                "cases per 1,000 people",
                low="low",
                high="high",
            )
        )
        small = min(data.chosen().values(), key=lambda row: int(data.people[row]))
        for method in _METHODS:
            spread = float(drawn[method][:, small].std() / max(1, data.counts[small, 0]))
            label = f"smallest county, epsilon = {epsilon}, {method}: standard deviation over truth"
            values.append(Value(f"003.figure1.{epsilon}.{method}", label, None, spread))
    return _studied(data, values, pictures)


def figure_2(setting: Setting) -> Content:
    """Draw relative errors over all counties by method and budget."""
    data = counties_of(setting.data)
    some = data.counts[:, 0] > 0
    columns: dict[str, list[object]] = {
        k: [] for k in ("method", "epsilon", "error", "low", "high")
    }
    values = []
    for epsilon, method in product(_EPSILONS, _METHODS):
        released = _released(data, method, epsilon, setting)[:, some, 0]
        errors = np.abs(released - data.counts[some, 0]) / data.counts[some, 0]
        low, middle, high = (float(q) for q in np.quantile(errors, (0.05, 0.5, 0.95)))
        row = (method, f"epsilon = {epsilon}", middle, low, high)
        for name, cell in zip(columns, row, strict=True):
            columns[name].append(cell)
        for name, found in (("median", middle), ("95 %", high)):
            label = f"relative error, epsilon = {epsilon}, {method}: {name}"
            values.append(Value(f"003.figure2.{epsilon}.{method}.{name}", label, None, found))
    picture = Picture(
        "relative error of cases: median, 5 % to 95 %",
        "intervals",
        pa.table(columns),
        "method",
        "error",
        "epsilon",
        "",
        "relative error",
        low="low",
        high="high",
    )
    return _studied(data, values, [picture])


def figure_3(setting: Setting) -> Content:
    """Draw how often projection ends at zeros and at rates of one, in small and large counties."""
    data = counties_of(setting.data)
    size = {"smallest": [int(np.argmin(data.people))], "largest": [int(np.argmax(data.people))]}
    rows, values = [], []
    for epsilon in _EPSILONS:
        noisy = projection.with_noise(
            data.counts, epsilon=epsilon, rng=Seeded(_SEED), replicates=_replicates(setting)
        )
        found = contraction.contractions(projection.project(noisy, total=data.total))
        for name, places in (*size.items(), ("all", None)):
            shares = found.of(places)
            effects = ("case zeros", "death zeros", "rates of one")
            for effect, share in zip(
                effects, (shares.case_zeros, shares.death_zeros, shares.rates), strict=True
            ):
                rows.append((f"{name}, {epsilon}", share, effect))
                label = f"{effect}, {name} counties, epsilon = {epsilon}"
                values.append(Value(f"003.figure3.{epsilon}.{name}.{effect}", label, None, share))
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("place", "share", "effect"), map(list, columns), strict=True)))
    picture = Picture(
        "what projection contracts",
        "bars",
        table,
        "place",
        "share",
        "effect",
        "counties, epsilon",
        "share of tables",
    )
    return _studied(data, values, [picture])


def figure_4(setting: Setting) -> Content:
    """Draw Delta_z of a count against how far a secret moves the others."""
    values = [
        Value(
            f"ppd.deltaz.{n}|{z0}|{z1}",
            f"n = {n}, z0 = {z0}, z1 = {z1}",
            None,
            congenial.delta_z(n=n, z0=z0, z1=z1),
        )
        for n, pairs in _DELTA_Z.items()
        for z0, z1 in pairs
    ]
    floats = (
        "Quantiles in floats fail where n is large, for the tails that decide are below what a double "
        "resolves. Exact integers are used here, and the jumps of both distribution functions; "
        "(35) takes those of one. Others must be independent given the secret."
    )
    sizes = (10, 100) if setting.quick else (10, 100, 1000)
    rows = [
        (z / 40, congenial.delta_z(n=n, z0=f"{40 - z}/40", z1=f"{z}/40") / n, f"n = {n}")
        for n in sizes
        for z in range(20, 41)
    ]
    picture = Picture(
        "Delta_z over n",
        "lines",
        long("z1", "ratio", "n", rows),
        "z1",
        "ratio",
        "n",
        "z1 = 1 - z0",
        "Delta_z / n",
    )
    return Content(tuple(values), (picture,), floats)


def example_1(_: Setting) -> Content:
    """Compute how far one value moves a normal mean beside a public number."""
    settings = {
        "Z indep": {},
        "Z=Xbar+N(0,.1)": {
            "mean_with_public": "0.1",
            "person_with_public": "0.1",
            "public_variance": "0.2",
        },
    }
    values = []
    for name, given in settings.items():
        found = congenial.gaussian_mean(n=10, variance=1, **given)
        right = float(found.sensitivity)
        for away in (0, 1, 3):
            value = Value(
                f"003.example1.{name}.{away}",
                f"sensitivity over Delta, {name}, z - mu_Z = {away}; printed: by (16)",
                float(found.printed(away)),
                right,
                tolerance=1e-12,
            )
            why = "(16) has z - mu_Z in the vector, where 0 belongs: z is the same on both sides."
            values.append(value.explained(why))
        exact = {
            "coef_v": float(found.coefficient_value),
            "coef_z": float(found.coefficient_public),
            "right_sens_over_Delta": right,
            "printed_at_z_minus_mu": [float(found.printed(away)) for away in (0, 1, 3)],
        }
        values.append(Value(f"ppd.example1|{name}", f"coefficients, {name}", None, exact))
    return Content(tuple(values), note="Ten people of variance 1.")


def example_2(_: Setting) -> Content:
    """Compute Delta_z of a count beside k-anonymity and t-closeness."""
    given = {"n": 10, "z0": "0.1", "z1": "0.9"}
    cases = (
        ("none", "nothing else public", ()),
        ("k=3", "3-anonymity", (congenial.KAnonymity(3),)),
        ("t=1/5", "t-closeness, 1/5 about 1/2", (congenial.TCloseness("1/5", "1/2"),)),
    )
    values = tuple(
        Value(f"003.example2.{key}", f"Delta_z, ten people, {label}", None, _delta_z(given, public))
        for key, label, public in cases
    )
    note = (
        "The example says that such measures restrict secrets. They also move Delta_z: laws that are "
        "cut to the same counts lie nearer."
    )
    return Content(values, note=note)


def text(_: Setting) -> Content:
    """Compute what the lemmas on composition claim, and what holds."""
    parity = "What is public ties the releases together: they add up only along one coupling."
    five = _even(5)
    alone = max(_loss([bits], five) for bits in ((0, 1), (0, 1, 2)))
    together = _loss([(0, 1), (0, 1, 2)], five)
    each = max(_loss([(person,)], _even(2)) for person in (0, 1))
    both = _loss([(0,), (1,)], _even(2))
    values = (
        Value(
            "003.lemma6.each", "Lemma 6, five bits with a public parity: each release", None, alone
        ),
        Value(
            "003.lemma6.both",
            "Lemma 6, both releases",
            f"<={round(2 * alone, 9):g}",
            together,
            parity,
        ),
        Value(
            "003.lemma7.each", "Lemma 7, two bits with a public parity: each release", None, each
        ),
        Value("003.lemma7.both", "Lemma 7, both releases", f"<={round(each, 9):g}", both, parity),
        Value(
            "003.eq5",
            "(5): total variation of posteriors at epsilon = 1",
            float(congenial.printed_posterior_to_posterior(1)),
            float(congenial.posterior_to_posterior(1)),
            "The tight bound is tanh(epsilon/2); from ln 2 on the printed one says nothing.",
            1e-12,
        ),
    )
    return Content(values, note="Releases are by randomised response at epsilon = 1.")


_DELTA_Z: dict[int, tuple[tuple[str, str], ...]] = {
    10: (("49/100", "51/100"), ("3/10", "7/10"), ("1/10", "9/10"), ("1/1000", "999/1000")),
    100: (("49/100", "51/100"), ("2/10", "8/10"), ("1/10", "9/10"), ("1/100", "2/100")),
    1000: (("49/100", "51/100"), ("1/10", "9/10"), ("1/100", "2/100")),
}


def _released(data: Counties, method: str, epsilon: str, setting: Setting) -> IntArray:
    """Return replicates of the released table by a method."""
    size = _replicates(setting)
    if method == "projection":
        return projection.noise_then_project(
            data.counts, epsilon=epsilon, total=data.total, rng=Seeded(_SEED), replicates=size
        )
    prior = congenial.DirichletMultinomial(data.before, alpha=1, pseudo_count="1/2")
    mechanism = congenial.Wasserstein(
        loss="L1",
        epsilon=epsilon,
        total=data.total,
        base="naive" if method == "naive" else None,
        prior=prior if method == "prior" else None,
        deaths=True,
    )
    return mechanism.sample(data.counts, rng=Seeded(_SEED), size=size)


def _replicates(setting: Setting) -> int:
    return 20 if setting.quick else 100


def _studied(data: Counties, values: list[Value], pictures: list[Picture]) -> Content:
    made_up = data.source.startswith("67 synthetic")
    note = f"{data.source}, {data.total:,} cases. {_NOTE}"
    return Content(tuple(values), tuple(pictures), note, _NEEDS if made_up else None)


def _delta_z(given: dict[str, object], public: tuple[object, ...]) -> int:
    return int(congenial.delta_z(**given, public=list(public)))  # type: ignore[arg-type]


def _even(people: int) -> dict[tuple[int, ...], Fraction]:
    """Return the uniform law of bits whose sum is known to be even."""
    found = [x for x in product((0, 1), repeat=people) if sum(x) % 2 == 0]
    return {x: Fraction(1, len(found)) for x in found}


def _loss(sums: Sequence[tuple[int, ...]], law: dict[tuple[int, ...], Fraction]) -> float:
    """Return the privacy loss of randomised response, at epsilon = 1, on exclusive sums of bits."""
    right = math.e / (1 + math.e)

    def told(x: tuple[int, ...]) -> Mapping[Hashable, float]:
        true = [sum(x[person] for person in people) % 2 for people in sums]
        return {
            said: math.prod(right if a == b else 1 - right for a, b in zip(said, true, strict=True))
            for said in product((0, 1), repeat=len(true))
        }

    pairs = congenial.secret_pairs(people=len(next(iter(law)))).pairs
    return float(congenial.realised_loss(told, law, pairs))


ENTRIES = (
    Entry(PAPER, "Figure 1", "Released case rates of three counties", figure_1, _NEEDS),
    Entry(PAPER, "Figure 2", "Relative errors of cases", figure_2, _NEEDS),
    Entry(PAPER, "Figure 3", "What projection contracts", figure_3, _NEEDS),
    Entry(PAPER, "Figure 4", "Delta_z against dependence", figure_4),
    Entry(PAPER, "Example 1", "A normal mean beside a public number", example_1),
    Entry(PAPER, "Example 2", "A count beside anonymity measures", example_2),
    Entry(PAPER, "Text", "Lemmas 6 and 7, and equation (5)", text),
)
