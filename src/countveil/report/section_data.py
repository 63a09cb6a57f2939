"""What a lens produces: sentences, tables and charts about one question, computed once.

Terminal, JSON, report, PDF and explorer render a section and compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from countveil.assess.intruder.summary import Summary, summarise
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.publish.release_folder import Release
from countveil.report.audience import Audience

if TYPE_CHECKING:
    from countveil.assess.realised_disclosure import Realised
    from countveil.report.budget_steps import OtherBudgets
    from countveil.report.charts.chart import Chart

Cell = str | float | int | bool | None


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
    """What one lens found: sentences, and the numbers and charts behind them.

    Every number in a sentence is in one of the section's tables or charts.

    Attributes
    ----------
    name, title
        The identifier of the lens, and the heading of the section.
    sentences
        The findings, in plain English.
    tables
        The numbers behind them.
    draw
        Returns the charts; called when `charts` is first read.
    figures
        The numbers at full precision, for programs.
    audience
        "internal" if anything was computed from confidential counts.

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
            raise ValueError(
                f"section {self.name}: reserved names in figures: {sorted(reserved)}; rename them"
            )

    @cached_property
    def charts(self) -> tuple[Chart, ...]:
        """The charts."""
        return tuple(self.draw())

    @property
    def document(self) -> dict[str, Any]:
        """The section as a JSON document."""
        return {
            "lens": self.name,
            "title": self.title,
            "audience": self.audience,
            "sentences": list(self.sentences),
            "tables": [
                {
                    "caption": item.caption,
                    "columns": list(item.columns),
                    "rows": [list(map(_finite, row)) for row in item.rows],
                }
                for item in self.tables
            ],
            **self.figures,
        }


def _finite(value: Cell) -> Cell:
    """Return a cell for JSON, which has no infinite numbers: None, as "no limit" has no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False)
class Subject:
    """What lenses look at: a plan, and its release and realised disclosure if they are known.

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
        """What an intruder learns, attack by attack."""
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
        """The expected error of every query, from the plan and its places."""
        return expected_error(self.plan, geography=self._places)

    @cached_property
    def other_budgets(self) -> OtherBudgets:
        """Risk and error of the same plan with smaller and larger budgets."""
        from countveil.report.budget_steps import other_budgets

        return other_budgets(self.plan, geography=self._places)

    @property
    def _places(self) -> Geography | None:
        return None if self.release is None else self.release.geography
