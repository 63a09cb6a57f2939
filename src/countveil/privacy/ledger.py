"""The ledger: one data set's spending, durable, serialised, never spent twice."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Literal

from countveil.errors import LedgerError
from countveil.privacy.costs import ZCDP, Cost, PureDP

Every = Literal["year", "quarter", "month"]

_SCHEMA = """
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    release TEXT NOT NULL UNIQUE,
    currency TEXT NOT NULL,
    amount TEXT NOT NULL,
    charged_on TEXT NOT NULL,
    description TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Period:
    """A release calendar: no more than `limit` in any calendar year, quarter or month."""

    every: Every
    limit: Cost

    def of(self, day: date) -> str:
        """Name the period a day falls in."""
        if self.every == "year":
            return f"{day.year}"
        if self.every == "quarter":
            return f"{day.year}-Q{(day.month + 2) // 3}"
        return f"{day.year}-{day.month:02d}"


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the ledger."""

    release: str
    cost: Cost
    charged_on: date
    description: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The spending of one data set, under one unit of protection and one neighbour relation.

    The first charge creates the file with this identity; later users must agree with it.
    """

    path: Path
    dataset: str
    unit: str
    neighbors: str
    total: Cost
    period: Period | None = None

    @staticmethod
    def limits_of(path: Path) -> tuple[Cost | None, Period | None]:
        """Return the limits a ledger was created with, none where there is no ledger yet."""
        if not path.is_file():
            return None, None
        # Opened for writing, so that SQLite can roll back what a crash left half done.
        with _connected(path, f"{path.absolute().as_uri()}?mode=rw") as connection:
            if not _has_tables(connection):
                return None, None
            stored = dict(connection.execute("SELECT name, value FROM identity"))
        period = None
        if stored["period"] != "none":
            every, currency, amount = stored["period"].split()
            period = Period(every, _from_currency(currency, amount))
        return _from_currency(*stored["total"].split()), period

    def charge(self, release: str, cost: Cost, *, on: date | None = None, note: str = "") -> bool:
        """Commit a charge durably; return False if this release was charged before."""
        day = on or datetime.now(UTC).date()
        if not self.path.exists():
            self._refuse_overspending([], cost, day)  # before a file is made for nothing
        with self._transaction() as connection:
            if not _has_tables(connection):
                # One by one: executescript would commit, and leave an uncharged ledger behind.
                for statement in _SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.executemany(
                    "INSERT INTO identity VALUES (?, ?)", self._identity().items()
                )
            charges = self._read(connection)
            for charge in charges:
                if charge.release == release:
                    if charge.cost != cost:
                        raise LedgerError(
                            f"{self.path}: release {release} was charged {charge.cost} and now asks "
                            f"for {cost}; a changed plan needs a folder of its own"
                        )
                    return False
            self._refuse_overspending(charges, cost, day)
            currency, amount = _in_currency(cost)
            connection.execute(
                "INSERT INTO charges (release, currency, amount, charged_on, description)"
                " VALUES (?, ?, ?, ?, ?)",
                (release, currency, str(amount), day.isoformat(), note),
            )
        return True

    def check(self, cost: Cost, *, on: date | None = None) -> None:
        """Raise what `charge` would raise for a new release; write nothing."""
        self._refuse_overspending(self.charges(), cost, on or datetime.now(UTC).date())

    def charges(self) -> list[Charge]:
        """Return all lines, oldest first."""
        if not self.path.exists():
            return []
        with _connected(self.path, f"{self.path.absolute().as_uri()}?mode=rw") as connection:
            return self._read(connection) if _has_tables(connection) else []

    def spent(self, *, on: date | None = None) -> Cost:
        """Add up the charges: all of them, or those of the period `on` falls in."""
        return self._sum(self.charges(), on)

    def left(self, *, on: date | None = None) -> Cost:
        """Return what may still be spent: of the total, or of the period `on` falls in."""
        return self._left(self.charges(), on)

    def _identity(self) -> dict[str, str]:
        currency, amount = _in_currency(self.total)
        identity = {
            "dataset": self.dataset,
            "unit": self.unit,
            "neighbors": self.neighbors,
            "total": f"{currency} {amount}",
            "period": "none",
        }
        if self.period:
            currency, amount = _in_currency(self.period.limit)
            identity["period"] = f"{self.period.every} {currency} {amount}"
        return identity

    def _read(self, connection: sqlite3.Connection) -> list[Charge]:
        stored = dict(connection.execute("SELECT name, value FROM identity"))
        for name, value in self._identity().items():
            if stored.get(name) != value:
                raise LedgerError(
                    f"{self.path}: this ledger is kept for {name} {stored.get(name)!r}, the plan says "
                    f"{value!r}; one ledger serves one data set, unit and neighbour relation with "
                    f"limits set once: name another ledger, or make the plan agree"
                )
        rows = connection.execute(
            "SELECT release, currency, amount, charged_on, description FROM charges ORDER BY number"
        )
        return [
            Charge(release, _from_currency(currency, amount), date.fromisoformat(day), note)
            for release, currency, amount, day, note in rows
        ]

    def _sum(self, charges: list[Charge], on: date | None) -> Cost:
        counted = [
            charge.cost
            for charge in charges
            if on is None
            or (self.period and self.period.of(charge.charged_on) == self.period.of(on))
        ]
        if isinstance(self._limit(on), PureDP):
            return PureDP(sum((c.epsilon for c in counted if isinstance(c, PureDP)), Fraction(0)))
        return ZCDP(sum((cost.rho for cost in counted), Fraction(0)))

    def _limit(self, on: date | None) -> Cost:
        if on is None:
            return self.total
        if self.period is None:
            raise LedgerError(f"{self.path}: this ledger has no period; ask for the total")
        return self.period.limit

    def _left(self, charges: list[Charge], on: date | None) -> Cost:
        limit, spent = self._limit(on), self._sum(charges, on)
        if isinstance(limit, PureDP) and isinstance(spent, PureDP):
            return PureDP(limit.epsilon - spent.epsilon)
        return ZCDP(limit.rho - spent.rho)

    def _refuse_overspending(self, charges: list[Charge], cost: Cost, day: date) -> None:
        limits: list[tuple[str, date | None]] = [("the total", None)]
        if self.period:
            limits.append((f"the limit of {self.period.of(day)}", day))
        for name, on in limits:
            limit = self._limit(on)
            if isinstance(limit, PureDP) and not isinstance(cost, PureDP):
                raise LedgerError(
                    f"{self.path}: {name} is kept in pure {limit}, and {cost} has no pure epsilon; "
                    f"keep the ledger in rho, or use discrete Laplace noise"
                )
            left = self._left(charges, on)
            needed, allowed = (
                (cost.epsilon, left.epsilon)
                if isinstance(cost, PureDP) and isinstance(left, PureDP)
                else (cost.rho, left.rho)
            )
            if needed > allowed:
                raise LedgerError(
                    f"{self.path}: the plan costs {cost}, and of {name} ({limit}) only {left} is left; "
                    f"lower the plan's budget"
                )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the ledger's write lock; what is committed survives a power cut."""
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise LedgerError(
                f"{self.path}: cannot be written ({error.strerror}); name a ledger in a folder "
                f"you may write to"
            ) from error
        os.close(descriptor)
        with _connected(self.path, self.path.absolute().as_uri()) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


@contextmanager
def _connected(path: Path, uri: str) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None)
        yield connection
    except sqlite3.Error as error:
        raise LedgerError(
            f"{path}: not usable as a ledger ({error}); restore it from a backup"
        ) from error
    finally:
        if connection is not None:
            connection.close()


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'charges'").fetchone())


def _in_currency(cost: Cost) -> tuple[str, Fraction]:
    return ("pure", cost.epsilon) if isinstance(cost, PureDP) else ("zcdp", cost.rho)


def _from_currency(currency: str, amount: str) -> Cost:
    exact = Fraction(amount)  # of any length: sums of fractions grow
    return PureDP(exact) if currency == "pure" else ZCDP(exact)
