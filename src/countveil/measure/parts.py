"""Finished draws: each part is stored once, completely, by the first process to draw it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from countveil.base import storage
from countveil.errors import FolderError

_SEAL = 32  # bytes of SHA-256 behind the data


@dataclass(frozen=True, slots=True)
class Parts:
    """The folder of a run's parts; processes on several machines may write to it at once.

    Two processes that draw the same part draw different noise. The first to link its file to the name
    of the part wins for good; the other deletes its own draw unread. When the run ends, the folder is
    deleted, so a late process cannot write.
    """

    folder: Path

    def has(self, level: str, number: int) -> bool:
        """Return whether a part was drawn."""
        return self._path(level, number).exists()

    def read(self, level: str, number: int) -> bytes | None:
        """Return a part, None if it was not drawn yet; refuse one that has changed."""
        path = self._path(level, number)
        try:
            sealed = storage.read_file(path)
        except FileNotFoundError:
            return None
        data = sealed[:-_SEAL]
        if sha256(data).digest() != sealed[-_SEAL:]:
            raise FolderError(
                f"{path}: changed since it was drawn; restore it from a backup, or start over with "
                f"--restart --charge-again (charged in full)"
            )
        return data

    def keep(self, level: str, number: int, data: bytes) -> bool:
        """Store a part unless it already exists; return whether this call stored it.

        Once stored, a part is never drawn again.
        """
        return storage.write_new(self._path(level, number), data + sha256(data).digest())

    def settle(self) -> None:
        """Sync parts that other processes stored, before they are used."""
        storage.sync(self.folder)

    def clear(self) -> None:
        """Delete the folder: its parts are now in the release."""
        gone = self.folder.with_name(f"{self.folder.name}-done")
        storage.remove(gone)  # left by a crash
        with suppress(FileNotFoundError):  # already cleared
            self.folder.rename(gone)  # from now on, no process can write to it
        storage.remove(gone)

    def _path(self, level: str, number: int) -> Path:
        return self.folder / f"{level}.{number:06d}.parquet"
