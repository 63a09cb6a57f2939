"""Page one: its numbers by hand, what it says of limits, and what public counts settle."""

from dataclasses import replace

import pytest
from tests.conftest import TINY_PLAN, few_simulated_releases
from tests.report import hand_plan
from tests.report.numbers_in_words import NUMBER, rounds_to
from tests.report.reading import Page

from countveil import Release, Secure, Seeded, pipeline
from countveil.assess.intruder.ladder import risk_by_level
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
    """The worst attack, by someone who sees both levels; the outside is normal to a few 1e-5."""
    assert [row.released.prior for row in sheet.risks] == list(hand_plan.PRIORS)
    for row in sheet.risks:
        risk = row.released
        after, right = hand_plan.of_whole_release(risk.prior)
        assert risk.posterior == row.noisy.posterior == pytest.approx(after, rel=1e-8)
        assert risk.marginal_risk == pytest.approx(after / risk.prior, rel=1e-8)
        # Right if the outside were normal; on a lattice they guess a little more often, or less.
        assert right <= risk.correct_decision <= right + 0.02
        assert risk.decision_upper_bound
        assert (row.exact, row.suppressed, risk.settled) == (1.0, 1.0, False)
        assert (risk.attack, risk.upper_bound) == (hand_plan.WORST, False)
        present, _ = hand_plan.of_whole_release(risk.prior, "presence")
        assert present < after


def test_its_table_shows_them_in_their_columns(hand, sheet, hand_page):
    text = Page(hand_page).words
    assert "Correct guesses, at most" in text
    for row in sheet.risks:
        prior = row.released.prior
        after, _ = hand_plan.of_whole_release(prior)
        right = row.released.correct_decision
        shown = f"{words.brief_percent(after)}{words.multiple(after / prior)}"
        shown += f" {words.brief_percent(right)}"
        assert f"{prior} AGE 100 %up to 100 % {shown}" in text
    totals = "".join(
        f"{item.level} {words.figure(hand_plan.spread(item.level, 'TOTAL'))}"
        f"{words.figure(item.standard_error)} "
        for item in expected_error(hand.plan, ("TOTAL",), geography=hand.geography)
    )
    assert f"Estimate {totals.strip()}" in text


def test_its_sentence_is_of_the_intruder_who_gains_most(sheet):
    after, _ = hand_plan.of_whole_release(0.02)
    assert sheet.sentence == (
        f"Someone who knows everyone else in an area, sees the whole release and tries to learn your "
        f"AGE would become more certain if they are right: from 2 % to {words.brief_percent(after)} on "
        f"average, {words.multiple(after / 0.02)} times their prior. The exact table would have made "
        f"them certain."
    )


def test_it_shows_the_ladder_next_to_the_verdict(hand, sheet, hand_page):
    """Who knows everyone else in a region sees its counts and those of one area, and no others."""
    worst, _ = hand_plan.of_whole_release(0.02)
    own = [hand_plan.losses(level, hand_plan.LADDER[level]) for level in ("region", "area")]
    top = hand_plan.posterior(*hand_plan.together(*own), 0.02)
    assert sheet.ladder == (
        f"With a prior of 0.02, the risk would be {words.multiple(worst / 0.02)} times the prior for "
        f"someone who knows everyone else in the area, {words.multiple(top / 0.02)} in the region."
    )
    assert sheet.ladder in Page(hand_page).words


def test_it_says_whether_the_plan_keeps_its_limit(hand, sheet, hand_page):
    worst = hand_plan.of_whole_release(0.02)[0] / 0.02
    largest = (
        f"the largest risk is {worst:.2g} times the prior, in an area with 2 siblings, for someone who "
        f"knows everyone else there, sees the whole release and tries to learn your AGE, starting "
        f"from a probability of 2 %."
    )
    judged = judge(hand.plan)
    assert judged.sentence == f"Within the plan's limit of 4 times the prior: {largest}"
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
    noisy, _ = hand_plan.of_whole_release(0.02)
    for row in sheet.risks:
        risk = row.released
        assert (risk.posterior, risk.marginal_risk) == (1.0, pytest.approx(1 / risk.prior))
        assert (risk.correct_decision, risk.settled) == (1.0, True)
        assert risk.attack == "presence"
        assert row.noisy.posterior == pytest.approx(hand_plan.of_whole_release(risk.prior)[0])
    assert {item.level: item.settled for item in sheet.levels} == {"region": True, "area": True}
    assert sheet.sentence == (
        f"Exactly published counts reveal whether you are counted there to anyone who knows everyone "
        f"else in an area, just as the exact table would. From noisy counts alone they would become "
        f"more certain if they are right: from 2 % to {words.brief_percent(noisy)} on average, "
        f"{words.multiple(noisy / 0.02)} times their prior."
    )
    assert sheet.verdict == (
        f"Above the plan's limit of 4 times the prior: the largest risk is 50 times the prior, in any "
        f"area, for someone who knows everyone else there, sees the whole release and tries to learn "
        f"whether you are counted there, starting from a probability of 2 %. More noise would not "
        f"help: exactly published counts give the answer. From noisy counts alone, the risk would be "
        f"{noisy / 0.02:.2g} times the prior, within the limit."
    )
    with few_simulated_releases():
        text = Page(public_report(settled)).words
    assert text.count("100 %: revealed by public counts") == len(hand_plan.PRIORS)
    assert f"0.02 presence 100 %up to 100 % 100 %: revealed by public counts{50} 100 %" in text
    assert "the risk does not change, because exactly published counts give the answer" in text


def test_an_invariant_above_settles_only_above(tiny):
    top = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
    found = risk_by_level(Plan.parse(TINY_PLAN + top, folder=tiny.parent), invariants=True)
    assert {item.level: item.settled for item in found} == {"region": True, "area": False}
    assert all(item.posterior == 1.0 for item in found if item.level == "region")
    plain = risk_by_level(Plan.parse(TINY_PLAN, folder=tiny.parent), attack="presence")
    below = risk_by_level(
        Plan.parse(TINY_PLAN + top, folder=tiny.parent), invariants=True, attack="presence"
    )
    for known, other in zip(below, plain, strict=True):
        assert known.marginal_risk > other.marginal_risk, "an exact total above adds evidence below"


def test_suppression_protects_less_where_people_have_several_rows(sheet):
    # A person of three rows leaves 1 to 4 from any count but 1.
    assert "only where exactly 1 other shares the cell and" in sheet.suppression
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
        "Intruder knows": "everyone else in an area",
        "Risk limit": "4 times the prior",
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


def test_what_is_spent_and_left_are_stated_separately(hand, tmp_path):
    book = hand.plan.ledger(tmp_path / "ledger.sqlite")
    release = released(tmp_path, hand_plan.PLAN, Secure())
    found = dict(decision_sheet(release, book).budget)
    assert found == {"Releases so far": "1", "Spent": "rho = 9/10", "Left": str(book.left())}
    assert found["Spent"] != found["Left"]
    assert dict(decision_sheet(release).budget) == {}


def test_every_number_of_its_sentence_is_in_its_table(sheet):
    worst = sheet.worst.released
    shown = NUMBER.findall(sheet.sentence)
    for (number, percent), value in zip(
        shown, (worst.prior, worst.posterior, worst.marginal_risk), strict=True
    ):
        assert rounds_to(number, bool(percent), value, False)
