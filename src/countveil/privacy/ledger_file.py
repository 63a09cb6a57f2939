"""The file of a ledger: made private, known by its application id, never reached through a link.

Reading changes nothing on the disk, whatever files are next to the ledger. Writing first rolls back
what a crash left half done, if the journal is one that a ledger leaves.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from countveil.errors import LedgerError, Unsettled

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
# The header of a database, and the first and last bytes of its journal (https://sqlite.org/fileformat2.html).
_HEADER = b"SQLite format 3\0"
_VERSIONS, _ID = slice(18, 20), slice(68, 72)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Closing a file drops every POSIX lock that this process has on it, also those that SQLite holds for
# another thread, so threads take turns.
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
        except ValueError:  # from a character that no name has
            raise LedgerError(f"{str(path)!r}: is not the name of a file") from None
        if stat.S_ISLNK(mode):
            raise LedgerError(
                f"{name}: is a link, and a ledger is never written through one; name the file itself"
            )
        if not stat.S_ISREG(mode):
            raise LedgerError(f"{name}: is not a plain file; name another ledger")
    return os.path.lexists(path)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to a ledger that is there, once it is seen to be one; change no file.

    Refused where a crash left a transaction half done: undoing it is for those who write.
    """
    with _TURN, _translated(path):
        _refuse_foreign_at_sight(path)
        with _connected(path, "ro") as connection:
            _refuse_foreign(path, connection)
            yield connection


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a ledger, made if there is none; what is committed survives a power cut.

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
    """Roll back what a crash left half done in a ledger; do nothing where there is nothing to undo."""
    if not is_there(path) or not _beside(path, _JOURNAL).exists():
        return
    with _TURN, _translated(path):
        _refuse_foreign_at_sight(path)
        _refuse_other_journal(path)
        with _connected(path, "rw") as connection:
            _refuse_foreign(path, connection)  # whoever reads rolls back first


def _commit(path: Path, connection: sqlite3.Connection) -> None:
    """Commit; say so if it cannot be known whether that was done."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) in _BUSY:
            raise  # nothing was written
        raise Unsettled(
            f"{path}: the disk failed while the ledger was written ({error}), so the last change may "
            f"or may not be in it; see to the disk, then run the same command again: it charges once"
        ) from error


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
    """Write a file under a name only once it is complete, so that a crash leaves nothing there."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            _link_nameless(path, data, folder)
        except FileExistsError:
            raise
        except OSError:  # some file systems have no files without a name
            _link_temporary(path, data)
        os.fsync(folder)
    finally:
        os.close(folder)


def _link_nameless(path: Path, data: bytes, folder: int) -> None:
    descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
    with _written(descriptor, data):
        # Naming a folder makes Python follow the link of /proc, as linkat(2) can.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder)


def _link_temporary(path: Path, data: bytes) -> None:
    create = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR
    temporary = path.with_name(f".countveil-temporary-{secrets.token_hex(8)}-{path.name}")
    try:
        with _written(os.open(temporary, create, 0o600), data):
            pass
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except (
            OSError
        ):  # and some have no links either: a crash here leaves a file that is cut short
            with _written(os.open(path, create, 0o600), data):
                pass
    finally:
        temporary.unlink(missing_ok=True)


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
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(_uri(path, mode), uri=True, timeout=_PATIENCE, isolation_level=None)
    ) as connection:
        yield connection


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Say of what SQLite trips over what to do about it."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _BUSY:
            raise LedgerError(
                f"{path}: another process holds it, and did for {_PATIENCE:g} s; nothing was written: "
                f"wait until it ends, and run the same command again"
            ) from error
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise LedgerError(
                f"{path}: a crash left a change half done, which {_beside(path, _JOURNAL).name} "
                f"undoes, and reading changes nothing; run the `countveil release` that stopped "
                f"once more, or restore the ledger from a backup"
            ) from error
        raise _unusable(path, str(error)) from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "its text is not UTF-8") from error


def _refuse_foreign_at_sight(path: Path) -> None:
    """Refuse another program's database before SQLite opens it for writing, which can change it.

    Its header is read as bytes, and its tables as if nothing could change them, without locks, journal
    or log. A ledger whose first page was torn by a crash shows no tables until it is rolled back.
    """
    header = _first_bytes(path, 100)
    if header == b"":
        raise LedgerError(f"{_foreign(path)}; it is empty: if a crash left it, delete it")
    if not header.startswith(_HEADER) or len(header) < 100:
        raise _unusable(path, "it is not a SQLite database")
    application = int.from_bytes(header[_ID])
    # A ledger keeps a journal, version 1, and never a write-ahead log, version 2.
    if application not in (0, _APPLICATION) or header[_VERSIONS] != b"\1\1":
        raise _foreign(path)
    if _beside(path, _WAL).exists():
        raise _foreign(path)
    torn = application == _APPLICATION and _beside(path, _JOURNAL).exists()
    with (
        suppress(sqlite3.DatabaseError) if torn else nullcontext(),
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
        raise LedgerError(f"{path}: cannot be read ({error.strerror})") from error


def _refuse_other_journal(path: Path) -> None:
    """Refuse a journal that no ledger leaves: SQLite would act on it, and delete it.

    At its end a journal may name a super-journal, of a transaction over several databases, and SQLite
    deletes the file of that name. A ledger is always alone.
    """
    journal = _beside(path, _JOURNAL)
    try:
        descriptor = os.open(journal, _PLAIN)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerError(f"{journal}: cannot be read ({error.strerror})") from error
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        data = file.read(len(_JOURNAL_MAGIC)), _last_bytes(file, len(_JOURNAL_MAGIC))
    owners = (os.geteuid(), path.lstat().st_uid)
    # Zeros stand for the magic until the journal is synced; before that nothing is rolled back.
    begins = data[0] in (_JOURNAL_MAGIC, bytes(len(_JOURNAL_MAGIC)), b"")
    ends = facts.st_size >= 16 and data[1] == _JOURNAL_MAGIC
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1 or facts.st_uid not in owners:
        why = "is not a plain file of yours"
    elif not begins or ends:
        why = "names another file to delete" if ends else "is not a journal of SQLite"
    else:
        return
    raise LedgerError(
        f"{journal}: {why}, and no ledger leaves such a journal; look where it came from, and move it "
        f"away or restore the ledger from a backup"
    )


def _last_bytes(file: BinaryIO, number: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - number))
    return file.read(number)


def _refuse_foreign(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse what is no ledger; one of an earlier version has exact tables but no application id."""
    named = dict(connection.execute("SELECT name, type FROM sqlite_master"))
    others = {name: kind for name, kind in named.items() if not str(name).startswith("sqlite_")}
    known = [tuple(_TABLES["charges"]), (*_TABLES["charges"], *_LATER)]
    if (
        _application(connection) not in (0, _APPLICATION)
        or others != dict.fromkeys(_TABLES, "table")
        or _columns(connection, "identity") != tuple(_TABLES["identity"])
        or _columns(connection, "charges") not in known
    ):
        raise _foreign(path)


def _unusable(path: Path, why: str) -> LedgerError:
    return LedgerError(
        f"{path}: not usable as a ledger ({why}); name another, or restore it from a backup"
    )


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
