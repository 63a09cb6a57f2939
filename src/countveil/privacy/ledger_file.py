"""The file of a ledger: private, recognised by its application id, never reached through a link.

Reading changes nothing on the disk, whichever files are next to the ledger. Writing first rolls back a
transaction that a crash interrupted, provided that its journal is one that a ledger leaves.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from countveil.errors import LedgerError, Unsettled

_APPLICATION = int.from_bytes(b"CnVl")  # in the header of the file: it is a ledger
_PATIENCE = 60.0  # seconds to wait for another process
# SQLite's codes for a database that another process has locked or is recovering.
_BUSY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_BUSY_RECOVERY,
    sqlite3.SQLITE_BUSY_SNAPSHOT,
    sqlite3.SQLITE_LOCKED,
)
_JOURNAL, _WAL = "-journal", "-wal"
_SIDE_FILES = (_JOURNAL, _WAL, "-shm")  # files that SQLite writes next to a database
# The header of a database, and the first and last bytes of its journal (https://sqlite.org/fileformat2.html).
_HEADER = b"SQLite format 3\0"
_VERSIONS, _ID = slice(18, 20), slice(68, 72)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Closing a file drops every POSIX lock of this process on it, even those that SQLite holds for another
# thread, so threads take turns.
_TURN = threading.Lock()

_TABLES = {
    "identity": {"name": "TEXT PRIMARY KEY", "value": "TEXT NOT NULL"},
    "charges": {
        "number": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "release": "TEXT NOT NULL UNIQUE",
        "currency": "TEXT NOT NULL",
        "amount": "TEXT NOT NULL",
        "charged_on": "TEXT NOT NULL",
        "description": "TEXT NOT NULL",
    },
}
# Added later: older lines have attempt 0, no holder and no measurements.
_LATER = {
    "attempt": "INTEGER NOT NULL DEFAULT 0",
    "holder": "TEXT NOT NULL DEFAULT ''",
    "measurements": "TEXT NOT NULL DEFAULT ''",
}


def is_there(path: Path) -> bool:
    """Return whether a ledger exists; refuse a symbolic link, a pipe or a folder."""
    for name in (path, *(_next_to(path, end) for end in _SIDE_FILES)):
        try:
            mode = name.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LedgerError(
                f"{path}: cannot be read ({error.strerror}); fix this, or name another ledger"
            ) from error
        except ValueError:  # a character that no file name can have
            raise LedgerError(f"{str(path)!r}: is not a file name; name another ledger") from None
        if stat.S_ISLNK(mode):
            raise LedgerError(
                f"{name}: is a symbolic link, and a ledger is not written through one; name the file"
            )
        if not stat.S_ISREG(mode):
            raise LedgerError(f"{name}: is not a plain file; name another ledger")
    return os.path.lexists(path)


@contextmanager
def connect_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to an existing ledger, after checking that it is one; change no file.

    Refused if a crash interrupted a transaction: only writing rolls it back.
    """
    with _TURN, _translated(path):
        _refuse_foreign_at_sight(path)
        with _connected(path, "ro") as connection:
            _refuse_foreign(path, connection)
            yield connection


