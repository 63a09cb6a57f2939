"""The ledger: what has been spent on one data set, durably, with charges in strict order.

It also keeps copies of a run apart. Each attempt at a release takes the next number, and only the run
with the latest number may continue; the SHA-256 of the measurements is sealed before anything is
published. So a run that was copied, or restored from a backup, cannot publish a second draw for one
charge.

A seal is the SHA-256 of the measurements, followed by that of the public facts released with them:
places and invariants. Earlier versions sealed the measurements alone; those seals stay valid.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from countveil.errors import InputError, LedgerError, Overtaken
from countveil.privacy import ledger_file
from countveil.privacy.costs import ZCDP, BesidePublic, Cost, PureDP, show

Every = Literal["year", "quarter", "month"]

_NONE = "none"
_LIMITS = ("total", "period", "beside_public")
_BESIDE_PUBLIC = "beside-public:"
_CURRENCIES = ("pure", "zcdp")
_AMOUNT = re.compile(r"[0-9]{1,4300}(/[0-9]{1,4300})?")
_SEAL = re.compile(r"([0-9a-f]{64}( [0-9a-f]{64})?)?")
_MOST_ATTEMPTS = 10**9
# How messages begin that refuse a run because a copy of it was continued.
ANOTHER_COPY = "another copy of this run"
SEALED_OTHERWISE = "is sealed with measurements other than those of this run"
_WAYS_OUT = (
    "finish the release where it was continued, or draw a new one here with --restart "
    "--charge-again (charged in full)"
)


@dataclass(frozen=True, slots=True)
class Period:
    """A release calendar: at most `limit` in any calendar year, quarter or month."""

    every: Every
    limit: Cost

    def of(self, day: date) -> str:
        """Return the name of the period that a day is in, such as "2024-Q3"."""
        if self.every == "year":
            return f"{day.year}"
        if self.every == "quarter":
            return f"{day.year}-Q{(day.month + 2) // 3}"
        return f"{day.year}-{day.month:02d}"


class LedgerLimits(NamedTuple):
    """What all charges of a ledger may sum to, in total and within a period; None is no limit."""

    total: Cost | None = None
    period: Period | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of the ledger.

    `attempt` is the number of the latest attempt at the release, 0 if it was charged by a version that
    did not count attempts. `measurements` is its seal, None until it is sealed.
    """

    release: str
    cost: Cost | BesidePublic
    charged_on: date
    description: str
    attempt: int = 0
    measurements: str | None = None
    holder: str = field(default="", repr=False)  # the token of the run that took the latest attempt


