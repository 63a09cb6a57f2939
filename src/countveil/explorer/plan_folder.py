"""Plan files of one folder, by plain names: nothing outside it is read or written."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from countveil.base import storage
from countveil.errors import FolderError, InputError

LARGEST = 1_000_000  # bytes of a plan that is listed or sent
_NAME = re.compile(r"\w[\w. -]{0,100}\.toml")
_MOST = 200
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_ASIDE = ".countveil-temporary-"


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The folder that a session reads plans from and saves them to."""

    path: Path
    _saving: Lock = field(default_factory=Lock, repr=False, compare=False)

    def names(self) -> list[str]:
        """Return the plan files there: TOML that has a [release]."""
        found = []
        for path in sorted(self.path.glob("*.toml"))[:_MOST]:
            if _NAME.fullmatch(path.name) and self._is_own(path) and _looks_like_a_plan(path):
                found.append(path.name)
        return found

    def read(self, name: str) -> str:
        """Return the text of a plan there."""
        path = self.path / plain(name)
        if not self._is_own(path):
            raise InputError(f"{name}: no such plan in this folder; choose one that is listed")
        try:
            return path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}: not UTF-8 text; a plan is a TOML file") from error

    def write(self, name: str, text: str, *, replace: bool) -> Path:
        """Save a plan there, whole or not at all; another file of that name stays unless told."""
        path = self.path / plain(name)
        if path.is_dir():
            raise FolderError(f"{name}: is a folder; choose another name")
        with self._saving:  # one file aside for each name
            if replace:
                storage.write_bytes(path, text.encode())
            else:
                self._add(path, text.encode())
        return path

    def _add(self, path: Path, data: bytes) -> None:
        """Write a new file aside, then give it its name: there is never half of it, nor another's."""
        aside = path.with_name(f"{_ASIDE}{os.getpid()}-{path.name}")
        try:
            aside.write_bytes(data)
            storage.sync(aside)
            _name(aside, path)
            storage.sync(self.path)
        except FileExistsError:
            raise FolderError(
                f"{path.name}: is there already; choose another name, or let it be replaced"
            ) from None
        finally:
            aside.unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        """Whether a path is a file of this folder itself, and no link that leads out of it."""
        try:
            return (
                path.is_file()
                and path.resolve().parent == self.path.resolve()
                and path.stat().st_size <= LARGEST
            )
        except OSError:
            return False  # it has just gone, or is in no state to be read


def _name(aside: Path, path: Path) -> None:
    """Give a file its name; refuse one that is taken."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError from error
        aside.rename(path)  # on a medium without links: still whole, or not there


def plain(name: str) -> str:
    """Return a file name that names no folder; refuse any other."""
    if not _NAME.fullmatch(name) or Path(name).name != name:
        raise InputError(
            f"{name[:60]!r} is not allowed as a file name; use letters, digits, blanks, points and "
            f"hyphens, no folder, and end in .toml"
        )
    return name


def _looks_like_a_plan(path: Path) -> bool:
    try:
        text = path.read_bytes()
    except OSError:
        return False  # one that cannot be read is not offered
    return re.search(rb"^\s*\[release\]", text, re.MULTILINE) is not None
