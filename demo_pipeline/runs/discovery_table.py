"""The table of discovery: a row for each folder of the uploads, in a SQLite file beside Dagster's.

Belongs here: reading and writing that file. It may be deleted at any time: a listing of the uploads
and the store restore everything but reruns that were requested and not launched. A damaged file, or
one of another version, is renamed to `<name>.damaged`.
"""

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.failures import FIRST_PAUSE_SECONDS
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_folder_name, safe_id
from demo_pipeline.store.uploads import listing_fingerprint

VERSION = 3
_BUSY_SECONDS = 30


class UploadState(StrEnum):
    """State of an upload.

    `pending`: incomplete, not yet stable, or not yet decided.
    `requested`: complete; a run is requested and not yet launched.
    `accepted`: a run was launched for the present files, or they need none.
    `gone`: no longer in the uploads.
    """

    PENDING = "pending"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    GONE = "gone"


class ObservedFile(NamedTuple):
    """A file of an upload as it is compared.

    The time of its modification is only compared for equality: another value means that the file
    was written again; it never tells when.
    """

    name: str
    etag: str
    size: int
    modified: float


def fingerprint_of(files: Iterable[ObservedFile]) -> str | None:
    """The fingerprint of a complete upload, None while a file is missing."""
    listed = [(name, etag, size) for name, etag, size, _ in files if name in RECORDING_FILES]
    return listing_fingerprint(listed) if len(listed) == len(RECORDING_FILES) else None


@dataclass(frozen=True, slots=True)
class Upload:
    """One row. Times are seconds of discovery's own clock.

    Attributes:
        name: the folder's own name.
        id: safe id; several names may have the same.
        state: see `UploadState`.
        files: those of `RECORDING_FILES` that the last listing found, sorted.
        accepted: fingerprint that the last run was launched for, or that needed none.
        cause: why the last run was requested, or the next is: `new`, `changed`, the reason of a
            requested rerun, or how the run before ended; empty when nothing is left to do.
        reason: what a waiting upload waits for, in plain words.
        attempts: how many runs in a row ended with this cause.
        run_key: of the run that is requested.
        run: id of the run that was launched, until it has ended.
        due: when to decide about it; None: not before a listing shows a difference.
        wish: reason of a requested rerun; written by `request_rerun` alone.
    """

    name: str
    id: str
    state: UploadState = UploadState.PENDING
    files: tuple[ObservedFile, ...] = ()
    accepted: str | None = None
    cause: str = ""
    reason: str = ""
    attempts: int = 0
    run_key: str | None = None
    run: str | None = None
    due: float | None = None
    wish: str | None = None

    @property
    def fingerprint(self) -> str | None:
        """Of its files when they are complete."""
        return fingerprint_of(self.files)


@dataclass(frozen=True, slots=True)
class Position:
    """Discovery's clock, which never runs backwards, and how far the listing is.

    `wall` is the machine's clock at that time. The present listing began at `began` and goes on at
    `token`; `sweep` came to their end before, the last of which began at `complete`.
    """

    time: float
    wall: float
    began: float = 0.0
    token: str | None = None
    sweep: int = 0
    complete: float = -1.0


