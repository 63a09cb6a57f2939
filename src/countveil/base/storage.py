"""Files that survive a crash: written to a temporary name, synced, renamed; private where needed."""

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
    """Yield a temporary path; if the block succeeds, sync the file and rename it to `path`."""
    temporary = _next_to(path)
    try:
        yield temporary
        sync(temporary)
        temporary.rename(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _next_to(path: Path) -> Path:
    """Return a temporary name in the same folder, unique even if several machines write to it."""
    return path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}-{path.name}")


def write_new(path: Path, data: bytes) -> bool:
    """Write a complete private file unless one exists; return whether this call wrote it."""
    temporary = _next_to(path)
    try:
        temporary.touch(0o600, exist_ok=False)
        temporary.write_bytes(data)
        sync(temporary)
        try:
            os.link(temporary, path)  # unlike a rename, it never replaces
        except FileExistsError:
            # A network file system may have linked it, lost the reply and tried again.
            ours = os.path.samefile(temporary, path)
        else:
            ours = True
        sync(path.parent)
        return ours
    finally:
        temporary.unlink(missing_ok=True)


def try_writing(folder: Path) -> None:
    """Raise OSError if files cannot be written to a folder."""
    probe = _next_to(folder / "probe")
    try:
        probe.touch(0o600, exist_ok=False)
    finally:
        probe.unlink(missing_ok=True)


def try_linking(folder: Path) -> None:
    """Raise OSError if files cannot be linked into a folder, as `write_new` does."""
    probe = _next_to(folder / "probe")
    try:
        write_new(probe, b"")
    finally:
        probe.unlink(missing_ok=True)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Create a folder and its parents, each synced to disk."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document completely or not at all; raise ValueError for what `read_json` refuses."""
    write_bytes(path, as_json(document))


def as_json(document: Any) -> bytes:
    """Return the bytes of a JSON document; raise ValueError for numbers that JSON lacks."""
    text = json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False, allow_nan=False)
    return f"{text}\n".encode()


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedReader]:
    """Open a file for reading; refuse pipes, devices and folders, which might never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FolderError(f"{path}: is not a plain file; restore it from a backup, or remove it")
    with open(descriptor, "rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """Return the bytes of a plain file."""
    with open_plain(path) as file:
        return file.read()


def read_json(path: Path, largest: int = LARGEST_JSON) -> Any:
    """Read a JSON document; raise ValueError if it is too large or not valid."""
    with open_plain(path) as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"more than {largest:,} bytes")
    return parse_json(data)


def parse_json(data: bytes) -> Any:
    """Parse JSON in UTF-8; raise ValueError for anything that cannot be written as JSON again.

    Python would also accept NaN, Infinity, numbers beyond any float, halves of surrogate pairs, and a
    key that is repeated, of which other readers may use another value.
    """
    try:
        document = json.loads(
            data.decode(),
            parse_constant=_no_number,
            parse_float=_finite,
            object_pairs_hook=without_repeats,
        )
        json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON document; refuse one with a key that is repeated."""
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"the key {key[:40]!r} is repeated")
        document[key] = value
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def sync(path: Path) -> None:
    """Sync a file or a folder to disk."""
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
    """Refuse symbolic links among the files that a run writes to."""
    for path in paths:
        if path.is_symlink():
            raise FolderError(
                f"{path}: is a symbolic link, so writing to it would change a file elsewhere; remove "
                f"it: a release holds plain files only"
            )


def real(path: Path) -> Path:
    """Return the path without symbolic links; a link to itself stays as it is."""
    return Path(os.path.realpath(path))


def is_temporary(path: Path) -> bool:
    """Whether a file has the name of one that a killed run left half-written."""
    return path.name.startswith(_TEMPORARY)


def sweep(folder: Path) -> None:
    """Delete the temporary files that killed runs left in a folder; they are never read."""
    for path in folder.glob(f"{_TEMPORARY}*"):
        remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replacing_private(path: Path) -> Iterator[Path]:
    """Yield a private temporary path; if the block succeeds, it replaces `path`."""
    with replacing(path) as temporary:
        temporary.touch(0o600)
        temporary.chmod(0o600)  # in case it existed
        yield temporary


def open_private(path: Path, mode: Literal["a", "w"]) -> TextIO:
    """Open a private text file for writing."""
    plain = os.O_NOFOLLOW | os.O_NONBLOCK  # neither a link nor a pipe without a reader

    def private(name: str, flags: int) -> int:
        return os.open(name, flags | plain, 0o600)

    return open(path, mode, encoding="utf-8", opener=private)


def keep_only(folder: Path, names: Iterable[str]) -> None:
    """Delete all files of a folder except those named; then the folder, if it is empty."""
    kept = set(names)
    for path in folder.glob("*"):
        if path.name not in kept and path.is_file():
            path.unlink(missing_ok=True)
    remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Delete a folder if it exists and is empty."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file; refuse if another process holds it."""
    with open_private(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was deleted in the meantime protects nothing.
            ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            ours = False
        if not ours:
            raise FolderError(
                f"{path.parent}: another process is releasing into this folder; wait until it ends"
            )
        yield
