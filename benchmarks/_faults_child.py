"""One release that kills itself at the n-th call made inside the door; 0 lets it live and counts.

At its end it prints the number of the call at which each event of the run log came, and the last.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType
from typing import Any

from countveil import Secure, measure, open_engine
from countveil.errors import CountveilError
from countveil.measure import boundary
from countveil.measure.run import Run
from countveil.schema.plan import Plan


def main() -> None:
    plan_path, out, ledger, kill_at = *sys.argv[1:4], int(sys.argv[4])
    boundary._VALUES = 1500  # many small parts
    plan = Plan.load(plan_path)
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
        measure.take(counts, plan, rng=Secure(), ledger=ledger, to=out)
    except CountveilError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
    finally:
        sys.setprofile(None)
    print(json.dumps({**calls, "end": seen}))


if __name__ == "__main__":
    main()
