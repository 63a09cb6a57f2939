"""What public totals reveal, and what guarantee remains next to them."""

from __future__ import annotations

from countveil.assess.remaining_guarantee import public_guarantee
from countveil.plan.plans import AnyPlan
from countveil.publish.release_folder import AnyRelease
from countveil.report.section_data import Section, SectionTable, Subject


def section(subject: Subject) -> Section:
    """Say what guarantee remains next to what is published exactly."""
    return section_of(subject.plan if subject.release is None else subject.release)


def section_of(of: AnyPlan | AnyRelease) -> Section:
    """Return the section of a plan or a release of either kind."""
    found = public_guarantee(of)
    table = SectionTable(
        "What is protected, given what is public",
        ("Secret", "People who must differ", "Guarantee", "Odds, at most", "Because"),
        tuple(
            (item.what, item.records, item.guarantee, _odds(item.odds), item.why)
            for item in found.secrets
        ),
    )
    public = "; ".join(found.public) or "nothing"
    sentences = (
        f"Public: {public}.",
        f"The remaining guarantee is {found.currency}.",
    )
    return Section(
        "public",
        "What public totals reveal",
        (*sentences, *found.sentences),
        (table,),
        figures=found.document,
    )


def _odds(odds: float | None) -> str:
    return "no bound" if odds is None else f"× {odds:,.4g}"
