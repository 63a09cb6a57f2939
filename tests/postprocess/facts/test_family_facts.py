"""Public facts: estimates agree with them, and facts that contradict each other are named."""

from __future__ import annotations

import numpy as np
import pytest

from countveil import postprocess
from countveil.base.histograms import roll_up, store
from countveil.errors import InfeasibleError, InputError, PlanError
from countveil.postprocess.facts.family_facts import broken_facts, read_facts
from countveil.postprocess.solver import nonnegative

INVARIANT = '[[invariants]]\nlevel = "{level}"\nquery = "{query}"\nreason = "known"\n'
CONSTRAINT = (
    '[[constraints]]\nlevel = "{level}"\nquery = "{query}"\npath = "{path}"\nreason = "known"\n'
)
ZERO = '[[structural_zeros]]\ncells = { KIND = ["nursing"], AGE = ["child"] }\nreason = "nobody"\n'


def counted(estimates, level, query):
    return estimates.counts(level, estimates.plan.schema.query(query))


@pytest.mark.parametrize("level", ["state", "county", "tract", "block"])
@pytest.mark.parametrize("query", ["TOTAL", "KIND", "AGE*RACE"])
def test_invariants_hold_at_any_level_and_above_it(measured, people, level, query):
    measurements, plan = measured(more=INVARIANT.format(level=level, query=query))
    estimates = postprocess.top_down(measurements, plan)
    assert estimates.consistency_gap() == 0
    for above in plan.levels[: plan.levels.index(level) + 1]:
        names = [] if query == "TOTAL" else query.split("*")
        exact = people.groupby([above, *names]).size()
        table = estimates.table(above, query).to_pandas().set_index(["geocode", *names])
        table = table[table["estimate"] > 0]["estimate"]
        assert table.to_dict() == exact.to_dict()
    assert broken_facts(estimates, measurements) == ""


def test_facility_counts_bound_the_people_in_each_kind_of_place(measured, people, tmp_path):
    facilities = [("1000", "prison", 40), ("1000", "nursing", 3), ("1124", "college", 25)]
    lines = ["block,KIND,at_least,at_most", *(f"{b},{k},{n}," for b, k, n in facilities)]
    known = {(block, kind) for block, kind, _ in facilities}
    for block in _blocks():
        lines += [
            f"{block},{k},,0" for k in ("prison", "nursing", "college") if (block, k) not in known
        ]
    (tmp_path / "facilities.csv").write_text("\n".join(lines) + "\n")
    measurements, plan = measured(
        more=CONSTRAINT.format(level="block", query="KIND", path="facilities.csv")
    )
    estimates = postprocess.top_down(measurements, plan)
    table = estimates.table("block", "KIND").to_pandas()
    table = table[table["KIND"] != "home"].set_index(["geocode", "KIND"])["estimate"]
    for place, people_there in table.items():
        least = {(b, k): n for b, k, n in facilities}.get(place, 0)
        assert people_there >= least
        assert people_there == 0 or place in known
    assert broken_facts(estimates, measurements) == ""


def _blocks():
    return [f"1{c}{t}{b}" for c in range(2) for t in range(3) for b in range(5)]


def test_structural_zeros_are_empty_everywhere(measured):
    measurements, plan = measured(('rho = "1"', 'rho = "1/100"'), more=ZERO)
    estimates = postprocess.top_down(measurements, plan)
    table = estimates.table("block", "KIND*AGE").to_pandas()
    nobody = table[(table["KIND"] == "nursing") & (table["AGE"] == "child")]
    assert nobody["estimate"].sum() == 0
    free = postprocess.top_down(*measured(('rho = "1"', 'rho = "1/100"')))
    table = free.table("block", "KIND*AGE").to_pandas()
    nobody = table[(table["KIND"] == "nursing") & (table["AGE"] == "child")]
    assert nobody["estimate"].sum() > 0  # or the first half could not fail


def test_groups_of_siblings_keep_their_sum(measured, tmp_path):
    (tmp_path / "towns.csv").write_text("group,RACE,exactly\nnorth,a,150\nsouth,b,20\n")
    (tmp_path / "members.csv").write_text(
        "group,tract\nnorth,100\nnorth,101\nsouth,111\nsouth,112\n"
    )
    more = CONSTRAINT.format(level="tract", query="RACE", path="towns.csv")
    more = more.replace("reason", 'members = "members.csv"\nreason')
    measurements, plan = measured(more=more)
    estimates = postprocess.top_down(measurements, plan)
    table = estimates.table("tract", "RACE").to_pandas().set_index(["geocode", "RACE"])["estimate"]
    assert table["100", "a"] + table["101", "a"] == 150
    assert table["111", "b"] + table["112", "b"] == 20
    assert estimates.consistency_gap() == 0
    assert broken_facts(estimates, measurements) == ""


