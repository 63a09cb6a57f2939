"""The intruder's part of a report: tables and charts by hand, and what shapes choose."""

import math

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import Page, chart_rows, table_rows

from countveil import Release, Seeded, pipeline
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.summary import summarise
from countveil.base import words
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.report.report_page import public_report
from countveil.report.sections.intruder_section import SETTLED, summary_sentences


@pytest.fixture(scope="module")
def section(hand, hand_others):
    return made.intruder(hand)


def test_every_attack_ends_where_its_law_says(section):
    rows = {row["Attack"]: row for row in table_rows(section, "Average probability after")}
    assert set(rows) == set(hand_plan.MOVES)
    for attack, (cells, _) in hand_plan.MOVES.items():
        for prior in hand_plan.PRIORS:
            after, _ = hand_plan.of_whole_release(prior, attack)
            shown = f"{words.brief_percent(after)}, ×\u00a0{words.multiple(after / prior)}"
            assert rows[attack][f"Prior {prior}"] == shown
            (figures,) = [
                item
                for item in section.figures["attacks"]
                if (item["attack"], item["prior"]) == (attack, prior)
            ]
            assert figures["posterior"] == pytest.approx(after, rel=1e-4)
            assert figures["marginal_risk"] == pytest.approx(after / prior, rel=1e-4)
        own = sum(
            number * hand_plan.ROWS**2 / (2 * hand_plan.variance("area", query))
            for query, number in cells.items()
        )
        assert rows[attack]["Own counts (rho)"] == pytest.approx(own)
        assert rows[attack]["Whole release (rho)"] == pytest.approx(information(attack), rel=1e-6)
        assert rows[attack]["Whole release (rho)"] > 1.005 * own
        assert rows[attack]["Worst in"] == "an area with 2 siblings"


def information(attack, *, exact=None):
    """Return the rho of one count that tells as much as an area, its siblings and its region.

    Siblings' counts are unknown: what they leave of the information about the target is that of
    normal regression on the person and on all their cells. `exact` is a query that regions publish.
    """
    target = np.zeros(6)
    target[0] = 1.0
    other = {"unknown attribute: AGE": 3, "unknown attribute: SEX": 1, "whole record": 4}.get(
        attack
    )
    if other is not None:
        target[other] = -1.0
    design, weights = [], []

    def seen(rows, blocks, variance):
        for row in rows:
            own = float(row @ target) * hand_plan.ROWS if 0 in blocks else 0.0
            others = [row if block in blocks else np.zeros(6) for block in (1, 2)]
            design.append(np.concatenate([[own], *others]))
            weights.append(1 / variance)

    for block in (0, 1, 2):
        for query in hand_plan.RHO["area"]:
            seen(hand_plan.QUERIES[query], {block}, hand_plan.variance("area", query))
    for query in hand_plan.RHO["region"]:
        seen(hand_plan.QUERIES[query], {0, 1, 2}, hand_plan.variance("region", query))
    if exact is not None:
        seen(hand_plan.QUERIES[exact], {0, 1, 2}, 1e-9)
    x, w = np.array(design), np.array(weights)
    normal = x.T @ (w[:, None] * x)
    return 0.5 / np.linalg.inv(normal)[0, 0]


def test_public_counts_above_add_what_a_regression_says(tmp_path):
    text = hand_plan.PLAN + hand_plan.SETTLING.replace('"area"', '"region"')
    plan = Plan.load(hand_plan.write(tmp_path, text))
    found = summarise(plan, plan.geography())
    first = found.attacks[0]
    assert not any(item.settled for item in found.attacks)
    noisy = risk_by_level(plan, [0.1], levels=("area",), attack="presence")[0].effective_rho
    assert noisy == pytest.approx(information("presence"), rel=1e-6)
    counted = information("presence", exact="TOTAL")
    assert first.effective_rho == pytest.approx(counted, rel=1e-4)
    assert counted > 1.01 * noisy
    assert found.own_rho[first.attack] == pytest.approx(
        0.72 / 2
    )  # of the two cells of a change, one differs