@contextmanager
def connect_to_write(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a ledger, creating it if needed; commits survive a power cut.

    A ledger of an earlier version gets its application id and the columns it lacks.
    """
    if not is_there(path):
        _make(path)
    with _TURN, _translated(path):
        _refuse_foreign_at_sight(path)
        _refuse_other_journal(path)
        with _connected(path, "rw") as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE")
            try:
                _refuse_foreign(path, connection)
                _refuse_open_to_others(path)
                _renew(connection)
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            _commit(path, connection)


def recover(path: Path) -> None:
    """Roll back a transaction that a crash interrupted, if there is one."""
    if not is_there(path) or not _next_to(path, _JOURNAL).exists():
        return
    with _TURN, _translated(path):
        _refuse_foreign_at_sight(path)
        _refuse_other_journal(path)
        with _connected(path, "rw") as connection:
            _refuse_foreign(path, connection)  # SQLite rolls back before it reads


def _commit(path: Path, connection: sqlite3.Connection) -> None:
    """Commit; raise Unsettled if it is unknown whether that succeeded."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in _BUSY:
            raise  # nothing was written
        raise Unsettled(
            f"{path}: the disk failed while the ledger was written ({error}), so the last change may "
            f"or may not be in it; fix the disk and run the same command again: it charges once"
        ) from error


def has_later_columns(connection: sqlite3.Connection) -> bool:
    """Return whether a ledger counts attempts; an older one does so from its next charge on."""
    return set(_columns(connection, "charges")) >= set(_LATER)


def _make(path: Path) -> None:
    """Create an empty private ledger, completely or not at all; never replace a file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as blank:
        for name in _TABLES:
            blank.execute(_definition(name, later=False))
        _renew(blank)
        data = blank.serialize()
    try:
        with suppress(FileExistsError):  # another process created it first
            _write_new(path, data)
    except OSError as error:
        raise LedgerError(
            f"{path}: cannot be written ({error.strerror}); name a ledger in a folder you can write to"
        ) from error


def _write_new(path: Path, data: bytes) -> None:
    """Give a file its name only once it is complete, so that a crash leaves nothing."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            _link_nameless(path, data, folder)
        except FileExistsError:
            raise
        except OSError:  # some file systems have no unnamed files
            _link_temporary(path, data)
        os.fsync(folder)
    finally:
        os.close(folder)


def _link_nameless(path: Path, data: bytes, folder: int) -> None:
    descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
    with _write_and_hold(descriptor, data):
        # Naming a folder makes Python follow the link of /proc, as linkat(2) can.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder)


def _link_temporary(path: Path, data: bytes) -> None:
    create = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR
    temporary = path.with_name(f".countveil-temporary-{secrets.token_hex(8)}-{path.name}")
    try:
        with _write_and_hold(os.open(temporary, create, 0o600), data):
            pass
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems have no hard links either. A crash here leaves a truncated file.
            with _write_and_hold(os.open(path, create, 0o600), data):
                pass
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _write_and_hold(descriptor: int, data: bytes) -> Iterator[None]:
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        yield


def _renew(connection: sqlite3.Connection) -> None:
    """Add what ledgers of earlier versions lack."""
    if not has_later_columns(connection):
        for name, kind in _LATER.items():
            connection.execute(f"ALTER TABLE charges ADD COLUMN {name} {kind}")
    if _application(connection) != _APPLICATION:
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")


def _refuse_open_to_others(path: Path) -> None:
    """Refuse to write to a ledger that other users can open; its owner can change that.

    A ledger of another user may be open to a group: that was their decision.
    """
    facts = path.lstat()
    if facts.st_uid == os.geteuid():
        if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise LedgerError(
                f"{path}: other users can open it (mode {stat.S_IMODE(facts.st_mode):o}), and a ledger "
                f"is private; run `chmod 600 {path}`"
            )
    elif facts.st_mode & stat.S_IRWXO:
        raise LedgerError(
            f"{path}: belongs to another user and everyone can open it; its owner can run "
            f"`chmod o= {path}`"
        )


@contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(_uri(path, mode), uri=True, timeout=_PATIENCE, isolation_level=None)
    ) as connection:
        yield connection


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into ours, which say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _BUSY:
            raise LedgerError(
                f"{path}: another process has kept it locked for {_PATIENCE:g} s; nothing was written: "
                f"wait until it ends, and run the same command again"
            ) from error
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise LedgerError(
                f"{path}: a crash interrupted a change, which {_next_to(path, _JOURNAL).name} undoes, "
                f"and reading changes nothing; rerun the `countveil release` that stopped, or restore "
                f"the ledger from a backup"
            ) from error
        raise _unusable(path, str(error)) from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "its text is not UTF-8") from error


