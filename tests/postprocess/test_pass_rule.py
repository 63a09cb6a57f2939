"""The rule that estimates queries first where the bound of 0 would push their sums."""

import numpy as np
import pytest

from countveil import Plan, Seeded, estimate, measure, open_engine, postprocess
from countveil.postprocess import family
from countveil.postprocess.pass_rule import UnbiasedSums, candidates, may_be_pushed, pushed_farthest

QUERIES = ["TOTAL", "A", "B", "C", "A*B", "A*C", "B*C"]
PLAN = """
release = { title = "Visits", unit = "person", neighbors = "add-remove" }
records = { path = "visits.csv", one_row_per_person = true }
geography = { path = "places.csv", levels = ["county", "zip"] }
postprocess = { method = "top-down" }
[attributes]
A = ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7"]
B = ["b0", "b1", "b2", "b3", "b4", "b5"]
C = ["c0", "c1", "c2", "c3", "c4", "c5"]
[budget]
rho = "1"
levels = { county = "1/2", zip = "1/2" }
[budget.queries."*"]
"""
ALL = PLAN + "".join(f'"{name}" = "1/7"\n' for name in QUERIES)
FEW = PLAN + 'TOTAL = "1/2"\nA = "1/2"\n'


def measured(folder, text, visits, seed=1):
    rng = np.random.default_rng(seed)
    (folder / "places.csv").write_text(
        "county,zip\n" + "".join(f"C{z % 2},z{z}\n" for z in range(8))
    )
    rows = [
        ",".join([f"z{rng.integers(8)}", *(f"{n}{min(rng.geometric(0.6) - 1, 5)}" for n in "abc")])
        for _ in range(visits)
    ]
    (folder / "visits.csv").write_text("zip,A,B,C\n" + "\n".join(rows) + "\n")
    plan = Plan.parse(text, folder=folder)
    counts = open_engine("local").tabulate(plan)
    taken = measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=folder / f"out{seed}")
    return taken, plan, counts


@pytest.fixture
def coarse(monkeypatch):
    """The queries that families are solved for first."""
    asked = []
    original = family._merged
    monkeypatch.setattr(
        family, "_merged", lambda *given: asked.append(given[2].name) or original(*given)
    )
    return asked


def test_it_depends_on_how_many_queries_count_as_much_as_the_total(tmp_path):
    (tmp_path / "places.csv").write_text("county,zip\nC,z\n")
    all_, few = (Plan.parse(text, folder=tmp_path) for text in (ALL, FEW))
    assert may_be_pushed(all_, "zip", all_.schema.query("TOTAL"))
    assert not may_be_pushed(few, "zip", few.schema.query("TOTAL"))
    preset = Plan.parse('[release]\ntitle = "Redistricting"\npreset = "pl94-2020"')
    for level in ("state", "county", "tract", "block_group"):
        assert not may_be_pushed(preset, level, preset.schema.query("TOTAL"))


def test_other_queries_need_a_pass_at_the_top_alone():
    preset = Plan.parse('[release]\ntitle = "Redistricting"\npreset = "pl94-2020"')
    names = {query.name for query in candidates(preset, "nation", top=True)}
    assert {"HHGQ", "HHINSTLEVELS"} <= names
    assert "HHGQ*VOTINGAGE*HISPANIC*CENRACE" not in names
    assert candidates(preset, "state", top=False) == ()


def test_the_query_with_the_farthest_clear_sum_is_chosen(tmp_path):
    (tmp_path / "places.csv").write_text("county,zip\nC,z\n")
    schema = Plan.parse(ALL, folder=tmp_path).schema
    cells = np.arange(schema.cells)
    h = np.ones((1, schema.cells))
    by_a, by_b = np.full((1, 8), 36.0), np.full((1, 6), 48.0)
    near, far = by_b - 1.9, by_a - 2.1
    unclear = UnbiasedSums(by_b - 40, np.ones((1, 6)))

    def chosen(*told):
        return pushed_farthest([(schema.query(name), sums) for name, sums in told], h, cells)

    a, b = (UnbiasedSums(x, np.ones(x.shape)) for x in (far, near))
    assert chosen(("A", a), ("B", b)).name == "A"
    assert chosen(("B", b), ("C", unclear), ("A*B", None)) is None