@pytest.fixture(scope="module")
def settled_section(settled):
    return made.intruder(settled)


def test_what_settles_an_attack_is_said_and_not_counted_in_percent(settled_section):
    section = settled_section
    rows = {row["Attack"]: row for row in table_rows(section, "Average probability after")}
    assert rows["presence"]["Prior 0.02"] == f"100 %, ×\u00a050, {SETTLED}"
    assert rows["presence"]["Whole release (rho)"] is None
    assert SETTLED not in str(rows["unknown attribute: AGE"])
    assert not any("e+" in str(cell) for row in rows.values() for cell in row.values())
    revealed = "Exactly published counts reveal whether you are counted there to anyone who knows"
    assert any(revealed in line for line in section.sentences)
    assert "No noise protects against that." in section.sentences


def test_a_region_of_one_area_settles_it_without_a_number(tmp_path):
    """An only child is what its region's published total says."""
    (tmp_path / "plan.toml").write_text(
        hand_plan.PLAN + hand_plan.SETTLING.replace('"area"', '"region"')
    )
    (tmp_path / "places.csv").write_text("region,area\nR1,A1\nR2,A2\n")
    plan = Plan.load(tmp_path / "plan.toml")
    found = summarise(plan, plan.geography())
    assert found.attacks[0].settled
    assert found.attacks[0].unit_kind == "an area that is all of its region"
    assert "reveal whether you are counted there" in " ".join(summary_sentences(found))


def test_people_beyond_thresholds_are_those_of_the_most_detailed_count(section):
    """R' = 1 / (p + (1 - p) exp(-loss)), of the noise of AGE*SEX alone."""
    rows = {row["Prior"]: row for row in table_rows(section, "Share of people")}
    sigma2 = hand_plan.variance("area", "AGE*SEX")
    k, chance = hand_plan.law(sigma2)
    loss = hand_plan.ROWS * (2 * k + hand_plan.ROWS) / (2 * sigma2)
    for prior in hand_plan.PRIORS:
        risk = 1 / (prior + (1 - prior) * np.exp(-loss))
        for above in (1.5, 2.0, 5.0):
            share = float(chance[risk > above].sum())
            shown = rows[f"{prior}"][f"Above × {above:g}"]
            if share < 0.001:  # what is smaller than a power of ten, as sums of tiny terms differ
                assert shown == "0 %" or share < 1 / int(shown.split(" in ")[1].replace(",", ""))
            else:
                assert shown == words.brief_percent(share)


def test_the_chart_of_levels_shows_each_level_and_prior(section):
    rows = chart_rows(section, "risk-by-level")
    assert [(row["level"], row["prior"]) for row in rows] == [
        (level, prior) for level in ("region", "area") for prior in hand_plan.PRIORS
    ]
    for row in rows:
        after, _ = hand_plan.of_whole_release(row["prior"])
        if row["level"] == "region":  # everyone else is known, in the areas, too
            own = [hand_plan.losses(level, hand_plan.LADDER[level]) for level in hand_plan.RHO]
            after = hand_plan.posterior(*hand_plan.together(*own), row["prior"])
        assert row["marginal_risk"] == pytest.approx(after / row["prior"])
        assert row["posterior"] == pytest.approx(after)
        assert not row["settled"]


