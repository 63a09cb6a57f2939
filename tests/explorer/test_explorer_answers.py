"""The numbers of the page: those of the library, and those of sums written out by hand."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.explorer.test_explorer_settings import PRESET, STARTER
from tests.explorer.whole_answer import answer

from countveil.assess.intruder import whole_release as whole_release_module
from countveil.assess.intruder.ladder import judged, risk_by_level
from countveil.assess.verdict import judge
from countveil.estimate.plan_error import expected_error
from countveil.explorer import explorer_page, offered_charts
from countveil.explorer.answers import (
    answer_at_judged_level,
    completed,
    priors_of,
)
from countveil.explorer.chart_drawing import draw
from countveil.explorer.explorer_page import numbers
from countveil.explorer.settings import Settings, changed
from countveil.plan.plans import Plan

ONE_COUNT = """
[release]
title = "One count"
unit = "person"
neighbors = "add-remove"
[geography]
levels = ["parent", "place"]
[attributes]
KIND = ["any"]
[budget]
rho = "1/4"
[budget.levels]
parent = "1/2"
place = "1/2"
[budget.queries."*"]
TOTAL = "1"
[intruder]
priors = [0.5, 0.1]
limit = 1.5
"""


def asked(text, **changes):
    plan = Plan.parse(text)
    settings = replace(Settings.of(plan), **changes)
    return changed(plan, settings), settings


def gaussian(rho):
    """Return the discrete Gaussian of a rho for one count, term by term."""
    sigma2 = 1 / (2 * rho)
    whole = math.fsum(math.exp(-(k**2) / (2 * sigma2)) for k in range(-60, 61))
    return {k: math.exp(-(k**2) / (2 * sigma2)) / whole for k in range(-60, 61)}


@pytest.mark.parametrize("prior", [0.5, 0.1, 0.03])
def test_risk_and_decision_of_one_count_are_the_sums_over_what_may_be_released(prior):
    text = ONE_COUNT.replace('parent = "1/2"', 'parent = "0"').replace('"1/2"', '"1"')
    plan, settings = asked(text, amount="1/8", prior=str(prior))
    found = answer(plan, settings)
    noise = gaussian(1 / 8)
    after = {
        e: prior * p / (prior * p + (1 - prior) * noise[e + 1]) for e, p in noise.items() if e < 60
    }
    expected = math.fsum(noise[e] * value for e, value in after.items())
    assert found.selected.posterior == pytest.approx(expected, rel=1e-10)
    assert found.selected.marginal_risk == pytest.approx(expected / prior, rel=1e-10)
    says_yes = math.fsum(
        noise[e] * (0.5 if math.isclose(value, 0.5) else float(value > 0.5))
        for e, value in after.items()
    )
    assert found.selected.correct_decision == pytest.approx(says_yes, rel=1e-10)
    variance = math.fsum(p * e * e for e, p in noise.items())
    assert found.judged.error.standard_deviation == pytest.approx(math.sqrt(variance), rel=1e-10)


def whole_release(amount, siblings, tmp_path, prior="0.1"):
    """Return the answer for the plan of one count, with so many siblings under one parent."""
    lines = ["parent,place", *(f"p,p{number}" for number in range(1 + siblings))]
    (tmp_path / "places.csv").write_text("\n".join(lines) + "\n")
    text = ONE_COUNT.replace("[geography]", '[geography]\npath = "places.csv"')
    plan = Plan.parse(text, folder=tmp_path)
    settings = replace(Settings.of(plan), amount=amount, prior=prior)
    return answer(changed(plan, settings), settings)


def test_a_level_that_is_not_measured_is_judged_all_the_same(tmp_path):
    (tmp_path / "places.csv").write_text("parent,place\np,a\np,b\n")
    text = ONE_COUNT.replace('parent = "1/2"', 'parent = "0"').replace('"1/2"', '"1"')
    text = text.replace("[geography]", '[geography]\npath = "places.csv"')
    plan = Plan.parse(text + 'knows = "parent"\n', folder=tmp_path)
    settings = Settings.of(plan)
    found = answer(plan, settings)
    parent, place = found.levels
    assert found.judged is parent
    assert parent.error is None
    known = [(risk.prior, risk.posterior) for risk in parent.risks]
    assert known == [(risk.prior, risk.posterior) for risk in place.risks], (
        "who knows the parent sees the place's count and no more"
    )
    assert "not measured" in numbers(found, settings)["html"]


def test_without_places_the_risk_is_a_bound_as_if_everyone_were_known():
    plan, settings = asked(ONE_COUNT, prior="0.1")
    found = answer(plan, settings)
    own = gaussian(1 / 8)
    twice = convolved(own, own)  # both levels count the target, and nothing else is unknown
    losses = {e: (2 * e + 2) / 8 for e in twice}
    expected = math.fsum(p / (0.1 + 0.9 * math.exp(-losses[e])) for e, p in twice.items())
    assert found.selected.upper_bound
    assert found.selected.marginal_risk == pytest.approx(expected, rel=1e-6)
    assert "at most" in explorer_page.answer_sentence(found, settings)


def convolved(*laws):
    """Return the law of a sum, term by term; what is below one in 10¹⁸ is left out."""
    found = {0: 1.0}
    for law in laws:
        total = {}
        for a, p in found.items():
            for b, q in law.items():
                total[a + b] = total.get(a + b, 0.0) + p * q
        found = {value: p for value, p in total.items() if p > 1e-18}
    return found


def seen_together(rho, siblings, prior):
    """Return the risk from a place's count and the parent's less that of all others, summed out.

    Of the siblings the intruder knows only their noisy counts: the difference is the count of the place
    with the noise of the parent and of each sibling.
    """
    own = {k: p for k, p in gaussian(rho).items() if p > 1e-18}
    rest = convolved(*[own] * (1 + siblings))
    terms = []
    for e, p in own.items():
        for f, q in rest.items():
            other = own.get(e + 1, 0.0) * rest.get(f + 1, 0.0)
            terms.append(p * q * prior * p * q / (prior * p * q + (1 - prior) * other))
    return math.fsum(terms) / prior


@pytest.mark.parametrize("siblings", [0, 1, 3])
@pytest.mark.parametrize("amount", ["1/8", "1/4", "1"])
def test_the_risk_is_that_of_all_that_is_seen(amount, siblings, tmp_path):
    """The noise of the parent and of all siblings is summed out term by term."""
    found = whole_release(amount, siblings, tmp_path)
    truth = seen_together(float(Fraction(amount)) / 2, siblings, 0.1)
    risk = found.selected.marginal_risk
    if found.selected.upper_bound:  # where noise is small next to whole counts
        assert (amount, siblings) == ("1", 1)
        assert truth <= risk <= 1.01 * truth
    else:
        assert risk == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("text", [STARTER, PRESET], ids=["starter", "preset"])
def test_the_numbers_are_those_of_the_library(text):
    plan, settings = asked(text, amount="3/4", prior="0.05")
    found = answer(plan, settings)
    assert found.cost == plan.cost
    assert found.cost.rho == Fraction(3, 4)
    assert found.epsilon == plan.cost.epsilon(plan.delta)
    expected = risk_by_level(plan, attack="presence", invariants=True)
    told = [(lv.level, r.prior, r.marginal_risk) for lv in found.levels for r in lv.risks]
    assert told == [(r.level, r.prior, pytest.approx(r.marginal_risk)) for r in expected]
    decisions = [risk.correct_decision for risk in judged(plan, expected)]
    assert [r.correct_decision for r in found.judged.risks] == pytest.approx(decisions)
    errors = {item.level: item for item in expected_error(plan) if item.query == "TOTAL"}
    assert {item.level: item.error for item in found.levels} == errors
    assert sum(item.share for item in found.levels) == 1
    assert found.prior == 0.05


def test_a_slider_waits_for_the_judged_level_alone(monkeypatch):
    """What moves at once asks for one level's evidence; the rest is added, and nothing changes."""
    levels, real = [], whole_release_module.evidence

    def counted(plan, level, **named):
        levels.append(level)
        return real(plan, level, **named)

    plan, settings = asked(PRESET, attack="whole record", level="tract")
    judge(plan)  # has its own ladder, and is kept
    monkeypatch.setattr(whole_release_module, "evidence", counted)
    first = answer_at_judged_level(plan, settings)
    assert set(levels) == {"tract"}
    assert [item.level for item in first.levels if item.risks] == ["tract"]
    assert explorer_page.answer_sentence(first, settings)
    whole = completed(first, plan, settings)
    assert set(levels) == set(plan.measured_levels)
    assert whole == answer(plan, settings)
    assert explorer_page.answer_sentence(whole, settings) == explorer_page.answer_sentence(
        first, settings
    )


