"""Damage every kind of file that a command reads; it must succeed or refuse with a message."""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import typer.main

from benchmarks import table
from benchmarks.mutations import mutated
from countveil import Plan, Secure, Seeded, pipeline
from countveil.base import storage
from countveil.cli import command_line
from countveil.errors import CountveilError, Interrupted
from countveil.measure import manifest
from countveil.report.sections import published_homogeneity_section, published_section

PLAN = """
[release]
title = "Fuzzed"
unit = "person"
neighbors = "change-one"
[records]
path = "people.csv"
one_row_per_person = true
[geography]
path = "places.csv"
levels = ["region", "area"]
[attributes]
AGE = ["young", "middle", "old"]
SEX = ["f", "m"]
[recodes.ADULT]
of = "AGE"
omit = ["young"]
groups = { adult = ["middle", "old"] }
[budget]
rho = "4"
delta = "1e-10"
[budget.levels]
region = "1/2"
area = "1/2"
[budget.queries."*"]
TOTAL = "1/4"
ADULT = "1/4"
"AGE*SEX" = "1/2"
[intruder]
priors = [0.1]
[[invariants]]
level = "region"
query = "TOTAL"
reason = "known"
[[invariants]]
level = "area"
query = "TOTAL"
reason = "known"
[[constraints]]
level = "area"
query = "SEX"
path = "facts.csv"
reason = "published"
[[constraints]]
level = "area"
query = "AGE"
path = "groups.csv"
members = "members.csv"
reason = "published"
[[structural_zeros]]
cells = { AGE = ["young"], SEX = ["m"] }
reason = "nobody"
[postprocess]
method = "top-down"
tables = ["SEX", "AGE*SEX", "TOTAL"]
microdata = true
[postprocess.levels."*"]
passes = ["TOTAL"]
[ledger]
total = "100"
"""
TABLE_PLAN = """
[release]
title = "Fuzzed table"
unit = "person"
neighbors = "change-one"
[records]
path = "people.csv"
one_row_per_person = true
[geography]
path = "places.csv"
levels = ["region", "area"]
[attributes]
AGE = ["young", "middle", "old"]
SEX = ["f", "m"]
[budget]
epsilon = "2"
[[invariants]]
level = "region"
query = "TOTAL"
reason = "known"
[postprocess]
method = "congenial"
[congenial]
part = { AGE = ["old"] }
previous = "last.csv"
pseudo_count = "1/2"
[ledger]
total = "100"
"""
PLACES = "region,area\nR1,A1\nR1,A2\nR2,A3\nR2,A4\nR2,A5\n"
PEOPLE = [
    *(("A1", "young", "f"), ("A1", "old", "m"), ("A1", "old", "m"), ("A2", "middle", "f")),
    *(("A4", "middle", "m"), ("A5", "old", "f"), ("A5", "young", "f"), ("A5", "middle", "m")),
]
SHAPES = (
    '{"type": "FeatureCollection", "features": [{"type": "Feature", "id": "R1", "properties": '
    '{"geocode": "R1"}, "geometry": {"type": "Polygon", "coordinates": '
    "[[[0, 0], [1, 0], [1, 1], [0, 0]]]}}]}"
)
_REHEARSED = {
    *("plan.toml", "places.csv", "places.parquet", "facts.csv", "groups.csv", "members.csv")
}
_MEMORY = 1 << 20  # kB that a case may add to the peak
_TOGETHER = 1_000  # files per process


class _TooLong(BaseException):
    """A case took too long."""


@dataclass(frozen=True)
class Kind:
    """Files of one kind, in one of the folders, and the commands that read them.

    The first command runs on every file, and one of the others on some.
    """

    folder: str
    files: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    often: float = 0.3


