"""One run of the explorer: the plans that are open, and the answers about them."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from countveil.errors import InputError
from countveil.explorer import offered_charts
from countveil.explorer.plan_folder import PlanFolder, plain
from countveil.explorer.settings import Settings, changed
from countveil.plan import plan_text
from countveil.plan.plans import Plan, require_counts
from countveil.report.html_parts import svg_image

if TYPE_CHECKING:
    from countveil.explorer.answers import Answer
    from countveil.report.section_data import Section

_MOST_PLANS = 32
_MOST_CHARTS = 64
_STARTER = "starter.toml"


class NotOpen(InputError):
    """The plan is not open in this session, or no longer."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A plan as it was opened: file name, text and parsed plan."""

    name: str
    text: str
    plan: Plan

    @property
    def identity(self) -> str:
        """The identifier that the page uses."""
        return hashlib.sha256(f"{self.name}\n{self.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart as the page shows it."""

    svg: str
    caption: str
    table: str


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """The plans opened from a folder, and their charts; the most recent of both are kept."""

    folder: PlanFolder
    _plans: OrderedDict[str, Opened] = field(default_factory=OrderedDict)
    _charts: OrderedDict[tuple[str, str, str], Drawn] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)
    _drawing: Lock = field(default_factory=Lock)

    @classmethod
    def start(cls, plan: Path | None) -> tuple[Session, Opened]:
        """Open a plan and its folder; without a plan, the starter plan and the current folder."""
        if plan is None:
            from importlib import resources

            text = resources.files("countveil.demo").joinpath("starter.toml").read_text("utf-8")
            session = cls(PlanFolder(Path.cwd()))
            return session, session.open_text(_STARTER, text)
        Plan.load(plan)  # reports what is wrong with the path
        session = cls(PlanFolder(plan.absolute().parent))
        return session, session._keep(plan.name, plan.read_text("utf-8"))

    def open_file(self, name: str) -> Opened:
        """Open a plan from the folder."""
        return self._keep(name, self.folder.read(name))

    def open_text(self, name: str, text: str) -> Opened:
        """Open a plan that was uploaded; its paths are relative to the folder."""
        return self._keep(plain(name), text)

    def still_open(self, identity: str) -> Opened:
        """Return a plan that was opened before."""
        with self._lock:
            plan = self._plans.get(identity)
        if plan is None:
            raise NotOpen("this plan is no longer open; open it again")
        return plan

    def save(self, opened: Opened, settings: Settings, name: str, *, replace: bool) -> bool:
        """Save the plan with its settings in the folder; return whether its comments were kept."""
        text, commented = plan_text.rewritten(
            opened.text, opened.plan, changed(opened.plan, settings)
        )
        self.folder.write(name, text, replace=replace)
        return commented

    def drawn(self, opened: Opened, settings: Settings, name: str) -> Drawn:
        """Return a chart, drawn again only if it would differ."""
        if name not in offered_charts.offered(settings):
            listed = ", ".join(offered_charts.offered(settings))
            raise InputError(f"unknown chart {name!r}; choose from {listed}")
        changed(opened.plan, settings)  # refuses settings that make no valid plan
        key = (opened.identity, name, offered_charts.fingerprint(name, settings))
        with self._drawing:  # the renderer draws one chart at a time
            if key not in self._charts:
                self._charts[key] = _draw(opened, settings, name)
                while len(self._charts) > _MOST_CHARTS:
                    self._charts.popitem(last=False)
            return self._charts[key]

    def _keep(self, name: str, text: str) -> Opened:
        parsed = Plan.parse(text, folder=self.folder.path, name=name)
        plan = require_counts(parsed, "the explorer")
        Settings.of(plan)  # refuses a plan without settings to change
        return self.kept(Opened(name, text, plan))

    def kept(self, opened: Opened) -> Opened:
        """Keep a plan as the most recent; return the one with the same text if it is open already."""
        with self._lock:
            kept = self._plans.setdefault(opened.identity, opened)
            self._plans.move_to_end(opened.identity)
            while len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
        return kept


@lru_cache(maxsize=64)
def answered(opened: Opened, settings: Settings) -> Answer:
    """Return the numbers of a plan with these settings, without the risks of other levels."""
    from countveil.explorer.answers import answer_at_judged_level

    return answer_at_judged_level(_changed(opened, settings), settings)


@lru_cache(maxsize=64)
def answered_levels(opened: Opened, settings: Settings) -> Answer:
    """Return the numbers of a plan with these settings, for all levels."""
    from countveil.explorer.answers import completed

    return completed(answered(opened, settings), _changed(opened, settings), settings)


@lru_cache(maxsize=8)
def answered_lenses(opened: Opened, settings: Settings) -> dict[str, str]:
    """Return the sections of all lenses for a plan with these settings."""
    from countveil.explorer.explorer_page import lens_sections

    return lens_sections(_changed(opened, settings), settings)


@dataclass(frozen=True, slots=True)
class _Example:
    """The job of simulating the made-up example of a plan."""

    def run(self, task: tuple[Plan, Settings]) -> list[Section]:
        from countveil.report.sections import published_homogeneity_section, published_section

        if hasattr(os, "nice"):
            os.nice(10)  # what the page answers meanwhile comes first
        plan, settings = task
        sections = [published_section.example(plan, prior=settings.prior_value)]
        if published_homogeneity_section.every_attack(plan):
            sections.append(published_homogeneity_section.example(plan))
        return sections


def answered_published(opened: Opened, settings: Settings) -> dict[str, Any]:
    """Return what the published tables of a plan reveal in a made-up example, for the page's prior."""
    # It is always presence that is attacked, by the intruder of the page.
    return _published(opened, replace(settings, attack="presence", attribute=None))


@lru_cache(maxsize=8)
def _published(opened: Opened, settings: Settings) -> dict[str, Any]:
    from countveil.engines.workers import Processes
    from countveil.explorer.explorer_page import published_example

    # In a process of its own: simulating in a thread would slow down all other answers. One of two
    # processes is started; a single one would mean this one.
    with Processes(2) as processes:
        task = _changed(opened, settings), settings
        (sections,) = processes.map(_Example(), [task], large=True)
    return published_example(sections)


@lru_cache(maxsize=8)
def _changed(opened: Opened, settings: Settings) -> Plan:
    return changed(opened.plan, settings)


def _draw(opened: Opened, settings: Settings, name: str) -> Drawn:
    from countveil.explorer.chart_drawing import draw

    chart = draw(name, opened.plan, settings)
    return Drawn(svg_image(chart), chart.caption, chart.html_table())
