"""Executors as workers: tasks travel as Arrow rows, one per partition; results return in order."""

from __future__ import annotations

import hashlib
import pickle
import secrets
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from countveil.base import storage
from countveil.engines.workers import Job, peak_of
from countveil.errors import FolderError, InputError

_WAVES = 2  # Spark jobs at a time: the second uses the cores that the first leaves idle
_TASKS = 4  # tasks per core in a wave
_FIRST = 16  # most tasks in a wave while the size of results is unknown
_BYTES = 64_000_000  # of tasks in a wave, unless a single task has more
_RESULT_BYTES = 256_000_000  # of results in a wave, which reach the driver together
_MARK = "mark"
_PROBE = ".countveil-temporary-probe-"
_LONG = 600.0  # seconds; a probe takes a few
_TASK = pa.schema([("number", pa.int32()), ("task", pa.binary())])
_RESULT = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("memory", pa.int64(), nullable=False),
        pa.field("failed", pa.bool_(), nullable=False),
        pa.field("result", pa.binary(), nullable=False),
    ]
)
_RESULT_TYPES = "number int, attempt int, memory bigint, failed boolean, result binary"


class SparkWorkers:
    """The executors of a session. A task may be done twice, even at the same time."""

    def __init__(self, session: SparkSession) -> None:
        # With settings of our own that do not affect the user's session.
        self._session = session.newSession()
        self._session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1)
        self._session.conf.set("spark.sql.execution.arrow.localRelationThreshold", 0)
        self._reached: set[Path] = set()
        self.retries = 0
        self.peak_memory = 0
        self._largest = 0  # bytes of a result, among those of the present map

    def __enter__(self) -> SparkWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: the session belongs to the caller."""

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks; executors do all of them."""
        shared, tag = pickle.dumps(job), f"countveil-{secrets.token_hex(8)}"
        name = f"countveil {type(job).__name__}"
        waiting: deque[Future[list[Any]]] = deque()
        threads = ThreadPoolExecutor(_WAVES)
        ended = False
        try:
            for wave in self._waves(tasks):
                waiting.append(threads.submit(self._do, shared, wave, name, tag))
                if len(waiting) == _WAVES:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
            ended = True
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            if not ended:
                with suppress(Py4JError, OSError):  # a lost virtual machine has no jobs to cancel
                    self._session.sparkContext.cancelJobsWithTag(tag)
            threads.shutdown(wait=True)

    def rest(self) -> None:
        """Do nothing: the session decides how long executors stay."""

    def reach(self, path: Path) -> None:
        """Raise an error if executors lack this version of countveil, a file or a folder."""
        if path in self._reached:
            return
        if path.is_dir():
            with _private_folder_in(path) as folder:
                self._need_seen(path, folder / _MARK, writes=True)
        else:
            self._need_seen(path, path, writes=False)
        self._reached.add(path)

    def _need_seen(self, path: Path, probe: Path, *, writes: bool) -> None:
        try:
            mark = hashlib.sha256(probe.read_bytes()).hexdigest()
        except OSError as error:
            raise FolderError(f"{path}: cannot be read ({error.strerror})") from error
        job = _Probe(probe.absolute(), mark, metadata.version("countveil"), writes)
        try:
            problems = list(self.map(job, range(self._cores()), large=True))
        except BrokenExecutor as error:
            raise InputError(
                f"the executors of {self._session.sparkContext.master} cannot run countveil ({error}); "
                f"install the same version for the Python that PYSPARK_PYTHON names there"
            ) from error
        for problem in problems:
            if problem is not None:
                raise FolderError(f"{path}: {problem}")
        if writes and not all(probe.with_name(str(n)).exists() for n in range(len(problems))):
            raise FolderError(
                f"{path}: the driver does not see what executors write there; use a file system that "
                f"all of them share, with the same path"
            )

    def _most(self) -> int:
        """Return how many tasks a wave has: enough for all cores, few enough for the driver."""
        known = _RESULT_BYTES // self._largest if self._largest else _FIRST
        return max(1, min(self._cores() * _TASKS, known))

    def _cores(self) -> int:
        return self._session.sparkContext.defaultParallelism

    def _waves(self, tasks: Iterable[Any]) -> Iterator[list[bytes]]:
        """Yield packed tasks in waves of limited size."""
        codec = pa.Codec("zstd", compression_level=1)
        self._largest = 0
        wave: list[bytes] = []
        for task in tasks:
            plain = pickle.dumps(task)
            packed = len(plain).to_bytes(8) + codec.compress(plain, asbytes=True)
            if wave and (len(wave) >= self._most() or sum(map(len, wave)) + len(packed) > _BYTES):
                yield wave
                wave = []
            wave.append(packed)
        if wave:
            yield wave

    def _do(self, job: bytes, wave: list[bytes], name: str, tag: str) -> list[Any]:
        """Run one Spark job with a partition per task, so that each is retried on its own."""
        context = self._session.sparkContext
        table = pa.table([pa.array(range(len(wave)), pa.int32()), wave], schema=_TASK)
        try:
            context.addJobTag(tag)
            context.setJobDescription(name)
            frame = self._session.createDataFrame(table)
            rows = frame.mapInArrow(_kernel(job), _RESULT_TYPES).toArrow()
        except (PySparkException, Py4JError, OSError) as error:
            raise BrokenExecutor(f"Spark lost its work: {_reason(error)}") from error
        order = rows["number"].to_numpy().argsort()
        self.retries += sum(attempt > 0 for attempt in rows["attempt"].to_pylist())
        self.peak_memory = max(self.peak_memory, *rows["memory"].to_pylist())
        results = []
        for row in order.tolist():
            packed = rows["result"][row].as_buffer()
            self._largest = max(self._largest, packed.size)
            result = pickle.loads(packed)  # noqa: S301
            if rows["failed"][row].as_py():
                raise result
            results.append(result)
        return results


