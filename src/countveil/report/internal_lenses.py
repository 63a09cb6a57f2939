"""INTERNAL: the parts of a report that show what a release got wrong and gave away."""

from __future__ import annotations

from typing import Any

from countveil.assess.empirical_loss import kde
from countveil.assess.realised import Realised
from countveil.errors import InputError
from countveil.report import charts
from countveil.report.charts import Picture, words
from countveil.report.section import Listing, Section
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL

_ALL = "all"


def internal_sections(plan: Plan, found: Realised) -> list[Section]:
    """Return what only the internal report shows: error, realised risk, loss and the attack."""
    parts = [_realised_error(found), _everyone(found), _loss(plan, found), _attack(found)]
    return [section for section in parts if section is not None]


def _realised_error(found: Realised) -> Section | None:
    if found.accuracy is None:
        return None
    rows = [
        row
        for row in found.accuracy.errors.to_pylist()
        if row["query"] == TOTAL and row["size_class"] == _ALL
    ]
    sentences = [
        f"The total of {words.number(row['cells'])} units of level {row['level']} is off by "
        f"{words.number(row['mean_absolute_error'])} people on average; the bias is "
        f"{words.number(row['bias'])}."
        for row in rows
    ]
    columns = ("mean_absolute_error", "bias", "root_mean_squared_error", "error_05", "error_95")
    listing = Listing(
        "Estimated totals less exact ones, by level",
        ("Level", "Units", "Mean absolute", "Bias", "Root mean square", "5 % below", "95 % below"),
        tuple((row["level"], row["cells"], *(row[name] for name in columns)) for row in rows),
    )
    pictures: list[Picture] = [charts.error_by_size(found.accuracy)]
    if found.totals is not None:
        exact, released = found.totals.exact, found.totals.released
        pictures.append(charts.exact_and_released(exact, released, audience="internal"))
    return Section(
        "realised-error", "Error as it came out", tuple(sentences), (listing,), tuple(pictures)
    )


def _everyone(found: Realised) -> Section:
    groups = [row for row in found.everyone.groups.to_pylist() if row["by"] == "size"]
    worst = max(groups, key=lambda row: row["largest_risk"]) if groups else None
    sentences = [
        f"Of everyone counted, by an intruder who knows all others in a {found.everyone.level} and "
        f"began with {words.number(found.everyone.prior)}: his belief over his prior, as the noise "
        f"came out."
    ]
    if worst is not None:
        sentences.append(
            f"The largest is {words.number(worst['largest_risk'])}; it is of cells whose number of "
            f"people is {worst['group']}."
        )
    listing = Listing(
        "Realised risk by the number of people in a cell",
        ("People in the cell", "Cells", "People", "Mean risk", "Largest risk"),
        tuple(
            (row["group"], row["cells"], row["people"], row["mean_risk"], row["largest_risk"])
            for row in groups
        ),
    )
    pictures = [charts.risk_map(found.everyone)] if found.everyone.groups.num_rows else []
    return Section(
        "everyone", "Everyone who was counted", tuple(sentences), (listing,), tuple(pictures)
    )


def _loss(plan: Plan, found: Realised) -> Section:
    rows = found.residuals.losses(by_size=False).to_pylist()
    columns = ("empirical_loss", "tail_ratio", "lower", "upper", "audit_lower_bound")
    listing = Listing(
        "Privacy loss from residuals, by level and query",
        ("Level", "Query", "Residuals", "Empirical loss", "Tail ratio", "from", "to", "At least"),
        tuple(
            (row["level"], row["query"], row["residuals"], *(row[name] for name in columns))
            for row in rows
        ),
    )
    curves = _curves(plan, found)
    pictures: list[Picture] = [charts.empirical_loss(curves)] if curves else []
    judged = [key for key in found.residuals.groups if key[0] == plan.judged_level]
    pictures += [charts.residuals(found.residuals.of(judged[0]))] if judged else []
    sentence = (
        "Residuals are released less exact counts. The empirical loss is the paper's estimate and "
        "bounds nothing; with 95 % confidence the loss is not below the last column, if residuals "
        "have one law whatever the count."
    )
    return Section(
        "realised-loss", "Loss as residuals show it", (sentence,), (listing,), tuple(pictures)
    )


def _curves(plan: Plan, found: Realised) -> dict[str, Any]:
    """Return smoothed losses of the judged level's queries, of those that have residuals enough."""
    curves: dict[str, Any] = {}
    for key in found.residuals.groups:
        if key[0] != plan.judged_level or len(curves) == 4:
            continue
        try:
            curves[key[1]] = kde(found.residuals.of(key))
        except InputError:
            continue  # too few residuals or no spread: the listing says so
    return curves


def _attack(found: Realised) -> Section | None:
    if not found.attacks:
        return None
    worst = max(found.attacks, key=lambda name: found.attacks[name].disclosed)
    told = found.attacks[worst]
    sentence = (
        f"Who knows a person's place and all attributes but {worst} is told it rightly for "
        f"{words.percent(told.disclosed)} of the people and wrongly for {words.percent(told.misled)}; "
        f"the exact table would tell it for {words.percent(told.before)}."
    )
    listing = Listing(
        "The homogeneity attack on this release: shares of people",
        ("Attribute", "Told by the exact table", "Told rightly", "Told wrongly", "Cells"),
        tuple(
            (name, item.before, item.disclosed, item.misled, item.cells)
            for name, item in found.attacks.items()
        ),
    )
    return Section(
        "realised-attack", "Groups that are all alike, as released", (sentence,), (listing,)
    )
