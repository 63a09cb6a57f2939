"""`countveil status`: how far a run is, how fast it goes and what is left."""

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
    "begun": "started",
    "measuring": "measuring",
    "publishing": "measured; publishing the measurements",
    "measured": "measured; estimates are not made yet",
    "estimating": "estimating",
    "publishing estimates": "estimated; publishing the estimates",
    "released": "released",
    "manifest gone": "finished, but its manifest.json is missing",
    "manifest unreadable": "its manifest.json is not a readable countveil manifest",
}
# The same command refuses to run in these states: it would draw a second time.
_RESTORE = (
    "the same command cannot resume; restore the folder from a backup, or release into a new "
    "folder (charged in full, as a new release)"
)


@command("status")
def status(out: OutPath, as_json: AsJson = False) -> None:
    """Show whether a release is running, stopped or finished, and how far it is.

    Reads the release folder and its internal folder. Writes nothing.

    Example: `countveil status out`
    """
    from countveil.publish.run_status import standing_of

    standing = standing_of(out)
    if as_json:
        showing.print_json({"folder": str(out), **dataclasses.asdict(standing)})
        return
    for line in _lines(out, standing):
        print(line)


def _lines(out: Path, standing: Standing) -> list[str]:
    where = _STATES[standing.state]
    if standing.level is not None and standing.units:
        share = (standing.done or 0) / standing.units
        where += f" {standing.level}: {standing.done:,} of {standing.units:,} units ({share:.0%})"
    lines = [f"{out}: {where}"]
    speed = []
    if standing.per_second is not None:
        speed.append(f"{standing.per_second:,.0f} units per second")
    if standing.seconds_left is not None:
        speed.append(f"about {_duration(standing.seconds_left)} left in this stage")
    if standing.memory:
        speed.append(f"memory {standing.memory / 1e6:,.0f} MB")
    if standing.worker_memory:
        speed.append(f"largest worker {standing.worker_memory / 1e6:,.0f} MB")
    if speed:
        lines.append(f"  {', '.join(speed)}")
    if standing.attempts:
        engine = "" if standing.engine is None else f" on the {standing.engine} engine"
        again = f", {standing.retries} tasks retried" if standing.retries else ""
        lines.append(f"  attempt {standing.attempts}{engine}{again}")
    if standing.process is not None:
        lines.append(f"  running as process {standing.process}")
    elif standing.state in ("manifest gone", "manifest unreadable"):
        lines.append(f"  {_RESTORE}")
    elif standing.state != "released":
        why = (
            f" (the last attempt was stopped by {standing.stopped_by})"
            if standing.stopped_by
            else ""
        )
        lines.append(f"  not running on this machine{why}; {_next(standing)}")
    return lines


def _next(standing: Standing) -> str:
    if standing.stopped_by == "FolderError":  # a file it needs has changed or is missing
        return "run the same command again to see what to fix"
    paid = ", without charging again" if standing.charged else ""
    return f"run the same command again to resume{paid}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