@pytest.mark.parametrize(
    ("attack", "attribute"), [("unknown attribute", "RACE"), ("whole record", None)]
)
def test_another_attack_is_asked_of_the_library_as_such(attack, attribute):
    plan, settings = asked(STARTER, attack=attack, attribute=attribute, level="tract")
    found = answer(plan, settings)
    for item in found.levels:
        for risk in item.risks:
            expected = whole_release_module.whole_release_risk(
                plan, prior=risk.prior, level=item.level, attack=attack, attribute=attribute
            )
            assert risk.marginal_risk == pytest.approx(expected.value)
    name = attack if attribute is None else f"{attack}: {attribute}"
    (right,) = risk_by_level(plan, [found.prior], levels=("tract",), attack=name)
    assert found.selected.correct_decision == pytest.approx(right.correct_decision)
    assert found.verdict == judge(plan)  # whatever attack the page looks at


def test_of_very_many_priors_some_are_shown_and_always_the_selected_one():
    listed = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.1]
    text = ONE_COUNT.replace("[0.5, 0.1]", str(listed))
    for selected in ("0.1", "0.9", "0.55"):
        plan, settings = asked(text, prior=selected)
        shown = priors_of(plan, settings)
        assert len(set(shown)) == len(shown) == 8
        assert float(selected) in shown
        assert draw("risk-by-level", Plan.parse(text), settings).table.num_rows == 16


