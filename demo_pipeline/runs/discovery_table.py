"""The table of discovery: a row for each folder of the uploads, in a SQLite file beside Dagster's.

Belongs here: reading and writing that file. It may be deleted at any time: a listing of the uploads
and the store restore everything but reruns that were requested and not launched. A damaged file, or
one of another version, is renamed to `<name>.damaged`.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from demo_pipeline.runs.failures import FIRST_PAUSE_SECONDS
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_folder_name

VERSION = 2
_BUSY_SECONDS = 30


class UploadState(StrEnum):
    """State of an upload.

    `pending`: incomplete, or not yet stable.
    `requested`: complete; a run is requested and not yet launched.
    `accepted`: a run was launched for the present files, or they need none.
    `gone`: no longer in the uploads.
    """

    PENDING = "pending"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    GONE = "gone"


class ObservedFile(NamedTuple):
    """A file of an upload as it is compared; `modified` is cut to whole epoch seconds."""

    name: str
    etag: str
    size: int
    modified: int


@dataclass(frozen=True, slots=True)
class Upload:
    """One row. Times are seconds of discovery's own clock.

    Attributes:
        name: the folder's own name.
        id: safe id; several names may have the same.
        state: see `UploadState`.
        files: those of `RECORDING_FILES` that the last poll found.
        fingerprint: of those files when they are complete, else None.
        since: when the files were first observed as they are.
        accepted: fingerprint that the last run was launched for, or that needed none.
        cause: why the last run was requested, or the next is: `new`, `changed`, the reason of a
            requested rerun, or how the run before ended; empty when nothing is left to do.
        reason: what a waiting upload waits for, in plain words.
        attempts: how many runs in a row ended with this cause.
        run_key: of the run that is requested.
        run: id of the run that was launched, until it has ended.
        due: when to poll again; None: not before a listing shows a difference.
        wish: reason of a requested rerun; written by `request_rerun` alone.
    """

    name: str
    id: str
    state: UploadState = UploadState.PENDING
    files: tuple[ObservedFile, ...] = ()
    fingerprint: str | None = None
    since: float = 0.0
    accepted: str | None = None
    cause: str = ""
    reason: str = ""
    attempts: int = 0
    run_key: str | None = None
    run: str | None = None
    due: float | None = 0.0
    wish: str | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Discovery's clock, which never runs backwards, and how far the listing is.

    `wall` is the machine's clock at that time, `debt` the seconds by which that was set back and
    not yet forward again. The listing continues at `token`, which storage refused so many times in
    a row; `sweep` listings were begun before.
    """

    time: float
    wall: float
    debt: float = 0.0
    token: str | None = None
    sweep: int = 0
    refusals: int = 0


