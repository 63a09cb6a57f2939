"""Expected errors against dense inverses, closed forms and simulation."""

import math

import mpmath
import numpy as np
import pytest
from rich.console import Console
from tests.conftest import TINY_PLAN
from tests.estimate import dense_least_squares, random_trees, released_trees

from countveil import DiscreteGaussian, DiscreteLaplace, Seeded
from countveil.assess.pricing import price
from countveil.estimate.plan_error import expected_error, mean_absolute_noise
from countveil.plan.plans import Plan
from countveil.report.terminal import price_tables
from countveil.tree import attribute_parts, query_errors, subspaces

PL94 = '[release]\ntitle = "t"\npreset = "pl94-2020"\n'

RECODED = TINY_PLAN.replace(
    'AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n',
    """
AGE = ["0", "1", "2", "3", "4", "5", "6"]
SEX = ["f", "m", "x"]
[recodes.BAND]
of = "AGE"
groups = { a = ["0"], b = ["1", "2"], c = ["3", "4"], d = ["5", "6"] }
[recodes.ADULT]
of = "AGE"
groups = { no = ["0", "1", "2", "3"], yes = ["4", "5", "6"] }
[recodes.SOME]
of = "AGE"
groups = { low = ["0", "1"], high = ["2", "3", "4"] }
omit = ["5", "6"]
[recodes.LATE]
of = "AGE"
groups = { late = ["5", "6"] }
omit = ["0", "1", "2", "3", "4"]
[recodes.KNOWN]
of = "SEX"
groups = { known = ["f", "m"] }
omit = ["x"]
""",
)


