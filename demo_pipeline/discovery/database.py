"""The ledger's SQLite file: opened, or created again when it cannot be used.

Belongs here: the schema and the opening. A damaged file, or a file of another version, is renamed
to `<name>.damaged`: everything in it but the requested reruns can be found again.
"""

import sqlite3
from pathlib import Path

from demo_pipeline.storage.errors import StorageError

VERSION = 1
_BUSY_SECONDS = 30
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS demonstrations (
    name BLOB PRIMARY KEY,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    files TEXT NOT NULL,
    fingerprint TEXT,
    since REAL NOT NULL,
    changed REAL NOT NULL,
    run_key TEXT,
    accepted TEXT,
    missing INTEGER NOT NULL,
    missing_sweep INTEGER NOT NULL,
    due REAL,
    expected INTEGER NOT NULL DEFAULT 0,
    sweep INTEGER NOT NULL DEFAULT -1,
    seen INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ids ON demonstrations (id, state);
CREATE INDEX IF NOT EXISTS states ON demonstrations (state, due);
CREATE INDEX IF NOT EXISTS dues ON demonstrations ((fingerprint IS NULL), due, name);
CREATE TABLE IF NOT EXISTS listings (
    kind TEXT PRIMARY KEY,
    token BLOB,
    number INTEGER NOT NULL,
    failures INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wishes (
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    run_key TEXT,
    PRIMARY KEY (id, reason)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    time REAL NOT NULL,
    wall REAL NOT NULL,
    debt REAL NOT NULL
);
PRAGMA user_version = {VERSION};
COMMIT;
"""


def open_database(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode to the ledger at `path`, created with its folders if needed.

    Raises:
        StorageError: the file cannot be opened or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _usable(path)
        if connection is None:
            _set_aside(path)
            connection = _usable(path)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path}: the ledger of uploads cannot be opened: {error}") from None
    if connection is None:
        raise StorageError(f"{path}: a new ledger of uploads cannot be read; check the disk")
    return connection


def _usable(path: Path) -> sqlite3.Connection | None:
    """A connection, None when the file is damaged or of another version."""
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        if _is_sound(connection):
            return connection
    except sqlite3.OperationalError:  # locked, read-only or full: the file itself is sound
        connection.close()
        raise
    except sqlite3.DatabaseError:
        pass
    connection.close()
    return None


def _is_sound(connection: sqlite3.Connection) -> bool:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version == 0 and not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        return True
    checked = connection.execute("PRAGMA quick_check(1)").fetchone()
    return bool(version == VERSION and checked == ("ok",))


def _set_aside(path: Path) -> None:
    path.replace(path.with_name(f"{path.name}.damaged"))
    for ending in ("-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
