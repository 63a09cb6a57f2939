"""Measure once: charge durably, then draw, then publish; a crash at any moment repeats nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from pathlib import Path

from countveil.errors import Interrupted, LedgerError, Stopped
from countveil.measure.run import Identity, Run, opened
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
) -> None:
    """Carry a release through, or take up one that stopped; do nothing where it is finished.

    `draw` keeps what it draws as parts of the run and skips those that are there; `publish` writes the
    manifest last.
    """
    with opened(folder, identity, records_hash) as run:
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
        except (
            OSError,
            MemoryError,
            OverflowError,
            BrokenExecutor,
            KeyboardInterrupt,
            Stopped,
        ) as error:
            RunLog(run.internal).write_stop(error)
            lines = [] if charge is None else charge[0].charges()
            if all(line.release != run.release for line in lines):
                raise
            what = str(error) or type(error).__name__
            raise Interrupted(
                f"{folder}: stopped after the charge ({what}); nothing is lost: the same command "
                f"resumes, without charging again"
            ) from error


def _charge(book: Ledger, cost: Cost | BesidePublic, run: Run, title: str) -> None:
    try:
        charged = book.charge(run.release, cost, note=title)
    except LedgerError:
        if run.new:
            run.discard()
        raise
    run.log("charged" if charged else "charged before", cost=str(cost))
