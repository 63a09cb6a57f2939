"""`countveil status`: where a run stands, how fast it is and what is left."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.commands import AsJson, OutPath

if TYPE_CHECKING:
    from countveil.publish.run_status import Standing

_STATES = {
    "begun": "begun",
    "measuring": "measuring",
    "publishing": "measured; the measurements are being published",
    "measured": "measured; its estimates are not made yet",
    "estimating": "estimating",
    "publishing estimates": "estimated; the estimates are being published",
    "released": "released",
    "manifest gone": "was finished, and its manifest.json is gone",
    "manifest unreadable": "its manifest.json is not readable as one of countveil",
}
# The same command is refused there: drawing again would be a second draw.
_RESTORE = (
    "the same command refuses to go on; restore the folder from a backup, or release into a new one "
    "(charged in full, as a release of its own)"
)


@command("status")
def status(out: OutPath, as_json: AsJson = False) -> None:
    """Say where a release stands: while it runs, after it stopped, and when it is done.

    Example: `countveil status out`
    """
    from countveil.publish.run_status import standing_of

    found = standing_of(out)
    if as_json:
        showing.print_json({"folder": str(out), **dataclasses.asdict(found)})
        return
    for line in _lines(out, found):
        print(line)


def _lines(out: Path, found: Standing) -> list[str]:
    where = _STATES[found.state]
    if found.level is not None and found.units:
        share = (found.done or 0) / found.units
        where += f" {found.level}: {found.done:,} of {found.units:,} units ({share:.0%})"
    lines = [f"{out}: {where}"]
    speed = []
    if found.per_second is not None:
        speed.append(f"{found.per_second:,.0f} units a second")
    if found.seconds_left is not None:
        speed.append(f"about {_duration(found.seconds_left)} left of this stage")
    if found.memory:
        speed.append(f"memory {found.memory / 1e6:,.0f} MB")
    if found.worker_memory:
        speed.append(f"the largest worker {found.worker_memory / 1e6:,.0f} MB")
    if speed:
        lines.append(f"  {', '.join(speed)}")
    if found.attempts:
        engine = "" if found.engine is None else f" on the {found.engine} engine"
        again = f", {found.retries} tasks done again" if found.retries else ""
        lines.append(f"  attempt {found.attempts}{engine}{again}")
    if found.process is not None:
        lines.append(f"  process {found.process} is at it")
    elif found.state in ("manifest gone", "manifest unreadable"):
        lines.append(f"  {_RESTORE}")
    elif found.state != "released":
        why = f" (the last attempt was stopped by {found.stopped_by})" if found.stopped_by else ""
        lines.append(f"  no process of this machine is at it{why}; {_next(found)}")
    return lines


def _next(found: Standing) -> str:
    if found.stopped_by == "FolderError":  # what it needs was changed or is gone
        return "the same command says what is to be mended"
    paid = ", without charging again" if found.charged else ""
    return f"the same command resumes{paid}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
