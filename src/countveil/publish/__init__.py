"""WHAT IS PUBLISHED: read a release folder, add estimates to it, verify it, package it."""

from countveil.publish.additions import is_current, write_estimates
from countveil.publish.release_folder import Release, TableRelease, open_release
from countveil.publish.run_status import RunStatus, status_of
from countveil.publish.verification import Verification, refuse_damaged

__all__ = [
    "Release",
    "RunStatus",
    "TableRelease",
    "Verification",
    "is_current",
    "open_release",
    "refuse_damaged",
    "status_of",
    "write_estimates",
]
