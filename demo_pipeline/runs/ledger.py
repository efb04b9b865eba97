"""The ledger of uploads: what discovery keeps between ticks, in a SQLite file beside Dagster's.

Belongs here: reading and writing that file. It may be deleted at any time: a listing and the run
history restore everything but the requested reruns that were not launched. A damaged file, or one
of another version, is renamed to `<name>.damaged`.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import msgspec

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.upload_decisions import (
    SUPERSEDED_REASON,
    LedgerClock,
    ObservedFile,
    UploadRecord,
    UploadState,
    advance_clock,
)
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_former_id, safe_id

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


class ListingKind(StrEnum):
    """`folders` of the uploads, `sweep` over every object, `ends`: failed and cancelled runs."""

    FOLDERS = "folders"
    SWEEP = "sweep"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class ListingCursor:
    """Where a listing continues.

    Attributes:
        token: of the next page; None at the beginning.
        number: how many listings of this kind were completed before.
        failures: how often in a row storage refused the token.
    """

    token: str | None = None
    number: int = 0
    failures: int = 0


_COLUMNS = (
    "name, id, state, files, fingerprint, since, changed, run_key, accepted, missing, "
    "missing_sweep, due"
)
_FILES = msgspec.json.Decoder(tuple[ObservedFile, ...])
_BIT = {name: 1 << place for place, name in enumerate(RECORDING_FILES)}
_QUERY_NAMES = 500  # names in one query


class Ledger:
    """The open ledger; see `open`. One process runs ticks, others may request reruns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ledger at `path`; a new one when the file is missing or damaged.

        Raises:
            StorageError: the file cannot be opened or written.
        """
        return cls(open_database(path))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything written inside is kept, or nothing is."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def request_rerun(self, demonstration: str, reason: str) -> None:
        """Request another run of a demonstration, whether or not its upload changed.

        Args:
            demonstration: an id, known already or not yet; nothing runs while its upload is gone.
            reason: goes into the run's request. `SUPERSEDED_REASON` only requests another poll.
        """
        statement = "INSERT OR REPLACE INTO wishes (id, reason, run_key) VALUES (?, ?, NULL)"
        self._connection.execute(statement, (demonstration, reason))

    def states(self) -> dict[str, UploadState]:
        """State of every id ever seen; of several folders with one id, of the first not gone."""
        rows = self._connection.execute(
            "SELECT id, state FROM demonstrations ORDER BY state = 'gone' DESC, name DESC"
        )
        return {key: UploadState(state) for key, state in rows}

    def counts(self) -> dict[UploadState, int]:
        """How many folders are in each state."""
        rows = self._connection.execute("SELECT state, count(*) FROM demonstrations GROUP BY state")
        return dict.fromkeys(UploadState, 0) | {UploadState(state): count for state, count in rows}

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders have, with the folders' names, sorted."""
        present = "FROM demonstrations WHERE state != 'gone'"
        colliding = f"SELECT id {present} GROUP BY id HAVING count(*) > 1"
        rows = self._connection.execute(
            f"SELECT id, name {present} AND id IN ({colliding}) ORDER BY id, name"
        )
        folders: dict[str, tuple[str, ...]] = {}
        for key, name in rows:
            folders[key] = (*folders.get(key, ()), _read_text(name))
        return folders

    def begin_tick(self, now: float) -> float:
        """The ledger's time at machine time `now`; marks requested reruns as due."""
        with self.transaction():
            row = self._connection.execute("SELECT time, wall, debt FROM clock").fetchone()
            clock = advance_clock(LedgerClock(*row), now) if row else LedgerClock(now, now)
            self._connection.execute(
                "INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)",
                (clock.time, clock.wall, clock.debt),
            )
            self._connection.execute(
                "UPDATE demonstrations SET fingerprint = NULL, due = ? WHERE state IN "
                "('pending', 'accepted') AND id IN (SELECT id FROM wishes WHERE reason = ?)",
                (clock.time, SUPERSEDED_REASON),
            )
            self._connection.execute("DELETE FROM wishes WHERE reason = ?", (SUPERSEDED_REASON,))
            self._rename_former_ids(clock.time)
            self._connection.execute(
                "UPDATE demonstrations SET due = ? WHERE state = 'accepted' AND due IS NULL "
                "AND id IN (SELECT id FROM wishes WHERE run_key IS NULL)",
                (clock.time,),
            )
        return clock.time

    def _rename_former_ids(self, time: float) -> None:
        """Treat folders whose id an earlier version gave as new ones with their present id."""
        rows = self._connection.execute(
            "SELECT DISTINCT id FROM demonstrations "
            "WHERE id LIKE '%.' OR id LIKE '%.json' OR id LIKE '%.lock'"
        ).fetchall()
        for (former,) in rows:
            if is_former_id(former):
                self._connection.execute(
                    "UPDATE demonstrations SET id = ?, state = 'pending', fingerprint = NULL, "
                    "run_key = NULL, accepted = NULL, due = ? WHERE id = ?",
                    (safe_id(former), time, former),
                )

    def last_tick(self) -> float | None:
        """When the last tick began by the machine's clock, epoch seconds; None before the first."""
        row = self._connection.execute("SELECT wall FROM clock").fetchone()
        return None if row is None else float(row[0])

    def idle(self, ids: Iterable[str]) -> list[str]:
        """Those of these ids that are accepted and not due, sorted."""
        query = "SELECT id FROM demonstrations WHERE state = 'accepted' AND due IS NULL AND id = ?"
        return [
            key for key in sorted(set(ids)) if self._connection.execute(query, (key,)).fetchone()
        ]

    def mark_due(self, ids: Iterable[str], time: float) -> None:
        """Poll those of these ids that are accepted."""
        self._connection.executemany(
            "UPDATE demonstrations SET due = ? WHERE state = 'accepted' AND id = ?",
            ((time, key) for key in ids),
        )

    def reruns(self, demonstration: str) -> list[tuple[str, str | None]]:
        """(reason, key of the run requested for it) of each requested rerun, sorted."""
        return self._connection.execute(
            "SELECT reason, run_key FROM wishes WHERE id = ? AND reason != ? ORDER BY reason",
            (demonstration, SUPERSEDED_REASON),
        ).fetchall()

    def grant_reruns(self, demonstration: str, run_key: str) -> None:
        """Note that the run with this key serves all requested reruns of a demonstration."""
        self._connection.execute(
            "UPDATE wishes SET run_key = ? WHERE id = ? AND reason != ?",
            (run_key, demonstration, SUPERSEDED_REASON),
        )

    def forget_reruns(self, demonstration: str, run_key: str | None) -> None:
        """Delete the requested reruns that the run with this key served; None: all of them."""
        chosen = "" if run_key is None else " AND run_key = ?"
        self._connection.execute(
            f"DELETE FROM wishes WHERE id = ?{chosen}",  # noqa: S608 - constants
            (demonstration,) if run_key is None else (demonstration, run_key),
        )

    def requested(self, limit: int) -> list[UploadRecord]:
        """Uploads that a run was requested for, longest waiting first."""
        return self._select("WHERE state = 'requested' ORDER BY due, name LIMIT ?", limit)

    def due(self, time: float, limit: int, *, complete: bool) -> list[UploadRecord]:
        """Uploads to poll by `time`, longest waiting first: the complete or the incomplete."""
        return self._select(
            "WHERE (fingerprint IS NULL) = ? AND due <= ? ORDER BY due, name LIMIT ?",
            int(not complete),
            time,
            limit,
        )

    def records(self, names: Sequence[str]) -> dict[str, UploadRecord]:
        """The records of these folders, by name; unknown names are left out."""
        records: dict[str, UploadRecord] = {}
        for start in range(0, len(names), _QUERY_NAMES):
            part = [_write_text(name) for name in names[start : start + _QUERY_NAMES]]
            marks = ", ".join("?" * len(part))
            selected = self._select(f"WHERE name IN ({marks})", *part)
            records |= {record.name: record for record in selected}
        return records

    def save(self, records: Iterable[UploadRecord]) -> None:
        """Insert or replace records."""
        columns = f"{_COLUMNS}, expected"
        marks = ", ".join("?" * (columns.count(",") + 1))
        updates = ", ".join(f"{column} = excluded.{column}" for column in columns.split(", ")[1:])
        self._connection.executemany(
            f"INSERT INTO demonstrations ({columns}) VALUES ({marks}) "  # noqa: S608 - constants
            f"ON CONFLICT (name) DO UPDATE SET {updates}",
            map(_write_record, records),
        )

    def mark_seen(self, sweep: int, files: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Note which files a sweep saw.

        Args:
            sweep: its number.
            files: folder's name → those of `RECORDING_FILES` that were seen in it, as pairs.
        """
        bits = ((sum(_BIT[file] for file in seen), name) for name, seen in files)
        self._connection.executemany(
            "UPDATE demonstrations SET seen = CASE WHEN sweep = ?2 THEN seen | ?1 ELSE ?1 END, "
            "sweep = ?2 WHERE name = ?3",
            ((bit, sweep, _write_text(name)) for bit, name in bits),
        )

    def mark_unseen_due(self, sweep: int, time: float) -> None:
        """Poll every folder of which a sweep, now at its end, missed an expected file."""
        self._connection.execute(
            "UPDATE demonstrations SET due = min(ifnull(due, ?1), ?1) WHERE state != 'gone' "
            "AND (sweep != ?2 OR (seen & expected) != expected)",
            (time, sweep),
        )

    def listing_cursor(self, kind: ListingKind) -> ListingCursor:
        """Where the listing continues."""
        row = self._connection.execute(
            "SELECT token, number, failures FROM listings WHERE kind = ?", (kind,)
        ).fetchone()
        if row is None:
            return ListingCursor()
        token, number, failures = row
        return ListingCursor(None if token is None else _read_text(token), number, failures)

    def set_listing_cursor(self, kind: ListingKind, cursor: ListingCursor) -> None:
        """Save where the listing continues."""
        token = None if cursor.token is None else _write_text(cursor.token)
        self._connection.execute(
            "INSERT OR REPLACE INTO listings VALUES (?, ?, ?, ?)",
            (kind, token, cursor.number, cursor.failures),
        )

    def _select(self, where: str, *values: Any) -> list[UploadRecord]:
        statement = f"SELECT {_COLUMNS} FROM demonstrations {where}"  # noqa: S608 - constants
        return [_read_record(row) for row in self._connection.execute(statement, values)]


def _read_record(row: tuple[Any, ...]) -> UploadRecord:
    """The record in a row of `_COLUMNS`."""
    name, key, state, files, *rest = row
    return UploadRecord(_read_text(name), key, UploadState(state), _FILES.decode(files), *rest)


def _write_record(record: UploadRecord) -> tuple[Any, ...]:
    """Values for `_COLUMNS` and, last, the bits of the files in the folder."""
    return (
        _write_text(record.name),
        record.id,
        record.state,
        msgspec.json.encode(record.files).decode(),
        record.fingerprint,
        record.since,
        record.changed,
        record.run_key,
        record.accepted,
        record.missing,
        record.missing_sweep,
        record.due,
        sum(_BIT[name] for name, *_ in record.files),
    )


def _write_text(text: str) -> bytes:
    """Bytes: a folder's name may contain lone surrogates, which SQLite's text cannot hold."""
    return text.encode("utf-8", "surrogatepass")


def _read_text(data: bytes) -> str:
    """The inverse of `_write_text`."""
    return data.decode("utf-8", "surrogatepass")
