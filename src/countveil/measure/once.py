"""Carry a release through exactly once: charge, draw, seal, publish; resume or restart it safely."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from countveil.base import storage
from countveil.base.randomness import BitSource
from countveil.errors import (
    INTERRUPTIONS,
    FolderError,
    InputError,
    Interrupted,
    LedgerError,
    Overtaken,
    Unsettled,
)
from countveil.measure import manifest
from countveil.measure.run import (
    LOCK,
    Identity,
    Run,
    RunLog,
    internal_of,
    open_run,
    release_of,
    restarted_run,
)
from countveil.plan.plans import AnyPlan
from countveil.privacy.costs import BesidePublic, Cost
from countveil.privacy.ledger import Claim, Ledger
from countveil.privacy.ledger_file import recover

_UNREADABLE = "unreadable"  # in place of the identifier of a run that cannot be read


@dataclass(frozen=True, slots=True)
class Restart:
    """A request to start an unfinished release over, and whether to accept a second charge.

    If the restarted run itself is interrupted, the same command resumes it and does not pay again.

    Parameters
    ----------
    charge_again
        Accept a second charge in full if the unfinished release was already charged.

    """

    charge_again: bool = False


def set_aside(
    folder: Path, charge: tuple[Ledger, Cost | BesidePublic] | None, *, charge_again: bool
) -> Path | None:
    """Move an unfinished run out of the way; return its new folder, or None if there was no run.

    What was drawn stays unread in a private folder, and the ledger keeps its charge. With
    `charge_again`, the next run is a new release, drawn again and charged in full.
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
                f"{folder}: is a finished release, which cannot be restarted; run `countveil "
                f"postprocess` to make its tables again, or name another folder for a new release "
                f"(charged in full)"
            )
        if charge is not None:
            if _charged(internal, release, charge[0]) and not charge_again:
                raise FolderError(
                    f"{folder}: its noise was already charged, and drawing again is a second "
                    f"release; leave out --restart to resume without another charge, or add "
                    f"--charge-again to pay in full again"
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
    """Return whether a run was charged, according to the ledger, the log, or what was drawn."""
    return (
        any(line.release == release for line in ledger.charges())
        or any(event["event"].startswith("charged") for event in RunLog(internal).read())
        or any((internal / "parts").rglob("*.parquet"))
        or release == _UNREADABLE
    )


# Measure once: charge durably, then draw, then seal, then publish; a crash repeats nothing.
#
# Each attempt takes a number from the ledger. Its token is on disk before the ledger sees it, and the
# number before anything is drawn, so a crash in between locks no run out. Of two copies of a run, the
# first to take the next number continues, and the other is refused. What was drawn is sealed in the
# ledger before any of it is published, so even if two copies draw, only one draw is published.

Digest = Callable[[Run], str | None]


def ledger_for(plan: AnyPlan, ledger: str | Path | Ledger | None) -> Ledger | None:
    """Return the ledger that a release is charged to, after undoing an interrupted transaction."""
    if isinstance(ledger, str | Path):
        recover(Path(ledger))
        return plan.ledger(ledger)
    return ledger


def refuse_without_ledger(ledger: str | Path | Ledger | None, rng: BitSource) -> None:
    """Refuse to release without a ledger; a simulation needs none."""
    if ledger is None and not rng.reproducible:
        raise InputError(
            "ledger: missing; a release is charged to one: name a file, such as ledger.sqlite"
        )


def release_once(
    folder: Path,
    identity: Identity,
    records_hash: Callable[[bytes], str],
    charge: tuple[Ledger, Cost | BesidePublic] | None,
    *,
    title: str,
    draw: Callable[[Run], None],
    digest: Digest,
    publish: Callable[[Run], None],
    restart: Restart | None = None,
) -> None:
    """Carry a release through, or resume one that stopped; do nothing if it is finished.

    `draw` stores its draws as parts of the run and skips parts that exist; `digest` returns the seal
    of all parts, None while one is missing; `publish` writes the manifest last. `restart` sets an
    unfinished run aside just before the charge, when everything else has been checked.
    """
    if charge is not None:
        charge[0].recover()
    if restart is not None and not (
        restart.charge_again and _goes_on(folder, identity, records_hash, charge, digest)
    ):
        set_aside(folder, charge, charge_again=restart.charge_again)
    with open_run(folder, identity, records_hash, restarted=restart is not None) as run:
        if run.finished:
            run.close()
            return
        claim = None
        try:
            if charge is not None:
                claim = _begin(*charge, run, title, digest)
            draw(run)
            run.log("drawn")
            if charge is not None and claim is not None:
                _seal(charge[0], run, claim, digest)
            publish(run)
            run.close()
            run.log("finished")
        except (*INTERRUPTIONS, FolderError, LedgerError) as error:
            RunLog(run.internal).write_stop(error)
            if isinstance(error, Unsettled):
                raise Interrupted(str(error)) from error
            if claim is None and (isinstance(error, LedgerError) or not _is_charged(charge, run)):
                raise
            what = str(error) or type(error).__name__
            after = "nothing is lost: run the same command again to resume without another charge"
            if isinstance(error, FolderError | Overtaken):
                after = "the charge stands"
            raise Interrupted(f"{folder}: stopped after the charge ({what}); {after}") from error


def _begin(book: Ledger, cost: Cost | BesidePublic, run: Run, title: str, digest: Digest) -> Claim:
    """Charge a run unless it was charged before, and take its next attempt."""
    if run.new:
        _refuse_inside(book, run)
    claim = run.claim(_sealed(book, run, digest))
    run.expect(claim)
    try:
        attempt = book.take_attempt(run.release, cost, claim, note=title)
    except LedgerError as error:
        if run.new and not isinstance(error, Unsettled):  # if unsettled, it may have been charged
            run.discard()
        raise
    run.hold(attempt.number, claim)
    event = "charged" if attempt.charged else "charged before"
    run.log(event, cost=str(cost), number=attempt.number)
    return claim


def _refuse_inside(book: Ledger, run: Run) -> None:
    """Refuse a ledger in the folders of the run: a restart would set its charges aside."""
    where = storage.real(book.path)
    if any(where.is_relative_to(storage.real(inside)) for inside in (run.folder, run.internal)):
        run.discard()
        raise LedgerError(
            f"{book.path}: is in the folder of the release, which a restart would set aside and a copy "
            f"would include; name a ledger elsewhere"
        )


def _seal(book: Ledger, run: Run, claim: Claim, digest: Digest) -> None:
    """Commit the seal of the draws to the ledger, or refuse to publish them."""
    measurements = digest(run)
    if measurements is None:
        raise FolderError(
            f"{run.internal}: a part that was drawn is missing; restore it from a backup"
        )
    book.seal(run.release, claim.token, measurements)
    run.log("sealed")


def _sealed(book: Ledger, run: Run, digest: Digest) -> str | None:
    """Return the digest of a run if its release is sealed; otherwise it is not needed."""
    lines = [line for line in book.charges() if line.release == run.release]
    return digest(run) if lines and lines[0].measurements is not None else None


def _is_charged(charge: tuple[Ledger, Cost | BesidePublic] | None, run: Run) -> bool:
    lines = [] if charge is None else charge[0].charges()
    return any(line.release == run.release for line in lines)


def _goes_on(
    folder: Path,
    identity: Identity,
    records_hash: Callable[[bytes], str],
    charge: tuple[Ledger, Cost | BesidePublic] | None,
    digest: Digest,
) -> bool:
    """Return whether a restart has already begun, so that the same command resumes it for free.

    False if the ledger refuses that run: otherwise a copy of it could never be restarted.
    """
    try:
        run = restarted_run(folder, identity, records_hash)
        if run is None or charge is None or run.finished:
            return run is not None
        claim = run.claim(_sealed(charge[0], run, digest))
    except FolderError:  # no longer readable
        return False
    return not charge[0].refuses_attempt(run.release, claim)