@dataclass(frozen=True, slots=True, repr=False)
class Claim:
    """What a run shows the ledger to take the next attempt.

    `attempt` is its latest number, 0 if it has none. Its token is one of `tokens`: after a crash
    between the ledger's commit and the run's note of it, either may be valid. `token` is for the
    requested attempt. `measurements` is the seal of its draws, None unless they are complete.
    """

    attempt: int
    tokens: tuple[str, ...]
    token: str
    measurements: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that the ledger granted, and whether this call charged the release."""

    number: int
    charged: bool


@dataclass(frozen=True, slots=True)
class Ledger:
    """The spending of one data set, under one unit of protection and one neighbour relation.

    The first charge creates the file with this identity, and later users must agree with it. Costs
    given public information are recorded in their own currency: `total` does not count them,
    `beside_public` limits their sum, and all of them are along one coupling, since costs along
    different couplings do not add up.

    Parameters
    ----------
    path
        The SQLite file; best outside the folders that hold releases.
    dataset, unit, neighbors
        What the ledger is kept for.
    total
        The limit for all charges, in rho or pure epsilon; None if only costs given public information
        are charged.
    period
        A limit for every calendar year, quarter or month.
    beside_public
        The limit for costs given public information.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from countveil import ZCDP, Ledger
    >>> path = Path(mkdtemp()) / "ledger.sqlite"
    >>> ledger = Ledger(path, "survey", "person", "change-one", total=ZCDP("1"))
    >>> ledger.charge("first tables", ZCDP("1/4"))
    True
    >>> print(ledger.left())
    rho = 3/4

    """

    path: Path
    dataset: str
    unit: str
    neighbors: str
    total: Cost | None
    period: Period | None = None
    beside_public: Fraction | None = None

    @staticmethod
    def limits_of(path: Path) -> LedgerLimits:
        """Return the limits that a ledger was created with; none if it does not exist."""
        stored = _identity_of(path)
        if not stored:
            return LedgerLimits()
        return LedgerLimits(_limit_in(path, stored, "total"), _period_in(path, stored))

    @staticmethod
    def beside_public_of(path: Path) -> Fraction | None:
        """Return the limit of a ledger for costs given public information, None if it has none."""
        limit = _identity_of(path).get("beside_public", _NONE)
        return None if limit == _NONE else _amount(path, "beside_public", limit)

    def charge(
        self, release: str, cost: Cost | BesidePublic, *, on: date | None = None, note: str = ""
    ) -> bool:
        """Charge a release durably, once.

        This is for releases that countveil does not draw; `measure` takes attempts.

        Parameters
        ----------
        release
            The identifier of the release.
        cost
            What it costs.
        on
            The date of the charge; by default today.
        note
            A description for the ledger.

        Returns
        -------
        bool
            False if this release was charged before.

        Raises
        ------
        LedgerError
            If the charge would exceed a limit.

        """
        with self._charged(release, cost, on, note) as (connection, line):
            if line is None:
                connection.execute("UPDATE charges SET attempt = 1 WHERE release = ?", (release,))
            return line is None

    def take_attempt(
        self,
        release: str,
        cost: Cost | BesidePublic,
        claim: Claim,
        *,
        on: date | None = None,
        note: str = "",
    ) -> Attempt:
        """Charge a release unless it was charged before, and grant its run the next attempt, durably.

        Refused if the run does not have the latest attempt, or if its measurements are not those that
        the release was sealed with.
        """
        self.recover()
        if claim.attempt and not self._line(self.charges(), release):
            raise Overtaken(self._unknown(release))
        with self._charged(release, cost, on, note) as (connection, line):
            if line is not None:
                self._refuse_overtaken(line, claim)
            number = 1 if line is None else line.attempt + 1
            connection.execute(
                "UPDATE charges SET attempt = ?, holder = ? WHERE release = ?",
                (number, claim.token, release),
            )
        return Attempt(number, charged=line is None)

    def seal(self, release: str, token: str, measurements: str) -> None:
        """Commit the seal of a release's measurements, before any of them is published.

        Refused if the run no longer has the latest attempt, or if there is another seal. A seal of an
        earlier version that agrees is kept.
        """
        with ledger_file.connect_to_write(self.path) as connection:
            line = self._line(self._read(connection), release)
            if line is None:
                raise Overtaken(self._unknown(release))
            if line.measurements is not None and not seals_agree(line.measurements, measurements):
                raise Overtaken(self._sealed_otherwise(release))
            if line.holder != token:
                raise Overtaken(
                    f"{self.path}: {ANOTHER_COPY} began attempt {line.attempt} at release "
                    f"{release}, so this one publishes nothing; {_WAYS_OUT}"
                )
            connection.execute(
                "UPDATE charges SET measurements = ? WHERE release = ? AND measurements = ''",
                (measurements, release),
            )

    def refuses_attempt(self, release: str, claim: Claim) -> bool:
        """Return whether `take_attempt` would refuse this run permanently; write nothing."""
        line = self._line(self.charges(), release)
        if line is None:
            return claim.attempt > 0
        try:
            self._refuse_overtaken(line, claim)
        except Overtaken:
            return True
        return False

    def recover(self) -> None:
        """Roll back a transaction that a crash interrupted, as a charge does first."""
        ledger_file.recover(self.path)

    @contextmanager
    def _charged(
        self, release: str, cost: Cost | BesidePublic, on: date | None, note: str
    ) -> Iterator[tuple[sqlite3.Connection, Charge | None]]:
        """Yield a transaction in which a release is charged, and its previous line, if any."""
        day = on or datetime.now(UTC).date()
        if not ledger_file.is_there(self.path):
            self._refuse_overspending([], cost, day)  # before creating a file for nothing
        with ledger_file.connect_to_write(self.path) as connection:
            charges = self._read(connection)
            line = self._line(charges, release)
            if line is None:
                self._refuse_overspending(charges, cost, day)
                self._set_limits(connection)
                currency, amount = _in_currency(cost)
                connection.execute(
                    "INSERT INTO charges (release, currency, amount, charged_on, description)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (release, currency, str(amount), day.isoformat(), note),
                )
            elif line.cost != cost:
                raise LedgerError(
                    f"{self.path}: release {release} was charged {line.cost}, but the plan now costs "
                    f"{cost}; release a changed plan to a new folder"
                )
            yield connection, line

    def _refuse_overtaken(self, line: Charge, claim: Claim) -> None:
        """Refuse a run without the latest attempt, or with measurements other than those sealed."""
        if line.attempt == claim.attempt == 0:
            raise Overtaken(
                f"{self.path}: release {line.release} was charged by a version of countveil that did "
                f"not count attempts; a copy of this run may have been finished elsewhere, and drawing "
                f"here could be a second draw for one charge; keep the release if it was finished "
                f"elsewhere, or draw a new one here with --restart --charge-again (charged in full)"
            )
        if line.attempt < claim.attempt:
            raise Overtaken(
                f"{self.path}: is at attempt {line.attempt} of release {line.release}, but this "
                f"run is at attempt {claim.attempt}, so the ledger was replaced by an older copy; "
                f"restore the latest one, or draw a new release with --restart --charge-again "
                f"(charged in full)"
            )
        if line.holder not in claim.tokens:
            raise Overtaken(
                f"{self.path}: {ANOTHER_COPY} made attempt {line.attempt} at release "
                f"{line.release}; this one, at attempt {claim.attempt}, was copied or restored from a "
                f"backup, and drawing here would be a second draw for one charge; {_WAYS_OUT}"
            )
        if line.measurements is not None and not seals_agree(line.measurements, claim.measurements):
            raise Overtaken(self._sealed_otherwise(line.release))

    def _sealed_otherwise(self, release: str) -> str:
        return (
            f"{self.path}: release {release} {SEALED_OTHERWISE}, and one charge pays for one draw; "
            f"{_WAYS_OUT}"
        )

    def _unknown(self, release: str) -> str:
        return (
            f"{self.path}: has no charge for release {release}, which was charged to another ledger, "
            f"or to this one before it was replaced by an older copy; name that ledger or restore this "
            f"one, or draw a new release with --restart --charge-again (charged in full)"
        )

    @staticmethod
    def _line(charges: list[Charge], release: str) -> Charge | None:
        return next((line for line in charges if line.release == release), None)

    def check(self, cost: Cost | BesidePublic, *, on: date | None = None) -> None:
        """Raise what `charge` would raise for a new release; nothing is written.

        Parameters
        ----------
        cost
            What the release costs.
        on
            The date of the charge; by default today.

        """
        self._refuse_overspending(self.charges(), cost, on or datetime.now(UTC).date())

    def charges(self) -> list[Charge]:
        """Return all charges, oldest first."""
        if not ledger_file.is_there(self.path):
            return []
        with ledger_file.connect_to_read(self.path) as connection:
            return self._read(connection)

    def spent(self, *, on: date | None = None) -> Cost:
        """Return the sum of all charges.

        Parameters
        ----------
        on
            If given, only charges in the period of this date count.

        """
        return self._sum(self.charges(), on)

    def left(self, *, on: date | None = None) -> Cost:
        """Return what may still be spent in total.

        Parameters
        ----------
        on
            If given, what may still be spent in the period of this date.

        """
        return self._left(self.charges(), on)

    def left_beside_public(self) -> Fraction:
        """Return what may still be spent on guarantees given public information."""
        return self._left_beside_public(self.charges())

    def _left_beside_public(self, charges: list[Charge]) -> Fraction:
        if self.beside_public is None:
            raise LedgerError(
                f"{self.path}: has no limit for costs given public information; charge it by a "
                f"plan with method congenial, which sets one"
            )
        spent = (charge.cost.epsilon for charge in charges if isinstance(charge.cost, BesidePublic))
        return self.beside_public - sum(spent, Fraction(0))

    def _set_limits(self, connection: sqlite3.Connection) -> None:
        """Write the identity of a new ledger, or limits in a currency that it did not have so far."""
        new = not _stored_identity(self.path, connection)
        connection.executemany(
            "INSERT INTO identity VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [
                (name, value)
                for name, value in self._identity().items()
                if new or (name in _LIMITS and value != _NONE)
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
        if not stored:
            return []  # a crash between creating the file and its first charge
        ours = self._identity()
        for name, value in ours.items():
            # Limits in a currency that one side does not use are not compared.
            kept_in = "total" if name == "period" else name
            if name in _LIMITS and _NONE in (ours[kept_in], stored.get(kept_in, _NONE)):
                continue
            if stored.get(name) != value:
                raise LedgerError(
                    f"{self.path}: this ledger is for {name} {stored.get(name)!r}, but the plan has "
                    f"{value!r}; a ledger serves one data set, unit and neighbour relation, with "
                    f"limits set once: name another ledger, or change the plan to agree"
                )
        counted = ledger_file.has_later_columns(connection)
        later = "attempt, measurements, holder" if counted else "0, '', ''"
        rows = connection.execute(
            f"SELECT release, currency, amount, charged_on, description, {later} FROM charges"
            f" ORDER BY number"
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
                    f"{self.path}: has no budget for differential privacy, only one for costs "
                    f"given public information; name another ledger"
                )
            return self.total
        if self.period is None:
            raise LedgerError(
                f"{self.path}: has no limit per period, only a total; leave out the date"
            )
        return self.period.limit

    def _left(self, charges: list[Charge], on: date | None) -> Cost:
        limit, spent = self._limit(on), self._sum(charges, on)
        if limit.rho < spent.rho:
            raise LedgerError(
                f"{self.path}: {spent} is spent of {limit}, more than countveil allows; restore the "
                f"ledger from a backup"
            )
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
                        f"{self.path}: has a release along another coupling (other public totals, or "
                        f"another number of people who depend on each other), and costs along "
                        f"different couplings do not add up; keep the totals and number of the first "
                        f"release, or, for other data, name another dataset and ledger"
                    )
            room = self._left_beside_public(charges)
            if cost.epsilon > room:
                raise LedgerError(
                    f"{self.path}: the plan costs {cost}, but of {show(self.beside_public or room)} "
                    f"only {show(room)} is left; lower the plan's budget"
                )
            return
        limits: list[tuple[str, date | None]] = [("the total", None)]
        if self.period:
            limits.append((f"the limit of {self.period.of(day)}", day))
        for name, on in limits:
            limit = self._limit(on)
            if isinstance(limit, PureDP) and not isinstance(cost, PureDP):
                raise LedgerError(
                    f"{self.path}: {name} is in pure {limit}, but {cost} has no pure epsilon; keep the "
                    f"ledger in rho, or use discrete Laplace noise"
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
                    f"{self.path}: the plan costs {cost}, but of {name} ({limit}) only {left} is left; "
                    f"{advice}"
                )


def seals_agree(sealed: str, seal: str | None) -> bool:
    """Return whether a seal agrees with a ledger's; earlier versions sealed measurements alone."""
    return seal is not None and sealed in (seal, seal.split()[0])


