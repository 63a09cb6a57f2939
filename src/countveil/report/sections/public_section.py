"""What public totals reveal, and what guarantee remains given them."""

from __future__ import annotations

from countveil.assess.remaining_guarantee import public_guarantee
from countveil.plan.plans import AnyPlan
from countveil.publish.release_folder import AnyRelease
from countveil.report.section_data import Section, SectionTable, Subject


def section(subject: Subject) -> Section:
    """Describe the guarantee that remains, given what is published exactly."""
    return section_of(subject.plan if subject.release is None else subject.release)


def section_of(of: AnyPlan | AnyRelease) -> Section:
    """Return the section of a plan or a release of either kind."""
    remaining = public_guarantee(of)
    table = SectionTable(
        "What is protected, given what is public",
        ("Secret", "People who must differ", "Guarantee", "Odds, at most", "Reason"),
        tuple(
            (item.what, item.records, item.guarantee, _odds(item.odds), item.why)
            for item in remaining.secrets
        ),
    )
    public = "; ".join(remaining.public) or "nothing"
    sentences = (
        f"Public: {public}.",
        f"The remaining guarantee is {remaining.currency}.",
    )
    return Section(
        "public",
        "What public totals reveal",
        (*sentences, *remaining.sentences),
        (table,),
        figures=remaining.document,
    )


def _odds(odds: float | None) -> str:
    return "no bound" if odds is None else f"× {odds:,.4g}"
