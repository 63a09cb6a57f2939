"""Finished draws: a part is linked into place once, whole or not at all, whoever drew it first."""

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
    """The folder of one run's parts; processes on several machines may write to it at once.

    Two attempts at one part draw two different noises. The first that is linked to the part's name is
    the part for good; the other is deleted by whoever drew it, unread. The folder is gone when the run
    is: whoever is late finds nowhere to write.
    """

    folder: Path

    def has(self, level: str, number: int) -> bool:
        """Whether a part was drawn."""
        return self._path(level, number).exists()

    def read(self, level: str, number: int) -> bytes | None:
        """Return a part, None where it was not drawn yet; refuse one that changed since."""
        path = self._path(level, number)
        try:
            sealed = storage.read_file(path)
        except FileNotFoundError:
            return None
        data = sealed[:-_SEAL]
        if sha256(data).digest() != sealed[-_SEAL:]:
            raise FolderError(
                f"{path}: changed since it was drawn; restore it from a backup, or begin anew with "
                f"--restart --charge-again (charged in full)"
            )
        return data

    def keep(self, level: str, number: int, data: bytes) -> bool:
        """Keep a part for good, unless another draw of it was kept before: return whether it was ours.

        From here on these draws are the draws.
        """
        return storage.write_new(self._path(level, number), data + sha256(data).digest())

    def settle(self) -> None:
        """Make durable what other processes kept, before anything is made of it."""
        storage.sync(self.folder)

    def clear(self) -> None:
        """Delete the folder: the release holds its parts now."""
        gone = self.folder.with_name(f"{self.folder.name}-done")
        storage.remove(gone)  # what a crash left, or anything else at that name
        with suppress(FileNotFoundError):  # it was cleared before
            self.folder.rename(gone)  # nobody writes to it from here on
        storage.remove(gone)

    def _path(self, level: str, number: int) -> Path:
        return self.folder / f"{level}.{number:06d}.parquet"
