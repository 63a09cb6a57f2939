"""Files that survive a crash: written aside, synced, renamed; hashed; private where they must be."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

from countveil.errors import FolderError

_TEMPORARY = ".countveil-temporary-"
LARGEST_JSON = 32_000_000  # bytes


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; when the block ends well, sync it and rename it there."""
    temporary = _beside(path)
    try:
        yield temporary
        sync(temporary)
        temporary.rename(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Name a temporary file; processes of several machines may write to one folder."""
    return path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}")


def write_new(path: Path, data: bytes) -> bool:
    """Write a private file whole, unless there is one: return whether this call wrote it."""
    temporary = _beside(path)
    try:
        temporary.touch(0o600, exist_ok=False)
        temporary.write_bytes(data)
        sync(temporary)
        try:
            os.link(temporary, path)  # unlike a rename, it never replaces
        except FileExistsError:
            # A network file system may have done it, lost the answer and tried again.
            ours = os.path.samefile(temporary, path)
        else:
            ours = True
        sync(path.parent)
        return ours
    finally:
        temporary.unlink(missing_ok=True)


def try_writing(folder: Path) -> None:
    """Raise OSError where no file can be written to a folder."""
    probe = _beside(folder / "probe")
    try:
        probe.touch(0o600, exist_ok=False)
    finally:
        probe.unlink(missing_ok=True)


def try_linking(folder: Path) -> None:
    """Raise OSError where no file can be linked into a folder, as `write_new` does."""
    probe = _beside(folder / "probe")
    try:
        write_new(probe, b"")
    finally:
        probe.unlink(missing_ok=True)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and those above it, each durable in its parent."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document whole or not at all; raise ValueError for what `read_json` refuses."""
    write_bytes(path, as_json(document))


def as_json(document: Any) -> bytes:
    """Return a JSON document as it is written; raise ValueError for a number that JSON cannot say."""
    text = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False, allow_nan=False)
    return f"{text}\n".encode()


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedReader]:
    """Open a file to read; refuse a pipe, a device or a folder, which would never come to an end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{path}: is not a plain file; restore it from a backup, or take it out")
    with open(descriptor, "rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """Return the bytes of a plain file."""
    with open_plain(path) as file:
        return file.read()


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """Read a JSON document; raise ValueError with what is wrong with it."""
    with open_plain(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"more than {largest:,} bytes")
    return parse_json(data)


def parse_json(data: bytes) -> Any:
    """Parse JSON in UTF-8; raise ValueError for all that JSON text cannot say.

    Python would also take NaN, Infinity, numbers above any float, and halves of surrogate pairs, none
    of which can be written out again.
    """
    try:
        document = json.loads(data.decode(), parse_constant=_no_number, parse_float=_finite)
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def sync(path: Path) -> None:
    """Make a file or a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse links among what a run writes to: it would land elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise FolderError(
                f"{path}: is a link, and what is written to it would land elsewhere; a release holds "
                f"plain files only: take it out"
            )


def real(path: Path) -> Path:
    """Return where a path leads, as far as it leads anywhere: a link to itself leads nowhere."""
    return Path(os.path.realpath(path))


def is_temporary(path: Path) -> bool:
    """Whether a file is one that a killed run left half-written, by its name."""
    return path.name.startswith(_TEMPORARY)


def sweep(folder: Path) -> None:
    """Delete what is temporary and a killed run left in a folder; it is never read."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder and all in it; do nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replacing_private(path: Path) -> Iterator[Path]:
    """Yield a temporary path only its owner can read; it replaces `path` when the block ends well."""
    with replacing(path) as temporary:
        temporary.touch(0o600)
        temporary.chmod(0o600)  # whatever a killed run left there
        yield temporary


def open_private(path: Path, mode: Literal["a", "w"]) -> TextIO:
    """Open a file to write text to that only its owner can read."""
    plain = os.O_NOFOLLOW | os.O_NONBLOCK  # neither a link nor a pipe that nobody reads

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | plain, 0o600)

    return open(path, mode, encoding="utf-8", opener=private)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Delete the files of a folder but those named; then the folder, if it is empty."""
    kept = set(names)
    for path in folder.glob("*"):
        if path.name not in kept and path.is_file():
            path.unlink(missing_ok=True)
    remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Delete a folder with nothing in it; do nothing where there is none."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file; refuse where another process holds it."""
    with open_private(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was deleted meanwhile holds nothing.
            ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise FolderError(
                f"{path.parent}: another process is releasing into this folder; wait for it to end"
            )
        yield