_COLUMNS = ", ".join(field.name for field in fields(Upload))
_SAVED = ("state", "accepted", "cause", "reason", "attempts", "run_key", "run", "due")
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS uploads ({_COLUMNS}, PRIMARY KEY (name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS ids ON uploads (id, state);
CREATE INDEX IF NOT EXISTS states ON uploads (state);
CREATE INDEX IF NOT EXISTS dues ON uploads (due, name) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS runs ON uploads (run) WHERE run IS NOT NULL;
CREATE INDEX IF NOT EXISTS wishes ON uploads (wish) WHERE wish IS NOT NULL;
CREATE TABLE IF NOT EXISTS seen (name, file, value, PRIMARY KEY (name, file)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (one PRIMARY KEY, value);
PRAGMA user_version = {VERSION};
COMMIT;
"""
# The end of a listing. What changed waits until it is stable; a marker ends the wait of a first
# upload only, since a later one may still have the old marker. What two listings lack is gone.
_TAKE_IN = f"""
WITH found AS (
    SELECT name, max(file = :marker) AS marked,
        json_group_array(json(value)) FILTER (WHERE file IN {RECORDING_FILES}) AS files
    FROM seen GROUP BY name
)
UPDATE uploads SET
    state = iif(found.name IS NULL AND old.files = '[]', 'gone', 'pending'),
    wish = iif(found.name IS NULL AND old.files = '[]', NULL, old.wish),
    files = ifnull(found.files, '[]'),
    run_key = NULL,
    due = CASE json_array_length(found.files) WHEN {len(RECORDING_FILES)}
        THEN iif(found.marked AND old.accepted IS NULL, :began, :due) END
FROM uploads AS old LEFT JOIN found USING (name)
WHERE uploads.name = old.name AND CASE
    WHEN found.name IS NULL THEN old.state != 'gone'
    ELSE old.state = 'gone' OR old.files != found.files
        OR (found.marked AND old.accepted IS NULL AND old.due > :began) END
"""  # noqa: S608 - constants


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
            connection = _sound_connection(path)
            if connection is None:
                path.replace(path.with_name(f"{path.name}.damaged"))
                for ending in ("-wal", "-shm"):
                    path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
                connection = _sound_connection(path)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"{path}: the table of uploads cannot be opened: {error}") from None
        if connection is None:
            raise StorageError(f"{path}: a new table of uploads cannot be read; check the disk")
        return cls(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

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
                self._add([demonstration])
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
            self._add(names)
            self._connection.execute(
                "UPDATE uploads SET accepted = ?, attempts = 1 + attempts * (cause = 'waiting'), "
                "cause = 'waiting', reason = ?, run = NULL, due = ? WHERE id = ?",
                (fingerprint, reason, position.time + FIRST_PAUSE_SECONDS, demonstration),
            )

    def _add(self, names: Iterable[str]) -> None:
        """Add the folders that have no row."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO uploads (name, id, state, files, cause, reason, attempts) "
            "VALUES (?, ?, 'pending', '[]', '', '', 0)",
            ((_bytes(name), safe_id(name)) for name in names),
        )

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

    def requested(self) -> list[Upload]:
        """Uploads that a run was requested for."""
        return self._select("WHERE state = 'requested' ORDER BY name")

    def undecided(self, position: Position, limit: int) -> list[Upload]:
        """Uploads to decide about, longest waiting first, then requested reruns.

        A pending one is stable when a listing that began after it was due shows no difference.
        """
        return self._select(
            "WHERE json_array_length(files) = ? AND (due <= iif(state = 'pending', ?, ?) "
            "OR (wish IS NOT NULL AND state = 'accepted')) ORDER BY due IS NULL, due, name LIMIT ?",
            len(RECORDING_FILES),
            position.complete,
            position.time,
            limit,
        )

    def running(self) -> dict[str, list[Upload]]:
        """The uploads of each run that was launched and whose end was not seen yet, by its id."""
        found = defaultdict[str, list[Upload]](list)
        for upload in self._select("WHERE run IS NOT NULL ORDER BY run"):
            found[upload.run or ""].append(upload)
        return found

    def save(self, uploads: Iterable[Upload]) -> None:
        """Save what was decided about uploads. A run that is requested for a wish serves it."""
        values = ", ".join(f"{column} = :{column}" for column in _SAVED)
        self._connection.executemany(
            f"UPDATE uploads SET {values}, "  # noqa: S608 - constants
            "wish = iif(:state = 'requested', nullif(wish, :cause), wish) WHERE name = :name",
            (
                {**{column: getattr(one, column) for column in _SAVED}, "name": _bytes(one.name)}
                for one in uploads
            ),
        )

    def begin_listing(self) -> None:
        """Forget what the listing before saw."""
        self._connection.execute("DELETE FROM seen")

    def mark_seen(self, folders: Mapping[str, Iterable[ObservedFile]]) -> None:
        """Add files that the listing saw, by their folders' names; maybe none of a folder."""
        self._add(folders)
        self._connection.executemany(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)",
            (
                (_bytes(name), file.name if file else "/", json.dumps(file))
                for name, files in folders.items()
                for file in (None, *files)  # the folder itself, then what is in it
            ),
        )

    def take_in(self, marker: str, began: float, due: float) -> None:
        """Compare every row with what the listing saw, which is at its end and began at `began`.

        What it shows to be changed and complete is decided about at `due`.
        """
        self._connection.execute(_TAKE_IN, {"marker": marker, "began": began, "due": due})

    def _select(self, where: str, *values: Any) -> list[Upload]:
        statement = f"SELECT {_COLUMNS} FROM uploads {where}"  # noqa: S608 - constants
        return [_upload(row) for row in self._connection.execute(statement, values)]


def _sound_connection(path: Path) -> sqlite3.Connection | None:
    """A connection in autocommit mode; None when the file is damaged or of another version."""
    connection, sound = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None), False
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
        [version] = connection.execute("PRAGMA user_version").fetchone()
        checked = connection.execute("PRAGMA quick_check(1)").fetchone()
        sound = version == VERSION and checked == ("ok",)
    except sqlite3.OperationalError:  # locked, read-only or full: the file itself is sound
        raise
    except sqlite3.DatabaseError:
        pass
    finally:
        if not sound:
            connection.close()
    return connection if sound else None


def _upload(row: tuple[Any, ...]) -> Upload:
    name, key, state, files, *rest = row
    observed = tuple(ObservedFile(*file) for file in json.loads(files))
    return Upload(_text(name), key, UploadState(state), observed, *rest)


def _bytes(text: str) -> bytes:
    """A folder's name may contain lone surrogates, which SQLite's text cannot hold."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
