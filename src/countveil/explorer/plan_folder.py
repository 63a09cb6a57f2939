"""Plan files of one folder, by plain names: nothing outside it is read or written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from countveil import storage
from countveil.errors import FolderError, InputError

LARGEST = 1_000_000  # bytes of a plan that is listed or sent
_NAME = re.compile(r"\w[\w. -]{0,100}\.toml")
_MOST = 200


@dataclass(frozen=True, slots=True)
class PlanFolder:
    """The folder that a session reads plans from and saves them to."""

    path: Path

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
        if not replace:
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                raise FolderError(
                    f"{name}: is there already; choose another name, or let it be replaced"
                ) from None
        storage.write_bytes(path, text.encode())
        return path

    def _is_own(self, path: Path) -> bool:
        """Whether a path is a file of this folder itself, and no link that leads out of it."""
        return (
            path.is_file()
            and path.resolve().parent == self.path.resolve()
            and path.stat().st_size <= LARGEST
        )


def plain(name: str) -> str:
    """Return a file name that names no folder; refuse any other."""
    if not _NAME.fullmatch(name) or Path(name).name != name:
        raise InputError(
            f"{name[:60]!r} is not allowed as a file name; use letters, digits, blanks, points and "
            f"hyphens, no folder, and end in .toml"
        )
    return name


def _looks_like_a_plan(path: Path) -> bool:
    return re.search(rb"^\s*\[release\]", path.read_bytes(), re.MULTILINE) is not None
