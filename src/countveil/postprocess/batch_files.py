"""Histograms on their way to disk: appended batch by batch, and resumed after an interruption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from countveil.base import storage
from countveil.base.histograms import Histograms, memory_map
from countveil.base.numerics import IntArray
from countveil.postprocess.certificate import LevelCertificate

_IDENTITY = "identity.json"
_WIDTHS = {"lengths": 8, "cells": 4, "counts": 4}  # bytes per number in each file of a level


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """The histograms of some units: the number of entries of each, then their cells and counts."""

    lengths: IntArray
    cells: NDArray[np.int32]
    counts: NDArray[np.int32]
    certificate: LevelCertificate


@dataclass(frozen=True, slots=True)
class _BatchStep:
    """A line of the journal: units and entries so far, and a hash of the line and its batch."""

    units: int
    entries: int
    certificate: LevelCertificate
    sha256: str = ""

    def sealed(self, parts: Iterable[bytes]) -> _BatchStep:
        """Return the step with the hash of its other fields and of the bytes of its batch."""
        digest = hashlib.sha256(json.dumps(asdict(replace(self, sha256=""))).encode())
        for part in parts:
            digest.update(part)
        return replace(self, sha256=digest.hexdigest())


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """A folder of finished batches. Nothing in it is read unless its journal lists it."""

    folder: Path

    def begin(self, identity: Mapping[str, object]) -> None:
        """Keep earlier batches if they are of the same measurements and plan; else delete them."""
        storage.make_folder(self.folder, 0o700)
        path = self.folder / _IDENTITY
        with suppress(FileNotFoundError, ValueError):  # missing or damaged: not the same
            if storage.read_json(path) == identity:
                return
        self.clear()
        storage.write_json(path, identity)

    def clear(self) -> None:
        """Delete everything, the identity first, so that the remains are never resumed."""
        for path in [self.folder / _IDENTITY, *sorted(self.folder.iterdir())]:
            storage.remove(path)

    def finished(self, level: str) -> list[LevelCertificate]:
        """Return the certificates of the level's finished batches, and truncate the rest.

        A batch that is damaged, and all after it, are made again: that spends no budget.
        """
        certificates, units, entries, size = [], 0, 0, 0
        for line, step in self._listed(level):
            if step.sealed(self._batch(level, units, entries, step)) != step:
                break
            units, entries, size = step.units, step.entries, size + len(line)
            certificates.append(step.certificate)
        for kind, width in _WIDTHS.items():
            self._cut(level, kind, width * (units if kind == "lengths" else entries))
        self._cut(level, "journal", size)
        return certificates

    def forget(self, level: str) -> None:
        """Delete the batches of a level, because the level above it changed."""
        for kind in ("journal", *_WIDTHS):
            self._path(level, kind).unlink(missing_ok=True)

    def append(self, level: str, batch: Batch) -> None:
        """Add a batch; its numbers are on disk before the journal lists them."""
        sizes = {}
        parts = {kind: getattr(batch, kind).tobytes() for kind in _WIDTHS}
        for kind, data in parts.items():
            with self._path(level, kind).open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                sizes[kind] = file.tell() // _WIDTHS[kind]
        step = _BatchStep(sizes["lengths"], sizes["cells"], batch.certificate).sealed(
            parts.values()
        )
        with self._path(level, "journal").open("ab") as file:
            file.write(json.dumps(asdict(step)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, level: str) -> Histograms:
        """Return the finished histograms of a level, mapped from their files."""
        lengths = np.fromfile(self._path(level, "lengths"), np.int64)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        offsets.setflags(write=False)
        with (
            self._path(level, "cells").open("rb") as cells,
            self._path(level, "counts").open("rb") as counts,
        ):
            return Histograms(offsets, memory_map(cells), memory_map(counts))

    def read_finished(self, level: str, units: int, cells: int) -> Histograms:
        """Return the histograms of a finished level; raise ValueError if a file was changed."""
        listed = entries = 0
        for _, step in self._listed(level):
            if step.sealed(self._batch(level, listed, entries, step)) != step:
                break
            listed, entries = step.units, step.entries
        sizes = {kind: self._path(level, kind).stat().st_size for kind in _WIDTHS}
        if listed != units or sizes != {
            kind: width * (units if kind == "lengths" else entries)
            for kind, width in _WIDTHS.items()
        }:
            raise ValueError(f"the histograms of {level} have changed since they were written")
        histograms = self.read(level)
        if (
            (np.diff(histograms.offsets) < 0).any()
            or histograms.offsets[-1] != len(histograms.cells)
            or histograms.cells.min(initial=0) < 0
            or histograms.cells.max(initial=0) >= cells
            or histograms.counts.min(initial=1) < 1
        ):
            raise ValueError(f"the histograms of {level} have impossible cells or counts")
        return histograms

    def _path(self, level: str, kind: str) -> Path:
        return self.folder / f"{level}.{kind}"

    def _listed(self, level: str) -> Iterator[tuple[bytes, _BatchStep]]:
        """Yield the lines of the journal up to one truncated by a crash."""
        path = self._path(level, "journal")
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            try:
                fields = storage.parse_json(line)
                certificate = LevelCertificate(**fields.pop("certificate"))
                step = _BatchStep(**fields, certificate=certificate)
            except (ValueError, TypeError, KeyError, AttributeError):
                return
            ends = (step.units, step.entries)
            if not line.endswith(b"\n") or not all(type(end) is int and end >= 0 for end in ends):
                return
            yield line, step

    def _batch(self, level: str, units: int, entries: int, step: _BatchStep) -> Iterator[bytes]:
        """Yield the bytes of a step's batch, which begins after this many units and entries."""
        for kind, width in _WIDTHS.items():
            begin, end = (units, step.units) if kind == "lengths" else (entries, step.entries)
            path = self._path(level, kind)
            if path.exists():
                size = path.stat().st_size  # a damaged journal may list more than any file has
                with path.open("rb") as file:
                    file.seek(min(width * begin, size))
                    yield file.read(min(width * max(0, end - begin), size))

    def _cut(self, level: str, kind: str, size: int) -> None:
        path = self._path(level, kind)
        path.touch(mode=0o600)
        os.truncate(path, size)
