"""The file of a ledger: made private, known by its application id, never reached through a link."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from countveil.errors import LedgerError

_APPLICATION = int.from_bytes(b"CnVl")  # in the header of the file: this database is a ledger
_PATIENCE = 60.0  # seconds to wait for another process
# What SQLite says of a database that another process holds, or recovers after a crash.
_BUSY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_BUSY_RECOVERY,
    sqlite3.SQLITE_BUSY_SNAPSHOT,
    sqlite3.SQLITE_LOCKED,
)
_JOURNAL, _WAL = "-journal", "-wal"
_SIDE_FILES = (_JOURNAL, _WAL, "-shm")  # what SQLite writes next to a database

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
# Added later: a line that was written before has attempt 0, no holder and no measurements.
_LATER = {
    "attempt": "INTEGER NOT NULL DEFAULT 0",
    "holder": "TEXT NOT NULL DEFAULT ''",
    "measurements": "TEXT NOT NULL DEFAULT ''",
}


def is_there(path: Path) -> bool:
    """Return whether a ledger has a file; refuse a link, which leads elsewhere, a pipe or a folder."""
    for name in (path, *(_beside(path, end) for end in _SIDE_FILES)):
        try:
            mode = name.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LedgerError(f"{path}: cannot be read ({error.strerror})") from error
        if stat.S_ISLNK(mode):
            raise LedgerError(
                f"{name}: is a link, and a ledger is never written through one; name the file itself"
            )
        if not stat.S_ISREG(mode):
            raise LedgerError(f"{name}: is not a plain file; name another ledger")
    return os.path.lexists(path)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to a ledger that is there, once it is seen to be one."""
    with _connected(path) as connection:
        _refuse_foreign(path, connection)
        yield connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a ledger, made if there is none; what is committed survives a power cut.

    A ledger of an earlier version gets its application id and the columns it lacks.
    """
    if not is_there(path):
        _make(path)
    with _connected(path) as connection:
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
        connection.execute("COMMIT")


def has_later_columns(connection: sqlite3.Connection) -> bool:
    """Return whether a ledger counts attempts; one of an earlier version does from its next charge."""
    return set(_columns(connection, "charges")) >= set(_LATER)


def _make(path: Path) -> None:
    """Create an empty ledger that only its owner can read, whole or not at all; replace no file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as blank:
        for name, columns in _TABLES.items():
            kinds = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            blank.execute(f"CREATE TABLE {name} ({kinds})")
        _renew(blank)
        data = blank.serialize()
    try:
        with suppress(FileExistsError):  # another process was faster
            _write_new(path, data)
    except OSError as error:
        raise LedgerError(
            f"{path}: cannot be written ({error.strerror}); name a ledger in a folder you may write to"
        ) from error


def _write_new(path: Path, data: bytes) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            # Without a name until it is complete, so that a crash leaves nothing behind.
            descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
            with _written(descriptor, data):
                # Naming a folder makes Python follow the link of /proc, as linkat(2) can.
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder)
        except FileExistsError:
            raise
        except OSError:  # some file systems have no such files
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR, 0o600)
            with _written(descriptor, data):
                pass
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _written(descriptor: int, data: bytes) -> Iterator[None]:
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
        yield


def _renew(connection: sqlite3.Connection) -> None:
    """Give a ledger what an earlier version did not."""
    if not has_later_columns(connection):
        for name, kind in _LATER.items():
            connection.execute(f"ALTER TABLE charges ADD COLUMN {name} {kind}")
    if _application(connection) != _APPLICATION:
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")


def _refuse_open_to_others(path: Path) -> None:
    """Refuse to write to a ledger that is open to others; its mode is for its owner to change.

    Another user's may be open to their group: they decided that.
    """
    facts = path.lstat()
    if facts.st_uid == os.geteuid():
        if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise LedgerError(
                f"{path}: other users can open it (mode {stat.S_IMODE(facts.st_mode):o}), and a ledger "
                f"is private; close it with `chmod 600 {path}`"
            )
    elif facts.st_mode & stat.S_IRWXO:
        raise LedgerError(
            f"{path}: belongs to another user and is open to everyone; its owner closes it with "
            f"`chmod o= {path}`"
        )


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect for writing, even to read: SQLite then rolls back what a crash left half done."""
    try:
        _refuse_foreign_at_sight(path)
        with closing(
            sqlite3.connect(_uri(path, "rw"), uri=True, timeout=_PATIENCE, isolation_level=None)
        ) as connection:
            yield connection
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in _BUSY:
            raise LedgerError(
                f"{path}: another process holds it, and did for {_PATIENCE:g} s; nothing was written: "
                f"wait until it ends, and run the same command again"
            ) from error
        raise LedgerError(
            f"{path}: not usable as a ledger ({error}); name another, or restore it from a backup"
        ) from error


def _refuse_foreign_at_sight(path: Path) -> None:
    """Refuse another program's database before SQLite opens it for writing, which can change it.

    It is read as if nothing could change it, without locks, journal or log. What cannot be told so, as
    while a crash is not rolled back, is told once the file is open.
    """
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(_uri(path, "ro&immutable=1"), uri=True)) as probe,
    ):
        if _application(probe) == _APPLICATION:
            return
        if _application(probe) == 0 and _beside(path, _JOURNAL).exists():
            return
        if _beside(path, _WAL).exists():  # a ledger has none
            raise _foreign(path)
        _refuse_foreign(path, probe)


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse what is no ledger; one of an earlier version has exact tables but no application id."""
    named = dict(connection.execute("SELECT name, type FROM sqlite_master"))
    others = {name: kind for name, kind in named.items() if not name.startswith("sqlite_")}
    known = [tuple(_TABLES["charges"]), (*_TABLES["charges"], *_LATER)]
    if (
        _application(connection) not in (0, _APPLICATION)
        or others != dict.fromkeys(_TABLES, "table")
        or _columns(connection, "identity") != tuple(_TABLES["identity"])
        or _columns(connection, "charges") not in known
    ):
        raise _foreign(path)


def _foreign(path: Path) -> LedgerError:
    return LedgerError(
        f"{path}: is not a ledger, or one of another version of countveil, and it is left as it is; "
        f"name a file that does not exist yet, or restore the ledger from a backup"
    )


def _application(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"
