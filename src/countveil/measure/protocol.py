"""Measure once: charge durably, then draw, then publish; a crash at any moment repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from countveil.errors import INTERRUPTIONS, FolderError, Interrupted, LedgerError
from countveil.measure.restart import Restart, set_aside
from countveil.measure.run import Identity, Run, continues, opened
from countveil.measure.run_log import RunLog
from countveil.privacy.beside_public import BesidePublic
from countveil.privacy.costs import Cost
from countveil.privacy.ledger import Ledger


def once(
    folder: Path,
    identity: Identity,
    records_hash: Callable[[bytes], str],
    charge: tuple[Ledger, Cost | BesidePublic] | None,
    *,
    title: str,
    draw: Callable[[Run], None],
    publish: Callable[[Run], None],
    restart: Restart | None = None,
) -> None:
    """Carry a release through, or take up one that stopped; do nothing where it is finished.

    `draw` keeps what it draws as parts of the run and skips those that are there; `publish` writes the
    manifest last. `restart` begins anew: as the last step before the charge, when nothing else is to
    be refused.
    """
    if restart is not None and not (
        restart.charge_again and continues(folder, identity, records_hash)
    ):
        set_aside(folder, charge, charge_again=restart.charge_again)
    with opened(folder, identity, records_hash, restarted=restart is not None) as run:
        if run.finished:
            run.close()
            return
        try:
            if charge is not None:
                _charge(*charge, run, title)
            draw(run)
            run.log("drawn")
            publish(run)
            run.close()
            run.log("finished")
        except (*INTERRUPTIONS, FolderError) as error:
            RunLog(run.internal).write_stop(error)
            lines = [] if charge is None else charge[0].charges()
            if all(line.release != run.release for line in lines):
                raise
            what = str(error) or type(error).__name__
            after = "nothing is lost: the same command resumes, without charging again"
            if isinstance(error, FolderError):
                after = "the charge stands"
            raise Interrupted(f"{folder}: stopped after the charge ({what}); {after}") from error


def _charge(book: Ledger, cost: Cost | BesidePublic, run: Run, title: str) -> None:
    try:
        charged = book.charge(run.release, cost, note=title)
    except LedgerError:
        if run.new:
            run.discard()
        raise
    run.log("charged" if charged else "charged before", cost=str(cost))