def _kernel(job: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what an executor runs: it turns rows with tasks into rows with results."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from threadpoolctl import threadpool_limits

        codec = pa.Codec("zstd")
        shared = pickle.loads(job)  # noqa: S301
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        with threadpool_limits(1):  # a task has one core
            for batch in batches:
                for number, packed in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
                    size = int.from_bytes(packed[:8])
                    task = pickle.loads(codec.decompress(packed[8:], size))  # noqa: S301
                    failed, result = _outcome(shared, task)
                    row = ([number], [attempt], [peak_of()], [failed], [result])
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array(value, kind)
                            for value, kind in zip(row, _RESULT.types, strict=True)
                        ],
                        schema=_RESULT,
                    )

    return run


def _outcome(job: Job, task: Any) -> tuple[bool, bytes]:
    """Do a task; an error is returned as a result, so that Spark neither retries nor logs it."""
    try:
        return False, pickle.dumps(job.run(task))
    except Exception as error:
        return True, pickle.dumps(error)


@contextmanager
def _private_folder_in(folder: Path) -> Iterator[Path]:
    """Yield a new private folder with a file of random bytes; delete it when the block ends."""
    probe = folder / f"{_PROBE}{secrets.token_hex(16)}"
    try:
        for left in folder.glob(f"{_PROBE}*"):
            if time.time() - left.stat().st_mtime > _LONG:
                storage.remove(left)  # left by a driver that was killed
        probe.mkdir(mode=0o700)
        (probe / _MARK).write_text(secrets.token_hex(16))
        yield probe
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)  # a late task may still write to it


class _Probe:
    """Checks that an executor can read a file of the driver, and link one next to it."""

    def __init__(self, path: Path, mark: str, version: str, writes: bool) -> None:
        self.path, self.mark, self.version, self.writes = path, mark, version, writes

    def run(self, task: int) -> str | None:
        """Return what is wrong on this executor, None if nothing is."""
        here = f"the executor on {socket.gethostname()}"
        version = metadata.version("countveil")
        if version != self.version:
            return f"{here} has countveil {version}, the driver {self.version}; install the same"
        try:
            seen = hashlib.sha256(self.path.read_bytes()).hexdigest() == self.mark
        except OSError:
            seen = False
        if not seen:
            return (
                f"{here} does not see what the driver sees there; use a file system that all of them "
                f"share, with the same path, and run executors as the driver's user"
            )
        try:
            if self.writes:
                storage.write_new(self.path.with_name(str(task)), b"")
        except OSError as error:
            return (
                f"{here} cannot write and link files there ({error.strerror}); run executors as the "
                f"driver's user, on a file system with hard links"
            )
        return None


def _reason(error: BaseException) -> str:
    """Return one line of Spark's message; it quotes no record, as tasks return their own errors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "failure" in line or "Exception" in line]
    return (errors or lines or [type(error).__name__])[-1][:300]