def _identity_of(path: Path) -> dict[str, str]:
    """Return what a ledger is for and its limits; empty if it does not exist."""
    if not ledger_file.is_there(path):
        return {}
    with ledger_file.connect_to_read(path) as connection:
        return _stored_identity(path, connection)


def _in_currency(cost: Cost | BesidePublic) -> tuple[str, Fraction]:
    if isinstance(cost, BesidePublic):
        return f"{_BESIDE_PUBLIC}{cost.coupling}", cost.epsilon
    return ("pure", cost.epsilon) if isinstance(cost, PureDP) else ("zcdp", cost.rho)


def _stored_identity(path: Path, connection: sqlite3.Connection) -> dict[str, str]:
    """Return what a ledger is for, empty before its first charge; refuse anything but text."""
    rows = connection.execute("SELECT name, value FROM identity").fetchall()
    stored = dict(rows)
    if not rows:
        return {}
    if not all(isinstance(part, str) for row in rows for part in row) or not (
        {"dataset", "unit", "neighbors", "total", "period"} <= set(stored)
    ):
        raise _garbled(path, "identity")
    return stored


def _limit_in(path: Path, stored: dict[str, str], name: str) -> Cost | None:
    """Return a limit that is stored as currency and amount."""
    if stored[name] == _NONE:
        return None
    words = stored[name].split()
    if len(words) != 2:
        raise _garbled(path, name)
    return _limit_from(path, name, words[0], words[1])


