"""A folder only its owner can read, for what must spill to disk; leftovers of dead runs are swept."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "countveil-private-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a folder of mode 0700 that is gone afterwards."""
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Delete what killed runs of this user left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).split("-")[0]
        try:
            owner = folder.lstat().st_uid
        except FileNotFoundError:  # its own process was quicker
            continue
        if not process.isdigit() or folder.is_symlink() or owner != os.getuid():
            continue
        if not _alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
