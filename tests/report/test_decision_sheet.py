"""Page one: its numbers by hand, what it says of limits, and what public counts settle."""

from dataclasses import replace

import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report.numbers_in_words import NUMBER, rounds_to
from tests.report.reading import Page

from countveil import Release, Secure, Seeded, pipeline
from countveil.assess.intruder.plan_risk import risk_by_level
from countveil.assess.verdict import judge
from countveil.base import words
from countveil.estimate import expected_error
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP
from countveil.report.decision_sheets import decision_sheet
from countveil.report.report_page import public_report


@pytest.fixture(scope="module")
def sheet(hand):
    return decision_sheet(hand)


def released(folder, text, rng=None):
    path = hand_plan.write(folder, text)
    given = {} if rng is None else {"ledger": folder / "ledger.sqlite"}
    pipeline.release(Plan.load(path), to=folder / "out", rng=rng or Seeded(3), **given)
    return Release.read(folder / "out")


def test_its_risks_are_those_of_the_law_by_its_definition(sheet):
    evidence = hand_plan.presence("area")
    assert [row.prior for row in sheet.risks] == list(hand_plan.PRIORS)
    for row in sheet.risks:
        after = hand_plan.posterior(*evidence, row.prior)
        assert row.released == row.noisy == pytest.approx(after, rel=1e-10)
        assert row.marginal_risk == pytest.approx(after / row.prior, rel=1e-10)
        assert row.correct_decision == pytest.approx(
            hand_plan.right(*evidence, row.prior), abs=1e-10
        )
        assert (row.exact, row.suppressed, row.settled) == (1.0, 1.0, False)


def test_its_table_shows_them_in_their_columns(hand, sheet, hand_page):
    text = Page(hand_page).words
    for row in sheet.risks:
        after = hand_plan.posterior(*hand_plan.presence("area"), row.prior)
        says = hand_plan.right(*hand_plan.presence("area"), row.prior)
        assert (
            f"{row.prior} 1up to 1 {after:.4g}{after / row.prior:.4g} {words.brief_percent(says)}"
            in text
        )
    totals = "".join(
        f"{item.level} {hand_plan.spread(item.level, 'TOTAL'):.4g}{item.standard_error:.4g} "
        for item in expected_error(hand.plan, ("TOTAL",), geography=hand.geography)
    )
    assert f"Estimate {totals.strip()}" in text


def test_its_sentence_is_of_the_intruder_who_gains_most(sheet):
    after = hand_plan.posterior(*hand_plan.presence("area"), 0.02)
    assert sheet.sentence == (
        f"Someone who knows everyone else in an area and gives a probability of 2 % that you are "
        f"counted there would, if you are, raise that to {words.brief_percent(after)} on average "
        f"after seeing this release: {words.multiple(after / 0.02)} times their prior. The exact "
        f"table would have made them certain."
    )


def test_it_says_which_attack_gains_most(sheet, hand_page):
    """A change of record moves two cells of AGE and two of AGE*SEX, and no total."""
    evidence = hand_plan.losses("area", {"AGE": 2, "AGE*SEX": 2})
    after = hand_plan.posterior(*evidence, 0.02)
    # An unknown AGE, or both, move the same cells; the first that is listed is named.
    assert sheet.worst_attack == (
        f"The attack that gains most is 'unknown attribute: AGE'. Someone who knows everyone else "
        f"in an area and sees all its queries would, if what they suspect is true, raise its "
        f"probability from 2 % to {words.brief_percent(after)} on average: "
        f"{words.multiple(after / 0.02)} times their prior."
    )
    assert sheet.worst_attack in Page(hand_page).words


def test_it_says_whether_the_plan_keeps_its_limit(hand, sheet, hand_page):
    worst = hand_plan.posterior(*hand_plan.presence("area"), 0.02) / 0.02
    largest = (
        f"the largest risk is {worst:.2g} times the prior, for someone who knows everyone else in an "
        f"area and has a prior of 0.02."
    )
    judged = judge(hand.plan)
    assert judged.sentence == f"Within the plan's limit of 3 times the prior: {largest}"
    assert sheet.verdict == judged.sentence
    assert judged.sentence in Page(hand_page).words
    at_limit = replace(judged, limit=judged.worst.marginal_risk)
    assert (at_limit.status, at_limit.sentence[:6]) == ("within", "Within")
    above = replace(judged, limit=1.5)
    assert above.sentence == f"Above the plan's limit of 1.5 times the prior: {largest}"
    just_under = float(f"{worst:.4g}")
    if just_under > worst:
        just_under -= 0.001
    just_over = just_under + 0.001
    sentence = replace(judged, limit=just_over).sentence
    assert float(NUMBER.findall(sentence)[1][0]) <= just_over, "what is within reads within"
    sentence = replace(judged, limit=just_under).sentence
    assert float(NUMBER.findall(sentence)[1][0]) > just_under, "what is above reads above"
    without = replace(judged, limit=None)
    assert without.status == "no limit"
    assert without.sentence.startswith(
        "The plan sets no limit on risk (intruder.limit); the largest"
    )


