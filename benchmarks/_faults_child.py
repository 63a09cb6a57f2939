"""One release that kills itself at the n-th call inside the door; with 0 it only counts the calls.

At its end it writes the number of the call at which each event of the run log occurred, and of the last
call; if the release is refused, it writes the message.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from countveil import Secure, measure, open_engine
from countveil.engines.local import local_engine  # noqa: F401 - before the fork, not after each
from countveil.errors import CountveilError
from countveil.measure.batch_sizes import BatchSizes
from countveil.measure.run import Run
from countveil.plan.plans import Plan, require_counts

_SMALL = BatchSizes(values_to_draw=1500)  # many small parts


def _unchecked(*_: object) -> None:
    """Accept the plan: only its measurements are disturbed here."""


def main(plan_path: Path, out: Path, ledger: Path, kill_at: int, said: Path) -> None:
    plan = require_counts(Plan.load(plan_path), "a benchmark")
    counts = open_engine("local").tabulate(plan)
    seen, calls = 0, {}
    log = Run.log

    def noted(run: Run, event: str, **facts: Any) -> None:
        calls[event] = seen
        log(run, event, **facts)

    Run.log = noted  # type: ignore[assignment,method-assign]

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    try:
        measure.take(
            counts, plan, rng=Secure(), ledger=ledger, to=out, check=_unchecked, sizes=_SMALL
        )
    except CountveilError as error:
        sys.setprofile(None)
        said.write_text(str(error))
        sys.exit(error.exit_status)
    finally:
        sys.setprofile(None)
    said.write_text(json.dumps({**calls, "end": seen}))
