"""Two plans side by side on a terminal: what is public counts on both sides."""

import io

from rich.console import Console
from tests.report import hand_plan

from countveil.assess.comparison import compare
from countveil.base import words
from countveil.plan.plans import Plan
from countveil.report.terminal.compare_terminal import comparison_document, comparison_view


def shown(found):
    console = Console(file=io.StringIO(), width=160)
    console.print(comparison_view(found))
    return console.file.getvalue()


def test_a_public_total_that_settles_presence_is_compared_as_such():
    plain, public = (Plan.parse(hand_plan.PLAN + more) for more in ("", hand_plan.SETTLING))
    found = compare(plain, public)
    noisy = hand_plan.of_both_levels(0.02)[0] / 0.02  # without places, an upper bound
    text = shown(found)
    assert f"the risk with prior 0.02 goes from at most {words.multiple(noisy)} to 50;" in text
    assert "50 (100 %), revealed by public counts" in text
    risks = comparison_document(found)["second"]["risks"]
    assert [(risk["settled"], risk["posterior"]) for risk in risks] == [(True, 1.0)] * 3
    assert not any(risk["settled"] for risk in comparison_document(found)["first"]["risks"])
    assert "settled" not in shown(compare(plain, plain))
