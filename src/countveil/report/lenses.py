"""The public lenses of a report beside the intruder's: error, loss, homogeneity, what is public."""

from __future__ import annotations

from collections.abc import Sequence

from countveil.assess.plan_error import ExpectedError
from countveil.assess.plan_lenses import GroupRisk, homogeneity_by_size, loss_by_level
from countveil.assess.public_information import beside_public
from countveil.privacy.costs import PureDP
from countveil.release import Release
from countveil.report import charts, words
from countveil.report.charts import MOST_SERIES
from countveil.report.section import Cell, Listing, Section
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL


def error_section(plan: Plan, errors: tuple[ExpectedError, ...]) -> Section:
    """Say how far off a count is expected to be, from the plan alone."""
    sentences = ["How far off counts are on average follows from the plan alone."]
    sentences += [
        f"The noise of the total of {words.article(item.level)} is {words.number(item.absolute_error)} "
        f"in size on average, and as often above 0 as below."
        for item in errors
        if item.query == TOTAL and not item.as_counted and item.absolute_error is not None
    ]
    listing = Listing(
        "Error of a cell of each query: of its own noise, and after least squares over its level",
        ("Level", "Query", "Cells", "Mean absolute noise", "Standard deviation", "Least squares"),
        tuple(
            (
                *(item.level, item.query, item.cells),
                *(item.absolute_error, item.standard_deviation, item.standard_error),
            )
            for item in errors
            if not item.as_counted
        ),
    )
    pictures = [charts.budget_allocation(plan)]
    if any(item.as_counted or item.standard_error is not None for item in errors):
        pictures.insert(0, charts.expected_error(errors))
    return Section("error", "Error", tuple(sentences), (listing,), tuple(pictures))


def loss_section(plan: Plan) -> Section:
    """Say what privacy loss the noise of single queries has, where most of it falls."""
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
    listing = Listing(
        f"Loss of one value at the edge of {words.percent(found[0].share)} of the noise",
        ("Level", "Query", "Standard deviation", "Noise at most", "Loss there"),
        tuple(
            (item.level, item.query, item.standard_deviation, item.half_width, item.loss)
            for item in found
        ),
    )
    return Section("loss", "Privacy loss", sentences, (listing,))


def _together(plan: Plan) -> str:
    """Say what the budget says of the losses of all counts that a person is in."""
    told = "The losses of all counts that a person is in add up."
    if isinstance(plan.cost, PureDP):
        return f"{told} Their sum never passes the budget, whatever values are released."
    return (
        f"{told} The budget holds their sum to at most rho on average, and bounds how often it is "
        f"larger; it sets no largest value."
    )


def homogeneity_section(plan: Plan) -> Section | None:
    """Say how often groups that are all alike are given away; none where there is no attribute."""
    found = homogeneity_by_size(plan)
    if not found:
        return None
    names = list(dict.fromkeys(item.attribute for item in found))
    drawn = [item for item in found if item.attribute in names[:MOST_SERIES]]
    sentences = [
        "Where all people of a group have one value, the exact table tells it of each of them. With "
        "noise other values may seem to occur in the group, and its own may seem not to.",
    ]
    if len(names) > MOST_SERIES:
        sentences.append(
            f"The picture shows the first {MOST_SERIES} of {len(names)} attributes; the listing has "
            f"all of them."
        )
    return Section(
        "homogeneity",
        "Groups that are all alike",
        tuple(sentences),
        (_groups(found, names),),
        (charts.uniform_groups(drawn),),
    )


def _groups(found: Sequence[GroupRisk], names: Sequence[str]) -> Listing:
    sizes = list(dict.fromkeys(item.people for item in found))
    shown = {(item.attribute, item.people): words.percent(item.disclosed) for item in found}
    values = {item.attribute: item.values for item in found}
    rows: list[tuple[Cell, ...]] = [
        (name, values[name], *(shown[name, people] for people in sizes)) for name in names
    ]
    return Listing(
        f"How often noisy counts of {words.article(found[0].level)} show just the one value of a group",
        ("Attribute", "Values", *(f"Group of {people}" for people in sizes)),
        tuple(rows),
    )


def public_section(release: Release) -> Section:
    """Say what guarantee remains beside what is published as counted."""
    found = beside_public(release)
    listing = Listing(
        "Secrets, and what protects them beside what is public",
        ("Secret", "People who must differ", "Guarantee", "Odds, at most", "Because"),
        tuple(
            (item.what, item.records, item.guarantee, _odds(item.odds), item.why)
            for item in found.secrets
        ),
    )
    public = "; ".join(found.public) or "nothing"
    sentences = (
        f"This is public beside the release: {public}.",
        f"What remains is {found.currency}.",
    )
    return Section("remains", "Beside what is public", (*sentences, *found.sentences), (listing,))


def _odds(odds: float | None) -> str:
    return "no bound" if odds is None else f"× {odds:,.4g}"