def test_bounds_of_a_level_without_a_budget_bind_the_next_one(measured, people):
    shares = ('county = "1/4"\ntract = "1/4"', 'county = "0"\ntract = "1/2"')
    measurements, plan = measured(shares, more=INVARIANT.format(level="county", query="TOTAL"))
    estimates = postprocess.top_down(measurements, plan)
    exact = people.groupby("county").size()
    assert counted(estimates, "county", "TOTAL")[:, 0].tolist() == exact.tolist()


def test_bounds_at_the_top_tie_units_together(measured, people):
    shares = ('state = "1/4"\ncounty = "1/4"', 'state = "0"\ncounty = "1/2"')
    measurements, plan = measured(shares, more=INVARIANT.format(level="state", query="TOTAL"))
    estimates = postprocess.top_down(measurements, plan)
    assert counted(estimates, "state", "TOTAL").tolist() == [[len(people)]]


def test_lower_bounds_add_up_so_that_parents_leave_room(measured, tmp_path, monkeypatch):
    """Blocks that need more people than were measured pull up every level above them."""
    lines = ["block,KIND,at_least", *(f"{block},prison,20" for block in _blocks())]
    (tmp_path / "prisons.csv").write_text("\n".join(lines) + "\n")
    more = CONSTRAINT.format(level="block", query="KIND", path="prisons.csv")
    calls = []
    original = nonnegative.solve_rows
    monkeypatch.setattr(
        nonnegative, "solve_rows", lambda *given: calls.append(given) or original(*given)
    )
    estimates = postprocess.top_down(*measured(more=more))
    assert len(calls) >= 6  # the bounds bind, or this would show nothing
    assert (counted(estimates, "block", "KIND")[:, 1] >= 20).all()
    assert counted(estimates, "state", "KIND")[0, 1] >= 600


def test_facts_that_contradict_each_other_are_named_before_anything_is_spent(measured, tmp_path):
    (tmp_path / "a.csv").write_text("block,exactly\n1000,70\n1001,50\n")
    (tmp_path / "b.csv").write_text("tract,at_most\n100,100\n")
    more = CONSTRAINT.format(level="block", query="TOTAL", path="a.csv")
    more += CONSTRAINT.format(level="tract", query="TOTAL", path="b.csv")
    _measurements, plan = measured(more=more)
    message = (
        "tract 100: TOTAL must be at least 120 and at most 100, by its own bounds or those of the"
    )
    with pytest.raises(InfeasibleError, match=message):
        read_facts(plan, plan.geography(), None)


def test_facts_that_the_estimates_cannot_meet_are_named(measured, tmp_path):
    (tmp_path / "a.csv").write_text("block,RACE,at_least\n1000,a,1000\n1001,b,1000\n")
    more = INVARIANT.format(level="state", query="TOTAL")
    more += CONSTRAINT.format(level="block", query="RACE", path="a.csv")
    with pytest.raises(InfeasibleError) as caught:
        postprocess.top_down(*measured(more=more))
    assert str(caught.value) == (
        "state 1: 1 needs at least 1,000 people in RACE = a, 1 needs at least 1,000 people in "
        "RACE = b, and 1 totals 1,500 people: short by 500 people; check these constraints or widen "
        "them"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "block,at_least\n1000,-1\n",
            "row 1: at_least = '-1'; it must be a whole number of 0 or more",
        ),
        ("block,at_least\n9999,1\n", "row 1: unknown block 9999; use a code of the crosswalk"),
        ("block,at_least,colour\n1000,1,red\n", "unknown column 'colour'; choose from block"),
        ("block\n1000\n", "none of the columns at_least, at_most, exactly; add one"),
        ("tract,at_least\n100,1\n", "no column 'block'; it needs block"),
        ("block,exactly\n1000,2.5\n", "row 1: exactly = '2.5'; it must be a whole number"),
    ],
)
def test_files_of_facts_are_checked(measured, tmp_path, text, message):
    (tmp_path / "facts.csv").write_text(text)
    _measurements, plan = measured(
        more=CONSTRAINT.format(level="block", query="TOTAL", path="facts.csv")
    )
    with pytest.raises(InputError, match=message):
        read_facts(plan, plan.geography(), None)


def test_a_missing_file_of_facts_is_named(measured, tmp_path):
    (tmp_path / "none.csv").write_text("block,at_least\n1000,1\n")
    _, plan = measured(more=CONSTRAINT.format(level="block", query="TOTAL", path="none.csv"))
    (tmp_path / "none.csv").unlink()
    with pytest.raises(InputError, match=r"none\.csv: cannot be read as a CSV file"):
        read_facts(plan, plan.geography(), None)


