import multiprocessing
import os
import re
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from tests.conftest import HANG

from countveil.errors import LedgerError, Unsettled
from countveil.privacy import ledger_file
from countveil.privacy.costs import ZCDP, BesidePublic, PureDP
from countveil.privacy.ledger import Claim, Ledger, Period


def book(path: Path, total=None, **other) -> Ledger:
    facts = {"dataset": "d", "unit": "person", "neighbors": "change-one", **other}
    return Ledger(path / "ledger.sqlite", total=total or ZCDP(1), **facts)


def test_charges_add_up_and_what_is_left_is_exact(tmp_path):
    ledger = book(tmp_path)
    assert ledger.left() == ZCDP(1)
    assert ledger.charge("r1", ZCDP("1/3"), note="first")
    assert ledger.charge("r2", ZCDP("1/3"))
    assert ledger.spent() == ZCDP("2/3")
    assert ledger.left() == ZCDP("1/3")
    assert [line.release for line in ledger.charges()] == ["r1", "r2"]
    assert ledger.charges()[0].description == "first"


def test_the_same_release_is_charged_once(tmp_path):
    ledger = book(tmp_path)
    assert ledger.charge("r1", ZCDP("0.6"))
    assert not ledger.charge("r1", ZCDP("0.6"))
    assert ledger.spent() == ZCDP("0.6")
    with pytest.raises(LedgerError, match="release a changed plan to a new folder"):
        ledger.charge("r1", ZCDP("0.5"))


def test_overspending_is_refused_with_what_is_left(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.75"))
    before = ledger.path.read_bytes()
    with pytest.raises(
        LedgerError, match=r"costs rho = 1/2, but of the total \(rho = 1\) only rho = 1/4 is left"
    ):
        ledger.charge("r2", ZCDP("0.5"))
    with pytest.raises(LedgerError, match="is left"):
        ledger.check(ZCDP("0.5"))
    assert ledger.path.read_bytes() == before
    assert ledger.charge("r3", ZCDP("0.25")), "exactly what is left may be spent"


def test_a_check_writes_nothing(tmp_path):
    ledger = book(tmp_path)
    ledger.check(ZCDP(1))
    with pytest.raises(LedgerError):
        ledger.check(ZCDP(2))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_first_charge_leaves_no_lines(tmp_path):
    ledger = book(tmp_path)
    with pytest.raises(LedgerError):
        ledger.charge("r1", ZCDP(2))
    assert ledger.charges() == []
    assert list(tmp_path.iterdir()) == []


def test_pure_costs_enter_a_rho_ledger_as_half_their_square(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", PureDP(1))
    assert ledger.left() == ZCDP("1/2")


def test_a_pure_ledger_takes_pure_costs_only(tmp_path):
    ledger = book(tmp_path, total=PureDP(2))
    ledger.charge("r1", PureDP("1.5"))
    assert ledger.left() == PureDP("0.5")
    with pytest.raises(LedgerError, match="has no pure epsilon"):
        ledger.charge("r2", ZCDP("0.01"))


@pytest.mark.parametrize(
    ("field", "value"), [("dataset", "e"), ("unit", "household"), ("neighbors", "add-remove")]
)
def test_a_ledger_serves_one_data_set_unit_and_relation(tmp_path, field, value):
    book(tmp_path).charge("r1", ZCDP("0.1"))
    with pytest.raises(LedgerError, match=f"is for {field}"):
        book(tmp_path, **{field: value}).charge("r2", ZCDP("0.1"))


def test_limits_are_set_once(tmp_path):
    book(tmp_path).charge("r1", ZCDP("0.1"))
    with pytest.raises(LedgerError, match="limits set once"):
        book(tmp_path, total=ZCDP(5)).charge("r2", ZCDP("0.1"))
    assert Ledger.limits_of(tmp_path / "ledger.sqlite") == (ZCDP(1), None)


@pytest.mark.parametrize(
    ("every", "same", "other"),
    [
        ("year", date(2027, 12, 31), date(2028, 1, 1)),
        ("quarter", date(2027, 3, 31), date(2027, 4, 1)),
        ("month", date(2027, 1, 31), date(2027, 2, 1)),
    ],
)
def test_a_calendar_limits_each_period(tmp_path, every, same, other):
    ledger = book(tmp_path, total=ZCDP(10), period=Period(every, ZCDP(1)))
    ledger.charge("r1", ZCDP("0.7"), on=date(2027, 1, 1))
    with pytest.raises(LedgerError, match="the limit of 2027.* only rho = 3/10 is left"):
        ledger.charge("r2", ZCDP("0.4"), on=same)
    assert ledger.charge("r2", ZCDP("0.4"), on=other)
    assert ledger.left(on=other) == ZCDP("0.6")
    assert ledger.left() == ZCDP(10 - Fraction("1.1"))
    assert Ledger.limits_of(ledger.path) == (ZCDP(10), Period(every, ZCDP(1)))


def charge_many(path: Path, worker: int) -> None:
    ledger = book(path, total=ZCDP(10))
    for number in range(20):
        try:
            ledger.charge(f"w{worker}-{number}", ZCDP("1/4"))
        except LedgerError as error:
            assert "is left" in str(error)


def test_concurrent_charges_are_serialised(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_file, "_PATIENCE", HANG)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=charge_many, args=(tmp_path, w)) for w in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    ledger = book(tmp_path, total=ZCDP(10))
    assert len(ledger.charges()) == 40, "80 asked for a quarter each, and 10 were there"
    assert ledger.left() == ZCDP(0)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_file_is_private_from_the_start(tmp_path, mask):
    before = os.umask(mask)
    try:
        book(tmp_path).charge("r1", ZCDP("0.1"))
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "ledger.sqlite") == 0o600


