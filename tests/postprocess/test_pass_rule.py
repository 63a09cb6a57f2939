"""The rule that estimates totals first where the bound of 0 would push them."""

import numpy as np
import pytest

from countveil import Plan, Seeded, estimate, measure, open_engine, postprocess
from countveil.postprocess import family
from countveil.postprocess.pass_rule import total_may_be_pushed

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
    assert total_may_be_pushed(Plan.parse(ALL, folder=tmp_path), "zip")
    assert not total_may_be_pushed(Plan.parse(FEW, folder=tmp_path), "zip")
    preset = Plan.parse('[release]\ntitle = "Redistricting"\npreset = "pl94-2020"')
    for level in ("state", "county", "tract", "block_group"):
        assert not total_may_be_pushed(preset, level)


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
