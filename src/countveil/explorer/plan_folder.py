"""The plan files of one folder, by file name; nothing outside it is read or written."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from countveil.base import storage
from countveil.errors import FolderError, InputError

LARGEST = 1_000_000  # bytes of a plan
_NAME = re.compile(r"\w[\w. -]{0,100}\.toml")
_MOST = 200
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_TEMPORARY = ".countveil-temporary-"


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The folder that a session reads plans from and saves them to."""

    path: Path
    _saving: Lock = field(default_factory=Lock, repr=False, compare=False)

    def names(self) -> list[str]:
        """Return the names of the plan files: TOML files with a [release]."""
        names = []
        for path in sorted(self.path.glob("*.toml"))[:_MOST]:
            if _NAME.fullmatch(path.name) and self._is_own(path) and _looks_like_a_plan(path):
                names.append(path.name)
        return names

    def read(self, name: str) -> str:
        """Return the text of a plan."""
        path = self.path / plain(name)
        if not self._is_own(path):
            raise InputError(f"{name}: no such plan in this folder; choose one from the list")
        try:
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: not UTF-8 text; choose a TOML file") from error

    def write(self, name: str, text: str, *, replace: bool) -> Path:
        """Save a plan, all or nothing; replace a file of that name only if `replace`."""
        path = self.path / plain(name)
        if path.is_dir():
            raise FolderError(f"{name} is a folder; choose another name")
        with self._saving:  # both would use the same temporary file
            if replace:
                storage.write_bytes(path, text.encode())
            else:
                self._add(path, text.encode())
        return path

    def _add(self, path: Path, data: bytes) -> None:
        """Write a temporary file, then link it: the name never holds half a file, nor replaces one."""
        temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")
        try:
            temporary.write_bytes(data)
            storage.sync(temporary)
            _link(temporary, path)
            storage.sync(self.path)
        except FileExistsError:
            raise FolderError(
                f"{path.name} already exists; choose another name, or allow it to be replaced"
            ) from None
        finally:
            temporary.unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        """Whether a path is a file in this folder, not a link that leads out of it."""
        try:
            return (
                path.is_file()
                and path.resolve().parent == self.path.resolve()
                and path.stat().st_size <= LARGEST
            )
        except OSError:
            return False  # deleted meanwhile, or unreadable


def _link(temporary: Path, path: Path) -> None:
    """Give a file its final name; refuse a name that is taken."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError from error
        temporary.rename(path)  # a file system without links: still all or nothing


def plain(name: str) -> str:
    """Return a file name without a folder; refuse any other."""
    if not _NAME.fullmatch(name) or Path(name).name != name:
        raise InputError(
            f"{name[:60]!r} is not a valid file name; use letters, digits, spaces, dots and "
            f"hyphens, no folder, and the ending .toml"
        )
    return name


def _looks_like_a_plan(path: Path) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False  # unreadable files are not offered
    return re.search(rb"^\s*\[release\]", text, re.MULTILINE) is not None