def recoded(**shares: str) -> Plan:
    """A plan whose levels measure the named queries; `_` stands for `*`."""
    table = "\n".join(f'"{name.replace("_", "*")}" = "{share}"' for name, share in shares.items())
    return Plan.parse(RECODED.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', table))


PLANS = {
    "a detailed query beside a total": Plan.parse(TINY_PLAN),
    "pure noise": Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "2"')),
    "one recode": recoded(TOTAL="1/8", BAND="1/8", BAND_SEX="1/4", AGE_SEX="1/2"),
    "groups that are not nested": recoded(BAND="1/8", ADULT_SEX="3/8", SEX="1/8", AGE_SEX="3/8"),
    "categories left out": recoded(SOME_KNOWN="1/4", SOME="1/4", TOTAL="1/4", AGE_SEX="1/4"),
    "no query tells all cells apart": recoded(AGE="1/2", SEX="1/4", BAND_SEX="1/4"),
    "a total from two halves": recoded(SOME="1/2", LATE="1/4", LATE_SEX="1/4"),
    "shares a million times apart": recoded(
        TOTAL="999998/1000000", SEX="1/1000000", AGE="1/1000000"
    ),
}


def rows_of(query):
    return (np.arange(query.cells)[:, None] == query.cell_of).astype(float)


def dense(plan, level, name):
    """Standard errors of all cells of a query, by the pseudo-inverse of the normal equations."""
    R = np.concatenate(
        [rows_of(item.query) / math.sqrt(item.mechanism.variance) for item in plan.at(level)]
    )
    inverse = np.linalg.pinv(R)
    Q = rows_of(plan.schema.query(name))
    assert np.allclose(Q @ inverse @ R, Q)  # in the row space, so that the answer has a meaning
    return np.sqrt(((Q @ inverse) ** 2).sum(axis=1))


@pytest.mark.parametrize("case", PLANS)
def test_standard_errors_are_those_of_the_dense_inverse(case):
    plan = PLANS[case]
    found = expected_error(plan)
    for level in plan.levels:
        names = [item.query for item in found if item.level == level]
        assert names == list(dict.fromkeys(["TOTAL", *names]))
        assert set(names) == {"TOTAL", *(item.query.name for item in plan.at(level))}
    for item in found:
        errors = dense(plan, item.level, item.query)
        assert item.standard_error == pytest.approx(errors.max(), rel=1e-9)
        assert item.smallest_standard_error == pytest.approx(errors.min(), rel=1e-9)


def test_cells_of_unequal_groups_have_a_range():
    found = {item.query: item for item in expected_error(PLANS["one recode"])}
    assert found["BAND"].smallest_standard_error < 0.99 * found["BAND"].standard_error
    assert found["TOTAL"].smallest_standard_error == found["TOTAL"].standard_error


def test_the_redistricting_plan_agrees_with_the_inverse_of_2016_cells():
    plan = Plan.parse(PL94)
    found = expected_error(plan)
    assert len(found) == 66  # TOTAL is not measured in the nation
    A = np.zeros((2016, 2016))
    for item in plan.at("county"):
        cell = item.query.cell_of
        A += (cell[:, None] == cell) / item.mechanism.variance
    inverse = np.linalg.inv(A)
    for item in found:
        if item.level == "county":
            Q = rows_of(plan.schema.query(item.query))
            errors = np.sqrt(((Q @ inverse) * Q).sum(axis=1))
            assert item.standard_error == pytest.approx(errors.max(), rel=1e-9)
            assert item.smallest_standard_error == pytest.approx(errors.min(), rel=1e-9)


@pytest.mark.parametrize(
    "shares",
    [
        {"LATE": "1"},
        {"SOME_KNOWN": "1"},
        {"SOME": "1/2", "KNOWN": "1/2"},
        {"SOME_SEX": "1/2", "KNOWN": "1/2"},
        {"SOME_KNOWN": "1/2", "LATE_SEX": "1/2"},
    ],
)
def test_what_the_queries_do_not_determine_is_left_out(shares):
    plan = recoded(**shares)
    found = {item.query: item for item in expected_error(plan) if item.level == "area"}
    total = found.pop("TOTAL")
    assert (total.standard_deviation, total.absolute_error) == (None, None)
    assert (total.standard_error, total.combined_absolute_error) == (None, None)
    assert len(found) == len(shares)
    for name, item in found.items():
        assert item.standard_error == pytest.approx(dense(plan, "area", name).max(), rel=1e-9)


def test_too_many_kinds_of_cells_are_left_out(monkeypatch):
    monkeypatch.setattr(subspaces, "_MOST_SUBSPACES", 3)
    found = {item.query: item for item in expected_error(PLANS["one recode"])}
    assert found["AGE*SEX"].standard_error is None
    assert found["AGE*SEX"].absolute_error > 0
    assert found["TOTAL"].standard_error > 0


def test_extreme_plans_have_errors_too():
    loud = TINY_PLAN.replace('rho = "2"', 'rho = "9999"')
    for item in expected_error(Plan.parse(loud)):
        assert item.standard_error < 1e-9
    alone = 'AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n'
    text = TINY_PLAN.replace(alone, "").replace('"AGE*SEX" = "3/4"', "").replace('"1/4"', '"1"')
    for item in expected_error(Plan.parse(text)):
        assert item.standard_error == pytest.approx(item.standard_deviation)


@pytest.mark.parametrize("scale", ["1/20", "1/2", "3", "700", "9001", "1000000"])
def test_mean_absolute_discrete_laplace_noise_is_1_over_sinh(scale):
    noise = DiscreteLaplace(scale)
    expected = float(
        1 / mpmath.sinh(1 / mpmath.mpf(noise.scale.numerator) * noise.scale.denominator)
    )
    assert mean_absolute_noise(noise) == pytest.approx(expected, rel=2e-14)


@pytest.mark.parametrize("sigma2", ["1/100", "3/10", "5", "900", "4000000", "6250000"])
def test_mean_absolute_discrete_gaussian_noise_is_its_sum(sigma2):
    noise = DiscreteGaussian(sigma2)
    k = np.arange(1, math.ceil(60 * math.sqrt(noise.sigma2)) + 60)
    weights = np.exp(-(k**2) / float(2 * noise.sigma2))
    expected = 2 * math.fsum(k * weights) / (1 + 2 * math.fsum(weights))
    assert mean_absolute_noise(noise) == pytest.approx(expected, rel=2e-14)


def test_mean_absolute_noise_of_the_widest_law():
    sigma2 = 2.0**48
    half = sigma2 - 1 / 12 - 1 / (240 * sigma2)  # Euler and Maclaurin
    expected = 2 * half / math.sqrt(2 * math.pi * sigma2)
    assert mean_absolute_noise(DiscreteGaussian(2**48)) == pytest.approx(expected, rel=2e-14)


def test_noise_and_least_squares_behave_so_in_simulation():
    plan = recoded(TOTAL="1/8", BAND_SEX="3/8", AGE_SEX="1/2")
    draws = 20_000
    R, values = [], []
    for number, item in enumerate(plan.at("area")):
        noise = item.mechanism
        drawn = noise.sample(draws * item.query.cells, rng=Seeded(number)).reshape(draws, -1)
        found = next(
            x for x in expected_error(plan) if (x.level, x.query) == ("area", item.query.name)
        )
        standard = found.standard_deviation / math.sqrt(drawn.size)
        assert np.abs(drawn).mean() == pytest.approx(found.absolute_error, abs=4 * standard)
        R.append(rows_of(item.query) / math.sqrt(noise.variance))
        values.append(drawn / math.sqrt(noise.variance))
    fit = np.linalg.lstsq(np.concatenate(R), np.concatenate(values, axis=1).T, rcond=None)[0]
    for item in expected_error(plan):
        if item.level == "area":
            errors = (rows_of(plan.schema.query(item.query)) @ fit).std(axis=1)
            # The largest of up to 21 sample deviations, each with a relative error of 1/sqrt(2 n).
            assert errors.max() == pytest.approx(item.standard_error, rel=4 / math.sqrt(2 * draws))
            assert errors.min() == pytest.approx(
                item.smallest_standard_error, rel=4 / math.sqrt(2 * draws)
            )
    absolute = np.abs(rows_of(plan.schema.query("TOTAL")) @ fit).mean()
    total = next(x for x in expected_error(plan) if (x.level, x.query) == ("area", "TOTAL"))
    assert absolute == pytest.approx(total.combined_absolute_error, rel=0.03)


def test_invariants_are_exact_at_their_level_and_above():
    found = {(item.level, item.query): item for item in expected_error(Plan.parse(PL94))}
    exact = {key for key, item in found.items() if item.as_counted}
    assert exact == {("nation", "TOTAL"), ("state", "TOTAL")}
    housing = expected_error(Plan.parse(PL94.replace("pl94-2020", "pl94-2020-housing")))
    assert all(item.as_counted == (item.query == "TOTAL") for item in housing)


def test_the_price_shows_them():
    priced = price(Plan.parse(PL94))
    assert priced.errors == expected_error(priced.plan)
    document = price_tables.price_document(priced)
    nation, *_, block = (level["expected_error"] for level in document["levels"])
    assert nation[0]["query"] == "TOTAL"
    assert nation[0]["as_counted"] is True
    assert nation[0]["standard_deviation"] is None
    assert len(block) == 11
    assert block[0]["combined_absolute_error"] == pytest.approx(39.17, abs=0.005)
    short, long = (shown(priced, every_query=every) for every in (False, True))
    assert short.count("HHGQ*VOTINGAGE*HISPANIC*CENRACE") == 6
    assert "CENRACE" not in short.replace("HHGQ*VOTINGAGE*HISPANIC*CENRACE", "")
    assert long.count("HISPANIC*CENRACE") == 18
    block_total = next(
        line for line in short.splitlines() if line.split()[:2] == ["block", "TOTAL"]
    )
    assert block_total.split() == ["block", "TOTAL", "89", "49", "39"]
    assert short.count("exact") == 2


def shown(priced, every_query):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(price_tables.price_view(priced, every_query=every_query))
    return captured.get().split("Expected error")[1].split("Noise:")[0]


def count_climbs(monkeypatch) -> list[object]:
    climbed: list[object] = []
    real = query_errors.climb

    def counted(tree, space, observations):
        climbed.append(space)
        return real(tree, space, observations)

    monkeypatch.setattr(query_errors, "climb", counted)
    return climbed


def test_levels_with_the_same_noise_are_solved_once(monkeypatch):
    climbed = count_climbs(monkeypatch)
    text = TINY_PLAN.split("[budget]")[0] + '[budget]\nrho = "1"\n[budget.levels]\n'
    text += 'region = "1/2"\narea = "1/2"\n[budget.queries."*"]\n'
    found = expected_error(Plan.parse(text + 'AGE = "1/2"\nSEX = "1/2"\n'))
    assert len(climbed) == 3, "the total, and the contrasts of AGE and of SEX, for both levels"
    errors = {(item.level, item.query): item.standard_error for item in found}
    assert errors["region", "SEX"] == errors["area", "SEX"]
    # Half of the share in one order and half in the other is the whole of it.
    whole = expected_error(Plan.parse(text + '"AGE*SEX" = "1"\n'))
    half = expected_error(Plan.parse(text + '"AGE*SEX" = "1/2"\n"SEX*AGE" = "1/2"\n'))
    assert half[1].standard_error == pytest.approx(whole[1].standard_error, rel=1e-6)


def test_too_many_queries_are_left_out_together(monkeypatch):
    climbed = count_climbs(monkeypatch)
    monkeypatch.setattr(query_errors, "_MOST_SUBSPACES", 3)
    found = expected_error(Plan.parse(TINY_PLAN))
    assert climbed == []
    assert all(item.standard_error is None for item in found)
    assert any(item.standard_deviation is not None for item in found)


def test_queries_beyond_the_numbers_that_are_kept_have_no_standard_error(monkeypatch):
    plan = Plan.parse(TINY_PLAN)
    every = expected_error(plan)
    monkeypatch.setattr(query_errors, "_MOST_NUMBERS", 8)
    found = expected_error(plan)
    left_out = [item.standard_error is None for item in found]
    assert any(left_out)
    assert not all(left_out)
    for one, other in zip(found, every, strict=True):
        assert one.standard_error in (None, other.standard_error)


@pytest.mark.parametrize("limit", ["_MOST_ENTRIES", "_MOST_WORK"])
def test_recodes_that_are_too_many_for_the_algebra_leave_the_noise(monkeypatch, limit):
    monkeypatch.setattr(attribute_parts, limit, 0)
    found = expected_error(Plan.parse(TINY_PLAN))
    assert all(item.standard_error is None for item in found)
    assert any(item.standard_deviation is not None for item in found)


@pytest.mark.parametrize("seed", range(400, 416))
def test_with_places_errors_are_those_of_the_whole_tree(seed, tmp_path):
    """Against the covariance of one dense problem over all units, cells and measurements."""
    text, places, _ = random_trees.draw(seed)
    made = released_trees.release(tmp_path / "tree", text, places, seed=seed)
    plan = made.plan
    units = made.geography.units(plan.levels[-1])
    if units * plan.schema.cells > 300:
        first = places.splitlines()[1].split(",")[0] + ","
        kept = [line for line in places.splitlines()[1:] if line.startswith(first)][:5]
        places = "\n".join([places.splitlines()[0], *kept]) + "\n"
        made = released_trees.release(tmp_path / "smaller", text, places, seed=seed)
        plan = made.plan
    solution = dense_least_squares.solve(made.measurements, plan, made.geography)
    for item in expected_error(plan, geography=made.geography):
        assert item.basis == "tree"
        every = range(made.geography.units(item.level))
        rows = [solution.rows(item.level, item.query, [unit]) for unit in every]
        if max(np.abs(row @ solution.undetermined).max() for row in rows) > 1e-6:
            assert item.standard_error is None
            continue
        variance = np.array([np.einsum("ij,jk,ik->i", r, solution.covariance, r) for r in rows])
        errors = np.sqrt(np.maximum(variance, 0.0))
        near = {"rel": 1e-6, "abs": 1e-6}
        assert item.largest_standard_error == pytest.approx(errors.max(), **near)
        assert item.smallest_standard_error == pytest.approx(errors.min(), **near)
        typical = math.sqrt((errors**2).mean(axis=0).max())
        assert item.standard_error == pytest.approx(typical, **near)