def test_settled_levels_are_marked_and_not_drawn_with_the_others(tmp_path):
    path = hand_plan.write(
        tmp_path, hand_plan.PLAN + hand_plan.SETTLING.replace('"area"', '"region"')
    )
    pipeline.release(Plan.load(path), to=tmp_path / "out", rng=Seeded(3))
    release = Release.read(tmp_path / "out")
    section = made.intruder(release)
    rows = chart_rows(section, "risk-by-level")
    assert [row["settled"] for row in rows] == [True] * 3 + [False] * 3
    assert [row["marginal_risk"] for row in rows[:3]] == pytest.approx([2.5, 10, 50])
    chart = section.charts[0]
    worst = hand_plan.of_whole_release(0.02)[0] / 0.02  # a total says nothing about AGE
    assert (
        f"The largest risk from noisy counts is {words.multiple(worst)}, at level area with prior "
        f"0.02" in chart.alt
    )
    assert "Exactly published counts reveal presence at level region with certainty." in chart.alt
    assert ">revealed<" in chart.svg()


def test_curves_against_rho_are_those_of_the_slider(section, hand_others):
    for name, column, of in (
        ("risk-by-rho", "marginal_risk", "marginal_risk"),
        ("decision-by-rho", "probability", "correct_decision"),
    ):
        rows = chart_rows(section, name)
        for number, prior in enumerate(hand_plan.PRIORS):
            own = [row[column] for row in rows if row["prior"] == prior]
            assert own == [getattr(step.risks[number], of) for step in hand_others.steps]
    assert {row["limit"] for row in chart_rows(section, "risk-by-rho")} == {4.0}


def test_each_released_value_leads_to_the_belief_of_bayes(section):
    """Of a target of three rows, who would be alone in a cell of AGE*SEX."""
    sigma2 = hand_plan.variance("area", "AGE*SEX")
    k, chance = hand_plan.law(sigma2)
    reach = next(h for h in range(100) if chance[np.abs(k) <= h].sum() >= 0.999)
    rows = chart_rows(section, "posterior")
    seen = sorted({row["released_value"] for row in rows})
    assert seen == list(range(-reach, reach + hand_plan.ROWS + 1))
    for row in rows:
        value, prior = row["released_value"], row["prior"]
        there = prior * math.exp(-((value - hand_plan.ROWS) ** 2) / (2 * sigma2))
        away = (1 - prior) * math.exp(-(value**2) / (2 * sigma2))
        assert row["posterior"] == pytest.approx(there / (there + away))
        assert row["risk"] == pytest.approx(there / (there + away) / prior)


def test_of_two_hundred_intruders_those_are_shown_who_gain_most(section):
    gains = {}
    for prior in hand_plan.PRIORS:
        says, denies = (hand_plan.of_whole_release(p, "presence")[1] for p in (prior, 1 - prior))
        gains[prior] = prior * says + (1 - prior) * denies - max(prior, 1 - prior)
    best = max(gains, key=gains.get)
    before, after = chart_rows(section, "intruders")
    assert before["prior"] == after["prior"] == best == 0.4
    assert before["probability_of_a_right_decision"] == pytest.approx(0.6)
    right = after["probability_of_a_right_decision"]
    assert 0.6 + gains[best] <= right <= 0.62 + gains[best]  # an upper bound over all lattices
    assert after["decide_rightly"] == math.ceil(200 * right)
    assert (before["upper_bound"], after["upper_bound"]) == (False, True)
    (chart,) = (chart for chart in section.draw() if chart.name == "intruders")
    assert f"correctly before the release and at most {math.ceil(200 * right)} after" in chart.alt
    assert f"after the release: at most {math.ceil(200 * right)} decide correctly" in chart.svg()


def test_all_of_two_hundred_are_right_where_what_is_public_settles_it(settled_section):
    section = settled_section
    before, after = chart_rows(section, "intruders")
    assert (after["decide_rightly"], after["decide_wrongly"]) == (200, 0)
    assert before["decide_rightly"] < 200
    assert {row["probability"] for row in chart_rows(section, "decision-by-rho")} == {1.0}
    for row in chart_rows(section, "risk-by-rho"):
        assert row["marginal_risk"] == pytest.approx(1 / row["prior"])


