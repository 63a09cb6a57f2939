"""WHAT IS PUBLISHED: read a release folder, add estimates to it, verify it, package it."""

from countveil.release.estimates import is_current, write_estimates
from countveil.release.folder import Release
from countveil.release.standing import Standing, standing_of
from countveil.release.verification import Verification, refuse_damaged

__all__ = [
    "Release",
    "Standing",
    "Verification",
    "is_current",
    "refuse_damaged",
    "standing_of",
    "write_estimates",
]
