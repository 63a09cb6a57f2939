"""The privacy loss of single counts, from the distribution of their noise."""

from __future__ import annotations

from countveil.assess.empirical_loss.planned_loss import loss_by_level
from countveil.base import words
from countveil.plan.plans import Plan
from countveil.report.section_data import Section, SectionTable, Subject


def section(subject: Subject) -> Section:
    """Describe the privacy loss of single counts, up to the size that most noise stays within."""
    plan = subject.plan
    losses = loss_by_level(plan)
    worst = max(losses, key=lambda item: item.loss)
    rows = plan.rows_per_person
    person = "a person" if rows == 1 else f"all {rows} rows of a person"
    sentences = (
        f"The privacy loss of a released count is the logarithm of how many times more likely its "
        f"value is with {person} in the count than without. The distribution of the noise "
        f"determines how large it can be, and how often.",
        f"Of these queries, {worst.query} of {words.article(worst.level)} has the largest loss: "
        f"{words.brief(worst.loss)} at a noise of {words.number(worst.half_width)}, the "
        f"{100 * worst.share:g}th percentile of its size.",
        _sum_of_losses(plan),
    )
    table = SectionTable(
        f"Privacy loss of one count, at the {100 * losses[0].share:g}th percentile of its noise",
        ("Level", "Query", "Standard deviation", "Size of the noise", "Privacy loss"),
        tuple(
            (item.level, item.query, item.standard_deviation, item.half_width, item.loss)
            for item in losses
        ),
    )
    return Section("loss", "Privacy loss", sentences, (table,))


def _sum_of_losses(plan: Plan) -> str:
    """Say how the budget limits the losses of all counts that include a person."""
    start = "The losses of all counts that include a person add up."
    if plan.cost.pure_epsilon is not None:
        return f"{start} Their sum never exceeds the budget."
    return (
        f"{start} The budget keeps their sum at or below rho on average, and bounds how often it "
        f"is larger; it sets no maximum."
    )