_COLUMNS = ", ".join(field.name for field in fields(Upload))
_SAVED = [field.name for field in fields(Upload) if field.name != "wish"]
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS uploads (
    {_COLUMNS}, sweep DEFAULT -1, seen DEFAULT 0, PRIMARY KEY (name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ids ON uploads (id, state);
CREATE INDEX IF NOT EXISTS states ON uploads (state, due);
CREATE INDEX IF NOT EXISTS dues ON uploads ((fingerprint IS NULL), due, name);
CREATE INDEX IF NOT EXISTS runs ON uploads (run) WHERE run IS NOT NULL;
CREATE INDEX IF NOT EXISTS wishes ON uploads (wish) WHERE wish IS NOT NULL;
CREATE TABLE IF NOT EXISTS position (one PRIMARY KEY, value);
PRAGMA user_version = {VERSION};
COMMIT;
"""


def table_path(storage: Path, uploads: str) -> Path:
    """Path of the table for the uploads under a URL, in the storage folder of Dagster's home."""
    name = hashlib.sha256(uploads.encode()).hexdigest()[:12]
    return storage / "discovery" / f"{name}.sqlite"


class DiscoveryTable:
    """The open table; see `open`. One process runs ticks, others may request reruns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The table at `path`; a new one when the file is missing or damaged.

        Raises:
            StorageError: the file cannot be opened or written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = _usable(path)
            if connection is None:
                path.replace(path.with_name(f"{path.name}.damaged"))
                for ending in ("-wal", "-shm"):
                    path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
                connection = _usable(path)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"{path}: the table of uploads cannot be opened: {error}") from None
        if connection is None:
            raise StorageError(f"{path}: a new table of uploads cannot be read; check the disk")
        return cls(connection)

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

    def position(self) -> Position | None:
        """Where discovery is; None before its first tick."""
        row = self._connection.execute("SELECT value FROM position").fetchone()
        return None if row is None else Position(*json.loads(row[0]))

    def set_position(self, position: Position) -> None:
        """Save where discovery is."""
        value = json.dumps(astuple(position))
        self._connection.execute("INSERT OR REPLACE INTO position VALUES (1, ?)", (value,))

    def request_rerun(self, demonstration: str, reason: str) -> None:
        """Request another run of an id whose upload is there, whether or not it changed."""
        with self.transaction():
            if is_folder_name(demonstration):
                self._add([demonstration], demonstration)
            self._connection.execute(
                "UPDATE uploads SET wish = ? WHERE id = ?", (reason, demonstration)
            )

    def note_done(self, ids: Iterable[str]) -> None:
        """Note that a command processed these: they do not wait."""
        self._connection.executemany(
            "UPDATE uploads SET cause = '', reason = '', attempts = 0 "
            "WHERE id = ? AND cause = 'waiting'",
            ((key,) for key in ids),
        )

    def note_waiting(
        self, demonstration: str, names: Sequence[str], fingerprint: str, reason: str
    ) -> None:
        """Note that something passing stopped a command; the daemon may not know the folders yet.

        `names` are of its folders, `fingerprint` of the upload that was processed.
        """
        position = self.position() or Position(0.0, 0.0)
        with self.transaction():
            self._add(names, demonstration)
            self._connection.execute(
                "UPDATE uploads SET accepted = ?, attempts = 1 + attempts * (cause = 'waiting'), "
                "cause = 'waiting', reason = ?, run = NULL, due = ? WHERE id = ?",
                (fingerprint, reason, position.time + FIRST_PAUSE_SECONDS, demonstration),
            )

    def _add(self, names: Sequence[str], demonstration: str) -> None:
        known = self.named(names)
        self.save(Upload(name, demonstration) for name in names if name not in known)

    def counts(self) -> dict[UploadState, int]:
        """How many folders are in each state."""
        rows = self._connection.execute("SELECT state, count(*) FROM uploads GROUP BY state")
        return dict.fromkeys(UploadState, 0) | {UploadState(state): count for state, count in rows}

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders have, with the folders' names, sorted."""
        present = "FROM uploads WHERE state != 'gone'"
        rows = self._connection.execute(
            f"SELECT id, name {present} AND id IN "
            f"(SELECT id {present} GROUP BY id HAVING count(*) > 1) ORDER BY id, name"
        )
        folders: dict[str, tuple[str, ...]] = {}
        for key, name in rows:
            folders[key] = (*folders.get(key, ()), _text(name))
        return folders

    def by_id(self) -> dict[str, Upload]:
        """Every upload ever seen; of several folders with one id, the first that is not gone."""
        found = self._select("ORDER BY state = 'gone' DESC, name DESC")
        return {upload.id: upload for upload in found}

    def waiting(self) -> list[Upload]:
        """The uploads that something passing stopped, such as a full disk, sorted by id."""
        return self._select(
            "WHERE cause = 'waiting' AND run IS NULL AND state != 'gone' ORDER BY id"
        )

    def requested(self, limit: int) -> list[Upload]:
        """Uploads that a run was requested for, longest waiting first."""
        return self._select("WHERE state = 'requested' ORDER BY due, name LIMIT ?", limit)

    def due(self, time: float, limit: int, *, complete: bool) -> list[Upload]:
        """Uploads to poll by `time`, longest waiting first: the complete or the incomplete."""
        return self._select(
            "WHERE (fingerprint IS NULL) = ? AND due <= ? ORDER BY due, name LIMIT ?",
            int(not complete),
            time,
            limit,
        )

    def mark_wished_due(self, time: float) -> None:
        """Poll every accepted upload with a requested rerun."""
        self._connection.execute(
            "UPDATE uploads SET due = ? WHERE wish IS NOT NULL AND state = 'accepted' "
            "AND ifnull(due, ?1) >= ?1",
            (time,),
        )

    def clear_wish(self, demonstration: str) -> None:
        """Note that a run serves the requested rerun."""
        self._connection.execute("UPDATE uploads SET wish = NULL WHERE id = ?", (demonstration,))

    def runs(self) -> list[str]:
        """Ids of the runs that were launched and whose end was not seen yet, sorted."""
        rows = self._connection.execute(
            "SELECT DISTINCT run FROM uploads WHERE run IS NOT NULL ORDER BY run"
        )
        return [run for (run,) in rows]

    def of_run(self, run: str) -> list[Upload]:
        """The uploads that a run was launched for."""
        return self._select("WHERE run = ?", run)

    def named(self, names: Sequence[str]) -> dict[str, Upload]:
        """The rows of these folders, by name; unknown names are left out."""
        marks = ", ".join("?" * len(names))
        found = self._select(f"WHERE name IN ({marks})", *map(_bytes, names))
        return {upload.name: upload for upload in found}

    def save(self, uploads: Iterable[Upload]) -> None:
        """Insert or replace rows, but for their `wish`."""
        updates = ", ".join(f"{column} = excluded.{column}" for column in _SAVED[1:])
        self._connection.executemany(
            f"INSERT INTO uploads ({', '.join(_SAVED)}) "  # noqa: S608 - constants
            f"VALUES ({', '.join('?' * len(_SAVED))}) ON CONFLICT (name) DO UPDATE SET {updates}",
            map(_values, uploads),
        )

    def mark_seen(self, sweep: int, files: Iterable[tuple[str, int]]) -> None:
        """Note how many files of a recording a sweep saw in each folder, by its name."""
        self._connection.executemany(
            "UPDATE uploads SET seen = seen * (sweep = ?1) + ?2, sweep = ?1 WHERE name = ?3",
            ((sweep, count, _bytes(name)) for name, count in files),
        )

    def mark_unseen_due(self, sweep: int, time: float) -> None:
        """Poll every folder of which a sweep, now at its end, missed a file."""
        self._connection.execute(
            "UPDATE uploads SET due = min(ifnull(due, ?1), ?1) WHERE state != 'gone' "
            "AND (sweep != ?2 OR seen < json_array_length(files))",
            (time, sweep),
        )

    def _select(self, where: str, *values: Any) -> list[Upload]:
        statement = f"SELECT {_COLUMNS} FROM uploads {where}"  # noqa: S608 - constants
        return [_upload(row) for row in self._connection.execute(statement, values)]


def _usable(path: Path) -> sqlite3.Connection | None:
    """A connection in autocommit mode; None when the file is damaged or of another version."""
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


def _upload(row: tuple[Any, ...]) -> Upload:
    name, key, state, files, *rest = row
    observed = tuple(ObservedFile(*file) for file in json.loads(files))
    return Upload(_text(name), key, UploadState(state), observed, *rest)


def _values(upload: Upload) -> tuple[Any, ...]:
    name, key, state, files, *rest = (getattr(upload, name) for name in _SAVED)
    return (_bytes(name), key, state, json.dumps(files), *rest)


def _bytes(text: str) -> bytes:
    """A folder's name may contain lone surrogates, which SQLite's text cannot hold."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
