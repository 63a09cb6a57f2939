"""Every error that countveil raises on purpose.

CountveilError
├── InputError            bad input: nothing was written or charged            (exit status 2)
│   ├── PlanError         a plan file
│   ├── GeographyError    a crosswalk
│   ├── RecordsError      a record file, a database query, a table of counts
│   ├── LedgerError       a ledger that refuses a charge
│   │   ├── Overtaken     a copied or restored run whose release was continued elsewhere
│   │   └── Unsettled     a ledger whose disk failed: the charge may or may not be in it
│   ├── FolderError       an output folder that cannot take this release
│   ├── InfeasibleError   public facts that no table can satisfy together
│   └── MissingExtra      a feature whose optional package is not installed
├── RiskAboveLimit        the plan's risk exceeds the plan's own limit           (exit status 1)
├── VerificationError     a release folder that does not verify                 (exit status 2)
├── CertificateError      a solution that failed its own check: not released    (exit status 3)
└── Interrupted           stopped after the charge; run it again to resume      (exit status 3)

Messages say what came, what is allowed, and what to do.

`Stopped` is not in the tree. Like KeyboardInterrupt, it is a request to end, made by SIGTERM.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


class CountveilError(Exception):
    """The base class of all errors that countveil raises on purpose."""

    exit_status = 2


class Stopped(BaseException):
    """A request to end the process; like KeyboardInterrupt, it is not an error."""


# What may stop a run at any time, with any input; the run can be resumed.
INTERRUPTIONS = (
    OSError,
    MemoryError,
    OverflowError,
    BrokenExecutor,
    KeyboardInterrupt,
    Stopped,
)


class InputError(CountveilError):
    """Bad input: nothing was written or charged."""


class PlanError(InputError):
    """A plan file that cannot be used."""


class GeographyError(InputError):
    """A crosswalk that is not a nested hierarchy."""


class RecordsError(InputError):
    """Records that do not fit the plan."""


class LedgerError(InputError):
    """A ledger that refuses a charge."""


class Overtaken(LedgerError):
    """A copied or restored run whose release was continued elsewhere; it publishes nothing."""


class Unsettled(LedgerError):
    """A ledger whose disk failed during a write: the charge may or may not be in it."""


class FolderError(InputError):
    """An output folder that cannot take this release."""


class InfeasibleError(InputError):
    """Public facts that no table can satisfy together."""


class MissingExtra(InputError):
    """A feature whose optional package is not installed; the message shows how to install it."""


class RiskAboveLimit(CountveilError):
    """The plan's risk exceeds the limit that the plan sets."""

    exit_status = 1


class VerificationError(CountveilError):
    """A release folder that does not verify."""


class CertificateError(CountveilError):
    """A solution that failed its own check; it is not released."""

    exit_status = 3


class Interrupted(CountveilError):
    """Stopped after the charge; running the same command again resumes the release."""

    exit_status = 3
