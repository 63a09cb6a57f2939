"""Seeman, Reimherr and Slavkovic (paper 003): Figures 1 to 4, Examples 1 and 2, and the lemmas."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from countveil import congenial
from countveil.base.numerics import IntArray
from countveil.base.randomness import Seeded
from countveil.congenial.guarantee.public_information import PublicFact
from countveil.errors import InputError
from countveil.papers import seeman
from countveil.papers.curves import long_table
from countveil.papers.item import Content, ItemChart, Setting, Value
from countveil.papers.reader_files import read_records, reader_file, whole_number
from countveil.papers.seeman import contraction, projection

_COUNTS, _PEOPLE = "pa_county_monthly_jhu.csv", "pa_county_population_jhu.csv"
_EPIDEMIC_SEED = 2020
_FILES = f"{_COUNTS} (fips, county, month, new_cases, new_deaths) and {_PEOPLE} (fips, population)"
_EPSILONS = ("0.01", "1")
_DRAW_SEED = 7
NEEDS_COUNTIES = (
    "The paper's counts are from the Pennsylvania Department of Health. With --data a folder that "
    f"has {_FILES} is used instead."
)
_NOTE = (
    "Drawn exactly, with an L1 loss. The paper draws by a Markov chain, with an L2 loss, and its "
    "figures print no numbers. Methods: noise and projection; weights without and with the public "
    "total; weights that also expect the shares of the previous month."
)
_METHODS = ("projection", "naive", "congenial", "prior")
_DELTA_Z: dict[int, tuple[tuple[str, str], ...]] = {
    10: (("49/100", "51/100"), ("3/10", "7/10"), ("1/10", "9/10"), ("1/1000", "999/1000")),
    100: (("49/100", "51/100"), ("2/10", "8/10"), ("1/10", "9/10"), ("1/100", "2/100")),
    1000: (("49/100", "51/100"), ("1/10", "9/10"), ("1/100", "2/100")),
}


def figure_1(setting: Setting) -> Content:
    """Draw released case rates of three counties by method and budget."""
    data = read_counties(setting.data)
    charts, values = [], []
    for epsilon in _EPSILONS:
        columns: dict[str, list[object]] = {
            k: [] for k in ("method", "county", "rate", "low", "high")
        }
        cases_by_method = {
            name: _released(data, name, epsilon, setting)[..., 0] for name in _METHODS
        }
        for method, released in {"true": data.counts[None, :, 0], **cases_by_method}.items():
            for county, row in data.three().items():
                rates = 1_000 * released[:, row] / data.people[row]
                low, middle, high = (float(q) for q in np.quantile(rates, (0.05, 0.5, 0.95)))
                for name, cell in zip(columns, (method, county, middle, low, high), strict=True):
                    columns[name].append(cell)
        charts.append(
            ItemChart(
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
        small = min(data.three().values(), key=lambda row: int(data.people[row]))
        for method in _METHODS:
            deviation = float(
                cases_by_method[method][:, small].std() / max(1, data.counts[small, 0])
            )
            label = f"smallest county, epsilon = {epsilon}, {method}: standard deviation over truth"
            values.append(Value(f"003.figure1.{epsilon}.{method}", label, None, deviation))
    return _content(data, values, charts)


def figure_2(setting: Setting) -> Content:
    """Draw relative errors over all counties by method and budget."""
    data = read_counties(setting.data)
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
        for name, error in (("median", middle), ("95 %", high)):
            label = f"relative error, epsilon = {epsilon}, {method}: {name}"
            values.append(Value(f"003.figure2.{epsilon}.{method}.{name}", label, None, error))
    chart = ItemChart(
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
    return _content(data, values, [chart])


def figure_3(setting: Setting) -> Content:
    """Draw how often projection produces zeros and rates of one, in small and large counties."""
    data = read_counties(setting.data)
    size = {"smallest": [int(np.argmin(data.people))], "largest": [int(np.argmax(data.people))]}
    rows, values = [], []
    for epsilon in _EPSILONS:
        noisy = projection.with_noise(
            data.counts,
            epsilon=epsilon,
            rng=Seeded(_DRAW_SEED),
            replicates=_replicates(setting),
        )
        contracted = contraction.contractions(projection.project(noisy, total=data.total))
        for name, places in (*size.items(), ("all", None)):
            shares = contracted.of(places)
            effects = ("case zeros", "death zeros", "rates of one")
            for effect, share in zip(
                effects, (shares.case_zeros, shares.death_zeros, shares.rates), strict=True
            ):
                rows.append((f"{name}, {epsilon}", share, effect))
                label = f"{effect}, {name} counties, epsilon = {epsilon}"
                values.append(Value(f"003.figure3.{epsilon}.{name}.{effect}", label, None, share))
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("place", "share", "effect"), map(list, columns), strict=True)))
    chart = ItemChart(
        "what projection contracts",
        "bars",
        table,
        "place",
        "share",
        "effect",
        "counties, epsilon",
        "share of tables",
    )
    return _content(data, values, [chart])


def figure_4(setting: Setting) -> Content:
    """Draw Delta_z of a count against how much a secret moves the others."""
    values = [
        Value(
            f"ppd.deltaz.{n}|{z0}|{z1}",
            f"n = {n}, z0 = {z0}, z1 = {z1}",
            None,
            seeman.delta_z(n=n, z0=z0, z1=z1),
        )
        for n, pairs in _DELTA_Z.items()
        for z0, z1 in pairs
    ]
    note = (
        "Quantiles in floats fail for large n, because the tails that decide are below double "
        "precision. Here integers are exact, and the jumps of both distribution functions are used; "
        "(35) uses those of one. Others must be independent given the secret."
    )
    sizes = (10, 100) if setting.quick else (10, 100, 1000)
    rows = [
        (z / 40, seeman.delta_z(n=n, z0=f"{40 - z}/40", z1=f"{z}/40") / n, f"n = {n}")
        for n in sizes
        for z in range(20, 41)
    ]
    chart = ItemChart(
        "Delta_z over n",
        "lines",
        long_table("z1", "ratio", "n", rows),
        "z1",
        "ratio",
        "n",
        "z1 = 1 - z0",
        "Delta_z / n",
    )
    return Content(tuple(values), (chart,), note)


def example_1(_: Setting) -> Content:
    """Compute how far one value moves a normal mean, given a public number."""
    settings = {
        "Z indep": {},
        "Z=Xbar+N(0,.1)": {
            "mean_with_public": "0.1",
            "person_with_public": "0.1",
            "public_variance": "0.2",
        },
    }
    values = []
    for name, covariances in settings.items():
        mean = seeman.gaussian_mean(n=10, variance=1, **covariances)
        right = float(mean.sensitivity)
        for away in (0, 1, 3):
            value = Value(
                f"003.example1.{name}.{away}",
                f"sensitivity over Delta, {name}, z - mu_Z = {away}; printed: by (16)",
                float(mean.printed(away)),
                right,
                tolerance=1e-12,
            )
            why = "(16) has z - mu_Z in the vector where 0 belongs: z is the same on both sides."
            values.append(value.explained(why))
        exact: dict[str, float | Sequence[float]] = {
            "coef_v": float(mean.coefficient_value),
            "coef_z": float(mean.coefficient_public),
            "right_sens_over_Delta": right,
            "printed_at_z_minus_mu": [float(mean.printed(away)) for away in (0, 1, 3)],
        }
        values.append(Value(f"ppd.example1|{name}", f"coefficients, {name}", None, exact))
    return Content(tuple(values), note="Ten people of variance 1.")


def example_2(_: Setting) -> Content:
    """Compute Delta_z of a count, given k-anonymity and t-closeness."""
    cases: tuple[tuple[str, str, tuple[PublicFact, ...]], ...] = (
        ("none", "nothing else public", ()),
        ("k=3", "3-anonymity", (congenial.KAnonymity(3),)),
        ("t=1/5", "t-closeness, 1/5 about 1/2", (congenial.TCloseness("1/5", "1/2"),)),
    )
    values = tuple(
        Value(
            f"003.example2.{key}",
            f"Delta_z, ten people, {label}",
            None,
            seeman.delta_z(n=10, z0="0.1", z1="0.9", public=public),
        )
        for key, label, public in cases
    )
    note = (
        "The example says that such measures restrict secrets. They also change Delta_z: laws that are "
        "restricted to the same counts are closer together."
    )
    return Content(values, note=note)


def text(_: Setting) -> Content:
    """Compute what the lemmas on composition claim, and what is true."""
    parity = "What is public ties the releases together; they add up only along one coupling."
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
            "The tight bound is tanh(epsilon/2); the printed one says nothing from ln 2 on.",
            1e-12,
        ),
    )
    return Content(values, note="Releases are by randomised response at epsilon = 1.")


def _released(data: Counties, method: str, epsilon: str, setting: Setting) -> IntArray:
    """Return replicates of the released table by a method."""
    size = _replicates(setting)
    if method == "projection":
        return projection.noise_then_project(
            data.counts,
            epsilon=epsilon,
            total=data.total,
            rng=Seeded(_DRAW_SEED),
            replicates=size,
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
    return mechanism.sample(data.counts, rng=Seeded(_DRAW_SEED), size=size)


def _replicates(setting: Setting) -> int:
    return 20 if setting.quick else 100


def _content(data: Counties, values: list[Value], charts: list[ItemChart]) -> Content:
    note = f"{data.source}, {data.total:,} cases. {_NOTE}"
    return Content(tuple(values), tuple(charts), note, NEEDS_COUNTIES if data.synthetic else None)


def _even(people: int) -> dict[tuple[int, ...], Fraction]:
    """Return the uniform law of bits whose sum is known to be even."""
    even = [x for x in product((0, 1), repeat=people) if sum(x) % 2 == 0]
    return {x: Fraction(1, len(even)) for x in even}


def _loss(sums: Sequence[tuple[int, ...]], law: dict[tuple[int, ...], Fraction]) -> float:
    """Return the privacy loss of randomised response, at epsilon = 1, on parities of bits."""
    right = math.e / (1 + math.e)

    def responses(x: tuple[int, ...]) -> Mapping[Hashable, float]:
        true = [sum(x[person] for person in people) % 2 for people in sums]
        return {
            answers: math.prod(
                right if a == b else 1 - right for a, b in zip(answers, true, strict=True)
            )
            for answers in product((0, 1), repeat=len(true))
        }

    pairs = seeman.secret_pairs(people=len(next(iter(law)))).pairs
    return float(seeman.realised_loss(responses, law, pairs))


# Cases and deaths by county: the reader's files, or a synthetic epidemic.


@dataclass(frozen=True, slots=True, eq=False)
class Counties:
    """Two consecutive months: cases of the first, cases and deaths of the second, which is released."""

    names: tuple[str, ...]
    people: IntArray
    before: IntArray
    counts: IntArray
    source: str
    synthetic: bool

    @property
    def total(self) -> int:
        """The public total of cases."""
        return int(self.counts[:, 0].sum())

    def three(self) -> dict[str, int]:
        """Return the rows of a large, a medium and a small county, by name."""
        order = np.argsort(self.people)[::-1]
        rows = (order[0], order[len(order) // 6], order[-1])
        return {f"{self.names[row]} ({self.people[row]:,})": int(row) for row in rows}


def read_counties(folder: Path | None) -> Counties:
    """Read the counties of a folder, or generate synthetic ones if it has none."""
    counts, people = reader_file(folder, _COUNTS), reader_file(folder, _PEOPLE)
    if counts is None or people is None:
        return _synthetic_counties()
    return _read(counts, people)


def _synthetic_counties() -> Counties:
    """Return 67 counties of 4,500 to 1.2 million people, one in 80 of whom falls ill in a month."""
    rng = np.random.default_rng(_EPIDEMIC_SEED)
    people = np.exp(np.linspace(np.log(1.2e6), np.log(4_500), 67)).astype(np.int64)
    before = rng.poisson(people / 90)
    cases = rng.poisson(people / 80)
    deaths = rng.binomial(cases, 0.01)
    names = tuple(f"County {number + 1}" for number in range(len(people)))
    counts = np.stack((cases, deaths), axis=1).astype(np.int64)
    source = "67 synthetic counties"
    return Counties(names, people, before.astype(np.int64), counts, source, synthetic=True)


def _read(counts_file: Path, people_file: Path) -> Counties:
    """Read the last two months, with negative corrections set to 0 and deaths limited to cases."""
    kinds = ("new_cases", "new_deaths")
    people = {
        row["fips"]: whole_number(people_file, "population", row["population"], least=1)
        for row in read_records(people_file, ("fips", "population"))
    }
    rows = read_records(counts_file, ("month", "fips", "county", *kinds))
    codes = sorted(people)
    names = {row["fips"]: row["county"] for row in rows}
    last_two = sorted({row["month"] for row in rows})[-2:]
    at = {(row["month"], row["fips"]): row for row in rows}
    missing = [(month, code) for month in last_two for code in codes if (month, code) not in at]
    if len(last_two) < 2 or missing:
        month, code = missing[0] if missing else ("a second month", codes[0])
        raise InputError(
            f"{counts_file}: no row of {month} for county {code}; it needs the last two months of "
            f"every county in {people_file.name}"
        )
    both = np.array(
        [
            [
                [whole_number(counts_file, kind, at[month, code][kind]) for kind in kinds]
                for code in codes
            ]
            for month in last_two
        ]
    )
    both = np.maximum(both, 0)
    both[..., 1] = np.minimum(both[..., 1], both[..., 0])
    return Counties(
        tuple(names[code] for code in codes),
        np.array([people[code] for code in codes]),
        both[0, :, 0],
        both[1],
        f"{len(codes)} counties, {last_two[1]}, from {_COUNTS}",
        synthetic=False,
    )