def _period_in(path: Path, stored: dict[str, str]) -> Period | None:
    """Return a release calendar that is stored as period, currency and amount."""
    if stored["period"] == _NONE:
        return None
    words = stored["period"].split()
    if len(words) != 3 or words[0] not in get_args(Every):
        raise _garbled(path, "period")
    return Period(cast(Every, words[0]), _limit_from(path, "period", words[1], words[2]))


def _charge_from(path: Path, row: tuple[object, ...]) -> Charge:
    """Return a line of the ledger; refuse one that countveil did not write."""
    release, currency, amount, day, note, attempt, measurements, holder = row
    where = f"the charge of release {str(release)[:60]!r}"
    texts = (release, currency, amount, day, note, measurements, holder)
    if not all(isinstance(part, str) for part in texts):
        raise _garbled(path, where)
    if not isinstance(attempt, int) or not 0 <= attempt < _MOST_ATTEMPTS:
        raise _garbled(path, where)
    if not _SEAL.fullmatch(str(measurements)):
        raise _garbled(path, where)
    try:
        charged_on = date.fromisoformat(str(day))
    except ValueError:
        raise _garbled(path, where) from None
    return Charge(
        str(release),
        _cost_from(path, where, str(currency), str(amount)),
        charged_on,
        str(note),
        attempt,
        str(measurements) or None,
        str(holder),
    )


def _cost_from(path: Path, where: str, currency: str, amount: str) -> Cost | BesidePublic:
    if not currency.startswith(_BESIDE_PUBLIC):
        return _limit_from(path, where, currency, amount)
    try:
        return BesidePublic(_amount(path, where, amount), currency.removeprefix(_BESIDE_PUBLIC))
    except InputError:  # not a cost, or without a coupling
        raise _garbled(path, where) from None


def _limit_from(path: Path, where: str, currency: str, amount: str) -> Cost:
    if currency not in _CURRENCIES:
        raise _garbled(path, where)
    exact = _amount(path, where, amount)
    return PureDP(exact) if currency == "pure" else ZCDP(exact)


def _amount(path: Path, where: str, text: str) -> Fraction:
    """Return a stored amount: digits, or digits/digits, however long they have become."""
    numbers = [int(part) for part in text.split("/")] if _AMOUNT.fullmatch(text) else [0, 0]
    if 0 in numbers[1:]:
        raise _garbled(path, where)
    return Fraction(*numbers)


def _garbled(path: Path, what: str) -> LedgerError:
    return LedgerError(
        f"{path}: {what} was not written by countveil; restore the ledger from a backup"
    )
