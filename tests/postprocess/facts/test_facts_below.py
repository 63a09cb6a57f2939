"""Facts of the children that the parent's histogram does not allow for: the parent follows them."""

import csv
import dataclasses

import numpy as np
import pytest
from tests.postprocess.solver.test_precision import FACTS, with_facts

from countveil import Plan, Release, Seeded, measure, open_engine, postprocess
from countveil.errors import InfeasibleError
from countveil.plan.passes import Passes
from countveil.postprocess.facts.rows import Row
from countveil.postprocess.family import Family, Limits, MovableParent, solve
from countveil.postprocess.family_information import LevelInformation
from countveil.postprocess.solver.family_problem import Squares

PASSES = Passes(first=(), rounding="totals", look_below=False, residual=1e-9)


def segregate(plan):
    """Give the first county of each state people of one race, the others people of one age."""
    folder = plan.parent
    with (folder / "blocks.csv").open() as file:
        county = {row["block"]: row["county"] for row in csv.DictReader(file)}
    with (folder / "people.csv").open() as file:
        people = list(csv.DictReader(file))
    first = {code[:2]: code for code in sorted(county.values(), reverse=True)}
    for person in people:
        code = county[person["block"]]
        if first[code[:2]] == code:
            person["RACE"] = "white"
        else:
            person["AGE"], person["HISPANIC"] = "under 18", "not Hispanic"
    with (folder / "people.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, people[0])
        writer.writeheader()
        writer.writerows(people)


def test_a_charged_release_is_finished_for_any_people(tmp_path, command):
    """It stopped after the charge, for every draw: no table met the facts of a county."""
    path = with_facts(tmp_path / "place")
    segregate(path)
    out, ledger = tmp_path / "out", tmp_path / "ledgers" / "l.sqlite"
    ledger.parent.mkdir()
    ran = command("release", path, "--to", out, "--ledger", ledger, "--quiet")
    assert ran.status == 0, ran.err
    assert command("verify", out, "--ledger", ledger).status == 0
    assert {item.level for item in Release.read(out).certificate} == {
        "state",
        "county",
        "tract",
        "block",
    }


def test_facts_of_all_levels_hold_where_parents_moved(tmp_path):
    path = with_facts(tmp_path / "place")
    segregate(path)
    text = path.read_text().replace(
        "[postprocess]",
        '[[invariants]]\nlevel = "state"\nquery = "MINORITY"\nreason = "known"\n[postprocess]',
        1,
    )
    path.write_text(text)
    plan = Plan.load(path)
    counts = open_engine("local").tabulate(plan)
    for seed in range(3):
        taken = measure.take(
            counts, plan, rng=Seeded(seed), ledger=None, to=tmp_path / f"out{seed}"
        )
        estimates = postprocess.top_down(taken, plan)
        moved = {item.level: item.moved_parents for item in estimates.certificate}
        assert moved["county"] > 0
        assert moved["block"] == 0, "what lies below is nested, and needs no such step"
        assert estimates.consistency_gap() == 0
        for level, query in (*FACTS, ("state", "MINORITY")):
            exact = taken.invariant(level, query)
            assert (estimates.counts(level, plan.schema.query(query)) == exact).all()


def test_the_nearest_table_is_taken():
    """Two children, two by two cells: the parent has nobody where the first child must have one."""
    rows = (
        Row(np.array([0]), np.array([0, 1]), 1.0, 1.0, "first half of the first child"),
        Row(np.array([0]), np.array([0, 2]), 1.0, 1.0, "even cells of the first child"),
    )
    both = (Row(np.array([0]), np.array([0]), 1.0, 1.0, "one person"),)
    cells = np.array([1, 2, 3])  # the parent has none in cell 0
    family = Family(
        name="parent",
        children=["a", "b"],
        cells=cells,
        parent=np.array([3, 3, 2]),
        information=LevelInformation(
            np.arange(3)[None, :], np.ones(1), np.array([[1, 1, 1], [2, 2, 1]], np.int32)
        ),
        limits=Limits(rows=(Row(np.array([0]), np.array([], int), 1.0, 1.0, "nobody can be"),)),
        label=str,
    )
    with pytest.raises(InfeasibleError):
        solve(family, PASSES)
    movable = MovableParent(np.arange(4), Limits(rows=(*rows, *both)), ())
    solved = solve(dataclasses.replace(family, movable_parent=lambda: movable), PASSES)
    assert solved.certificate.moved_parents == 1
    assert solved.counts.tolist() == [[1, 0, 0, 1], [0, 2, 2, 1]]
    impossible = MovableParent(np.arange(4), Limits(rows=family.limits.rows), ())
    with pytest.raises(InfeasibleError):
        solve(dataclasses.replace(family, movable_parent=lambda: impossible), PASSES)


def test_totals_that_were_measured_well_leave_digits_for_the_cells():
    """A family of two children and twelve cells ended with sums off by eleven people."""
    rng = np.random.default_rng(5)
    truth = rng.poisson(20.0, (2, 12))
    places = np.vstack([np.zeros(12, int), 1 + np.arange(12)])
    weights = np.array([1e4, 1e-3])
    halves = np.arange(12) // 6
    rows = [
        Row(np.array([c]), np.flatnonzero(halves == g), float(n), float(n), "half")
        for c in range(2)
        for g, n in enumerate(np.bincount(halves, truth[c]))
    ]
    noisy = truth + rng.normal(0.0, 30.0, truth.shape)
    totals = truth.sum(axis=1)
    b = weights[0] * 1e2 * totals[:, None] + weights[1] * noisy
    for fixed in (totals, None):
        h, certificate = postprocess.solve_family(
            Squares(places, weights), b, truth.sum(axis=0), fixed, rows=rows
        )
        assert certificate.holds, certificate
        assert certificate.kkt_residual < 1e-12 or fixed is None
        for row in rows:
            assert row.sum_of(h) == pytest.approx(row.lower, abs=1e-9)


CONTRADICTIONS = {
    "a wrong total": ("TOTAL", "block,exactly\n{block},1\n", "must be at least"),
    "too few": ("TOTAL", "block,at_least\n{block},2001\n", "must be at least"),
    "too many of one age": (
        "AGE",
        "block,AGE,at_least\n{block},under 18,2001\n",
        "no table meets all its constraints at once",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_facts_that_contradict_invariants_are_refused_before_the_charge(tmp_path, command, name):
    query, text, message = CONTRADICTIONS[name]
    path = with_facts(tmp_path / "place")
    block = (path.parent / "blocks.csv").read_text().splitlines()[1].split(",")[-1]
    (path.parent / "facts.csv").write_text(text.format(block=block))
    fact = (
        f'[[constraints]]\nlevel = "block"\nquery = "{query}"\npath = "facts.csv"\nreason = "x"\n'
    )
    path.write_text(path.read_text().replace("[postprocess]", f"{fact}[postprocess]", 1))
    ledger = tmp_path / "l.sqlite"
    for arguments in (
        ("check", path),
        ("release", path, "--to", tmp_path / "out", "--ledger", ledger, "--quiet"),
    ):
        ran = command(*arguments)
        assert ran.status == 2, ran.err
        assert message in ran.err
    assert not ledger.exists()
    assert not (tmp_path / "out").exists()


def test_an_empty_internal_folder_does_not_skip_the_rehearsal(tmp_path, command, monkeypatch):
    from countveil.postprocess.solver import multipliers

    monkeypatch.setattr(multipliers, "_ROUNDS", 1)
    monkeypatch.setattr(multipliers, "_PIVOTS", 1)
    path = with_facts(tmp_path / "place")
    (tmp_path / "out-internal").mkdir(mode=0o700)
    ran = command(
        "release", path, "--to", tmp_path / "out", "--ledger", tmp_path / "l.sqlite", "--quiet"
    )
    assert ran.status == 2
    assert "a rehearsal with simulated people failed" in ran.err
    assert not (tmp_path / "l.sqlite").exists()


def test_no_title_changes_the_answer_of_the_rehearsal(tmp_path, monkeypatch):
    from countveil.postprocess import rehearsal

    path = with_facts(tmp_path / "place")
    seen = []

    def solve(family, passes, **rest):
        seen.append(family.information.equations(family.parent, None).b.sum())
        return 1 / 0

    monkeypatch.setattr(rehearsal, "solve", solve)
    for title in ("one", "another"):
        plan = dataclasses.replace(Plan.load(path), title=title)
        with pytest.raises(ZeroDivisionError):
            postprocess.rehearse(plan, plan.geography(), draws=1)
    assert seen[0] == seen[1]
