"""One release that is disturbed, copied and resumed, and whose every promise is checked."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

from countveil import Release
from countveil.base.storage import sha256
from countveil.engines.workers import children_of
from countveil.errors import InputError
from countveil.measure.run import internal_of
from countveil.plan.plans import Plan
from countveil.privacy.ledger import ANOTHER_COPY, SEALED_OTHERWISE
from countveil.publish import status_of

_SEAL = 32  # bytes behind the data of a part
_TORN = b"torn by a crash"
_REFUSALS = (ANOTHER_COPY, SEALED_OTHERWISE)
HANG = 900  # seconds after which a wait is given up, which only turns a hang into a failure


@dataclass
class Trial:
    """A plan, its release folder, and what has been observed so far."""

    plan: Path
    out: Path
    engine: str = "local"
    environment: Mapping[str, str] | None = None
    kept: dict[str, bytes] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)
    finished_before: bool = False  # this is a copy of a release that was measured already

    @property
    def ledger(self) -> Path:
        """The ledger of the release and its copies, outside the folders that are copied."""
        return self.plan.parent.parent / f"{self.out.name}.sqlite"

    def copy(self) -> Trial:
        """Copy the run as `cp -r` does, without the ledger; return the copy."""
        out = self.plan.parent.parent / "copy" / self.out.name
        for folder, target in ((self.out, out), (internal_of(self.out), internal_of(out))):
            if folder.exists():
                # Executors of a killed driver may still be writing.
                ignored = shutil.ignore_patterns(".countveil-temporary-*")
                shutil.copytree(folder, target, ignore=ignored)
        found = replace(self, out=out, kept={}, published={})
        found.finished_before = (out / "manifest.json").exists()
        found.observe()
        return found

    def start(self, before: Callable[[], None] | None = None) -> subprocess.Popen[bytes]:
        """Start or resume the release; `before` runs first in its process."""
        command = [sys.executable, "-m", "benchmarks._release_child", str(self.plan)]
        command += ["--to", str(self.out), "--ledger", str(self.ledger), "--quiet"]
        command += ["--engine", self.engine, "--workers", "2"]
        with (self.plan.parent / "errors.txt").open("wb") as errors:
            return subprocess.Popen(
                command,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                preexec_fn=before,
            )

    def state(self) -> str:
        """Return the state of the release."""
        try:
            return status_of(self.out).state
        except InputError:
            return "counting"

    def observe(self) -> None:
        """Check the folders: no draw without a charge, no finished part lost or changed."""
        finished = (self.out / "manifest.json").exists()
        charges = self.charges()
        need(len(charges) <= 1, "charged twice")
        parts = self._parts()
        need(bool(charges) or not parts, "noise was drawn before the charge")
        for name, data in self.kept.items():
            need(parts.get(name, data) == data, f"{name} was drawn again")
            gone = name not in parts and not finished and not self._parts().get(name)
            need(not gone or (self.out / "manifest.json").exists(), f"{name} was lost")
        self.kept |= parts
        for path in self.out.rglob("*.parquet"):
            if not path.name.startswith(".") and "measurements" in path.parts:
                name = path.relative_to(self.out).as_posix()
                need(
                    self.published.setdefault(name, sha256(path)) == sha256(path), f"{name} changed"
                )

    def spoil(self) -> None:
        """Leave what a crash leaves, and worse: temporary and truncated files, a flipped bit."""
        internal = internal_of(self.out)
        folders = [*internal.glob("parts/*")]
        if self.state() != "released":
            folders.append(self.out)
        if not (self.out / "manifest.json").exists():
            folders.append(self.out / "measurements")
        for folder in folders:
            if folder.is_dir():
                (folder / ".countveil-temporary-0-area.parquet").write_bytes(_TORN)
        for path in internal.rglob(".countveil-temporary-*"):
            if path.is_file():
                path.write_bytes(_TORN)
        for number, path in enumerate(sorted((internal / "estimates").glob("*.c*s"))):
            data = bytearray(path.read_bytes())
            if data and number % 2:
                data[len(data) // 2] ^= 1  # as a disk may
            path.write_bytes(data + _TORN)

    def finish(self, attempts: int = 5) -> None:
        """Run it until it is done, and check every promise."""
        need(self.ends(attempts), f"refused: {self.errors()}")
        self.check()

    def ends(self, attempts: int = 5) -> bool:
        """Run it until it is done or, if a copy was continued, refused; return whether it is done."""
        for _ in range(attempts):
            status = self.start().wait(timeout=HANG)
            if status == 0:
                return True
            if refused(status, self.errors()):
                return False
            need(status == 3, f"status {status}: {self.errors()}")
        raise AssertionError(f"not done after {attempts} attempts: {self.errors()}")

    def check(self) -> None:
        """Check a finished release: verified, charged once, with the draws that were kept."""
        Release.read(self.out).verify(self.ledger)
        need(len(self.charges()) == 1, f"{len(self.charges())} charges")
        for name, digest in self.published.items():
            need(sha256(self.out / name) == digest, f"{name} changed after it was renamed")
        same_draws(self.out, self.kept)
        # A driver killed while it checks what executors see leaves an empty folder for ten minutes.
        left = [
            p for p in self.out.parent.rglob(".countveil-temporary-*") if "-probe-" not in str(p)
        ]
        need(not left, f"{left} were left")
        need(not list((internal_of(self.out) / "parts").iterdir()), "parts were left")

    def charges(self) -> list[object]:
        return list(Plan.load(self.plan).ledger(self.ledger).charges())

    def errors(self) -> str:
        return (self.plan.parent / "errors.txt").read_text(errors="replace")[-2000:]

    def remove(self) -> None:
        """Delete all of it."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.rmtree(internal_of(self.out), ignore_errors=True)
        self.ledger.unlink(missing_ok=True)

    def _parts(self) -> dict[str, bytes]:
        found = {}
        for path in internal_of(self.out).glob("parts/*/*.parquet"):
            if not path.name.startswith("."):
                try:
                    found[path.name] = path.read_bytes()
                except FileNotFoundError:
                    continue  # it was published meanwhile
        return found


