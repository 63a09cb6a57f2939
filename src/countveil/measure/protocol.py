"""Measure once: charge durably, then draw, then seal, then publish; a crash repeats nothing.

Each attempt takes a number from the ledger. Its token is on disk before the ledger sees it, and the
number before anything is drawn, so a crash in between locks no run out. Of two copies of a run, the
one that takes the next number first goes on, and the other is refused. What was drawn is sealed in the
ledger before any of it is published, so even where two copies drew, one draw is published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from countveil import storage
from countveil.errors import (
    INTERRUPTIONS,
    FolderError,
    Interrupted,
    LedgerError,
    Overtaken,
    Unsettled,
)
from countveil.measure.restart import Restart, set_aside
from countveil.measure.run import Identity, Run, opened, restarted_run
from countveil.measure.run_log import RunLog
from countveil.privacy.beside_public import BesidePublic
from countveil.privacy.costs import Cost
from countveil.privacy.ledger import Claim, Ledger
from countveil.privacy.ledger_file import recover
from countveil.schema.plan import Plan

Digest = Callable[[Run], str | None]


def ledger_for(plan: Plan, ledger: str | Path | Ledger | None) -> Ledger | None:
    """Return the ledger that a release is charged to, rolled back to its last commit if need be."""
    if isinstance(ledger, str | Path):
        recover(Path(ledger))
        return plan.ledger(ledger)
    return ledger


def once(
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
