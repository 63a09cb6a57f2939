"""The ledger: one data set's spending, durable, serialised, never spent twice."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast, get_args

from countveil.errors import LedgerError
from countveil.privacy.beside_public import BesidePublic
from countveil.privacy.costs import ZCDP, Cost, PureDP

Every = Literal["year", "quarter", "month"]

_NONE = "none"
_LIMITS = ("total", "period", "beside_public")
_BESIDE_PUBLIC = "beside-public:"
_CURRENCIES = ("pure", "zcdp")
_AMOUNT = re.compile(r"[0-9]{1,4300}(/[0-9]{1,4300})?")
_PATIENCE = 60.0  # seconds to wait for another process
# What SQLite says of a database that another process holds, or recovers after a crash.
_BUSY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_BUSY_RECOVERY,
    sqlite3.SQLITE_BUSY_SNAPSHOT,
    sqlite3.SQLITE_LOCKED,
)

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
    cost: Cost | BesidePublic
    charged_on: date
    description: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The spending of one data set, under one unit of protection and one neighbour relation.

    The first charge creates the file with this identity; later users must agree with it. Costs beside
    public information are recorded in their own currency: the total does not count them,
    `beside_public` limits their sum, and all of them hold along one coupling, for without it no sum
    means anything.
    """

    path: Path
    dataset: str
    unit: str
    neighbors: str
    total: Cost | None
    period: Period | None = None
    beside_public: Fraction | None = None

    @staticmethod
    def limits_of(path: Path) -> tuple[Cost | None, Period | None]:
        """Return the limits a ledger was created with, none where there is no ledger yet."""
        if not path.is_file():
            return None, None
        # Opened for writing, so that SQLite can roll back what a crash left half done.
        with _connected(path, f"{path.absolute().as_uri()}?mode=rw") as connection:
            if not _has_tables(connection):
                return None, None
            stored = _stored_identity(path, connection)
        return _limit_in(path, stored, "total"), _period_in(path, stored)

    @staticmethod
    def beside_public_of(path: Path) -> Fraction | None:
        """Return the limit beside public information that a ledger was given, none if none was."""
        if not path.is_file():
            return None
        with _connected(path, f"{path.absolute().as_uri()}?mode=rw") as connection:
            if not _has_tables(connection):
                return None
            stored = _stored_identity(path, connection)
        found = stored.get("beside_public", _NONE)
        return None if found == _NONE else _amount(path, "beside_public", found)

    def charge(
        self, release: str, cost: Cost | BesidePublic, *, on: date | None = None, note: str = ""
    ) -> bool:
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
            self._set_limits(connection)
            currency, amount = _in_currency(cost)
            connection.execute(
                "INSERT INTO charges (release, currency, amount, charged_on, description)"
                " VALUES (?, ?, ?, ?, ?)",
                (release, currency, str(amount), day.isoformat(), note),
            )
        return True

    def check(self, cost: Cost | BesidePublic, *, on: date | None = None) -> None:
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

    def left_beside_public(self) -> Fraction:
        """Return what may still be spent beside public information."""
        return self._left_beside_public(self.charges())

    def _left_beside_public(self, charges: list[Charge]) -> Fraction:
        if self.beside_public is None:
            raise LedgerError(
                f"{self.path}: has no limit beside public information; a plan of method congenial sets "
                f"one"
            )
        spent = (charge.cost.epsilon for charge in charges if isinstance(charge.cost, BesidePublic))
        return self.beside_public - sum(spent, Fraction(0))

    def _set_limits(self, connection: sqlite3.Connection) -> None:
        """Write limits that the ledger did not have: it was begun in the other currency."""
        connection.executemany(
            "INSERT INTO identity VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [
                (name, value)
                for name, value in self._identity().items()
                if name in _LIMITS and value != _NONE
            ],
        )

    def _identity(self) -> dict[str, str]:
        identity = {
            "dataset": self.dataset,
            "unit": self.unit,
            "neighbors": self.neighbors,
            "total": _NONE,
            "period": _NONE,
            "beside_public": _NONE if self.beside_public is None else str(self.beside_public),
        }
        if self.total is not None:
            currency, amount = _in_currency(self.total)
            identity["total"] = f"{currency} {amount}"
        if self.period:
            currency, amount = _in_currency(self.period.limit)
            identity["period"] = f"{self.period.every} {currency} {amount}"
        return identity

    def _read(self, connection: sqlite3.Connection) -> list[Charge]:
        stored = _stored_identity(self.path, connection)
        ours = self._identity()
        for name, value in ours.items():
            # Limits in a currency that one of us does not use are not compared.
            kept_in = "total" if name == "period" else name
            if name in _LIMITS and _NONE in (ours[kept_in], stored.get(kept_in, _NONE)):
                continue
            if stored.get(name) != value:
                raise LedgerError(
                    f"{self.path}: this ledger is kept for {name} {stored.get(name)!r}, the plan says "
                    f"{value!r}; one ledger serves one data set, unit and neighbour relation with "
                    f"limits set once: name another ledger, or make the plan agree"
                )
        rows = connection.execute(
            "SELECT release, currency, amount, charged_on, description FROM charges ORDER BY number"
        )
        return [_charge_from(self.path, row) for row in rows]

    def _sum(self, charges: list[Charge], on: date | None) -> Cost:
        counted = [
            charge.cost
            for charge in charges
            if not isinstance(charge.cost, BesidePublic)
            and (
                on is None
                or (self.period and self.period.of(charge.charged_on) == self.period.of(on))
            )
        ]
        if isinstance(self._limit(on), PureDP):
            return PureDP(sum((c.epsilon for c in counted if isinstance(c, PureDP)), Fraction(0)))
        return ZCDP(sum((cost.rho for cost in counted), Fraction(0)))

    def _limit(self, on: date | None) -> Cost:
        if on is None:
            if self.total is None:
                raise LedgerError(
                    f"{self.path}: holds no budget of differential privacy; ask what is left beside "
                    f"public information"
                )
            return self.total
        if self.period is None:
            raise LedgerError(f"{self.path}: this ledger has no period; ask for the total")
        return self.period.limit

    def _left(self, charges: list[Charge], on: date | None) -> Cost:
        limit, spent = self._limit(on), self._sum(charges, on)
        if isinstance(limit, PureDP) and isinstance(spent, PureDP):
            return PureDP(limit.epsilon - spent.epsilon)
        return ZCDP(limit.rho - spent.rho)

    def _refuse_overspending(
        self, charges: list[Charge], cost: Cost | BesidePublic, day: date
    ) -> None:
        if isinstance(cost, BesidePublic):
            for charge in charges:
                if isinstance(charge.cost, BesidePublic) and charge.cost.coupling != cost.coupling:
                    raise LedgerError(
                        f"{self.path}: holds a release along another coupling (other public totals, or "
                        f"another number of people who depend on each other), and no sum of both means "
                        f"anything; keep to those of the first, or, if these are other data, name "
                        f"another dataset and ledger"
                    )
            room = self._left_beside_public(charges)
            if cost.epsilon > room:
                raise LedgerError(
                    f"{self.path}: the plan costs {cost}, and of {self.beside_public} only {room} is "
                    f"left; lower the plan's budget"
                )
            return
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
                advice = "lower the plan's budget" if allowed else "nothing more can be released"
                if on is not None and self.period is not None:
                    advice += f", or wait for the next {self.period.every}"
                raise LedgerError(
                    f"{self.path}: the plan costs {cost}, and of {name} ({limit}) only {left} is left; "
                    f"{advice}"
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
        try:
            _close_to_others(self.path, descriptor)
        finally:
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


def _close_to_others(path: Path, descriptor: int) -> None:
    """Make a ledger private, whatever left it open; one of another user must not be open to all.

    Another user's may be open to his group: that is his to decide, and he alone can change it.
    """
    facts = os.fstat(descriptor)
    if facts.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    elif facts.st_mode & stat.S_IRWXO:
        raise LedgerError(
            f"{path}: belongs to another user and is open to everyone; its owner closes it with "
            f"`chmod o= {path}`"
        )


@contextmanager
def _connected(path: Path, uri: str) -> Iterator[sqlite3.Connection]:
    connection = None
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
        yield connection
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in _BUSY:
            raise LedgerError(
                f"{path}: another process holds it, and did for {_PATIENCE:g} s; nothing was written: "
                f"wait until it ends, and run the same command again"
            ) from error
        raise LedgerError(
            f"{path}: not usable as a ledger ({error}); restore it from a backup"
        ) from error
    finally:
        if connection is not None:
            connection.close()


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'charges'").fetchone())


def _in_currency(cost: Cost | BesidePublic) -> tuple[str, Fraction]:
    if isinstance(cost, BesidePublic):
        return f"{_BESIDE_PUBLIC}{cost.coupling}", cost.epsilon
    return ("pure", cost.epsilon) if isinstance(cost, PureDP) else ("zcdp", cost.rho)


def _stored_identity(path: Path, connection: sqlite3.Connection) -> dict[str, str]:
    """Read what a ledger is kept for; refuse anything but text."""
    rows = connection.execute("SELECT name, value FROM identity").fetchall()
    stored = dict(rows)
    if not all(isinstance(part, str) for row in rows for part in row) or not (
        {"dataset", "unit", "neighbors", "total", "period"} <= set(stored)
    ):
        raise _garbled(path, "identity")
    return stored


def _limit_in(path: Path, stored: dict[str, str], name: str) -> Cost | None:
    """Return a limit, written as currency and amount."""
    if stored[name] == _NONE:
        return None
    words = stored[name].split()
    if len(words) != 2:
        raise _garbled(path, name)
    return _limit_from(path, name, words[0], words[1])


def _period_in(path: Path, stored: dict[str, str]) -> Period | None:
    """Return the limit of a calendar, written as period, currency and amount."""
    if stored["period"] == _NONE:
        return None
    words = stored["period"].split()
    if len(words) != 3 or words[0] not in get_args(Every):
        raise _garbled(path, "period")
    return Period(cast(Every, words[0]), _limit_from(path, "period", words[1], words[2]))


def _charge_from(path: Path, row: tuple[object, ...]) -> Charge:
    """Build a line of the ledger; refuse one that no release wrote."""
    release, currency, amount, day, note = row
    where = f"the charge of release {str(release)[:60]!r}"
    if not all(isinstance(part, str) for part in row):
        raise _garbled(path, where)
    try:
        charged_on = date.fromisoformat(str(day))
    except ValueError:
        raise _garbled(path, where) from None
    cost: Cost | BesidePublic
    if str(currency).startswith(_BESIDE_PUBLIC):
        coupling = str(currency).removeprefix(_BESIDE_PUBLIC)
        cost = BesidePublic(_amount(path, where, str(amount)), coupling)
    else:
        cost = _limit_from(path, where, str(currency), str(amount))
    return Charge(str(release), cost, charged_on, str(note))


def _limit_from(path: Path, where: str, currency: str, amount: str) -> Cost:
    if currency not in _CURRENCIES:
        raise _garbled(path, where)
    exact = _amount(path, where, amount)
    return PureDP(exact) if currency == "pure" else ZCDP(exact)


def _amount(path: Path, where: str, text: str) -> Fraction:
    """Return an amount as it was written: digits, or digits / digits, however long sums have grown."""
    numbers = [int(part) for part in text.split("/")] if _AMOUNT.fullmatch(text) else [0, 0]
    if 0 in numbers[1:]:
        raise _garbled(path, where)
    return Fraction(*numbers)


def _garbled(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path}: {what} is not as countveil writes it; restore the ledger from a backup"
    )
