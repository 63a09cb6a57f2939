"""Output of commands: tables and JSON on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.errors import InputError

if TYPE_CHECKING:
    import typer
    from rich.console import Console

    from countveil.measure.progress import Progress


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def refuse_unused(context: typer.Context, used: set[str], purpose: str) -> None:
    """Refuse options that would have no effect, so that no result is misread."""
    always = {"target", "as_json", "quiet"}
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in used | always:
            raise InputError(f"--{name.replace('_', '-')}: has no effect with {purpose}; remove it")


def shorter_path(path: Path) -> str:
    """Return a path relative to the current folder, if that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def warn(message: str) -> None:
    """Print a warning on stderr."""
    print(f"warning: {message}", file=sys.stderr)


def console() -> Console:
    """Return the console for text and tables."""
    from rich.console import Console

    return Console(highlight=False)


@contextmanager
def progress_bar(what: str, total: int, quiet: bool) -> Iterator[Any]:
    """Show one progress bar on stderr."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), disable=quiet) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show a spinner on stderr while work of unknown length runs."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


COUNTING = "counting records"


@contextmanager
def levels(quiet: bool, *, counting: bool = True) -> Iterator[Progress]:
    """Show a bar per stage and level on stderr; with `counting`, first a spinner for the records."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), disable=quiet) as bars:
        tasks: dict[tuple[str, str], Any] = {}
        turning = [bars.add_task(COUNTING, total=None)] if counting else []

        def step(stage: str, level: str, done: int, units: int) -> None:
            if stage == "rehearsing":  # it comes before counting, and uses the same bar
                if turning:
                    words = "rehearsing on simulated people"
                    bars.update(turning[0], description=words, total=units, completed=done)
                    if done == units:
                        turning[0] = bars.add_task(COUNTING, total=None)
                return
            while turning:
                bars.update(turning.pop(), total=1, completed=1)
            if (stage, level) not in tasks:
                tasks[stage, level] = bars.add_task(f"{stage} {level}", total=units)
            bars.update(tasks[stage, level], completed=done)

        yield step
        while turning:  # counting was the last stage
            bars.update(turning.pop(), total=1, completed=1)