def _refuse_foreign_at_sight(path: Path) -> None:
    """Refuse another program's database before SQLite opens it for writing, which can change it.

    The header is read as bytes, and the tables as immutable, without locks, journal or log. If a crash
    damaged the first page of a ledger, its tables cannot be read until it is rolled back; nor can they
    while another process changes it.
    """
    header = _first_bytes(path, 100)
    if header == b"":
        raise LedgerError(f"{_foreign(path)}; it is empty: delete it if a crash left it")
    if not header.startswith(_HEADER) or len(header) < 100:
        raise _unusable(path, "it is not a SQLite database")
    application = int.from_bytes(header[_ID])
    # A ledger keeps a journal, version 1, and never a write-ahead log, version 2.
    if application not in (0, _APPLICATION) or header[_VERSIONS] != b"\1\1":
        raise _foreign(path)
    if _next_to(path, _WAL).exists():
        raise _foreign(path)
    # What another process is writing just now may be read in halves; of a ledger, the tables are
    # compared again under the lock.
    with (
        suppress(sqlite3.DatabaseError) if application == _APPLICATION else nullcontext(),
        closing(sqlite3.connect(_uri(path, "ro&immutable=1"), uri=True)) as probe,
    ):
        _refuse_foreign(path, probe)


def _first_bytes(path: Path, number: int) -> bytes:
    try:
        with open(os.open(path, _PLAIN), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LedgerError(f"{path}: is not a plain file; name another ledger")
            return file.read(number)
    except OSError as error:
        raise LedgerError(
            f"{path}: cannot be read ({error.strerror}); fix this, or name another ledger"
        ) from error


def _refuse_other_journal(path: Path) -> None:
    """Refuse a journal that no ledger leaves: SQLite would apply and delete it.

    A journal may end with the name of a super-journal, for a transaction over several databases, and
    SQLite deletes that file. A transaction of a ledger never involves another database.
    """
    journal = _next_to(path, _JOURNAL)
    try:
        descriptor = os.open(journal, _PLAIN)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerError(
            f"{journal}: cannot be read ({error.strerror}); fix this and rerun"
        ) from error
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        data = file.read(len(_JOURNAL_MAGIC)), _last_bytes(file, len(_JOURNAL_MAGIC))
    owners = (os.geteuid(), path.lstat().st_uid)
    # Until the journal is synced, zeros stand for the magic, and nothing is rolled back.
    begins = data[0] in (_JOURNAL_MAGIC, bytes(len(_JOURNAL_MAGIC)), b"")
    ends = facts.st_size >= 16 and data[1] == _JOURNAL_MAGIC
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1 or facts.st_uid not in owners:
        why = "is not a plain file of yours"
    elif not begins or ends:
        why = "names another file to delete" if ends else "is not an SQLite journal"
    else:
        return
    raise LedgerError(
        f"{journal}: {why}, and no ledger leaves such a journal; find out where it came from, then "
        f"move it away or restore the ledger from a backup"
    )


def _last_bytes(file: BinaryIO, number: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - number))
    return file.read(number)


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse other databases; an older ledger has the exact tables, but no application id.

    Their definitions are compared, not only their columns: ON CONFLICT could drop a charge, or CHECK
    refuse one.
    """
    named = connection.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
    tables = {
        name: (kind, _without_blanks(sql))
        for name, kind, sql in named
        if not str(name).startswith("sqlite_")
    }
    known = [
        {name: ("table", _without_blanks(_definition(name, later))) for name in _TABLES}
        for later in (False, True)
    ]
    if _application(connection) not in (0, _APPLICATION) or tables not in known:
        raise _foreign(path)


def _definition(table: str, later: bool) -> str:
    """Return the statement that creates a table, with the columns added later or without them."""
    columns = _TABLES[table] | (_LATER if later and table == "charges" else {})
    return f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})"


def _without_blanks(statement: object) -> str:
    """Return a statement as one line; earlier versions wrote it on several."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(str(statement).split()))


def _unusable(path: Path, why: str) -> LedgerError:
    return LedgerError(
        f"{path}: not usable as a ledger ({why}); name another, or restore it from a backup"
    )


def _foreign(path: Path) -> LedgerError:
    return LedgerError(
        f"{path}: is not a ledger of this version of countveil, and was not changed; name a file that "
        f"does not exist yet, or restore the ledger from a backup"
    )


def _application(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def _next_to(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"
