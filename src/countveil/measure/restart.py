"""Begin a release anew: freely before the charge, charged again after it, never once it is finished."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from countveil import storage
from countveil.errors import FolderError
from countveil.measure import manifest
from countveil.measure.run import LOCK, internal_of, release_of
from countveil.measure.run_log import RunLog
from countveil.privacy.beside_public import BesidePublic
from countveil.privacy.costs import Cost
from countveil.privacy.ledger import Ledger

_UNREADABLE = "unreadable"  # stands for the name of a run that cannot be read any more


@dataclass(frozen=True, slots=True)
class Restart:
    """The wish to begin a release anew, and whether a second charge is accepted for it.

    A run that was begun so, of the same plan and records, goes on: the same command, given again after
    a crash, does not pay again.
    """

    charge_again: bool = False


def set_aside(
    folder: Path, charge: tuple[Ledger, Cost | BesidePublic] | None, *, charge_again: bool
) -> Path | None:
    """Move an unfinished run out of the way; return where it lies now, None where there was none.

    What was drawn is kept unread, in a private folder, and the ledger keeps its charge: with
    `charge_again` the next run is a release of its own, drawn anew and charged in full.
    """
    internal = internal_of(folder)
    try:
        release = release_of(folder)
    except FolderError:
        if not charge_again:
            raise
        release = _UNREADABLE
    if release is None:
        return None
    with storage.held(internal / LOCK):
        if (folder / manifest.NAME).exists():
            raise FolderError(
                f"{folder}: is measured and finished, and a finished release is not begun anew; "
                f"`countveil postprocess` makes its tables again, and another folder takes a release "
                f"of its own (charged in full)"
            )
        if charge is not None:
            if _charged(internal, release, charge[0]) and not charge_again:
                raise FolderError(
                    f"{folder}: its noise is charged to the ledger, and drawing it again is a second "
                    f"release; leave out --restart and it goes on without another charge, or add "
                    f"--charge-again to pay in full once more"
                )
            charge[0].check(charge[1])
        mark = f"{release[:8]}-{secrets.token_hex(4)}"
        aside = internal.with_name(f"{internal.name}-set-aside-{mark}")
        if folder.exists():
            folder.rename(internal / f"unpublished-{mark}")
        internal.rename(aside)
        storage.sync(aside.parent)
    return aside


def _charged(internal: Path, release: str, ledger: Ledger) -> bool:
    """Whether a run was charged, by this ledger's word, by the log's, or by what was drawn."""
    return (
        any(line.release == release for line in ledger.charges())
        or any(event["event"].startswith("charged") for event in RunLog(internal).read())
        or any((internal / "parts").rglob("*.parquet"))
        or release == _UNREADABLE
    )
