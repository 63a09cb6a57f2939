"""The answer in words: every number of a sentence, line and table is that of the answer."""

import re

import pytest
from tests.explorer.test_explorer_answers import ONE_COUNT, asked
from tests.explorer.test_explorer_settings import STARTER
from tests.explorer.whole_answer import answer

from countveil.base import words
from countveil.explorer import explorer_page


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attack": "unknown attribute", "attribute": "RACE"},
        {"attack": "whole record"},
        {"mechanism": "discrete Laplace", "amount": "2"},
    ],
)
def test_every_number_of_the_sentence_is_that_of_the_answer(changes):
    plan, settings = asked(STARTER, prior="0.1", **changes)
    found = answer(plan, settings)
    text = explorer_page.answer_sentence(found, settings)
    numbers = [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
    risk, (prior, after, times, *guesses) = found.selected, numbers
    assert prior == 100 * risk.prior
    assert f"{after:g} %" == words.brief_percent(risk.posterior, other=risk.prior)
    assert f"{times:g}" == words.multiple(risk.marginal_risk, limit=plan.intruder.limit)
    if risk.correct_decision == 0:
        assert "they never guess correctly" in text
    else:
        assert guesses[0] == round(guesses[1] * risk.correct_decision)
        assert guesses[1] in (100, 1_000, 10_000)
    assert (settings.attribute or "block") in text
    lines = dict(explorer_page.cost_lines(found, settings))
    assert lines["Cost"] == str(plan.cost)
    if "Epsilon" in lines:
        assert 0 <= float(lines["Epsilon"].split()[0]) - found.epsilon < 0.01


def test_it_says_where_what_is_published_as_counted_settles_it():
    public = '[[invariants]]\nlevel = "place"\nquery = "TOTAL"\nreason = "known"\n'
    moved = ONE_COUNT.replace("add-remove", "change-one")
    for text, settled in ((moved, False), (moved + public, True)):
        found, settings = answer(*asked(text)), asked(text)[1]
        assert found.settled == settled
        sentence = explorer_page.answer_sentence(found, settings)
        assert ("the plan publishes exactly reveal it anyway" in sentence) == settled


def test_the_verdict_follows_the_limit():
    for amount, within in (("1/4", True), ("8", False)):
        plan, settings = asked(ONE_COUNT, amount=amount)
        found = answer(plan, settings)
        worst = max(risk.marginal_risk for risk in found.judged.risks)
        assert (worst <= 1.5) == within
        assert found.verdict.status == ("within" if within else "above")
        assert f"{worst:.2g}" in found.verdict.sentence
        assert ("within" if within else "above") in explorer_page.verdict_line(found)
