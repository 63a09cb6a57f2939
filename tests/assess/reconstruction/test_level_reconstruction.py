"""What exact tables of a level would give away, against listing the databases of every unit."""

import numpy as np
import pytest
from tests.assess.reconstruction import enumeration
from tests.conftest import TINY_PEOPLE, TINY_PLAN

from countveil import Plan, open_engine
from countveil.assess.intruder.whole_release import whole_release_risk
from countveil.assess.reconstruction import (
    PublishedLines,
    SolutionClass,
    reconstruct,
    record_risks,
    solution_count,
)
from countveil.errors import InputError

TABLES = ("AGE", "SEX")


@pytest.fixture
def counted(tiny):
    plan = Plan.load(tiny)
    return plan, open_engine("local").tabulate(plan)


def listed(counts, level, tables):
    """Return for every occupied unit its people, and how many databases there are."""
    plan, tabulated = counts
    lines = PublishedLines.of_plan(plan, level, tables)
    found = []
    for unit in range(tabulated.geography.units(level)):
        _, cells, people = tabulated.entries(level, unit, unit + 1)
        known = np.bincount(cells, people, 6).astype(int)
        if known.sum():
            answers = lines.answers(dict(enumerate(known.tolist())))
            every = enumeration.databases(lines.masks, 6, answers, int(known.sum()))
            found.append((int(known.sum()), every, known))
    return found


@pytest.mark.parametrize("level", ["area", "region"])
def test_figures_are_those_of_the_listed_databases(counted, level):
    plan, counts = counted
    found = reconstruct(plan, counts.levels[level], level=level, audience="internal", tables=TABLES)
    units = listed(counted, level, TABLES)
    assert (found.units, found.people) == (len(units), len(TINY_PEOPLE))
    assert found.tables == ("AGE", "SEX", "TOTAL")
    single = [people for people, every, _ in units if len(every) == 1]
    assert (found.one_units, found.one_people) == (len(single), sum(single))
    assert 0 < found.one_units <= found.units if level == "area" else found.one_units == 0
    assert found.certain == sum(enumeration.certain(every) for _, every, _ in units)
    assert found.differing == sum(enumeration.differing(every, z) for _, every, z in units)
    assert found.widest == max(enumeration.widest(every) for _, every, _ in units)
    assert found.exact
    several = [people for people, every, _ in units if 2 <= len(every) <= 10]
    assert found.classes[0] == SolutionClass(1, 1, len(single), sum(single))
    assert found.classes[1] == SolutionClass(2, 10, len(several), sum(several))
    assert sum(item.units for item in found.classes) == found.units


def test_a_limit_closes_the_classes(counted):
    plan, counts = counted
    found = reconstruct(
        plan, counts.levels["region"], level="region", audience="internal", tables=TABLES, limit=25
    )
    ends = [(item.least, item.most) for item in found.classes]
    assert ends == [(1, 1), (2, 10), (11, 25), (26, None)]


def test_by_default_the_tables_of_the_plan_are_taken_or_its_queries(tiny):
    lines = PublishedLines.of_plan(Plan.parse(TINY_PLAN), "area")
    assert lines.tables == ("TOTAL", "AGE*SEX")
    published = Plan.parse(TINY_PLAN + '[postprocess]\nmethod = "top-down"\ntables = ["SEX"]\n')
    lines = PublishedLines.of_plan(published, "area")
    assert (lines.tables, lines.attributes, lines.cells) == (("SEX", "TOTAL"), ("SEX",), 3)
    # young f, old m, old x: cells 0, 4 and 5 of AGE × SEX
    assert lines.database([0, 4, 5], [2, 1, 1]) == {0: 2, 1: 1, 2: 1}
    assert lines.database([1, 4], [2, 1]) == {1: 3}


def test_the_official_tables_leave_only_the_group_quarters_open():
    """P1 to P4 give age, ethnicity and race; P5 gives types of quarters of nobody in particular."""
    plan = Plan.parse('[release]\ntitle = "PL"\npreset = "pl94-2020"\n')
    lines = PublishedLines.of_plan(plan, "block")
    assert lines.tables == ("P1", "P2", "P3", "P4", "P5", "TOTAL")
    every = plan.schema.every_cell
    labels = {cell: every.labels_of(cell) for cell in (0, 63, 252, 5 * 252 + 126)}
    assert labels[0] == ("household", "under 18", "not Hispanic", "white")
    assert labels[63][2] == "Hispanic"
    assert solution_count(lines, known={0: 3, 63: 1, 126: 8}).count == 1
    # Two students and a nurse's household of adults: any two of the five may be the students.
    adult, student, other = 126, 5 * 252 + 126, 126 + 1
    found = solution_count(lines, known={adult: 3, student: 2})
    assert found.count == 1
    found = solution_count(lines, known={adult: 3, other: 1, student: 2})
    assert found.count == 2  # the person of another race is a student or not


def test_units_are_evenly_spaced_if_there_are_too_many(counted):
    plan, counts = counted
    found = reconstruct(
        plan, counts.levels["area"], level="area", audience="internal", most_units=2
    )
    assert (found.occupied, found.units) == (4, 2)
    assert found.people == 3 + 3  # the first and the last


def test_the_release_is_judged_by_the_whole_record(counted):
    plan, counts = counted
    risks = record_risks(plan, geography=counts.geography)
    assert [item.prior for item in risks] == sorted(plan.intruder.priors, reverse=True)
    for item in risks:
        risk = whole_release_risk(plan, attack="whole record", prior=item.prior)
        assert item.posterior == risk.posterior
        assert item.prior < item.posterior < 1
        assert not item.settled


def test_what_is_published_exactly_settles_it(tiny):
    exactly = '[[invariants]]\nlevel = "area"\nquery = "AGE*SEX"\nreason = "known"\n'
    text = TINY_PLAN.replace('"AGE*SEX" = "3/4"', '"AGE" = "3/4"') + exactly
    risks = record_risks(Plan.parse(text, folder=tiny.parent))
    assert all(item.settled and item.posterior == 1 for item in risks)


def test_nothing_of_the_counts_is_shown(counted):
    plan, counts = counted
    found = reconstruct(plan, counts.levels["area"], level="area", audience="internal")
    assert repr(found) == "<internal: reconstruction of 4 units of level area>"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tables": ["HEIGHT"]}, "unknown table 'HEIGHT'; choose from"),
        ({"tables": ["TOTAL"]}, "there is no record to reconstruct; name a table of attributes"),
        ({"limit": 0}, "limit: 0 is not allowed; give at least 1"),
        ({"most_units": 0}, "units: 0 is not allowed; give at least 1"),
    ],
)
def test_bad_input_is_refused(counted, words, message):
    plan, counts = counted
    with pytest.raises(InputError, match=message):
        reconstruct(plan, counts.levels["area"], level="area", audience="internal", **words)
