"""Progress of a stage: passed on to a progress bar, and written to the run log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countveil.engines.workers import Workers, peak_of
from countveil.measure.run import RunLog
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

Progress = Callable[[str, str, int, int], None]  # stage, level, units done, units

_EVERY = 2.0  # seconds between log lines of a level


def silent(stage: str, level: str, done: int, units: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """How much work was done at a time."""

    time: float
    work: float


def watched(
    internal: Path,
    plan: Plan,
    geography: Geography,
    engine: str,
    workers: Workers,
    progress: Progress,
) -> Progress:
    """Return a progress function that also writes the log of a run."""
    values = {
        level: geography.units(level) * sum(item.query.cells for item in plan.at(level))
        for level in plan.measured_levels
    }
    return Watch(RunLog(internal), progress, values=values, engine=engine, workers=workers)


class Watch:
    """A progress function that also logs the end of each level and, every few seconds, progress.

    `values` is the number of values of each level. The time left in a stage is estimated from the
    values made since this attempt began.
    """

    def __init__(
        self,
        log: RunLog,
        progress: Progress,
        *,
        values: Mapping[str, int],
        engine: str,
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._progress, self._values = log, progress, dict(values)
        self._engine, self._workers, self._clock = engine, workers, clock
        self._stage = self._level = ""
        self._begun = self._written = _Mark(0.0, 0.0)
        self._first = 0

    def __call__(self, stage: str, level: str, done: int, units: int) -> None:
        """Pass a step on; log it if it ends a level or the last line is old."""
        self._progress(stage, level, done, units)
        now = _Mark(self._clock(), self._work(level, done, units))
        if stage != self._stage:
            self._stage, self._level, self._begun = stage, "", now
        if level != self._level:
            self._level, self._level_begun, self._first = level, now, done
            self._written = _Mark(float("-inf"), 0.0)
        if done < units and now.time - self._written.time < _EVERY:
            return
        self._written = now
        self._log.write(
            "level finished" if done == units else "progress",
            stage=stage,
            level=level,
            done=done,
            units=units,
            **self._speed(now, done),
            engine=self._engine,
            memory=peak_of(),
            worker_memory=self._workers.peak_memory,
            retries=self._workers.retries,
        )

    def _work(self, level: str, done: int, units: int) -> float:
        """Return the number of values made in the stage, including those of the levels above."""
        levels = list(self._values)
        above = sum(self._values[name] for name in levels[: levels.index(level)])
        return above + self._values[level] * done / units

    def _speed(self, now: _Mark, done: int) -> dict[str, Any]:
        """Return units per second and seconds left, as far as they can be estimated."""
        seconds = now.time - self._level_begun.time
        facts: dict[str, Any] = {}
        if done > self._first and seconds > 0:
            facts["per_second"] = round((done - self._first) / seconds, 3)
        made, took = now.work - self._begun.work, now.time - self._begun.time
        if made > 0 and took > 0:
            left = sum(self._values.values()) - now.work
            facts["seconds_left"] = round(left * took / made, 1)
        return facts