@pytest.mark.parametrize("open_to", [0o666, 0o640, 0o604, 0o602])
def test_a_ledger_that_was_opened_to_others_is_refused_and_its_mode_left_alone(tmp_path, open_to):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    ledger.path.chmod(open_to)
    before = ledger.path.read_bytes()
    assert ledger.charges()[0].release == "r1", "looking is allowed"
    for release in ("r1", "r2"):
        with pytest.raises(
            LedgerError, match=rf"mode {open_to:o}\), and a ledger is private; .* `chmod 600 "
        ):
            ledger.charge(release, ZCDP("0.1"))
    assert mode_of(ledger.path) == open_to
    assert ledger.path.read_bytes() == before
    ledger.path.chmod(0o700)
    assert ledger.charge("r2", ZCDP("0.1"))
    assert mode_of(ledger.path) == 0o700


@pytest.mark.parametrize(("mode", "refused"), [(0o666, True), (0o604, True), (0o660, False)])
def test_the_ledger_of_another_user_is_left_as_it_is_unless_all_can_reach_it(
    tmp_path, monkeypatch, mode, refused
):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    ledger.path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: ledger.path.stat().st_uid + 1)
    if refused:
        with pytest.raises(LedgerError, match="everyone can open it; its owner can run `chmod o="):
            ledger.charge("r2", ZCDP("0.1"))
    else:
        assert ledger.charge("r2", ZCDP("0.1"))
    assert len(ledger.charges()) == 2 - refused
    assert mode_of(ledger.path) == mode


def test_a_charge_is_on_the_disk_before_it_returns(tmp_path, monkeypatch):
    """As SQLite answers on the connection that commits: FULL, and the folder after the journal."""
    levels = []

    class Recording(sqlite3.Connection):
        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                levels.append(super().execute("PRAGMA synchronous").fetchone()[0])
                levels.append(super().execute("PRAGMA journal_mode").fetchone()[0])
            return super().execute(statement, *arguments)

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *names, **more: connect(*names, factory=Recording, **more)
    )
    assert book(tmp_path).charge("r1", ZCDP("0.1"))
    assert levels == [3, "delete"]


