"""Histograms as they are made: appended batch by batch, and taken up again after any stop."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil import storage
from countveil.errors import FolderError
from countveil.histograms import Histograms, mapped
from countveil.numerics import IntArray
from countveil.postprocess.certificate import LevelCertificate

_IDENTITY = "identity.json"


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """The histograms of some units: entries per unit, then their cells and counts."""

    lengths: IntArray
    cells: NDArray[np.int32]
    counts: NDArray[np.int32]
    certificate: LevelCertificate


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder of unfinished work. Nothing in it is read unless its journal lists it."""

    folder: Path

    def begin(self, identity: dict[str, Any]) -> None:
        """Take up earlier work if it was of the same measurements and plan; else clear it away."""
        storage.make_folder(self.folder, 0o700)
        path = self.folder / _IDENTITY
        if path.exists() and json.loads(path.read_bytes()) == identity:
            return
        self.clear()
        storage.write_json(path, identity)

    def clear(self) -> None:
        """Delete all work; the identity goes first, so that what is left is never taken up."""
        for path in [self.folder / _IDENTITY, *sorted(self.folder.iterdir())]:
            path.unlink(missing_ok=True)

    def finished(self, level: str) -> list[LevelCertificate]:
        """Return the certificates of the level's finished batches, cutting off what is not whole."""
        path = self._path(level, "journal")
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        done, units, entries = [], 0, 0
        for line in lines:
            entry = json.loads(line)
            units, entries = entry["units"], entry["entries"]
            done.append(LevelCertificate(**entry["certificate"]))
        for kind, size in (("lengths", 8 * units), ("cells", 4 * entries), ("counts", 4 * entries)):
            self._cut(level, kind, size)
        if path.exists():
            os.truncate(path, sum(len(line) + 1 for line in lines))
        return done

    def append(self, level: str, batch: Batch) -> None:
        """Add a batch for good: its numbers are durable before the journal lists them."""
        sizes = {}
        for kind, array in (
            ("lengths", batch.lengths),
            ("cells", batch.cells),
            ("counts", batch.counts),
        ):
            with self._path(level, kind).open("ab") as file:
                file.write(array.tobytes())
                file.flush()
                os.fsync(file.fileno())
                sizes[kind] = file.tell()
        line = {
            "units": sizes["lengths"] // 8,
            "entries": sizes["cells"] // 4,
            "certificate": asdict(batch.certificate),
        }
        with self._path(level, "journal").open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, level: str) -> Histograms:
        """Map the finished histograms of a level."""
        lengths = np.fromfile(self._path(level, "lengths"), np.int64)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        offsets.setflags(write=False)
        with (
            self._path(level, "cells").open("rb") as cells,
            self._path(level, "counts").open("rb") as counts,
        ):
            return Histograms(offsets, mapped(cells), mapped(counts))

    def _path(self, level: str, kind: str) -> Path:
        return self.folder / f"{level}.{kind}"

    def _cut(self, level: str, kind: str, size: int) -> None:
        path = self._path(level, kind)
        path.touch(mode=0o600)
        if path.stat().st_size < size:
            raise FolderError(f"{path}: is shorter than its journal says; delete {self.folder}")
        os.truncate(path, size)
