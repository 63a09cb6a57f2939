"""Do one piece of work, and print the start and end of each stage as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.stages import tree_cpu

_BEGUN = time.perf_counter()
_MOST_OFTEN = 1.0  # seconds between two lines about progress


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time the body; the processor time includes descendants, whether or not they have ended."""
    say(begin=name)
    start, used = time.perf_counter(), tree_cpu(os.getpid())
    yield
    say(end=name, seconds=time.perf_counter() - start, cpu=tree_cpu(os.getpid()) - used)


def staged(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def inside(*arguments: Any, **named: Any) -> Any:
        with stage(name):
            return function(*arguments, **named)

    return inside


def progress() -> Callable[[str, str, int, int], None]:
    last = 0.0

    def tell(what: str, level: str, done: int, units: int) -> None:
        nonlocal last
        if done == units or time.monotonic() - last > _MOST_OFTEN:
            last = time.monotonic()
            say(progress=f"{what} {level}", done=done, units=units)

    return tell


def write_population(question: dict[str, Any]) -> None:
    from countveil.demo import starter
    from countveil.demo.synthetic import PopulationShape

    tell = progress()
    people = question["people"]
    with stage("population"):
        starter.write_demo(
            Path(question["to"]),
            people=people,
            seed=question["seed"],
            shape=PopulationShape.for_blocks(question["blocks"]) if question["blocks"] else None,
            progress=lambda done: tell("writing", "people", done, people),
        )


def release(question: dict[str, Any]) -> None:
    from countveil import (
        Plan,
        Release,
        Secure,
        Seeded,
        measure,
        open_engine,
        pipeline,
        postprocess,
        published_estimates,
    )

    say(end="start", seconds=time.perf_counter() - _BEGUN, cpu=sum(os.times()[:4]))
    plan = Plan.load(question["plan"])
    seed, ledger = question["seed"], question["ledger"]
    with stage("open"):
        engine = open_engine(question["engine"])
        with engine.workers(question["workers"]) as workers:
            workers.reach(Path(question["to"]).parent)
    with ExitStack() as stack:
        for place, name, title in (
            (postprocess, "rehearse", "rehearse"),
            (type(engine), "tabulate", "tabulate"),
            (measure, "take", "measure"),
            (postprocess, "top_down", "estimate"),
            (pipeline, "accuracy", "compare"),
            (published_estimates, "_errors", "fit errors"),
            (published_estimates, "write_estimates", "write"),
        ):
            inside = staged(title, getattr(place, name))
            stack.enter_context(mock.patch.object(place, name, inside))
        pipeline.release(
            plan,
            to=question["to"],
            rng=Secure() if seed is None else Seeded(seed),
            ledger=ledger,
            engine=engine,
            workers=question["workers"],
            progress=progress(),
        )
    if question["verify"]:
        with stage("verify"):
            done = Release.read(question["to"])
            checks = done.verify(ledger, simulation=seed is not None).checks
        say(checks=checks, certificate=done.manifest["estimates"]["certificate"])


def write_reports(question: dict[str, Any]) -> None:
    from countveil import Plan, Release, open_engine
    from countveil.assess.realised_disclosure import realised
    from countveil.report.report_page import as_pdf, internal_report, public_report

    say(end="start", seconds=time.perf_counter() - _BEGUN, cpu=sum(os.times()[:4]))
    release = Release.read(question["out"])
    with stage("public"):
        page = public_report(release)
    with stage("pdf"):
        as_pdf(page)
    with stage("internal"):
        counts = open_engine("local").tabulate(Plan.load(question["plan"]))
        internal_report(release, realised(release, counts))
    say(bytes=len(page.encode()))


def main() -> None:
    # The parent holds the other end: if it is killed, this process ends too.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    question = json.loads(sys.argv[1])
    kinds = {"population": write_population, "release": release, "reports": write_reports}
    kinds[question["do"]](question)


if __name__ == "__main__":
    main()
