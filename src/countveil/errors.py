"""Every error countveil raises on purpose.

CountveilError
├── InputError            bad input: nothing was written, nothing was charged   (exit status 2)
│   ├── PlanError         a plan file
│   ├── GeographyError    a crosswalk
│   ├── RecordsError      a record file, a database query, a table of counts
│   ├── LedgerError       a ledger that refuses a charge
│   │   ├── Overtaken     a copied or restored run whose release was continued elsewhere
│   │   └── Unsettled     a ledger that failed while it was written: charged, or not
│   ├── FolderError       an output folder that holds something else
│   ├── InfeasibleError   public facts that no table can meet at once
│   └── MissingExtra      something that an optional package does, which is not installed
├── RiskAboveLimit        the plan's risk passes the plan's own limit            (exit status 1)
├── VerificationError     a release folder that does not check out              (exit status 2)
├── CertificateError      a solution that does not prove itself: not released   (exit status 3)
└── Interrupted           stopped after the charge; the same command resumes    (exit status 3)

Stopped, beside KeyboardInterrupt, is the request to end that SIGTERM makes.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


class CountveilError(Exception):
    """The root of the tree above."""

    exit_status = 2


class Stopped(BaseException):
    """The process was asked to end; like KeyboardInterrupt, no error of anyone's."""


# What may end a run at any moment, and is nobody's mistake: it can be taken up again.
INTERRUPTIONS = (
    OSError,
    MemoryError,
    OverflowError,
    BrokenExecutor,
    KeyboardInterrupt,
    Stopped,
)


class InputError(CountveilError):
    """Say what came, what is allowed, and what to do."""


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
    """A ledger that failed while it was written, so that a charge may or may not be in it."""


class FolderError(InputError):
    """An output folder that cannot take this release."""


class InfeasibleError(InputError):
    """Public facts that no table can meet at once."""


class MissingExtra(InputError):
    """Something that an optional package does; the message has the line that installs it."""


class RiskAboveLimit(CountveilError):
    """The plan's risk passes the limit the plan sets."""

    exit_status = 1


class VerificationError(CountveilError):
    """A release folder that does not check out."""


class CertificateError(CountveilError):
    """A solution that does not prove itself."""

    exit_status = 3


class Interrupted(CountveilError):
    """Stopped after the charge was made; running the same command again resumes."""

    exit_status = 3
