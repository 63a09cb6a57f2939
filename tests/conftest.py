"""What the tests share: small plans, small places, and a way to run the command line."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

GOLDEN = Path(__file__).parent / "golden"
# Seconds after which a wait is given up. It only turns a hang into a failure: no test waits this long
# for something that a busy machine does late.
HANG = 900
# How long an example takes says how busy the machine is, nothing of the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds, however busy the machine is."""
    until = time.monotonic() + HANG
    while not holds():
        assert time.monotonic() < until, f"{what}: not within {HANG} seconds"
        time.sleep(0.02)


def _kernels() -> str:
    """Return a name for the kernels as they are: Numba sees changes in a kernel's own file only."""
    texts = (path.read_bytes() for path in sorted(SOURCE.rglob("*.py")))
    return sha256(b"".join(text for text in texts if b"njit" in text)).hexdigest()[:12]


SOURCE = Path(__file__).parent.parent / "src"
# Before anything compiles, and for processes that tests start: no test runs old machine code.
os.environ["NUMBA_CACHE_DIR"] = str(SOURCE.parent / ".numba_cache" / _kernels())
# Before NumPy loads: a process of the tests per core, and their matrices are small.
os.environ["OPENBLAS_NUM_THREADS"] = "1"


def _memory() -> str | None:
    """Return a folder in memory with room for what the tests write, where there is one."""
    shared = "/dev/shm"
    roomy = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2_000_000_000
    return shared if roomy else None


# A release waits for the disk a hundred times, and so do simulated ones, in temporary folders of
# their own. What tests write is nothing to keep.
if folder := _memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
    os.environ.setdefault("TMPDIR", folder)


def parts_of(folder: Path) -> Path:
    """Return where the one run into a folder keeps its parts."""
    (found,) = folder.with_name(f"{folder.name}-internal").glob("parts/*")
    return found


TINY_PLAN = """
[release]
title = "Tiny"
unit = "person"
neighbors = "change-one"

[records]
path = "people.csv"
one_row_per_person = true

[geography]
path = "places.csv"
levels = ["region", "area"]

[attributes]
AGE = ["young", "old"]
SEX = ["f", "m", "x"]

[budget]
rho = "2"
[budget.levels]
region = "1/2"
area = "1/2"
[budget.queries."*"]
TOTAL = "1/4"
"AGE*SEX" = "3/4"
"""

TINY_PLACES = "region,area\nR1,A1\nR1,A2\nR2,A3\nR2,A4\nR2,A5\n"

TINY_PEOPLE = [
    ("A1", "young", "f"),
    ("A1", "old", "m"),
    ("A1", "old", "m"),
    ("A2", "old", "x"),
    ("A4", "young", "m"),
    ("A5", "old", "f"),
    ("A5", "old", "f"),
    ("A5", "young", "x"),
]