def test_charts_show_the_plan_as_set():
    plan = Plan.parse(STARTER)
    settings = replace(Settings.of(plan), amount="2", prior="0.1")
    other = changed(plan, settings)
    drawn = {name: draw(name, plan, settings).table for name in offered_charts.offered(settings)}
    by_level = drawn["risk-by-level"].to_pylist()
    expected = risk_by_level(other, attack="presence", invariants=True)
    assert [row["marginal_risk"] for row in by_level] == [r.marginal_risk for r in expected]
    chosen = [row for row in drawn["risk-by-rho"].to_pylist() if row["rho"] == 2.0]
    assert {row["prior"]: row["marginal_risk"] for row in chosen} == pytest.approx(
        {risk.prior: risk.marginal_risk for risk in judged(other, expected)}
    )
    right = answer(other, settings).selected.correct_decision
    (after,) = [r for r in drawn["intruders"].to_pylist() if r["when"] == "after"]
    (turned,) = risk_by_level(other, [0.9], levels=("block",), attack="presence", invariants=True)
    whole = 0.1 * right + 0.9 * turned.correct_decision
    assert after["probability_of_a_right_decision"] == pytest.approx(whole)
    spent = [row for row in drawn["budget-allocation"].to_pylist() if row["level"] == "all levels"]
    assert spent[0]["rho"] == 2.0
    assert len(drawn["expected-error"]) == len(expected_error(other))


def test_a_chart_is_drawn_again_only_for_what_it_shows():
    own = Settings.of(Plan.parse(STARTER))

    def moved(**changes):
        other = replace(own, **changes)
        marks = offered_charts.fingerprint
        return {name for name in offered_charts.TITLES if marks(name, own) != marks(name, other)}

    everything = set(offered_charts.TITLES)
    assert moved(amount="1.0") == set()
    assert moved(weights=tuple((level, f"{share}e1") for level, share in _decimals(own))) == set()
    assert moved(amount="2") == everything
    assert moved(prior="0.3") == everything - {"expected-error", "budget-allocation"}
    assert moved(level="tract") == {"risk-by-rho", "intruders"}
    pure = replace(own, mechanism="discrete Laplace", attack="whole record")
    assert offered_charts.offered(pure) == ("risk-by-level", "expected-error", "budget-allocation")


def _decimals(settings):
    return [(level, float(share)) for level, share in settings.shares.items()]
