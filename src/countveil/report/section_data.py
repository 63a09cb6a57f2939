"""What a lens produces: sentences, tables and charts about one question, computed once.

Terminal, JSON, report, PDF and explorer render a section and compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from countveil.assess.intruder.summary import Summary, summarise
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release

if TYPE_CHECKING:
    from countveil.assess.realised_disclosure import Realised
    from countveil.report.budget_steps import OtherBudgets
    from countveil.report.charts.chart import Chart

Audience = Literal["public", "internal"]
Cell = str | float | int | bool | None
INTERNAL = "INTERNAL: computed from confidential counts; not to be published."


@dataclass(frozen=True, slots=True)
class SectionTable:
    """A table of a section: its caption, the names of its columns, and its rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


def _no_charts() -> Sequence[Chart]:
    return ()


@dataclass(frozen=True, eq=False)
class Section:
    """One lens: what it says in plain sentences, then the numbers and charts behind them.

    Every number of a sentence is in one of the section's tables or charts. `figures` are the numbers
    at full precision, for programs. Charts are drawn when they are asked for.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    tables: tuple[SectionTable, ...] = ()
    draw: Callable[[], Sequence[Chart]] = _no_charts
    figures: Mapping[str, Any] = field(default_factory=dict)
    audience: Audience = "public"

    def __post_init__(self) -> None:
        reserved = {"lens", "title", "audience", "sentences", "tables"} & self.figures.keys()
        if reserved:
            raise ValueError(f"section {self.name}: figures cannot be called {sorted(reserved)}")

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """The charts."""
        return tuple(self.draw())

    @property
    def document(self) -> dict[str, Any]:
        """The section as JSON holds it."""
        return {
            "lens": self.name,
            "title": self.title,
            "audience": self.audience,
            "sentences": list(self.sentences),
            "tables": [
                {
                    "caption": item.caption,
                    "columns": list(item.columns),
                    "rows": [list(row) for row in item.rows],
                }
                for item in self.tables
            ],
            **self.figures,
        }


@dataclass(frozen=True, eq=False)
class Subject:
    """What lenses look at: a plan, its release if there is one, and what came out if that is known.

    What several lenses need is computed once.
    """

    plan: Plan
    release: Release | None = None
    realised: Realised | None = None
    priors: tuple[float, ...] | None = None
    level: str | None = None
    shapes: Mapping[str, Any] | None = None

    @cached_property
    def summary(self) -> Summary:
        """What the intruder learns, attack by attack."""
        release = self.release
        return summarise(
            self.plan,
            None if release is None else release.geography,
            measurements=None if release is None else release.measurements,
            priors=self.priors,
            level=self.level,
        )

    @cached_property
    def errors(self) -> tuple[ExpectedError, ...]:
        """The expected error of every query, from the plan alone."""
        return expected_error(self.plan)

    @cached_property
    def other_budgets(self) -> OtherBudgets:
        """Risk and error of the same plan with more or less of everything."""
        from countveil.report.budget_steps import other_budgets

        return other_budgets(self.plan)
