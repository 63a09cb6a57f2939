"""Histograms as they are made: appended batch by batch, and taken up again after any stop."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil import storage
from countveil.histograms import Histograms, mapped
from countveil.numerics import IntArray
from countveil.postprocess.certificate import LevelCertificate

_IDENTITY = "identity.json"
_WIDTHS = {"lengths": 8, "cells": 4, "counts": 4}  # bytes of a number in each file of a level


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """The histograms of some units: entries per unit, then their cells and counts."""

    lengths: IntArray
    cells: NDArray[np.int32]
    counts: NDArray[np.int32]
    certificate: LevelCertificate


@dataclass(frozen=True, slots=True)
class _Step:
    """A line of the journal: units and entries up to here, and the hash of it and of its batch."""

    units: int
    entries: int
    certificate: LevelCertificate
    sha256: str = ""

    def sealed(self, parts: Iterable[bytes]) -> _Step:
        """Return the step with the hash of all it says and of the bytes that its batch has."""
        digest = hashlib.sha256(json.dumps(asdict(replace(self, sha256=""))).encode())
        for part in parts:
            digest.update(part)
        return replace(self, sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder of unfinished work. Nothing in it is read unless its journal lists it."""

    folder: Path

    def begin(self, identity: dict[str, Any]) -> None:
        """Take up earlier work if it was of the same measurements and plan; else clear it away."""
        storage.make_folder(self.folder, 0o700)
        path = self.folder / _IDENTITY
        with suppress(FileNotFoundError, ValueError):  # without it, or damaged: not the same
            if storage.read_json(path) == identity:
                return
        self.clear()
        storage.write_json(path, identity)

    def clear(self) -> None:
        """Delete all work; the identity goes first, so that what is left is never taken up."""
        for path in [self.folder / _IDENTITY, *sorted(self.folder.iterdir())]:
            storage.remove(path)

    def finished(self, level: str) -> list[LevelCertificate]:
        """Return the certificates of the level's finished batches, cutting off what is not whole.

        A batch that is not as it was written, and all after it, are made again: that costs nothing.
        """
        done, units, entries, size = [], 0, 0, 0
        for line, step in self._listed(level):
            if step.sealed(self._batch(level, units, entries, step)) != step:
                break
            units, entries, size = step.units, step.entries, size + len(line)
            done.append(step.certificate)
        for kind, width in _WIDTHS.items():
            self._cut(level, kind, width * (units if kind == "lengths" else entries))
        self._cut(level, "journal", size)
        return done

    def forget(self, level: str) -> None:
        """Delete the work of a level: what it was made from is made again."""
        for kind in ("journal", *_WIDTHS):
            self._path(level, kind).unlink(missing_ok=True)

    def append(self, level: str, batch: Batch) -> None:
        """Add a batch for good: its numbers are durable before the journal lists them."""
        sizes = {}
        parts = {kind: getattr(batch, kind).tobytes() for kind in _WIDTHS}
        for kind, data in parts.items():
            with self._path(level, kind).open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                sizes[kind] = file.tell() // _WIDTHS[kind]
        step = _Step(sizes["lengths"], sizes["cells"], batch.certificate).sealed(parts.values())
        with self._path(level, "journal").open("ab") as file:
            file.write(json.dumps(asdict(step)).encode() + b"\n")
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

    def read_finished(self, level: str, units: int, cells: int) -> Histograms:
        """Map the histograms of a finished level; raise ValueError where they are not as written."""
        done = entries = 0
        for _, step in self._listed(level):
            if step.sealed(self._batch(level, done, entries, step)) != step:
                break
            done, entries = step.units, step.entries
        sizes = {kind: self._path(level, kind).stat().st_size for kind in _WIDTHS}
        if done != units or sizes != {
            kind: width * (units if kind == "lengths" else entries)
            for kind, width in _WIDTHS.items()
        }:
            raise ValueError(f"the histograms of {level} are not as they were written")
        found = self.read(level)
        if (
            (np.diff(found.offsets) < 0).any()
            or found.offsets[-1] != len(found.cells)
            or found.cells.min(initial=0) < 0
            or found.cells.max(initial=0) >= cells
            or found.counts.min(initial=1) < 1
        ):
            raise ValueError(f"the histograms of {level} hold what cannot be")
        return found

    def _path(self, level: str, kind: str) -> Path:
        return self.folder / f"{level}.{kind}"

    def _listed(self, level: str) -> Iterator[tuple[bytes, _Step]]:
        """Yield the lines of the journal up to one that is torn."""
        path = self._path(level, "journal")
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            try:
                found = storage.parse_json(line)
                certificate = LevelCertificate(**found.pop("certificate"))
                step = _Step(**found, certificate=certificate)
            except (ValueError, TypeError, KeyError, AttributeError):
                return
            ends = (step.units, step.entries)
            if not line.endswith(b"\n") or not all(type(end) is int and end >= 0 for end in ends):
                return
            yield line, step

    def _batch(self, level: str, units: int, entries: int, step: _Step) -> Iterator[bytes]:
        """Yield what the files hold of a step that begins after so many units and entries."""
        for kind, width in _WIDTHS.items():
            begin, end = (units, step.units) if kind == "lengths" else (entries, step.entries)
            path = self._path(level, kind)
            if path.exists():
                with path.open("rb") as file:
                    file.seek(width * begin)
                    yield file.read(width * max(0, end - begin))

    def _cut(self, level: str, kind: str, size: int) -> None:
        path = self._path(level, kind)
        path.touch(mode=0o600)
        os.truncate(path, size)
