"""Executors as workers: tasks travel as Arrow rows, one a partition, and results come back in order."""

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

from countveil import storage
from countveil.errors import FolderError, InputError
from countveil.workers import Job
from countveil.workers.memory import peak_of

_WAVES = 2  # Spark jobs under way at once: the second fills the cores that the first one leaves
_TASKS = 4  # tasks of a wave for each core
_FIRST = 16  # tasks of a wave at most, while nobody knows how large results are
_BYTES = 64_000_000  # of tasks in a wave, unless one has more
_RESULT_BYTES = 256_000_000  # of results in a wave: they come to the driver together
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
    """The executors of a session. Tasks may be tried again, or by two at once: jobs allow for it."""

    def __init__(self, session: SparkSession) -> None:
        # Settings of our own, which the user's session does not see.
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
        """Do nothing: the session is its owner's."""

    def map(self, job: Job, tasks: Iterable[Any], *, large: bool) -> Iterator[Any]:
        """Yield the results in the order of the tasks; all of them are done by executors."""
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
        """Do nothing: how long executors stay is for the session to say."""

    def reach(self, path: Path) -> None:
        """Raise where executors lack this version of countveil, or do not see a file or a folder."""
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
            found = list(self.map(job, range(self._cores()), large=True))
        except BrokenExecutor as error:
            raise InputError(
                f"the executors of {self._session.sparkContext.master} cannot run countveil ({error}); "
                f"install the same version for the Python that PYSPARK_PYTHON names there"
            ) from error
        for problem in found:
            if problem is not None:
                raise FolderError(f"{path}: {problem}")
        if writes and not all(probe.with_name(str(n)).exists() for n in range(len(found))):
            raise FolderError(
                f"{path}: what executors write there does not come to the driver; it must lie on a "
                f"file system that all of them share, under the same path"
            )

    def _most(self) -> int:
        """Return how many tasks go into a wave: enough for all cores, few enough for the driver."""
        known = _RESULT_BYTES // self._largest if self._largest else _FIRST
        return max(1, min(self._cores() * _TASKS, known))

    def _cores(self) -> int:
        return self._session.sparkContext.defaultParallelism

    def _waves(self, tasks: Iterable[Any]) -> Iterator[list[bytes]]:
        """Pack tasks and gather them, so that what lies in memory has a bound."""
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
        """Run one Spark job: a partition per task, so that each is tried again on its own."""
        context = self._session.sparkContext
        table = pa.table([pa.array(range(len(wave)), pa.int32()), wave], schema=_TASK)
        try:
            context.addJobTag(tag)
            context.setJobDescription(name)
            frame = self._session.createDataFrame(table)
            found = frame.mapInArrow(_kernel(job), _RESULT_TYPES).toArrow()
        except (PySparkException, Py4JError, OSError) as error:
            raise BrokenExecutor(f"Spark lost its work: {_reason(error)}") from error
        order = found["number"].to_numpy().argsort()
        self.retries += sum(attempt > 0 for attempt in found["attempt"].to_pylist())
        self.peak_memory = max(self.peak_memory, *found["memory"].to_pylist())
        results = []
        for row in order.tolist():
            packed = found["result"][row].as_buffer()
            self._largest = max(self._largest, packed.size)
            result = pickle.loads(packed)  # noqa: S301
            if found["failed"][row].as_py():
                raise result
            results.append(result)
        return results


def _kernel(job: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what an executor runs: rows with tasks come, rows with results go."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from threadpoolctl import threadpool_limits

        codec = pa.Codec("zstd")
        held = pickle.loads(job)  # noqa: S301
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        with threadpool_limits(1):  # a task is given one core
            for batch in batches:
                for number, packed in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
                    size = int.from_bytes(packed[:8])
                    task = pickle.loads(codec.decompress(packed[8:], size))  # noqa: S301
                    failed, result = _outcome(held, task)
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
    """Do a task; what it raises is a result too, so that it is neither retried nor logged by Spark."""
    try:
        return False, pickle.dumps(job.run(task))
    except Exception as error:
        return True, pickle.dumps(error)


@contextmanager
def _private_folder_in(folder: Path) -> Iterator[Path]:
    """Yield a folder as private as that of a run, with a file of random bytes in it, for a while."""
    made = folder / f"{_PROBE}{secrets.token_hex(16)}"
    try:
        for left in folder.glob(f"{_PROBE}*"):
            if time.time() - left.stat().st_mtime > _LONG:
                storage.remove(left)  # by a driver that was killed meanwhile
        made.mkdir(mode=0o700)
        (made / _MARK).write_text(secrets.token_hex(16))
        yield made
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)  # a late task may be writing to it still


class _Probe:
    """Reads a file that the driver sees, writes one beside it as draws are kept, says what is wrong."""

    def __init__(self, path: Path, mark: str, version: str, writes: bool) -> None:
        self.path, self.mark, self.version, self.writes = path, mark, version, writes

    def run(self, task: int) -> str | None:
        """Return what is wrong here, if anything."""
        here = f"the executor on {socket.gethostname()}"
        version = metadata.version("countveil")
        if version != self.version:
            return (
                f"{here} has countveil {version}, and the driver {self.version}; install the same"
            )
        try:
            seen = hashlib.sha256(self.path.read_bytes()).hexdigest() == self.mark
        except OSError:
            seen = False
        if not seen:
            return (
                f"{here} does not see what the driver sees there; it must lie on a file system that "
                f"all of them share, under the same path, and executors must run as the driver's user"
            )
        try:
            if self.writes:
                storage.write_new(self.path.with_name(str(task)), b"")
        except OSError as error:
            return (
                f"{here} cannot write and link files there ({error.strerror}); executors must run as "
                f"the driver's user, on a file system with hard links"
            )
        return None


def _reason(error: BaseException) -> str:
    """Return one line of what Spark says; tasks return their own errors, so it quotes no record."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error" in line or "failure" in line or "Exception" in line]
    return (told or lines or [type(error).__name__])[-1][:300]