def test_groups_lie_in_one_parent_and_have_members(measured, tmp_path):
    (tmp_path / "towns.csv").write_text("group,exactly\nnorth,150\n")
    more = CONSTRAINT.format(level="tract", query="TOTAL", path="towns.csv")
    more = more.replace("reason", 'members = "members.csv"\nreason')
    (tmp_path / "members.csv").write_text("group,tract\nnorth,100\nnorth,110\n")
    _measurements, plan = measured(more=more)
    with pytest.raises(InputError, match="group 'north' has units of more than one county"):
        read_facts(plan, plan.geography(), None)
    (tmp_path / "members.csv").write_text("group,tract\nsouth,100\n")
    with pytest.raises(InputError, match="lists no tract in group 'north'; list its units"):
        read_facts(plan, plan.geography(), None)


GROUPS = CONSTRAINT.replace("reason", 'members = "members.csv"\nreason')


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("group,at_least,at_most\nnorth,80,20\n", "must be at least 80 and at most 20"),
        (
            "group,exactly\nnorth,80\n",
            "TOTAL of group north, of tract: must be at least 80 and at m",
        ),
    ],
)
def test_groups_that_contradict_their_members_are_named_before_anything_is_spent(
    measured, tmp_path, facts, message
):
    (tmp_path / "towns.csv").write_text(facts)
    (tmp_path / "members.csv").write_text("group,tract\nnorth,100\nnorth,101\n")
    (tmp_path / "most.csv").write_text("tract,at_most\n100,30\n101,30\n")
    more = GROUPS.format(level="tract", query="TOTAL", path="towns.csv")
    more += CONSTRAINT.format(level="tract", query="TOTAL", path="most.csv")
    _, plan = measured(more=more)
    with pytest.raises(InfeasibleError, match=message):
        read_facts(plan, plan.geography(), None)


def test_a_group_may_lie_across_units_of_a_level_without_a_budget(measured, tmp_path):
    """Its bounds say nothing simple of those units: they are neither lost nor put on one of them."""
    shares = ('county = "1/4"\ntract = "1/4"', 'county = "0"\ntract = "1/2"')
    (tmp_path / "towns.csv").write_text("group,exactly\nmiddle,700\n")
    (tmp_path / "members.csv").write_text("group,tract\nmiddle,102\nmiddle,110\n")
    (tmp_path / "most.csv").write_text("county,at_most\n10,800\n11,900\n")
    more = GROUPS.format(level="tract", query="TOTAL", path="towns.csv")
    more += CONSTRAINT.format(level="county", query="TOTAL", path="most.csv")
    measurements, plan = measured(shares, more=more)
    estimates = postprocess.top_down(measurements, plan)
    tracts = counted(estimates, "tract", "TOTAL")[:, 0]
    assert tracts[2] + tracts[3] == 700
    counties = counted(estimates, "county", "TOTAL")[:, 0]
    assert counties[0] <= 800
    assert counties[1] <= 900
    assert broken_facts(estimates, measurements) == ""


def test_a_lower_bound_of_a_group_leaves_room_above(measured, tmp_path):
    """Overlapping or not, what a group needs its parent must have."""
    (tmp_path / "towns.csv").write_text("group,at_least\nnorth,3000\n")
    (tmp_path / "members.csv").write_text("group,tract\nnorth,100\nnorth,101\n")
    (tmp_path / "least.csv").write_text("tract,at_least\n100,10\n102,50\n")
    more = GROUPS.format(level="tract", query="TOTAL", path="towns.csv")
    more += CONSTRAINT.format(level="tract", query="TOTAL", path="least.csv")
    measurements, plan = measured(more=more)
    facts = read_facts(plan, plan.geography(), None)
    # Tracts 100 and 101 count once, as the group, beside tract 102.
    assert facts["county"].bounds[0].lower[:, 0].tolist() == [3050, 0]
    estimates = postprocess.top_down(measurements, plan)
    assert counted(estimates, "tract", "TOTAL")[:2, 0].sum() >= 3000
    assert counted(estimates, "county", "TOTAL")[0, 0] >= 3050


def test_two_queries_of_the_total_are_both_held(measured, tmp_path):
    recode = '[recodes.ALL]\nof = "RACE"\ngroups = { all = ["a", "b", "c"] }\n'
    (tmp_path / "a.csv").write_text("county,exactly\n10,700\n11,800\n")
    (tmp_path / "b.csv").write_text("county,ALL,exactly\n10,all,700\n11,all,790\n")
    more = CONSTRAINT.format(level="county", query="TOTAL", path="a.csv")
    more += CONSTRAINT.format(level="county", query="ALL", path="b.csv")
    measurements, plan = measured(("[recodes.SHARED]", recode + "[recodes.SHARED]"), more=more)
    with pytest.raises(InfeasibleError, match="in ALL = all: short by 10 people"):
        postprocess.top_down(measurements, plan)


