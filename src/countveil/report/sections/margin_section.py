"""The margin of error of each count: its standard error by level, and what follows from it."""

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
from countveil.report.sections.intruder_section import article

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart

_COLUMNS = (
    *("Level", "Units", "Counts", "Known exactly"),
    *("Smallest", "Median", "Largest", "Own noise"),
)
_UNKNOWN = "not determined"


def section(subject: Subject) -> Section | None:
    """Say how far off counts are after least squares: from the plan and its places, no value used."""
    release = subject.release
    if release is None:
        return None
    plan = release.plan
    found = least_squares(release.measurements, plan, geography=release.geography)
    cells = "*".join(item.name for item in plan.schema.attributes)
    errors: dict[str, tuple[LevelError, ...]] = {}
    tables = []
    for query in dict.fromkeys((TOTAL, cells or TOTAL)):
        try:
            errors[query] = level_errors(found, query)
        except InputError as error:  # more than least squares can do, and it says why
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
        return ["Least squares cannot estimate totals of this release."]
    return [
        "Totals and cells can be estimated from all measurements of all levels together, without bias "
        "and with a standard error that is known exactly. It follows from the plan and its places "
        "alone.",
        *_exact_told(totals),
        *map(_total_told, filter(_is_noisy, totals)),
        *_concluded(plan),
    ]


def _reason(query: str, error: InputError) -> SectionTable:
    return SectionTable("Errors that are not listed", ("Query", "Because"), ((query, str(error)),))


def _table(errors: tuple[LevelError, ...], plan: Plan) -> SectionTable:
    query = errors[0].query
    what = "a unit's total" if query == TOTAL else f"one cell of {query}"
    caption = (
        f"Standard error of {what}, where it is not known exactly; an interval of {_percent(plan)} "
        f"reaches {_reach(plan)} of them either way"
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


def _exact_told(totals: tuple[LevelError, ...]) -> list[str]:
    levels = [item.level for item in totals if not _is_noisy(item)]
    if not levels:
        return []
    return [
        f"Totals of level {words.listed(levels)} are exact: they are public, or follow from what is."
    ]


def _total_told(item: LevelError) -> str:
    if item.median is None or item.smallest is None or item.largest is None:
        return f"The total of {article(item.level)} is not determined by what was measured."
    some = ", where it is not known exactly" if item.exact else ""
    told = f"The total of {article(item.level)} has a standard error of {words.number(item.median)}"
    if words.number(item.smallest) == words.number(item.largest):
        return f"{told}{some}."
    return (
        f"{told} in the middle of all, from {words.number(item.smallest)} to "
        f"{words.number(item.largest)}{some}."
    )


def _concluded(plan: Plan) -> tuple[str, str]:
    """Return what may be concluded, and what may not."""
    tables = (
        "; and the bias of the published tables, whose counts are never negative and so too large, on "
        "average, where few people live"
    )
    return (
        f"An unbiased estimate with {_reach(plan)} standard errors either way holds the count in about "
        f"{_percent(plan)} of releases, whatever unit, cell or area was chosen beforehand; the command "
        f"countveil intervals gives it for any list of units.",
        f"Not covered are errors made before the noise, such as people who were missed; places picked "
        f"because their values stand out{tables if plan.method == 'top-down' else ''}.",
    )


def _percent(plan: Plan) -> str:
    return words.percent(plan.confidence or CONFIDENCE)


def _reach(plan: Plan) -> str:
    return words.number(NormalDist().inv_cdf((1 + (plan.confidence or CONFIDENCE)) / 2))
