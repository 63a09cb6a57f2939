"""A folder only its owner can read, for what must spill to disk; dead runs' leftovers are swept."""

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
    """Yield a folder of mode 0700 that is gone afterwards."""
    sweep()
    folder, lock = _locked_folder()
    with lock:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder() -> tuple[Path, TextIO]:
    """Make a folder and hold its lock, which the system drops when the process ends, however."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = (folder / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():
            return folder, lock
        lock.close()  # another process swept it before it was locked: make another


def sweep() -> None:
    """Delete what killed runs of this user left behind: folders whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # just made, just gone, in use, or something else by that name
            continue
