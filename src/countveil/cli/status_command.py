"""`countveil status`: how far a run is, how fast it goes and what is left."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, OutPath

if TYPE_CHECKING:
    from countveil.publish.run_status import RunStatus

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
    from countveil.publish.run_status import status_of

    status = status_of(out)
    if as_json:
        showing.print_json({"folder": str(out), **dataclasses.asdict(status)})
        return
    for line in _lines(out, status):
        print(line)


def _lines(out: Path, status: RunStatus) -> list[str]:
    where = _STATES[status.state]
    if status.level is not None and status.units:
        share = (status.done or 0) / status.units
        where += f" {status.level}: {status.done:,} of {status.units:,} units ({share:.0%})"
    lines = [f"{out}: {where}"]
    speed = []
    if status.per_second is not None:
        speed.append(f"{status.per_second:,.0f} units per second")
    if status.seconds_left is not None:
        speed.append(f"about {_duration(status.seconds_left)} left in this stage")
    if status.memory:
        speed.append(f"memory {status.memory / 1e6:,.0f} MB")
    if status.worker_memory:
        speed.append(f"largest worker {status.worker_memory / 1e6:,.0f} MB")
    if speed:
        lines.append(f"  {', '.join(speed)}")
    if status.attempts:
        engine = "" if status.engine is None else f" on the {status.engine} engine"
        again = f", {status.retries} tasks retried" if status.retries else ""
        lines.append(f"  attempt {status.attempts}{engine}{again}")
    if status.process is not None:
        lines.append(f"  running as process {status.process}")
    elif status.state in ("manifest gone", "manifest unreadable"):
        lines.append(f"  {_RESTORE}")
    elif status.state != "released":
        why = f" (the last attempt was stopped by {status.stopped_by})" if status.stopped_by else ""
        lines.append(f"  not running on this machine{why}; {_next(status)}")
    return lines


def _next(status: RunStatus) -> str:
    if status.stopped_by == "FolderError":  # a file it needs has changed or is missing
        return "run the same command again to see what to fix"
    paid = ", without charging again" if status.charged else ""
    return f"run the same command again to resume{paid}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