def test_cells_that_several_facts_empty_are_all_empty(measured, tmp_path):
    (tmp_path / "a.csv").write_text("tract,KIND,exactly\n100,prison,0\n")
    (tmp_path / "b.csv").write_text("tract,RACE,exactly\n100,c,0\n")
    more = CONSTRAINT.format(level="tract", query="KIND", path="a.csv")
    more += CONSTRAINT.format(level="tract", query="RACE", path="b.csv")
    for seed in range(4):
        estimates = postprocess.top_down(
            *measured(('rho = "1"', 'rho = "1/100"'), more=more, seed=seed)
        )
        assert counted(estimates, "tract", "KIND")[0, 1] == 0
        assert counted(estimates, "tract", "RACE")[0, 2] == 0


def test_a_broken_sum_of_a_group_is_found(measured, tmp_path):
    (tmp_path / "towns.csv").write_text("group,exactly\nnorth,500\n")
    (tmp_path / "members.csv").write_text("group,tract\nnorth,100\nnorth,101\n")
    more = GROUPS.format(level="tract", query="TOTAL", path="towns.csv")
    measurements, plan = measured(more=more)
    estimates = postprocess.top_down(measurements, plan)
    assert broken_facts(estimates, measurements) == ""
    (tmp_path / "towns.csv").write_text("group,exactly\nnorth,501\n")
    assert broken_facts(estimates, measurements) == "TOTAL of group north"


def test_an_empty_parent_has_empty_children_for_any_passes(measured, tmp_path):
    (tmp_path / "a.csv").write_text("county,exactly\n11,0\n")
    fact = CONSTRAINT.format(level="county", query="TOTAL", path="a.csv")
    for passes in ("passes = []", 'passes = ["TOTAL"]', 'passes = ["TOTAL"]\nlook_below = true'):
        for rounding in ("cells", "totals", "unbiased"):
            how = f'[postprocess.levels.tract]\n{passes}\nrounding = "{rounding}"\n'
            estimates = postprocess.top_down(*measured(more=fact + how))
            assert counted(estimates, "tract", "TOTAL")[3:, 0].tolist() == [0, 0, 0]
            assert estimates.consistency_gap() == 0


def test_noise_next_to_none_does_not_drown_other_queries(measured):
    budget = ('rho = "1"', 'rho = "2000"')
    estimates = postprocess.top_down(*measured(budget))
    assert all(item.holds for item in estimates.certificate)


def test_counts_that_do_not_fit_are_refused_not_wrapped(tmp_path):
    below = store([(np.arange(3), np.zeros(3, int), np.full(3, 2**30))], 3, tmp_path)
    above = roll_up(below, np.zeros(3, int), 1)
    with pytest.raises(OverflowError, match="would have 3,221,225,472 people; the limit is 2"):
        store(above, 1, tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            INVARIANT.format(level="county", query="TOTAL") * 2,
            "invariants.1: TOTAL of county is listed twice; list it once",
        ),
        (
            ZERO.replace("nursing", "hotel"),
            "cells.KIND: unknown category 'hotel'; choose from home",
        ),
        (ZERO.replace("KIND", "SORT"), "cells.SORT: unknown attribute; choose from KIND, AGE"),
        (
            CONSTRAINT.format(level="blok", query="TOTAL", path="a.csv"),
            "constraints.0.level: unknown level 'blok'; choose from state, county, tract, block",
        ),
        (
            '[postprocess.levels.tract]\npasses = ["KIND", "RACE"]\n',
            "postprocess.levels.tract.passes: KIND is not a sum of RACE; list queries from coarse",
        ),
        (
            '[postprocess.levels.county]\nrounding = "up"\n',
            "postprocess.levels.county.rounding: 'up' is not allowed; choose from 'cells'",
        ),
    ],
)
def test_plans_that_cannot_be_met_are_refused_when_read(measured, more, message):
    with pytest.raises(PlanError, match=message):
        measured(more=more)


def test_a_broken_fact_is_found(measured):
    measurements, plan = measured(more=INVARIANT.format(level="tract", query="TOTAL"))
    estimates = postprocess.top_down(measurements, plan)
    tract = estimates.levels["tract"]
    counts = np.array(tract.counts)
    counts[0] += 1
    wrong = type(tract)(tract.offsets, tract.cells, counts)
    broken = type(estimates)(
        plan, estimates.geography, {**estimates.levels, "tract": wrong}, estimates.certificate
    )
    assert broken_facts(broken, measurements) == "TOTAL of tract 100"