def refused(status: int, message: str) -> bool:
    """Return whether a run was refused because a copy of it was continued."""
    return status == 2 and any(text in message for text in _REFUSALS)


def settle(runs: Sequence[Trial], ends: Callable[[Trial], bool]) -> None:
    """Finish a run and its copy, one after the other: one is published, the other refused."""
    done = [trial for trial in runs if ends(trial)]
    for trial in done:
        trial.check()
    if any(trial.finished_before for trial in runs) and len(done) == len(runs):
        draws = [measured_files(trial.out) for trial in done]
        need(all(found == draws[0] for found in draws), "copies of a finished release differ")
        return
    need(len(done) == 1, f"{len(done)} of {len(runs)} copies were published")
    for trial in runs:
        if trial is not done[0]:
            need(not (trial.out / "manifest.json").exists(), "a refused copy was published")
            left = measured_files(trial.out).items()
            need(left <= measured_files(done[0].out).items(), "a refused copy published its draws")


def measured_files(out: Path) -> dict[str, str]:
    """Return the hashes of the published measurements."""
    return {path.name: sha256(path) for path in (out / "measurements").glob("[!.]*.parquet")}


def same_draws(out: Path, kept: Mapping[str, bytes]) -> None:
    """Check that a release contains exactly the draws that were finished before."""
    for level in {name.split(".")[0] for name in kept}:
        final = pq.ParquetFile(out / "measurements" / f"{level}.parquet")
        for name, data in kept.items():
            if name.split(".")[0] == level:
                group = final.read_row_group(int(name.split(".")[1]))
                part = pq.read_table(io.BytesIO(data[:-_SEAL]))
                need(group.equals(part), f"{name} was drawn again")


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its descendants at once, without warning."""
    for child in children_of(process.pid):
        _kill(child)
    process.kill()
    process.wait()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):  # it ended meanwhile
        os.kill(process, signal.SIGKILL)


def wait_for(trial: Trial, process: subprocess.Popen[bytes], states: set[str]) -> bool:
    """Wait until a release is in one of the states; return whether it got there."""
    while process.poll() is None:
        if trial.state() in states:
            return True
        time.sleep(0.02)
    return False


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Mount a small disk on a folder (root only); yield a function that makes room on it."""
    folder.mkdir()
    options = f"size={size},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield lambda: _mount_again(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def _mount_again(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=1G", folder], check=True)


def need(holds: bool, what: str) -> None:
    """Raise an error if a promise is broken."""
    if not holds:
        raise AssertionError(what)