def restate(out: Path, *names: str) -> None:
    """Make a manifest state files as they are now, as someone who edits a release would."""
    path = out / "manifest.json"
    document = json.loads(path.read_text())
    for name in names:
        data = (out / name).read_bytes()
        document["files"][name] = {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
    path.write_text(json.dumps(document))


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    def document(self) -> dict:
        return json.loads(self.out)


def run(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run the command line in this process; return what a process of its own would end with."""
    from countveil import cli

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    handler, status = signal.getsignal(signal.SIGTERM), 0
    with (
        chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, {} if env is None else env, clear=env is not None),
        mock.patch.object(sys, "argv", ["countveil", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGTERM, handler)
    return Ran(status, *(_text_of(stream) for stream in (out, err)))


def _text_of(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def run_process(*arguments: object, cwd: Path | None = None, **options: object) -> Ran:
    """Run the command line in a process of its own, where a test is about one."""
    done = subprocess.run(
        [sys.executable, "-m", "countveil", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    return Ran(done.returncode, done.stdout, done.stderr)


STANDSTILL = """
import runpy, sys, time
from countveil import pipeline, published_estimates

program, stage, *arguments = sys.argv[1:]
real = pipeline.watched

def watched(*inputs):
    progress = real(*inputs)
    def step(at, *more):
        progress(at, *more)
        if at == stage:
            print(at, flush=True)
            while True:
                time.sleep(3600)
    return step

pipeline.watched = published_estimates.watched = watched
sys.argv = [program, *arguments]
runpy.run_module(program, run_name="__main__")
"""


@contextmanager
def standing_still(
    stage: str, program: str, *arguments: object, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that releases; yield its process once it stands still at a stage, to be killed."""
    command = [sys.executable, "-c", STANDSTILL, program, stage, *map(str, arguments)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        ) as process,
    ):
        assert process.stdout is not None
        try:
            if f"{stage}\n" not in process.stdout:  # waits for it, or for the end
                errors.seek(0)
                raise AssertionError(f"it ended before {stage}: {errors.read()[-2000:]}")
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """Assemble the command line once: this takes longer than many a command."""
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        assembled = cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", assembled)
        patch.setattr(typer.testing, "_get_command", assembled)
        yield


@pytest.fixture
def command() -> Callable[..., Ran]:
    """Run the command line in this process."""
    return run


def write_people(path: Path, people: list[tuple[str, ...]] = TINY_PEOPLE) -> None:
    path.write_text("area,AGE,SEX\n" + "".join(",".join(row) + "\n" for row in people))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a plan, a crosswalk and records of eight people; returns the plan."""
    (tmp_path / "plan.toml").write_text(TINY_PLAN)
    (tmp_path / "places.csv").write_text(TINY_PLACES)
    write_people(tmp_path / "people.csv")
    return tmp_path / "plan.toml"


@pytest.fixture
def short_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearse with one simulated population of each size, where a test is about something else."""
    from countveil import postprocess

    monkeypatch.setattr(postprocess, "rehearse", partial(postprocess.rehearse, draws=4))


@contextmanager
def few_simulated_releases() -> Iterator[None]:
    """Simulate as few releases as a report may, where it is made for something else."""
    from countveil.report.sections import published_homogeneity_section, published_section

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_section, "_MOST", published_section._LEAST)
        for limit in ("_LEAST", "_MOST"):
            patch.setattr(published_homogeneity_section, limit, 50)
        yield


@pytest.fixture
def few_simulations() -> Iterator[None]:
    """Simulate as few releases as a report may, where a test is about something else."""
    with few_simulated_releases():
        yield


# Tests that share something slow run in one process, and those that take long run first, so that no
# process is left with one of them at the end: the cluster, the browser, the releases of reports.
GROUPS = (
    "spark",
    "tests/report/",
    "tests/browser/",
    "tests/test_documentation.py",
    "tests/papers/",
    "tests/test_faults.py",
)


def group_of(nodeid: str) -> str:
    """Return the group of a test, or else its file, whose tests share its fixtures."""
    return next((group for group in GROUPS if group in nodeid), nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the groups first."""
    order = {group: number for number, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process a group or a file at a time, in the order of the tests."""
    # The marks of `--dist loadgroup` are not seen: pytest 9.2 keeps a test's name from being changed.
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Together(config, log)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Spark cluster on loopback: a master and two workers, processes of their own."""
    from benchmarks.cluster import running

    folder = tmp_path_factory.mktemp("cluster") / "spark"
    # The event log is on so that a test can look for counts in it. A busy machine is late, not lost.
    properties = {
        "spark.network.timeout": f"{HANG}s",
        "spark.worker.timeout": str(HANG),
        "spark.python.authenticate.socketTimeout": f"{HANG}s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.countveil.accept": "spark.eventLog.enabled",
    }
    with running(folder, settings=properties) as up:
        yield up


@pytest.fixture(scope="session")
def spark_session(cluster: Any) -> Iterator[Any]:
    """The session of this process, on that cluster."""
    from countveil.engines.spark.spark_session import open_session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        session = open_session()
        yield session
        session.stop()


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine that is ready to be opened; `plain` is the one the documentation builds."""
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    if request.param == "plain":
        from countveil.engines import engine
        from tests.laws.documented_code import documented_engine

        monkeypatch.setitem(engine.OPENERS, "plain", documented_engine())
    return str(request.param)


@pytest.fixture(scope="session")
def truth() -> dict[str, dict]:
    """The recomputed numbers of papers 002 and 000, by id."""
    return {item["id"]: item for item in json.loads((GOLDEN / "kazan_reiter.json").read_text())}
