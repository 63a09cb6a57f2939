"""The margin of error of each count: standard errors by level, and what they imply."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from countveil.base import words
from countveil.errors import InputError
from countveil.estimate.errors_by_level import LevelError, level_errors
from countveil.estimate.unbiased import CONFIDENCE, least_squares
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.report.section_data import Cell, Section, SectionTable, Subject

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

_COLUMNS = (
    *("Level", "Places", "Counts", "Known exactly"),
    *("Smallest", "Median", "Largest", "Own noise"),
)
_UNKNOWN = "not determined"


def section(subject: Subject) -> Section | None:
    """Describe how far off counts are after least squares; no released value is used."""
    release = subject.release
    if release is None:
        return None
    plan = release.plan
    solution = least_squares(release.measurements, plan, geography=release.geography)
    cells = "*".join(item.name for item in plan.schema.attributes)
    errors: dict[str, tuple[LevelError, ...]] = {}
    tables = []
    for query in dict.fromkeys((TOTAL, cells or TOTAL)):
        try:
            errors[query] = level_errors(solution, query)
        except InputError as error:  # too large for least squares: the table gives the reason
            tables.append(_reason(query, error))
        else:
            tables.append(_table(errors[query], plan))
    totals = errors.get(TOTAL, ())

    def draw() -> list[Chart]:
        from countveil.report import charts

        known = any(item.median is not None for item in totals)
        return [charts.error_by_level(totals)] if known else []

    return Section(
        "margin", "Margin of error", tuple(_sentences(totals, plan)), tuple(tables), draw
    )


def _sentences(totals: tuple[LevelError, ...], plan: Plan) -> list[str]:
    if not totals:
        return ["Least squares cannot estimate the totals of this release."]
    return [
        "Totals and cells can be estimated from the measurements of all levels together, without "
        "bias and with a standard error that is known exactly. It depends only on the plan and "
        "its places.",
        *_exact_levels(totals),
        *map(_total_error, filter(_is_noisy, totals)),
        *_concluded(plan),
    ]


def _reason(query: str, error: InputError) -> SectionTable:
    return SectionTable(
        "Errors that could not be computed", ("Query", "Reason"), ((query, str(error)),)
    )


def _table(errors: tuple[LevelError, ...], plan: Plan) -> SectionTable:
    query = errors[0].query
    what = "a place's total" if query == TOTAL else f"one cell of {query}"
    caption = (
        f"Standard error of {what}, where it is not known exactly; a {_percent(plan)} interval "
        f"is ± {_reach(plan)} standard errors"
    )
    return SectionTable(caption, _COLUMNS, tuple(map(_row, errors)))


def _row(item: LevelError) -> tuple[Cell, ...]:
    of: tuple[Cell, ...] = (item.smallest, item.median, item.largest)
    if item.median is None:
        of = (0.0, 0.0, 0.0) if item.exact == item.counts else (_UNKNOWN,) * 3
    elif item.undetermined:
        of = (item.smallest, item.median, _UNKNOWN)
    return item.level, item.units, item.counts, item.exact, *of, item.noise


def _is_noisy(item: LevelError) -> bool:
    return item.exact < item.counts


def _exact_levels(totals: tuple[LevelError, ...]) -> list[str]:
    levels = [item.level for item in totals if not _is_noisy(item)]
    if not levels:
        return []
    return [
        f"Totals at level {words.listed(levels)} are exact because they are public or follow from "
        f"public counts."
    ]


def _total_error(item: LevelError) -> str:
    if item.median is None or item.smallest is None or item.largest is None:
        return f"The measurements do not determine the total of {words.article(item.level)}."
    some = ", where it is not known exactly" if item.exact else ""
    total, median = f"The total of {words.article(item.level)}", words.brief(item.median)
    smallest, largest = words.brief(item.smallest), words.brief(item.largest)
    if smallest == largest:
        return f"{total} has a standard error of {median}{some}."
    return f"{total} has a median standard error of {median}, from {smallest} to {largest}{some}."


def _concluded(plan: Plan) -> tuple[str, str]:
    """Return what the standard errors cover, and what they do not."""
    tables = "; and bias: published counts are never negative, so small places come out too high"
    return (
        f"An unbiased estimate plus or minus {_reach(plan)} standard errors contains the true "
        f"count in about {_percent(plan)} of releases, for any place, cell or area chosen "
        f"beforehand. `countveil intervals` computes it for any list of places.",
        f"Not covered: errors made before noise was added, such as people who were missed; places "
        f"chosen because of their values{tables if plan.method == 'top-down' else ''}.",
    )


def _percent(plan: Plan) -> str:
    return words.percent(plan.confidence or CONFIDENCE)


def _reach(plan: Plan) -> str:
    return words.brief(NormalDist().inv_cdf((1 + (plan.confidence or CONFIDENCE)) / 2))