@dataclass
class Tally:
    """The outcomes of the cases of a kind."""

    cases: int = 0
    runs: int = 0
    fine: int = 0
    refused: int = 0
    faults: dict[str, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the outcomes of other cases."""
        self.cases += other.cases
        self.runs += other.runs
        self.fine += other.fine
        self.refused += other.refused
        self.faults = {**other.faults, **self.faults}


_VERIFY = ("verify", "out")
_AGAIN = ("postprocess", "out", "-q", "--workers", "1")
_READ = (
    ("assess", "presence", "out", "-q"),
    ("assess", "public", "out"),
    ("intervals", "out", "--level", "area", "--query", "SEX", "-q"),
    ("status", "out"),
    ("package", "out", "--to", "out.zip"),
    ("report", "out", "-q"),
    _AGAIN,
    ("compare", "out", "plan.toml"),
)
_READ_TABLE = (
    ("assess", "public", "out"),
    ("infer", "out", "--model", "death-rates", "--draws", "4", "--chains", "1", "-q"),
    ("status", "out"),
    ("package", "out", "--to", "out.zip"),
    ("compare", "out", "plan.toml"),
)
_PLAN = (
    ("check", "plan.toml"),
    ("price", "plan.toml"),
    ("RELEASE",),
    ("compare", "plan.toml", "../plan.toml"),
    ("assess", "public", "plan.toml"),
    ("postprocess", "out", "--plan", "plan.toml", "-q", "--workers", "1"),
)
_RECORDS = (("check", "plan.toml"), ("RELEASE",), ("assess", "map", "out", "--internal", "-q"))
KINDS = {
    "plan": Kind("measured", ("plan.toml",), _PLAN),
    "plan of a table": Kind("table", ("plan.toml",), _PLAN[:5]),
    "crosswalk": Kind("measured", ("places.csv",), _RECORDS),
    "crosswalk in Parquet": Kind("parquet", ("places.parquet",), _RECORDS),
    "records": Kind("measured", ("people.csv",), _RECORDS),
    "records in Parquet": Kind("parquet", ("people.parquet",), _RECORDS),
    "constraints": Kind("measured", ("facts.csv", "groups.csv", "members.csv"), _RECORDS[:2]),
    "previous counts": Kind("table", ("last.csv",), _RECORDS[:2]),
    "manifest": Kind("measured", ("out/manifest.json",), (_VERIFY, *_READ)),
    "manifest of a table": Kind("table", ("out/manifest.json",), (_VERIFY, *_READ_TABLE)),
    "released places": Kind("measured", ("out/geography.parquet",), (_VERIFY, *_READ)),
    "measurements": Kind(
        "measured",
        ("out/measurements/area.parquet", "out/measurements/region.parquet"),
        (_VERIFY, *_READ),
    ),
    "invariants": Kind(
        "measured",
        ("out/invariants/area.parquet", "out/invariants/region.parquet"),
        (_VERIFY, *_READ),
    ),
    "estimates": Kind(
        "measured",
        ("out/estimates/area.parquet", "out/estimates/region.parquet"),
        (_VERIFY, *_READ),
    ),
    "tables": Kind(
        "measured", ("out/tables/SEX.parquet", "out/tables/AGE-SEX.parquet"), (_VERIFY,)
    ),
    "tables in CSV": Kind(
        "measured",
        ("out/tables/SEX.csv", "out/tables/codebook.csv", "out/tables/codebook.md"),
        (_VERIFY,),
    ),
    "microdata": Kind("measured", ("out/microdata.parquet",), (_VERIFY,)),
    "released constraints": Kind(
        "measured",
        (
            "out/constraints/00-path.csv",
            "out/constraints/01-path.csv",
            "out/constraints/01-members.csv",
        ),
        (_VERIFY, *_READ),
    ),
    "released table": Kind("table", ("out/counts/area.parquet",), (_VERIFY, *_READ_TABLE)),
    "released previous counts": Kind("table", ("out/previous.csv",), (_VERIFY, *_READ_TABLE)),
    "ledger": Kind(
        "measured",
        ("ledger.sqlite",),
        (
            ("verify", "out", "--ledger", "ledger.sqlite"),
            ("check", "plan.toml"),
            ("report", "out", "-q", "--ledger", "ledger.sqlite"),
            ("release", "plan.toml", "--to", "new", "-q", "--workers", "1"),
        ),
    ),
    "ledger of a table": Kind(
        "table",
        ("ledger.sqlite",),
        (
            ("verify", "out", "--ledger", "ledger.sqlite"),
            ("check", "plan.toml"),
            ("release", "plan.toml", "--to", "new", "-q", "--workers", "1"),
        ),
    ),
    "run": Kind(
        "measured",
        ("out-internal/run.json", "out-internal/log.jsonl"),
        (
            ("status", "out"),
            ("assess", "map", "out", "--internal", "-q"),
            ("release", "plan.toml", "--to", "out", "-q", "--workers", "1"),
        ),
    ),
    "unfinished run": Kind(
        "unfinished",
        ("out-internal/run.json", "out-internal/log.jsonl", "PARTS"),
        (
            ("status", "out"),
            ("release", "plan.toml", "--to", "out", "-q", "--workers", "1"),
            ("release", "plan.toml", "--to", "out", "-q", "--restart", "--workers", "1"),
        ),
        often=0.5,
    ),
    "unfinished estimates": Kind(
        "estimating", ("WORK",), (("postprocess", "out", "-q", "--workers", "1"),)
    ),
    "replicates": Kind(
        "replicated",
        ("REPLICATES",),
        (
            (
                *("intervals", "out", "--level", "area", "--method", "replicates", "--count", "20"),
                *("--work", "work", "-q", "--workers", "1"),
            ),
        ),
    ),
    "areas": Kind(
        "measured",
        ("areas.csv", "areas.parquet"),
        (("intervals", "out", "--areas", "FILE", "--level", "region", "-q"),),
    ),
    "exposures": Kind(
        "table",
        ("population.csv", "population.parquet"),
        (
            (
                *("infer", "out", "--model", "gamma-poisson", "--exposure", "FILE", "--draws", "4"),
                *("--chains", "1", "-q"),
            ),
        ),
    ),
    "pairs of counts": Kind(
        "measured", ("pairs.csv", "pairs.parquet"), (("assess", "loss", "FILE"),)
    ),
    "records of an attack": Kind(
        "measured",
        ("people.csv", "people.parquet"),
        (
            (
                *("assess", "homogeneity", "FILE", "--identifiers", "AGE", "--sensitive"),
                *("SEX", "--epsilon", "1"),
            ),
        ),
    ),
    "shapes": Kind(
        "measured",
        ("shapes.json",),
        (("report", "out", "-q", "--shapes", "shapes.json", "--to", "r.html"),),
    ),
}


def prepare(folder: Path) -> None:
    """Write small plans, records and places, and release them."""
    measured = folder / "measured"
    _write_inputs(measured, PLAN)
    _release(measured)
    (measured / "shapes.json").write_text(SHAPES)
    (measured / "areas.csv").write_text("area,region\nnorth,R1\nsouth,R2\nall,R1\nall,R2\n")
    (measured / "pairs.csv").write_text(
        "exact,released\n" + "".join(f"{i},{i + i % 3 - 1}\n" for i in range(60))
    )
    for name in ("areas", "pairs", "people"):
        _as_parquet(measured / f"{name}.csv")
    _write_inputs(
        folder / "parquet",
        PLAN.replace("people.csv", "people.parquet").replace("places.csv", "places.parquet"),
    )
    for name in ("people", "places"):
        _as_parquet(folder / "parquet" / f"{name}.csv")
    _release(folder / "parquet")
    _write_inputs(folder / "table", TABLE_PLAN)
    (folder / "table" / "population.csv").write_text(
        "area,exposure\nA1,9\nA2,4\nA3,2\nA4,7\nA5,8\n"
    )
    _as_parquet(folder / "table" / "population.csv")
    _release(folder / "table")
    shutil.copytree(measured, folder / "replicated")
    _quietly(*KINDS["replicates"].commands[0], cwd=folder / "replicated")
    for name, stage in (("unfinished", "measuring"), ("estimating", "estimating")):
        _write_inputs(folder / name, PLAN)
        _interrupt(folder / name, stage)
    (folder / "plan.toml").write_text(PLAN)


def _write_inputs(folder: Path, plan: str) -> None:
    folder.mkdir()
    (folder / "plan.toml").write_text(plan)
    (folder / "places.csv").write_text(PLACES)
    rows = "".join(",".join(row) + "\n" for row in PEOPLE)
    (folder / "people.csv").write_text("area,AGE,SEX\n" + rows)
    (folder / "facts.csv").write_text("area,SEX,at_least,at_most\nA1,f,0,3\nA5,m,0,9\n")
    (folder / "groups.csv").write_text("group,AGE,at_most\ng,old,7\n")
    (folder / "members.csv").write_text("group,area\ng,A3\ng,A5\n")
    (folder / "last.csv").write_text("area,count\nA1,3\nA2,1\nA3,0\nA4,1\nA5,3\n")


def _as_parquet(path: Path) -> None:
    pq.write_table(pa_csv.read_csv(path), path.with_suffix(".parquet"))


def _release(folder: Path) -> None:
    plan = Plan.load(folder / "plan.toml")
    pipeline.release(plan, to=folder / "out", rng=Secure(), workers=1)


def _interrupt(folder: Path, at: str) -> None:
    """Stop a release midway, so that its working files remain."""

    def stop(stage: str, level: str, done: int, units: int) -> None:
        if stage == at and level == "area":
            raise KeyboardInterrupt

    with suppress(Interrupted):
        plan = Plan.load(folder / "plan.toml")
        pipeline.release(plan, to=folder / "out", rng=Secure(), workers=1, progress=stop)


def files_of(kind: Kind, folder: Path) -> list[Path]:
    """Return the files of a kind in a prepared folder."""
    place = folder / kind.folder
    found: list[Path] = []
    for name in kind.files:
        if name == "PARTS":
            found += sorted((place / "out-internal" / "parts").rglob("*.parquet"))
        elif name == "WORK":
            found += sorted(
                p for p in (place / "out-internal" / "estimates").rglob("*") if p.is_file()
            )
        elif name == "REPLICATES":
            found += sorted(path for path in (place / "work").rglob("*") if path.is_file())[:12]
        else:
            found.append(place / name)
    return found


def fuzz(
    name: str, folder: Path, number: int, seed: int, tally: Tally, seconds: int | None = None
) -> None:
    """Damage a file of a kind, and run the commands that read it; record the faults."""
    kind = KINDS[name]
    rng = random.Random(f"{seed} {name} {number}")
    files = files_of(kind, folder)
    source, other = rng.choice(files), rng.choice(files)
    target = folder / f"case-{number}" / kind.folder
    shutil.copytree(folder / kind.folder, target, symlinks=True)
    shutil.copy(folder / "plan.toml", target.parent / "plan.toml")
    path = target / source.relative_to(folder / kind.folder)
    suffix = path.suffix if "parts" not in path.parts else ""  # which are sealed
    suffix = ".jsonl" if suffix == ".journal" else suffix
    path.write_bytes(mutated(source.read_bytes(), suffix, rng, other.read_bytes()))
    inside = path.relative_to(target).as_posix()
    if inside.startswith("out/") and path.name != manifest.NAME and rng.random() < 0.95:
        _restate(target / "out", inside.removeprefix("out/"))
    tally.cases += 1
    chosen = [kind.commands[0]]
    if len(kind.commands) > 1 and rng.random() < kind.often:
        chosen.append(rng.choice(kind.commands[1:]))
    for command in chosen:
        words = tuple(inside if word == "FILE" else word for word in command)
        tally.runs += 1
        fault = _run(words, target, seconds)
        if fault is None:
            tally.fine += 1
        elif fault == "":
            tally.refused += 1
        else:
            key = fault.splitlines()[0]
            tally.faults.setdefault(key, f"{name} {number}: {' '.join(words)}\n{fault}")
    shutil.rmtree(target.parent)


def warm_up(name: str, folder: Path) -> None:
    """Run the commands of a kind on undamaged files, so that kernels are compiled."""
    kind = KINDS[name]
    target = folder / "whole" / kind.folder
    for command in kind.commands:
        shutil.copytree(folder / kind.folder, target)
        shutil.copy(folder / "plan.toml", target.parent / "plan.toml")
        words = tuple(kind.files[0] if word == "FILE" else word for word in command)
        fault = _run(words, target, None)
        shutil.rmtree(target.parent)
        if fault:
            raise table.Missed(f"{name}: {' '.join(words)} fails on undamaged files\n{fault}")


def _restate(out: Path, name: str) -> None:
    """Update the hash of a file in the manifest, so that the hash does not reveal the damage."""
    document = storage.read_json(out / manifest.NAME)
    document["files"][name] = manifest.list_files(out, [name])[name]
    storage.write_json(out / manifest.NAME, document)


def _run(words: tuple[str, ...], folder: Path, seconds: int | None) -> str | None:
    """Run a command in this process; return None if it succeeds, "" if it refuses, or its fault."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    printed = io.StringIO()
    try:
        with _inside(folder), _limited(seconds), redirect_stdout(printed), redirect_stderr(printed):
            if words == ("RELEASE",):
                plan = Plan.load("plan.toml")
                pipeline.release(plan, to="seeded", rng=Seeded(1), workers=1)
            else:
                _command().main(list(words), standalone_mode=False, prog_name="countveil")
        result: str | None = None
        printed.getvalue().encode()
    except CountveilError as error:
        str(error).encode()
        result = "" if str(error) else _fault(error)
    except click.exceptions.Exit:
        result = ""
    except OSError as error:
        result = "" if error.strerror else _fault(error)
    except (_TooLong, Exception) as error:
        result = _fault(error)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    if grown > _MEMORY:
        return f"{grown / 1024:,.0f} MB more memory in {words[0]}"
    return result


@cache
def _command() -> Any:
    """Return the command line, built once: building it takes longer than most commands."""
    return typer.main.get_command(command_line.app)


def _quietly(*words: str, cwd: Path) -> None:
    with _inside(cwd), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        _command().main(list(words), standalone_mode=False, prog_name="countveil")


def _fault(error: BaseException) -> str:
    """Return what identifies a fault, and then all of it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "countveil" in frame.filename] or frames
    at = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
    return f"{type(error).__name__} at {at}\n{''.join(traceback.format_exception(error))}"


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _limited(seconds: int | None) -> Iterator[None]:
    """Stop a command that takes too much processor time, however busy the machine is."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop) if seconds else None
    signal.setitimer(signal.ITIMER_PROF, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if before is not None:
            signal.signal(signal.SIGPROF, before)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=5_000, help="damaged files of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind")
    parser.add_argument("--seed", type=int, default=1, help="another series")
    parser.add_argument(
        "--seconds", type=int, default=30, help="limit of processor time for a command, in seconds"
    )


def run(options: argparse.Namespace) -> None:
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    rows, faults = [], 0
    with tempfile.TemporaryDirectory(prefix="countveil-fuzz-", dir=place) as name:
        folder = Path(name)
        prepare(folder)
        for kind in options.kind or KINDS:
            begun = time.perf_counter()
            tally = _in_children(kind, folder, options)
            for fault in tally.faults.values():
                print(fault, flush=True)
            faults += len(tally.faults)
            spent = time.perf_counter() - begun
            numbers = (tally.cases, tally.runs, tally.fine, tally.refused, len(tally.faults))
            rows.append((kind, *(f"{number:,}" for number in numbers), f"{spent:,.0f}"))
            print("  ".join(rows[-1]), flush=True)
    columns = ("kind", "files", "commands", "succeeded", "refused", "faults", "seconds")
    table.show("damaged files, by kind", columns, rows)
    if faults:
        raise table.Missed(f"{faults} different faults")


def _in_children(kind: str, folder: Path, options: argparse.Namespace) -> Tally:
    """Process the files of a kind in other processes: a file may end the one that reads it."""
    context = multiprocessing.get_context("spawn")
    whole, first = Tally(), options.first
    while first < options.first + options.files:
        stop = min(first + _TOGETHER, options.first + options.files)
        receiver, sender = context.Pipe(duplex=False)
        at = context.Value("q", first)
        series = (kind, folder, first, stop, options.seed, options.seconds)
        child = context.Process(target=_series, args=(*series, at, sender))
        child.start()
        sender.close()
        try:
            whole.add(receiver.recv())
            first = stop
        except EOFError:
            child.join()
            ended = f"the process ended with status {child.exitcode}"
            whole.faults.setdefault(ended, f"{kind} {at.value}: {ended}")
            first = at.value + 1
            shutil.rmtree(folder / f"case-{at.value}", ignore_errors=True)
        child.join()
    return whole


def _spare_what_files_do_not_change(kind: Kind) -> None:
    """Simulate little from here on: simulations took most of the time, and read no damaged file.

    Rehearsals depend on the plan, its places and public facts alone, and took place on whole files.
    """
    for section in (published_section, published_homogeneity_section):
        section._MOST = section._LEAST  # type: ignore[attr-defined]
    if not _REHEARSED & set(kind.files):
        pipeline._rehearse = lambda *_, **__: None


def _series(
    kind: str,
    folder: Path,
    first: int,
    stop: int,
    seed: int,
    seconds: int,
    at: Any,
    sender: Connection,
) -> None:
    """Process some files in a separate process, and report the outcomes."""
    warm_up(kind, folder)
    _spare_what_files_do_not_change(KINDS[kind])
    warnings.simplefilter("error")
    tally = Tally()
    for number in range(first, stop):
        at.value = number
        fuzz(kind, folder, number, seed, tally, seconds)
    sender.send(tally)
