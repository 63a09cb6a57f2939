"""Begin a release anew: freely before the charge, charged again after it, never once it is finished."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from countveil.base import storage
from countveil.errors import (
    INTERRUPTIONS,
    FolderError,
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
    opened,
    release_of,
    restarted_run,
)
from countveil.plan.plans import AnyPlan
from countveil.privacy.costs import BesidePublic, Cost
from countveil.privacy.ledger import Claim, Ledger
from countveil.privacy.ledger_file import recover

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


# Measure once: charge durably, then draw, then seal, then publish; a crash repeats nothing.
#
# Each attempt takes a number from the ledger. Its token is on disk before the ledger sees it,
# and the number before anything is drawn, so a crash in between locks no run out. Of two copies
# of a run, the one that takes the next number first goes on, and the other is refused. What was
# drawn is sealed in the ledger before any of it is published, so even where two copies drew,
# one draw is published.

Digest = Callable[[Run], str | None]


def ledger_for(plan: AnyPlan, ledger: str | Path | Ledger | None) -> Ledger | None:
    """Return the ledger that a release is charged to, rolled back to its last commit if need be."""
    if isinstance(ledger, str | Path):
        recover(Path(ledger))
        return plan.ledger(ledger)
    return ledger


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
    """Carry a release through, or take up one that stopped; do nothing where it is finished.

    `draw` keeps what it draws as parts of the run and skips those that are there; `digest` returns the
    seal of all of them, None while one is missing; `publish` writes the manifest last. `restart`
    sets an unfinished run aside, as the last step before the charge: nothing else is left to refuse.
    """
    if charge is not None:
        charge[0].recover()
    if restart is not None and not (
        restart.charge_again and _goes_on(folder, identity, records_hash, charge, digest)
    ):
        set_aside(folder, charge, charge_again=restart.charge_again)
    with opened(folder, identity, records_hash, restarted=restart is not None) as run:
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
            after = "nothing is lost: the same command resumes, without charging again"
            if isinstance(error, FolderError | Overtaken):
                after = "the charge stands"
            raise Interrupted(f"{folder}: stopped after the charge ({what}); {after}") from error


def _begin(book: Ledger, cost: Cost | BesidePublic, run: Run, title: str, digest: Digest) -> Claim:
    """Charge a run if it was not charged before, and take its next attempt."""
    if run.new:
        _refuse_inside(book, run)
    claim = run.claim(_sealed(book, run, digest))
    run.expect(claim)
    try:
        attempt = book.take_attempt(run.release, cost, claim, note=title)
    except LedgerError as error:
        if run.new and not isinstance(error, Unsettled):  # which may have been charged
            run.discard()
        raise
    run.hold(attempt.number, claim)
    event = "charged" if attempt.charged else "charged before"
    run.log(event, cost=str(cost), number=attempt.number)
    return claim


def _refuse_inside(book: Ledger, run: Run) -> None:
    """Refuse a ledger in the folders of the run: a restart would set it aside with all its charges."""
    where = storage.real(book.path)
    if any(where.is_relative_to(storage.real(inside)) for inside in (run.folder, run.internal)):
        run.discard()
        raise LedgerError(
            f"{book.path}: is in the release's own folder, which a restart sets aside and a copy takes "
            f"along; name a ledger outside it"
        )


def _seal(book: Ledger, run: Run, claim: Claim, digest: Digest) -> None:
    """Commit what was drawn to the ledger, or refuse to publish it."""
    measurements = digest(run)
    if measurements is None:
        raise FolderError(f"{run.internal}: a part that was drawn is gone")
    book.seal(run.release, claim.token, measurements)
    run.log("sealed")


def _sealed(book: Ledger, run: Run, digest: Digest) -> str | None:
    """Return the digest of a run whose release is sealed: before that, nothing is compared with it."""
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
    """Return whether a restart has begun already: the same command again pays nothing more.

    Not where the ledger refuses that run: a copy of it would otherwise have no way out.
    """
    try:
        run = restarted_run(folder, identity, records_hash)
        if run is None or charge is None or run.finished:
            return run is not None
        claim = run.claim(_sealed(charge[0], run, digest))
    except FolderError:  # not readable any more
        return False
    return not charge[0].refuses_attempt(run.release, claim)