def test_totals_come_first_where_they_are_clear_and_may_be_pushed(tmp_path, coarse):
    taken, plan, counts = measured(tmp_path, ALL, 4_000)
    postprocess.top_down(taken, plan, geography=counts.geography)
    assert set(coarse) == {"TOTAL"}


@pytest.mark.parametrize(
    ("text", "visits"),
    [
        (ALL, 60),  # totals near 0
        (FEW, 4_000),  # one other query cannot push far
        (ALL + '[postprocess.levels."*"]\npasses = []\n', 4_000),  # the plan says none
    ],
)
def test_elsewhere_all_queries_are_used_at_once(text, visits, tmp_path, coarse):
    text = text.replace('postprocess = { method = "top-down" }\n', "", 1)
    text += '[postprocess]\nmethod = "top-down"\n'
    taken, plan, counts = measured(tmp_path, text, visits)
    postprocess.top_down(taken, plan, geography=counts.geography)
    assert coarse == []


def test_totals_stay_as_good_as_their_best_unbiased_estimate(tmp_path):
    """Eight releases: their mean absolute error, next to that of least squares."""
    published, unbiased = [], []
    for seed in range(1, 9):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        taken, plan, counts = measured(folder, ALL, 1_500, seed)
        estimates = postprocess.top_down(taken, plan, geography=counts.geography)
        exact = np.bincount(*counts.entries("zip", 0, 8)[::2], minlength=8)
        total = plan.schema.query("TOTAL")
        published.append(np.abs(estimates.counts("zip", total)[:, 0] - exact).mean())
        values = estimate.least_squares(taken, plan, geography=counts.geography)
        linear = values.estimate("zip", "TOTAL")["value"].to_numpy()
        unbiased.append(np.abs(linear - exact).mean())
    assert np.mean(published) <= 1.15 * np.mean(unbiased) + 0.15


SKEWED = """
release = { title = "Housing", unit = "person", neighbors = "change-one" }
records = { path = "people.csv", counts = "n", one_row_per_person = true }
geography = { path = "places.csv", levels = ["nation", "state"] }
postprocess = { method = "top-down" }
[attributes]
TYPE = ["household", "t1", "t2", "t3", "t4", "t5", "t6", "t7"]
AGE = ["a0", "a1"]
RACE = [RACES]
[budget]
rho = "1/20"
levels = { nation = "1/2", state = "1/2" }
[budget.queries."*"]
TYPE = "1/20"
"AGE*RACE" = "4/20"
"TYPE*AGE*RACE" = "15/20"
[[invariants]]
level = "state"
query = "TOTAL"
reason = "known"
"""


def test_a_large_category_is_as_good_as_its_best_unbiased_estimate(tmp_path, coarse):
    """Noise in the empty cells of other types must not move the people in households."""
    races = [f"r{number}" for number in range(40)]
    text = SKEWED.replace("RACES", ", ".join(f'"{race}"' for race in races))
    (tmp_path / "places.csv").write_text("nation,state\nN,s0\nN,s1\n")
    rng = np.random.default_rng(2)
    lines = [
        f"s{state},household,a{age},{race},{int(1_000 * rng.gamma(0.3)) + 1}"
        for state in range(2)
        for age in range(2)
        for race in races
    ]
    (tmp_path / "people.csv").write_text("state,TYPE,AGE,RACE,n\n" + "\n".join(lines) + "\n")
    plan = Plan.parse(text, folder=tmp_path)
    counts = open_engine("local").tabulate(plan)
    published, unbiased = [], []
    for seed in range(4):
        taken = measure.take(
            counts, plan, rng=Seeded(seed), ledger=None, to=tmp_path / f"out{seed}"
        )
        estimates = postprocess.top_down(taken, plan, geography=counts.geography)
        households = counts.entries("nation", 0, 1)[2].sum()
        query = plan.schema.query("TYPE")
        published.append(abs(estimates.counts("nation", query)[0, 0] - households))
        values = estimate.least_squares(taken, plan, geography=counts.geography)
        linear = values.estimate("nation", "TYPE")["value"].to_numpy()[0]
        unbiased.append(abs(linear - households))
    assert np.mean(published) <= 1.15 * np.mean(unbiased) + 0.15
    assert set(coarse) == {"TYPE"}
