"""What a released unit, its siblings and the units above say about one person."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from tests.conftest import run

from countveil import Plan, Seeded, pipeline
from countveil.assess import Exactly, Intruder, Level, SiblingsPoisson, hierarchy
from countveil.assess.intruder.released_unit import (
    expected_of,
    find_unit,
    unit_posterior,
    unit_posteriors,
)
from countveil.errors import InputError
from countveil.report.sections.unit_section import section_of

PLACES = "nation,area,block\n" + "".join(
    f"N,{area},{area}{block}\n"
    for area, blocks in (("A", 3), ("B", 1), ("C", 2))
    for block in range(blocks)
)
PLAN = """
[release]
title = "Blocks"
unit = "person"
neighbors = "add-remove"

[records]
path = "people.csv"
one_row_per_person = true

[geography]
path = "places.csv"
levels = ["nation", "area", "block"]

[attributes]
SEX = ["f", "m"]

[budget]
rho = "3"
[budget.levels]
nation = "1/3"
area = "1/3"
block = "1/3"
[budget.queries."*"]
SEX = "1"
"""

NO_AREA = [('area = "1/3"', 'area = "0"'), ('nation = "1/3"', 'nation = "2/3"')]
PUBLIC = ("add-remove", "change-one")  # the only neighbours with counts published exactly


@pytest.fixture
def released(tmp_path):
    def make(*changes, more=""):
        text = PLAN
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        codes = [line.split(",")[2] for line in PLACES.split()[1:]]
        rows = [
            f"{code},{sex}\n" for n, code in enumerate(codes) for sex in "f" * (n + 1) + "m" * 2
        ]
        (tmp_path / "people.csv").write_text("block,SEX\n" + "".join(rows))
        (tmp_path / "places.csv").write_text(PLACES)
        (tmp_path / "plan.toml").write_text(text + more)
        to = tmp_path / "out"
        return pipeline.release(Plan.load(tmp_path / "plan.toml"), to=to, rng=Seeded(5))

    return make


def released_counts(release, level):
    return np.asarray(release.measurements.read(level, "SEX").values)[:, 0]


def test_the_posterior_is_that_of_the_levels_written_out(released):
    release = released()
    who = Intruder(prior=0.1, known=1)
    blocks, areas, nation = (released_counts(release, x) for x in ("block", "area", "nation"))
    noise = [release.measurements.mechanisms[x, "SEX"] for x in ("block", "area", "nation")]
    levels = [Level(noise[0], siblings=2), Level(noise[1], siblings=2), Level(noise[2])]
    expected = hierarchy.posterior(
        levels,
        observed=[int(blocks[1]), int(areas[0]), int(nation[0])],
        sibling_sums=[int(blocks[0] + blocks[2]), int(areas[1] + areas[2])],
        intruder=who,
    )
    found = unit_posterior(release, unit="A1", table="SEX", cell=0, intruder=who)
    assert found.posterior.value == expected.value
    assert found.posterior.error_bound < 1e-9
    assert [item.geocode for item in found.seen] == ["A1", "A", "N"]
    assert not found.strange


def test_brute_force_over_every_count_agrees(released):
    """An only child: block B0 is area B, so both counts are of the same people."""
    release = released()
    blocks, areas, nation = (released_counts(release, x) for x in ("block", "area", "nation"))
    noise = release.measurements.mechanisms["block", "SEX"]
    others = int(areas[0] + areas[2])

    def log_likelihood(count):
        here = noise.log_pmf(np.array([blocks[3] - count, areas[1] - count])).sum()
        rest = np.arange(0, 80)
        two = [noise.log_pmf(np.array([e]))[0] for e in range(-60, 61)]
        summed = np.convolve(np.exp(two), np.exp(two))  # of the two other areas
        seen = summed[np.clip(others - rest + 120, 0, len(summed) - 1)]
        top = np.exp(noise.log_pmf(nation[0] - count - rest))
        return here + math.log((seen * top).sum())

    odds = math.log(0.2 / 0.8) + log_likelihood(4) - log_likelihood(3)
    found = unit_posterior(
        release, unit="B0", table="SEX", cell=0, intruder=Intruder(prior=0.2, known=3)
    )
    assert found.posterior.value == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-9)


def test_a_belief_about_siblings_is_used(released):
    release = released(more="[intruder]\nsiblings = 2.5\n")
    who = Intruder(prior=0.1, known=1)
    blocks, areas, nation = (released_counts(release, x) for x in ("block", "area", "nation"))
    noise = release.measurements.mechanisms["block", "SEX"]
    levels = [
        Level(noise, siblings=2, prior=SiblingsPoisson(5.0)),
        Level(noise, siblings=2, prior=SiblingsPoisson(5.0)),
        Level(noise),
    ]
    expected = hierarchy.posterior(
        levels,
        observed=[int(blocks[1]), int(areas[0]), int(nation[0])],
        sibling_sums=[int(blocks[0] + blocks[2]), int(areas[1] + areas[2])],
        intruder=who,
    )
    found = unit_posterior(release, unit="A1", table="SEX", cell=0, intruder=who)
    assert found.posterior.value == pytest.approx(expected.value, rel=1e-12)


def test_an_exact_count_above_is_known(released):
    more = '[[invariants]]\nlevel = "area"\nquery = "SEX"\nreason = "known"\n'
    release = released(*NO_AREA, PUBLIC, more=more)
    who = Intruder(prior=0.1, known=1)
    blocks = released_counts(release, "block")
    noise = release.measurements.mechanisms["block", "SEX"]
    expected = hierarchy.posterior(
        [Level(noise, siblings=2, prior=Exactly(6)), Level(noise)],
        observed=[int(blocks[1]), 6],
        sibling_sums=[int(blocks[0] + blocks[2])],
        intruder=who,
    )
    found = unit_posterior(release, unit="A1", table="SEX", cell=0, intruder=who)
    assert found.posterior.value == expected.value
    assert found.seen[-1].exact
    assert found.left_out == ()
    itself = unit_posterior(
        release, unit="A", table="SEX", cell=0, intruder=Intruder(prior=0.1, known=5), level="area"
    )
    assert itself.posterior.value == 1.0
    with pytest.raises(InputError, match="published exactly, and is 6"):
        unit_posterior(release, unit="A", table="SEX", cell=0, intruder=who, level="area")


def test_another_exact_table_settles_it(released):
    more = '[[invariants]]\nlevel = "block"\nquery = "TOTAL"\nreason = "known"\n'
    release = released(PUBLIC, more=more)
    found = unit_posterior(
        release, unit="A1", table="SEX", cell=0, intruder=Intruder(prior=0.1, known=1)
    )
    assert found.settled_by == "TOTAL of block"
    assert found.posterior.value == 1.0
    assert found.posterior.upper_bound
    section = section_of(
        release, unit="A1", level=None, table="SEX", cell=("f",), known=1, priors=(0.1,)
    )
    assert "a probability of at most 100 % after this release" in section.sentences[0]
    assert section.tables[0].rows[0][1:3] == ("at most 100 %", "at most 10")


def test_two_levels_are_summed_before_the_noise(released):
    """With the released counts for those of other units; nothing is simulated."""
    release = released(('nation = "1/3"', 'nation = "0"'), ('block = "1/3"', 'block = "2/3"'))
    blocks = released_counts(release, "block")
    noise = [release.measurements.mechanisms[x, "SEX"] for x in ("block", "area")]
    levels = [Level(noise[0], siblings=2), Level(noise[1])]
    rest = max(int(blocks[0] + blocks[2]), 0)
    people = [Intruder(prior=prior, known=1) for prior in (0.1, 0.5)]
    answers = unit_posteriors(release, unit="A1", table="SEX", cell=0, intruders=people)
    for who, found in zip(people, expected_of(release, answers, rng=Seeded(1)), strict=True):
        risk = hierarchy.marginal_risk(levels, truth=[2, 2 + rest], intruder=who)
        right = hierarchy.correct_decision(levels, truth=[2, 2 + rest], intruder=who)
        assert found.risk.value == risk.value
        assert found.decision.value == right.value
        assert found.risk.standard_error is None


def test_more_levels_are_simulated_with_an_interval_and_say_so(released):
    release = released(('rho = "3"', 'rho = "1/4"'))
    answers = unit_posteriors(
        release, unit="A1", table="SEX", cell=0, intruders=[Intruder(prior=0.5, known=1)]
    )
    (few,) = expected_of(release, answers, rng=Seeded(1))
    (many,) = expected_of(release, answers, rng=Seeded(2), draws=3_000)
    for one, other in zip(few, many, strict=True):
        apart = math.hypot(one.standard_error, other.standard_error)
        assert 0 < abs(one.value - other.value) < 4 * apart
    section = section_of(
        release, unit="A1", level=None, table="SEX", cell=("f",), known=1, priors=(0.5,)
    )
    assert any("simulated; the ranges are 95 % confidence" in line for line in section.sentences)
    (row,) = section.tables[1].rows
    assert " to " in row[2]
    (figures,) = section.figures["expected"]
    low, high = figures["correct_decision_interval"]
    assert low < figures["correct_decision"] < high <= 1
    assert low <= many.decision.value <= high


def test_the_noise_of_three_levels_is_summed_where_it_takes_few_values(released):
    release = released(('rho = "3"', 'rho = "60"'))
    answers = unit_posteriors(
        release, unit="B0", table="SEX", cell=0, intruders=[Intruder(prior=0.5, known=3)]
    )
    (found,) = expected_of(release, answers, rng=Seeded(1))
    assert found.decision.standard_error is None
    assert found.decision.error_bound < 1e-6
    assert found.decision.value > 0.99


def test_nothing_is_expected_where_exact_counts_answer(released):
    more = '[[invariants]]\nlevel = "block"\nquery = "TOTAL"\nreason = "known"\n'
    release = released(PUBLIC, more=more)
    answers = unit_posteriors(
        release, unit="A1", table="SEX", cell=0, intruders=[Intruder(prior=0.1, known=1)]
    )
    assert expected_of(release, answers, rng=Seeded(1)) is None
    section = section_of(
        release, unit="A1", level=None, table="SEX", cell=("f",), known=1, priors=(0.1,)
    )
    assert section.figures["expected"] == []


def test_a_gap_in_the_levels_ends_what_is_seen(released):
    release = released(*NO_AREA)
    found = unit_posterior(
        release, unit="A1", table="SEX", cell=0, intruder=Intruder(prior=0.1, known=1)
    )
    assert [item.level for item in found.seen] == ["block"]
    assert found.left_out == ("nation",)


def test_units_are_found_or_refused(released):
    release = released()
    assert find_unit(release.plan, release.geography, "C1") == ("block", 5)
    with pytest.raises(InputError, match="no unit of .* has the geocode 'Z'"):
        find_unit(release.plan, release.geography, "Z")
    with pytest.raises(InputError, match="'town' has no counts"):
        find_unit(release.plan, release.geography, "A1", "town")


def test_the_command_answers_and_refuses(released, tmp_path):
    released()
    out = tmp_path / "out"
    asked = ("assess", "presence", out, "--unit", "A1", "--table", "SEX", "--cell", "f")
    ran = run(*asked, "--known", "1", "--prior", "0.1", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    release = pipeline.Release.read(out)
    found = unit_posterior(
        release, unit="A1", table="SEX", cell=0, intruder=Intruder(prior=0.1, known=1)
    )
    assert document["posteriors"][0]["posterior"] == found.posterior.value
    assert document["audience"] == "public"
    text = run(*asked, "--known", "1")
    assert "knows everyone else in block A1" in " ".join(text.out.split())
    assert "one of the two must be wrong" in " ".join(run(*asked, "--known", "900").out.split())
    for given, message in [
        ((*asked,), "--known: missing"),
        ((*asked[:5], "--known", "1", "--table", "SEX"), "--cell: missing"),
        ((*asked, "--known", "1", "--internal"), "have no effect with --unit"),
        ((*asked[:3], "--known", "1"), "have no effect without --unit"),
        ((*asked[:5], "--known", "1", "--table", "AGE"), "unknown attribute or recode 'AGE'"),
    ]:
        ran = run(*given)
        assert ran.status == 2, given
        assert message in ran.err


def test_a_target_has_as_many_rows_as_a_person_may_have(released, tmp_path):
    """And not one, which would state too small a risk."""
    changes = [("one_row_per_person = true", 'person_id = "id"\nmax_rows = 3')]
    people = tmp_path / "people.csv"
    with pytest.raises(InputError):
        released(*changes)  # there are no ids yet
    lines = people.read_text().splitlines()
    people.write_text(
        "\n".join(f"{line},{'id' if not n else f'p{n}'}" for n, line in enumerate(lines))
    )
    release = pipeline.release(
        Plan.load(tmp_path / "plan.toml"), to=tmp_path / "several", rng=Seeded(5)
    )
    asked = ("assess", "presence", release.folder, "--unit", "A1", "--table", "SEX", "--cell", "f")
    ran = run(*asked, "--known", "1", "--prior", "0.1", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    found, one = (
        unit_posterior(
            release,
            unit="A1",
            table="SEX",
            cell=0,
            intruder=Intruder(prior=0.1, known=1, rows=rows),
        ).posterior.value
        for rows in (3, 1)
    )
    assert document["posteriors"][0]["posterior"] == found != one
    assert any("as many rows as a person may have" in line for line in document["sentences"])
