"""What public facts settle and add: counted by hand, beliefs by Bayes' rule over all counts."""

import numpy as np
import pytest
from tests.conftest import run

from countveil import Seeded, pipeline
from countveil.assess.intruder.summary import known_facts, summarise
from countveil.plan.plans import Plan

FACTS = """
[[constraints]]
level = "area"
query = "SEX"
path = "facts.csv"
reason = "a public register"
"""


@pytest.fixture
def bounded(tiny):
    """Of one area someone is known, of another a largest count, of a third everything."""
    plan = Plan.load(tiny)
    areas = plan.geography().geocodes("area").to_pylist()
    sexes = next(item.categories for item in plan.schema.attributes if item.name == "SEX")
    rows = ["area,SEX,at_least,at_most", f"{areas[0]},{sexes[0]},1,", f"{areas[1]},{sexes[1]},,900"]
    rows.append(f"{areas[2]},{sexes[0]},4,4")
    (tiny.parent / "facts.csv").write_text("\n".join(rows) + "\n")
    return tiny


def test_beliefs_are_bayes_rule_over_two_people(bounded):
    bounded.write_text(bounded.read_text() + FACTS)
    plan = Plan.load(bounded)
    (found,) = known_facts(plan, plan.geography(), None, level="area", priors=[0.1])
    assert (found.query, found.counts) == ("SEX", 3)
    assert (found.settled, found.not_empty, found.bounded) == (1, 1, 1)
    p = 0.1
    assert found.with_fact == pytest.approx(p / (1 - (1 - p) ** 2))
    noise = max(plan.at("area"), key=lambda item: item.query.cells).mechanism
    seen = np.arange(-30, 33)
    law = [np.exp(noise.log_pmf(seen - count)) for count in range(3)]
    there = (1 - p) * law[1] + p * law[2]
    for away, value in (
        (p * law[1], found.with_release),
        ((1 - p) * law[0] + p * law[1], found.release_alone),
    ):
        posterior = p * there / (p * there + (1 - p) * away)
        assert value == pytest.approx(float(there @ posterior), abs=1e-9)


def test_the_report_says_what_facts_add(bounded):
    bounded.write_text(bounded.read_text() + FACTS)
    out = bounded.parent / "out"
    pipeline.release(Plan.load(bounded), to=out, rng=Seeded(2))
    words = " ".join(run("assess", "presence", out, "--prior", "0.1", "--quiet").out.split())
    assert (
        "Public facts bound 3 counts of SEX: 1 is known exactly, 1 cannot be zero, 1 has an"
        in words
    )
    assert "That the count is not zero raises 10 % to 53 %;" in words


def test_without_facts_nothing_is_said(tiny):
    plan = Plan.load(tiny)
    assert summarise(plan, plan.geography()).facts == ()
