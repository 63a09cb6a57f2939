"""The internal error report in words: its short form as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from countveil.schema.workload import TOTAL

WATERMARK = "INTERNAL: COMPUTED FROM CONFIDENTIAL COUNTS, NOT TO BE PUBLISHED"
ALL = "all"
_SHOWN_GROUP = 100  # people a group needs to stand in the report

Rows = list[dict[str, Any]]


def short_report(title: str, errors: Rows, marginals: Rows, groups: Rows) -> str:
    """Return the short report as Markdown."""
    levels = list(dict.fromkeys(row["level"] for row in errors))
    lowest = levels[-1]
    totals = [row for row in errors if row["query"] == TOTAL]
    by_level = [row for row in totals if row["size_class"] == ALL]
    by_size = [row for row in totals if row["level"] == lowest]
    lines = [
        *(f"# {WATERMARK}", f"Error of the release against the confidential counts: {title}"),
        "Error is estimate minus count. error.json and the Parquet files have all of it.",
        "## TOTAL, by level",
        _markdown(["level", "units", *_SHOWN.values()], _total_rows(by_level, "level")),
        f"## TOTAL at level {lowest}, by the people a unit has",
        _markdown(["people", "units", *_SHOWN.values()], _total_rows(by_size, "size_class")),
        "## Mean absolute error of a cell, by query",
        _markdown(["query", *levels], _mean_rows(errors, levels)),
        "## Total variation distance, by the number of attributes of a marginal",
        "Averaged over the marginals and over the units with people in both.",
        _markdown(["attributes", *levels], _distance_rows(marginals, levels)),
        f"## Groups at level {lowest} with the lowest and the highest relative bias",
        f"Of the groups with at least {_SHOWN_GROUP} people.",
        _markdown(
            ["group", "people", "mean absolute error", "bias", "relative bias"],
            _group_rows([row for row in groups if row["level"] == lowest]),
        ),
    ]
    return "\n\n".join(lines) + "\n"


_SHOWN = {
    "mean_absolute_error": "mean absolute error",
    "bias": "bias",
    "root_mean_squared_error": "RMSE",
    "error_05": "5 %",
    "error_95": "95 %",
    "mean_absolute_percentage_error": "mean % error",
}


def _total_rows(totals: Rows, by: str) -> Iterator[list[Any]]:
    return ([row[by], row["cells"], *(row[name] for name in _SHOWN)] for row in totals)


def _mean_rows(errors: Rows, levels: list[str]) -> Iterator[list[Any]]:
    every = [row for row in errors if row["size_class"] == ALL]
    mean = {(row["query"], row["level"]): row["mean_absolute_error"] for row in every}
    for query in dict.fromkeys(row["query"] for row in every):
        yield [query, *(mean.get((query, level)) for level in levels)]


def _distance_rows(marginals: Rows, levels: list[str]) -> Iterator[list[Any]]:
    by_level = {level: [row for row in marginals if row["level"] == level] for level in levels}
    for ways in dict.fromkeys(row["ways"] for row in marginals):
        alike = [[row for row in by_level[level] if row["ways"] == ways] for level in levels]
        far = [[row["total_variation_distance"] for row in rows] for rows in alike]
        yield [ways, *(None if None in row else sum(row) / len(row) for row in far)]
    for name in ("units", "units_empty_in_one", "units_empty_in_both"):
        if marginals:
            yield [name.replace("_", " "), *(by_level[level][0][name] for level in levels)]


def _group_rows(groups: Rows) -> Iterator[list[Any]]:
    kept = [row for row in groups if row["people"] >= _SHOWN_GROUP]
    kept.sort(key=lambda row: float(row["relative_bias"]))
    for row in kept if len(kept) <= 10 else kept[:5] + kept[-5:]:
        names = ("people", "mean_absolute_error", "bias", "relative_bias")
        yield [f"{row['attribute']} = {row['category']}", *(row[name] for name in names)]


def _markdown(header: list[Any], rows: Iterable[list[Any]]) -> str:
    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value.replace("|", "\\|")
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(text, line))} |" for line in lines)
