"""The privacy loss of single counts, from the law of their noise."""

from __future__ import annotations

from countveil.assess.plan_lenses import loss_by_level
from countveil.base import words
from countveil.plan.plans import Plan
from countveil.privacy.costs import PureDP
from countveil.report.section_data import Section, SectionTable, Subject


def section(subject: Subject) -> Section:
    """Say what privacy loss the noise of single queries has, where most of it falls."""
    plan = subject.plan
    found = loss_by_level(plan)
    worst = max(found, key=lambda item: item.loss)
    rows = plan.rows_per_person
    person = "a person" if rows == 1 else f"all {rows} rows of a person"
    sentences = (
        f"The loss of a released value is the logarithm of how many times likelier it is with {person} "
        f"in its count than without. The law of the noise says how large it may be, and how often.",
        f"Of the queries listed it is largest for {worst.query} of {words.article(worst.level)}: "
        f"{words.number(worst.loss)} at a noise of {words.number(worst.half_width)}, which at least "
        f"{words.percent(worst.share)} of its noise does not pass in size.",
        _together(plan),
    )
    table = SectionTable(
        f"Loss of one value at the edge of {words.percent(found[0].share)} of the noise",
        ("Level", "Query", "Standard deviation", "Noise at most", "Loss there"),
        tuple(
            (item.level, item.query, item.standard_deviation, item.half_width, item.loss)
            for item in found
        ),
    )
    return Section("loss", "Privacy loss", sentences, (table,))


def _together(plan: Plan) -> str:
    """Say what the budget says of the losses of all counts that a person is in."""
    start = "The losses of all counts that a person is in add up."
    if isinstance(plan.cost, PureDP):
        return f"{start} Their sum never passes the budget, whatever values are released."
    return (
        f"{start} The budget holds their sum to at most rho on average, and bounds how often it is "
        f"larger; it sets no largest value."
    )
