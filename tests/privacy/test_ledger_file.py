"""The ledger's file: never through a link, never in place of something else, known by its id."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import struct
from pathlib import Path

import pytest
from tests.conftest import run
from tests.measure.test_fence import as_before_attempts
from tests.privacy.test_ledger import book, crash_inside_a_commit

from countveil.errors import LedgerError
from countveil.privacy import ledger_file
from countveil.privacy.costs import ZCDP
from countveil.privacy.ledger import Claim, Ledger


def tried(ledger: Ledger) -> list[str]:
    """Try all that opens a ledger; return what each said."""
    messages = []
    for attempt in (
        lambda: ledger.charge("r", ZCDP("0.1")),
        lambda: ledger.take_attempt("r", ZCDP("0.1"), Claim(0, (), "token")),
        lambda: ledger.seal("r", "token", "0" * 64),
        ledger.charges,
        ledger.left,
        lambda: ledger.check(ZCDP("0.1")),
        lambda: Ledger.limits_of(ledger.path),
        lambda: Ledger.beside_public_of(ledger.path),
    ):
        with pytest.raises(LedgerError) as caught:
            attempt()
        messages.append(str(caught.value))
    return messages


def seen(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.lstat().st_mode, path.read_bytes())
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


@pytest.mark.parametrize("aim", ["a ledger", "another file", "nothing", "itself"])
@pytest.mark.parametrize("end", ["", "-journal", "-wal", "-shm"])
def test_links_are_never_followed(tmp_path, aim, end):
    ledger = book(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "target"
    if aim == "a ledger":
        book(elsewhere).charge("r1", ZCDP("0.1"))
        (elsewhere / "ledger.sqlite").rename(target)
    elif aim == "another file":
        target.write_bytes(b"precious")
    if end:
        ledger.charge("r1", ZCDP("0.1"))
    link = tmp_path / f"ledger.sqlite{end}"
    link.symlink_to(link if aim == "itself" else target)
    before = seen(elsewhere)
    for message in tried(ledger):
        assert f"{link}: is a symbolic link, and a ledger is not written through one" in message
    assert seen(elsewhere) == before
    assert link.is_symlink()


def test_a_folder_above_the_ledger_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert book(tmp_path / "link").charge("r1", ZCDP("0.1"))
    assert len(book(tmp_path / "real").charges()) == 1


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "ledger.sqlite")
    for message in tried(book(tmp_path)):
        assert "is not a plain file" in message
    (tmp_path / "ledger.sqlite").unlink()
    (tmp_path / "ledger.sqlite").mkdir()
    for message in tried(book(tmp_path)):
        assert "is not a plain file" in message


def of_another_program(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


IDENTITY = "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
CHARGES = """CREATE TABLE charges (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    release TEXT NOT NULL UNIQUE,
    currency TEXT NOT NULL,
    amount TEXT NOT NULL,
    charged_on TEXT NOT NULL,
    description TEXT NOT NULL
)"""  # as the first version wrote it
FOREIGN = {
    "an empty file": lambda path: path.touch(),
    "one byte": lambda path: path.write_bytes(b"x"),
    "a text": lambda path: path.write_bytes(b"Dear diary,\n" * 100),
    "a database": lambda path: of_another_program(path, "CREATE TABLE photos (name TEXT)"),
    "a database without tables": lambda path: of_another_program(path, "PRAGMA user_version = 3"),
    "an application": lambda path: of_another_program(path, "PRAGMA application_id = 7"),
    "an application with our tables": lambda path: (
        book(path.parent).charge("r1", ZCDP("0.1")),
        of_another_program(path, "PRAGMA application_id = 7"),
    ),
    "other charges": lambda path: of_another_program(
        path, IDENTITY, "CREATE TABLE charges (number INTEGER PRIMARY KEY, release TEXT)"
    ),
    **{
        what: lambda path, column=column, more=more: of_another_program(
            path, IDENTITY, CHARGES.replace(column, f"{column}{more}", 1)
        )
        for what, (column, more) in {
            "a check that refuses charges": ("description TEXT NOT NULL", ", CHECK (number < 0)"),
            "a conflict that drops charges": (
                "release TEXT NOT NULL UNIQUE",
                " ON CONFLICT REPLACE",
            ),
            "a default": ("amount TEXT NOT NULL", " DEFAULT '0'"),
            "a collation": ("release TEXT", " COLLATE NOCASE"),
            "a type": ("amount TEXT", "UAL"),
            "a generated column": ("description TEXT NOT NULL", ", x AS (number) VIRTUAL"),
        }.items()
    },
    "our tables and another": lambda path: (
        book(path.parent).charge("r1", ZCDP("0.1")),
        of_another_program(path, "CREATE TABLE photos (name TEXT)"),
    ),
    "a trigger": lambda path: (
        book(path.parent).charge("r1", ZCDP("0.1")),
        of_another_program(
            path, "CREATE TRIGGER t AFTER INSERT ON charges BEGIN DELETE FROM charges; END"
        ),
    ),
}


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("kind", FOREIGN)
def test_nothing_else_is_made_a_ledger(tmp_path, kind, mode):
    path = tmp_path / "ledger.sqlite"
    FOREIGN[kind](path)
    path.chmod(mode)
    before = seen(tmp_path)
    for message in tried(book(tmp_path)):
        assert "is not a ledger" in message or "not usable as a ledger" in message
        assert "name a file that does not exist yet" in message or "name another" in message
        assert "chmod" not in message, "its owner has no reason to close it"
    assert seen(tmp_path) == before


def test_a_ledger_of_the_first_version_is_one(tmp_path):
    path = tmp_path / "ledger.sqlite"
    of_another_program(path, IDENTITY, CHARGES)
    path.chmod(0o600)
    assert book(tmp_path).charge("r1", ZCDP("0.1"))
    assert book(tmp_path).charge("r2", ZCDP("0.1"))
    assert [line.release for line in book(tmp_path).charges()] == ["r1", "r2"]


def test_the_log_of_another_programs_database_is_left_alone(tmp_path):
    """Merely opening it for writing and closing it would fold its log into it."""
    (tmp_path / "busy").mkdir()
    path = tmp_path / "busy" / "ledger.sqlite"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = WAL")
    other.execute("CREATE TABLE photos (name TEXT)")
    shutil.copytree(tmp_path / "busy", tmp_path / "crashed")  # as after a crash: the log is there
    other.close()
    crashed = tmp_path / "crashed"
    assert (crashed / "ledger.sqlite-wal").stat().st_size > 0
    before = seen(crashed)
    for message in tried(book(crashed)):
        assert "is not a ledger" in message
    assert seen(crashed) == before


def super_journal(path: Path, victim: Path) -> None:
    """Write a journal that names a super-journal: SQLite deletes that once it has rolled back."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    pages = path.stat().st_size // 4096
    header = magic + struct.pack(">IIIII", 0, 1234, pages, 512, 4096)
    end = struct.pack(">I", (1 << 30) // 4096 + 1) + name
    end += struct.pack(">II", len(name), sum(name)) + magic
    path.with_name(f"{path.name}-journal").write_bytes(header.ljust(512, b"\0") + end)


def test_a_journal_deletes_no_other_file(tmp_path):
    """The attack: a ledger is handed over for `verify --ledger`, with a journal next to it."""
    ledger, victim = book(tmp_path), tmp_path / "victim.csv"
    ledger.charge("r", ZCDP("0.1"))
    victim.write_text("precious")
    super_journal(ledger.path, victim)
    before = seen(tmp_path)
    for message in tried(ledger):
        assert "a crash interrupted a change" in message or "names another file" in message
    with pytest.raises(LedgerError, match="names another file to delete.*then move"):
        ledger.recover()
    assert seen(tmp_path) == before


def test_verify_deletes_nothing_either(tiny):
    folder, victim = tiny.parent, tiny.parent / "victim.csv"
    assert run("release", tiny, "--to", folder / "out", "--quiet").status == 0
    victim.write_text("precious")
    super_journal(folder / "ledger.sqlite", victim)
    before = seen(folder)
    ran = run("verify", folder / "out", "--ledger", folder / "ledger.sqlite")
    assert ran.status == 2
    assert "a crash interrupted a change" in ran.err
    assert run("release", tiny, "--to", folder / "out2", "--quiet").status == 2
    assert seen(folder) == before


JOURNALS = {
    "a text": lambda path: path.write_text("Dear diary,\n" * 100),
    "a journal of two names": lambda path: (
        path.write_bytes(bytes(512)),
        os.link(path, path.with_name("second")),
    ),
    "a journal of another user": lambda path: (path.write_bytes(bytes(512)), os.chown(path, 1, 1)),
}


@pytest.mark.parametrize("kind", JOURNALS)
def test_a_journal_that_no_ledger_leaves_is_neither_used_nor_deleted(tmp_path, kind):
    if kind == "a journal of another user" and os.geteuid() != 0:
        pytest.skip("only root gives a file away")
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    JOURNALS[kind](tmp_path / "ledger.sqlite-journal")
    before = seen(tmp_path)
    for write in (ledger.recover, lambda: ledger.charge("r2", ZCDP("0.1"))):
        with pytest.raises(LedgerError, match="no ledger leaves such a journal"):
            write()
    assert seen(tmp_path) == before


@pytest.mark.parametrize("content", [b"", bytes(512)])
def test_a_journal_that_was_never_synced_is_no_obstacle(tmp_path, content):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    (tmp_path / "ledger.sqlite-journal").write_bytes(content)
    assert [line.release for line in ledger.charges()] == ["r1"]
    assert ledger.charge("r2", ZCDP("0.1"))


def test_a_change_by_another_process_is_not_taken_for_damage(tmp_path, monkeypatch):
    """Read without locks, a ledger that another process is writing can look malformed."""
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    real, looks = sqlite3.connect, []

    def connect(name, *arguments, **options):
        if "immutable" in str(name):
            looks.append(name)
            raise sqlite3.DatabaseError("database disk image is malformed")
        return real(name, *arguments, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert [line.release for line in ledger.charges()] == ["r1"]
    assert ledger.charge("r2", ZCDP("0.1"))
    assert looks


@pytest.mark.parametrize("application", [0, 7, int.from_bytes(b"CnVl")])
def test_another_programs_database_is_not_rolled_back(tmp_path, application):
    path = tmp_path / "ledger.sqlite"
    of_another_program(
        path,
        f"PRAGMA application_id = {application}",
        "CREATE TABLE charges (release, currency, amount, charged_on, description)",
    )
    crash_inside_a_commit(path)
    before = seen(tmp_path)
    assert len(before) == 2
    for message in tried(book(tmp_path)):
        assert "is not a ledger" in message
    with pytest.raises(LedgerError, match="is not a ledger"):
        book(tmp_path).recover()
    assert seen(tmp_path) == before


def test_an_old_ledger_is_rolled_back_as_well(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    as_before_attempts(ledger.path)
    crash_inside_a_commit(ledger.path)
    ledger.recover()
    assert [line.release for line in ledger.charges()] == ["r1"]


def test_a_ledger_with_a_write_ahead_log_is_refused(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    of_another_program(ledger.path, "PRAGMA journal_mode = WAL", "UPDATE charges SET attempt = 2")
    before = seen(tmp_path)
    for message in tried(ledger):
        assert "is not a ledger" in message
    assert seen(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["x'ff'", "null", "x'6162'", "cast(x'ff' as text)", "cast(x'73716c6974655fff' as text)"]
)
def test_tables_whose_names_are_no_text_are_not_those_of_a_ledger(tmp_path, name):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    of_another_program(
        ledger.path,
        "PRAGMA writable_schema = 1",
        f"INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql)"
        f" VALUES ('table', {name}, 'q', 0, NULL)",
    )
    for message in tried(ledger):
        assert message.startswith(f"{ledger.path}: ")


def test_a_name_that_no_file_has_is_refused():
    for message in tried(Ledger(Path("a\0b"), "d", "person", "change-one", ZCDP(1))):
        assert "is not a file name" in message


def application_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[68:72])


def test_a_ledger_says_in_its_header_what_it_is(tmp_path):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    assert application_of(ledger.path).to_bytes(4) == b"CnVl"


def test_a_ledger_of_an_earlier_version_is_known_by_its_tables_and_named_at_the_next_write(
    tmp_path,
):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.75"))
    as_before_attempts(ledger.path)
    before = ledger.path.read_bytes()
    assert Ledger.limits_of(ledger.path) == (ZCDP(1), None)
    (line,) = ledger.charges()
    assert (line.release, line.attempt, line.measurements) == ("r1", 0, None)
    with pytest.raises(LedgerError, match="is left"):
        ledger.charge("r2", ZCDP("0.5"))
    assert ledger.path.read_bytes() == before, "neither looking nor a refusal changes it"
    assert application_of(ledger.path) == 0
    assert ledger.charge("r2", ZCDP("0.25"))
    assert application_of(ledger.path).to_bytes(4) == b"CnVl"
    assert [(line.release, line.attempt) for line in ledger.charges()] == [("r1", 0), ("r2", 1)]


def test_a_crash_while_an_old_ledger_is_renewed_changes_nothing(tmp_path, monkeypatch):
    ledger = book(tmp_path)
    ledger.charge("r1", ZCDP("0.1"))
    as_before_attempts(ledger.path)
    before = ledger.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_set_limits", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.charge("r2", ZCDP("0.1"))
    assert ledger.path.read_bytes() == before
    assert ledger.charge("r2", ZCDP("0.1"))


def test_a_crash_between_the_file_and_its_first_charge_leaves_an_empty_ledger(
    tmp_path, monkeypatch
):
    ledger = book(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "_set_limits", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.charge("r1", ZCDP("0.1"))
    assert ledger.path.exists()
    assert ledger.charges() == []
    assert Ledger.limits_of(ledger.path) == (None, None)
    other = book(tmp_path, total=ZCDP(5), dataset="e")
    assert other.charge("r1", ZCDP(4)), "no limit was set yet"
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_a_crash_while_a_ledger_is_made_leaves_no_file_of_that_name(tmp_path, monkeypatch):
    """On a file system without nameless files, too."""

    def refuse(*arguments):
        raise OSError(95, "Operation not supported")

    def crash(*arguments):
        raise KeyboardInterrupt

    ledger = book(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "_link_nameless", refuse)
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge("r1", ZCDP("0.1"))
    assert not ledger.path.exists()
    assert ledger.charge("r1", ZCDP("0.1"))


@pytest.mark.parametrize("fails", ["open", "link"])
def test_a_file_system_without_nameless_files_takes_a_ledger_too(tmp_path, monkeypatch, fails):
    real_open = os.open

    def refuse(*arguments, **options):
        raise OSError(95, "Operation not supported")

    def opened(path, flags, *rest, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            refuse()
        return real_open(path, flags, *rest, **options)

    if fails == "open":
        monkeypatch.setattr(os, "open", opened)
    else:
        monkeypatch.setattr(os, "link", refuse)
    ledger = book(tmp_path)
    assert ledger.charge("r1", ZCDP("0.1"))
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    """Another process makes the ledger, or anything else, right before this one would."""
    ledger = book(tmp_path)
    real = ledger_file._make

    def late(path):
        path.write_bytes(b"precious" * 100)
        real(path)

    monkeypatch.setattr(ledger_file, "_make", late)
    with pytest.raises(LedgerError, match="not usable as a ledger"):
        ledger.charge("r1", ZCDP("0.1"))
    assert ledger.path.read_bytes() == b"precious" * 100


@pytest.mark.parametrize("words", [("release", "--quiet"), ("check",)])
def test_the_command_line_refuses_them_with_status_2(tiny, words):
    """The attack: a plan from somebody else names a ledger that is a link to a file of yours."""
    folder = tiny.parent
    victim = folder / "victim"
    of_another_program(victim, "CREATE TABLE photos (name TEXT)")
    victim.chmod(0o644)
    before = (victim.stat().st_mode, victim.read_bytes())
    options = ("--to", folder / "out") if words[0] == "release" else ()
    for name in ("link", "victim"):
        if name == "link":
            (folder / "link").symlink_to(victim)
        tiny.write_text(tiny.read_text().split("[ledger]")[0] + f'[ledger]\npath = "{name}"\n')
        ran = run(words[0], tiny, *words[1:], *options)
        assert ran.status == 2
        assert ("not written through one" if name == "link" else "is not a ledger") in ran.err
        assert not (folder / "out").exists()
        assert not (folder / "out-internal").exists()
    assert (victim.stat().st_mode, victim.read_bytes()) == before


def test_verify_does_not_follow_a_link_either(tiny):
    folder = tiny.parent
    assert run("release", tiny, "--to", folder / "out", "--quiet").status == 0
    (folder / "link").symlink_to(folder / "ledger.sqlite")
    verify = ("verify", folder / "out", "--ledger")
    assert run(*verify, folder / "ledger.sqlite").status == 0
    ran = run(*verify, folder / "link")
    assert ran.status == 2
    assert "not written through one" in ran.err
