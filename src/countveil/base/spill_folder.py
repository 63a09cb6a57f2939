"""A private folder for data that spills to disk; folders that killed runs left are deleted."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_PREFIX = "countveil-private-"
_LOCK = "in-use"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a new folder of mode 0700; delete it when the block ends."""
    sweep()
    folder, lock = _locked_folder()
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder() -> tuple[Path, TextIO]:
    """Make a folder and lock it; the operating system drops the lock when the process ends."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        lock.close()  # another process deleted it before we had the lock: make another


def sweep() -> None:
    """Delete the folders that killed runs of this user left: those that no process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # just created, just deleted, in use, or not a folder of ours
            continue
