"""WHAT IS PUBLISHED: read a release folder, add estimates to it, verify it, package it."""

from countveil.release.estimates import is_current, write_estimates
from countveil.release.folder import Release
from countveil.release.verification import Verification

__all__ = [
    "Release",
    "Verification",
    "is_current",
    "write_estimates",
]