def test_the_map_of_places_is_made_of_published_values(section, hand):
    """For the smallest prior: R' of a lone target in every cell of AGE*SEX that reads 1 or more."""
    sigma2, prior = hand_plan.variance("area", "AGE*SEX"), 0.02
    risks = {}
    codes = hand.geography.geocodes("area").to_pylist()
    values = np.concatenate([batch["AGE*SEX"].values for batch in hand.measurements.stream("area")])
    for code, row in zip(codes, values, strict=True):
        for value in row[row >= 1].astype(float):
            loss = hand_plan.ROWS * (2 * (value - hand_plan.ROWS) + hand_plan.ROWS) / (2 * sigma2)
            risks.setdefault(code, []).append(1 / (prior + (1 - prior) * math.exp(-loss)))
    rows = {row["place"]: row for row in chart_rows(section, "risk-map")}
    assert set(rows) == set(risks)
    for place, own in risks.items():
        assert rows[place]["mean_risk"] == pytest.approx(np.mean(own))
        assert rows[place]["largest_risk"] == pytest.approx(max(own))
        assert (rows[place]["cells"], rows[place]["prior"]) == (len(own), prior)


def square(code, x):
    ring = [[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]
    return {
        "type": "Feature",
        "properties": {"geocode": code},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }


def test_shapes_are_of_the_level_that_most_of_them_name(hand, hand_others):
    shapes = {
        "type": "FeatureCollection",
        "features": [square(code, n) for n, code in enumerate(("R1", "A1", "A2", "A3"))],
    }
    section = made.intruder(hand, shapes)
    assert {row["place"] for row in chart_rows(section, "risk-map")} <= set(hand_plan.AREAS)
    regions = {**shapes, "features": [square("R1", 0), square("R2", 1), square("A1", 2)]}
    section = made.intruder(hand, regions)
    assert {row["place"] for row in chart_rows(section, "risk-map")} == {"R1", "R2"}
    nowhere = {**shapes, "features": [square("nowhere", 0)]}
    with pytest.raises(InputError, match="give shapes of one of the levels region and area"):
        _ = made.intruder(hand, nowhere).charts


def test_more_priors_than_a_chart_can_show_are_all_listed(tmp_path):
    priors = [round(0.9 - 0.1 * n, 1) for n in range(9)]
    text = hand_plan.PLAN.replace("[0.4, 0.1, 0.02]", str(priors))
    pipeline.release(Plan.load(hand_plan.write(tmp_path, text)), to=tmp_path / "out", rng=Seeded(3))
    release = Release.read(tmp_path / "out")
    section = made.intruder(release)
    (row, *_) = table_rows(section, "Average probability after")
    assert [name for name in row if name.startswith("Prior")] == [f"Prior {p}" for p in priors]
    for name in ("risk-by-level", "risk-by-rho", "decision-by-rho", "posterior"):
        assert (
            list(dict.fromkeys(item["prior"] for item in chart_rows(section, name))) == priors[:8]
        )
    assert any("first 8 of 9 priors" in line for line in section.sentences)


def test_priors_that_nearly_agree_read_differently(tmp_path):
    text = TINY_PLAN + "[intruder]\npriors = [0.1, 0.1000000001]\n"
    (tmp_path / "plan.toml").write_text(text)
    plan = Plan.load(tmp_path / "plan.toml")
    (tmp_path / "places.csv").write_text("region,area\nR1,A1\n")
    (tmp_path / "people.csv").write_text("area,AGE,SEX\nA1,young,f\n")
    pipeline.release(plan, to=tmp_path / "out", rng=Seeded(1))
    release = Release.read(tmp_path / "out")
    section = made.intruder(release)
    for name in ("risk-by-level", "risk-by-rho", "posterior"):
        series = {row["series"]: row["prior"] for row in chart_rows(section, name)}
        assert series == {"prior 0.1": 0.1, "prior 0.1000000001": 0.1000000001}
    assert "Prior 0.1000000001" in section.tables[0].columns
    assert "0.1000000001" in Page(public_report(release)).words.split("Not covered")[0]