def test_a_ledger_that_another_process_holds_is_not_said_to_be_damaged(tmp_path, monkeypatch):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    monkeypatch.setattr(ledger_file, "_PATIENCE", 0.1)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    message = (
        "another process has kept it locked for 0.1 s; nothing was written: wait until it ends"
    )
    other.execute("BEGIN EXCLUSIVE")
    for attempt in (lambda: ledger.charge("r2", ZCDP("0.1")), ledger.charges, ledger.left):
        with pytest.raises(LedgerError, match=message) as caught:
            attempt()
        assert "backup" not in str(caught.value)
    other.execute("ROLLBACK")
    other.execute("BEGIN")
    other.execute("SELECT * FROM charges").fetchone()  # a reader keeps a commit from its end
    with pytest.raises(LedgerError, match=message):
        ledger.charge("r2", ZCDP("0.1"))
    other.close()
    assert [line.release for line in ledger.charges()] == ["r1"]
    assert ledger.charge("r2", ZCDP("0.1"))


def crash_inside_a_commit(path: Path) -> None:
    """Leave a hot journal, as a kill between writing the database and deleting the journal does."""
    program = (
        "import sqlite3, os, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1')\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "for i in range(300):\n"
        "    c.execute('INSERT INTO charges (release, currency, amount, charged_on, description) '\n"
        "              'VALUES (?, ?, ?, ?, ?)', (f'x{i}', 'zcdp', '1', '2027-01-01', 'y' * 900))\n"
        "os._exit(1)\n"  # pages were spilled to the database, the journal is still there
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.with_name(f"{path.name}-journal").stat().st_size > 0


@pytest.mark.parametrize("writer", ["charge", "attempt", "seal", "recover"])
def test_a_crash_inside_a_commit_is_rolled_back_by_the_next_writer_alone(tmp_path, writer):
    ledger = book(tmp_path)
    ledger.take_attempt("r1", ZCDP("0.1"), Claim(0, (), "token"))
    crash_inside_a_commit(ledger.path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for reader in (
        ledger.charges,
        ledger.left,
        lambda: ledger.check(ZCDP("0.1")),
        lambda: Ledger.limits_of(ledger.path),
    ):
        with pytest.raises(LedgerError, match="a crash interrupted a change.*countveil release"):
            reader()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    {
        "charge": lambda: ledger.charge("r2", ZCDP("0.1")),
        "attempt": lambda: ledger.take_attempt("r2", ZCDP("0.1"), Claim(0, (), "other")),
        "seal": lambda: ledger.seal("r1", "token", "0" * 64),
        "recover": ledger.recover,
    }[writer]()
    more = ["r2"] if writer in ("charge", "attempt") else []
    assert [line.release for line in ledger.charges()] == ["r1", *more]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_a_reader_sees_what_was_committed_while_another_process_writes(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE charges SET release = 'r2'")
    assert ledger.path.with_name("ledger.sqlite-journal").exists()
    assert [line.release for line in ledger.charges()] == ["r1"]
    other.execute("COMMIT")
    other.close()
    assert [line.release for line in ledger.charges()] == ["r2"]


def test_threads_of_one_process_take_turns(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda worker: charge_many(tmp_path, worker), range(8)):
            pass
    ledger = book(tmp_path, total=ZCDP(10))
    assert len(ledger.charges()) == 40
    assert ledger.left() == ZCDP(0)


def test_a_commit_that_may_have_been_kept_is_unsettled(tmp_path, monkeypatch):
    """SQLite says that the disk failed, although the charge is there."""
    real = sqlite3.connect

    class Failing(sqlite3.Connection):
        def execute(self, statement, *arguments):
            result = super().execute(statement, *arguments)
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return result

    ledger = book(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **o: real(*a, factory=Failing, **o))
        with pytest.raises(Unsettled, match="may or may not be in it.*it charges once"):
            ledger.charge("r1", ZCDP("0.1"))
    assert not ledger.charge("r1", ZCDP("0.1"))


def test_fractions_of_any_length_are_kept(tmp_path):
    long = Fraction(10**500 + 1, 10**501)
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP(long))
    assert ledger.spent() == ZCDP(long)


def test_sums_of_more_digits_than_python_writes_out_are_shown_short(tmp_path):
    ledger = book(tmp_path)
    for number, power in enumerate((3001, 3000, 2999)):
        ledger.charge(f"r{number}", ZCDP(Fraction(1, 10**power + 1)))
    assert str(ledger.left()) == "rho = 1"
    with pytest.raises(LedgerError, match="only rho = 1 is left"):
        ledger.charge("more", ZCDP(1))
    huge = ZCDP(10**4299) + ZCDP(Fraction(1, 3))
    assert str(huge) == "rho = 1.00000000000e+4299"
    assert str(BesidePublic(Fraction(10**4400), "c")).startswith("epsilon = 1.00000000000e+4400")


def test_what_is_no_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(LedgerError, match="not usable as a ledger"):
        book(tmp_path).charge("r1", ZCDP("0.1"))
    with pytest.raises(LedgerError, match="not usable as a ledger"):
        book(tmp_path).check(ZCDP("0.1"))
    with pytest.raises(LedgerError, match="cannot be written"):
        Ledger(tmp_path / "no" / "folder.sqlite", "d", "p", "change-one", ZCDP(1)).charge(
            "r", ZCDP(1)
        )


def test_amounts_are_stored_as_exact_text(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("1666368/16793603"))
    with sqlite3.connect(ledger.path) as connection:
        rows = connection.execute("SELECT currency, amount FROM charges").fetchall()
    connection.close()
    assert rows == [("zcdp", "1666368/16793603")]


GARBLED = [
    ("UPDATE charges SET amount = '1/0'", "the charge of release 'a'"),
    ("UPDATE charges SET amount = 'x'", "the charge of release 'a'"),
    ("UPDATE charges SET amount = '-1'", "the charge of release 'a'"),
    ("UPDATE charges SET amount = x'ff'", "the charge of release 'a'"),
    ("UPDATE charges SET currency = 'gold'", "the charge of release 'a'"),
    ("UPDATE charges SET currency = 'beside-public:'", "the charge of release 'a'"),
    ("UPDATE charges SET currency = 'beside-public:c', amount = '0'", "the charge of release 'a'"),
    ("UPDATE charges SET attempt = 1000000000", "the charge of release 'a'"),
    ("UPDATE charges SET attempt = 9223372036854775807", "the charge of release 'a'"),
    ("UPDATE charges SET measurements = 'x'", "the charge of release 'a'"),
    ("UPDATE charges SET amount = '6'", "rho = 6 is spent of rho = 5, more than"),
    ("UPDATE charges SET charged_on = '2020-13-99'", "the charge of release 'a'"),
    ("UPDATE charges SET release = x'00'", "the charge of release"),
    ("UPDATE identity SET value = 'zcdp' WHERE name = 'total'", "total"),
    ("UPDATE identity SET value = 'zcdp 1/0' WHERE name = 'total'", "total"),
    ("UPDATE identity SET value = 'zcdp 1 2 3' WHERE name = 'total'", "total"),
    ("UPDATE identity SET value = 'day zcdp 1' WHERE name = 'period'", "period"),
    ("UPDATE identity SET value = 'year' WHERE name = 'period'", "period"),
    ("UPDATE identity SET value = x'ff' WHERE name = 'unit'", "identity"),
    ("DELETE FROM identity WHERE name = 'total'", "identity"),
    ("DELETE FROM identity WHERE name = 'period'", "identity"),
    ("ALTER TABLE charges RENAME COLUMN amount TO other", "is not a ledger"),
    ("DROP TABLE identity", "is not a ledger"),
]


@pytest.mark.parametrize(("statement", "message"), GARBLED)
def test_a_garbled_ledger_is_refused_with_what_is_wrong(tmp_path, statement, message):
    path = tmp_path / "ledger.sqlite"
    Ledger(path, "data", "person", "change-one", ZCDP("5")).charge("a", ZCDP("1"))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(statement)
    connection.commit()
    connection.close()

    def use() -> None:
        limit, period = Ledger.limits_of(path)
        Ledger(path, "data", "person", "change-one", limit, period).charge("b", ZCDP("1"))

    with pytest.raises(LedgerError, match=re.escape(message)) as caught:
        use()
    assert "restore" in str(caught.value)
