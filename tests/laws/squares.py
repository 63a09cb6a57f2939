"""A job for workers that loads nothing else: they start in a moment."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.errors import CertificateError


@dataclass(frozen=True)
class Squares:
    def run(self, task: int) -> int:
        if task < 0:
            raise CertificateError("negative")
        return task**2