def test_what_is_public_settles_presence_and_page_one_says_so(settled):
    sheet = decision_sheet(settled)
    noisy = hand_plan.posterior(*hand_plan.presence("area"), 0.02)
    for row in sheet.risks:
        assert (row.released, row.marginal_risk) == (1.0, pytest.approx(1 / row.prior))
        assert (row.correct_decision, row.settled) == (1.0, True)
        assert row.noisy == pytest.approx(
            hand_plan.posterior(*hand_plan.presence("area"), row.prior)
        )
    assert {item.level: item.settled for item in sheet.levels} == {"region": True, "area": True}
    assert "Counts published exactly reveal whether you are in an area to anyone" in sheet.sentence
    assert (
        f"from 2 % to {words.brief_percent(noisy)} on average: {words.multiple(noisy / 0.02)} times"
        in sheet.sentence
    )
    assert sheet.verdict == (
        f"Above the plan's limit of 3 times the prior: the largest risk is 50 times the prior, for "
        f"someone who knows everyone else in an area and has a prior of 0.02. No amount of noise "
        f"changes that, because exactly published counts reveal who is there. From noisy counts "
        f"alone, the risk would be {noisy / 0.02:.2g} times the prior, within the limit."
    )
    text = Page(public_report(settled)).words
    assert text.count("1: revealed by public counts") == len(hand_plan.PRIORS)
    assert f"0.02 1up to 1 1: revealed by public counts{50} 100 %" in text
    assert "the risk does not change, because public counts reveal presence" in text


def test_an_invariant_above_settles_only_above(tiny):
    top = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
    found = risk_by_level(Plan.parse(TINY_PLAN + top), invariants=True)
    assert {item.level: item.settled for item in found} == {"region": True, "area": False}
    assert all(item.posterior == 1.0 for item in found if item.level == "region")
    plain = [item for item in risk_by_level(Plan.parse(TINY_PLAN)) if item.level == "area"]
    assert [item for item in found if item.level == "area"] == plain


def test_suppression_protects_less_where_people_have_several_rows(sheet):
    # A person of three rows leaves 1 to 4 from any count but 1.
    assert "only in cells with exactly 1 other," in sheet.suppression
    one = replace(sheet, rows=1).suppression
    assert [number for number, _ in NUMBER.findall(one)] == ["1", "4", "1", "3"]
    four = replace(sheet, rows=4).suppression
    assert "they would be certain everywhere" in four
    assert [number for number, _ in NUMBER.findall(four)] == ["1", "4", "4"]


def test_its_parameters_are_those_of_the_plan(sheet, hand):
    found = dict(sheet.parameters)
    epsilon = ZCDP(hand.plan.cost.rho).epsilon(hand.plan.delta)
    shown = found["Epsilon"].split()[0]
    assert 0 <= float(shown) - epsilon < 0.01
    assert found == {
        "Unit of protection": "person",
        "Neighbours": "change-one",
        "Budget": "rho = 9/10",
        "Epsilon": f"{shown} at delta 1e-10",
        "Rows per person, at most": "3",
        "Risk limit": "3 times the prior",
        "Chosen by": "not stated in the plan (budget.chosen_by)",
    }
    assert sheet.purpose == "to test"


def test_a_budget_chosen_from_records_is_said_to_be(tmp_path):
    text = hand_plan.PLAN.replace("[budget]", '[budget]\nchosen_from = "records"', 1)
    found = dict(decision_sheet(released(tmp_path, text)).parameters)
    assert found["Chosen from"] == "the records; the guarantee does not cover this choice"


def test_only_a_release_with_secret_noise_is_headed_public(hand_page, tmp_path):
    """A simulation can have its noise removed, and says so first and last."""
    page = Page(hand_page)
    assert "SIMULATION: not to be published" in page.words
    assert "PUBLIC" not in page.words
    assert "the ledger was charged" not in page.words
    assert "drawn from a seed" in page.words
    assert '<body class="simulation">' in hand_page
    published = public_report(released(tmp_path, hand_plan.PLAN, Secure()))
    text = Page(published).words
    assert "PUBLIC Hand" in text.replace("PUBLICHand", "PUBLIC Hand")
    assert "SIMULATION" not in text
    assert "the ledger was charged first" in text
    assert "<body>" in published


def test_what_is_spent_and_left_are_told_apart(hand, tmp_path):
    book = hand.plan.ledger(tmp_path / "ledger.sqlite")
    release = released(tmp_path, hand_plan.PLAN, Secure())
    found = dict(decision_sheet(release, book).budget)
    assert found == {"Releases so far": "1", "Spent": "rho = 9/10", "Left": str(book.left())}
    assert found["Spent"] != found["Left"]
    assert dict(decision_sheet(release).budget) == {}


def test_every_number_of_its_sentence_is_in_its_table(sheet):
    worst = max(sheet.risks, key=lambda row: row.marginal_risk)
    shown = NUMBER.findall(sheet.sentence)
    for (number, percent), value in zip(
        shown, (worst.prior, worst.released, worst.marginal_risk), strict=True
    ):
        assert rounds_to(number, bool(percent), value, False)
