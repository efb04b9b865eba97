"""What discovery remembers between two looks, in a small SQLite file beside the Dagster instance.

Belongs here: reading and writing of that memory. It may be deleted at any moment: a listing and the
runs that were launched give everything back but the wishes not yet granted.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from demo_pipeline.discovery.cursors import Listing, ListingKind
from demo_pipeline.discovery.database import open_database
from demo_pipeline.discovery.decisions import (
    SUPERSEDED_REASON,
    File,
    LedgerClock,
    UploadRecord,
    UploadState,
    advance,
)
from demo_pipeline.storage.uploads.upload_listing import UPLOAD_FILES

_COLUMNS = (
    "name, id, state, files, fingerprint, since, changed, run_key, accepted, missing, "
    "missing_sweep, due"
)
_FILES = msgspec.json.Decoder(tuple[File, ...])
_BIT = {name: 1 << place for place, name in enumerate(UPLOAD_FILES)}
_AT_ONCE = 500  # names in one query


class Ledger:
    """See the module's sentence. Made by `open`; one process looks, others may wish."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ledger at `path`, an empty one if there is none that can be used.

        Raises:
            StorageError: the file cannot be opened or written.
        """
        return cls(open_database(path))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written inside is kept, or nothing of it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def wish(self, id: str, reason: str) -> None:  # noqa: A002 - the field's word
        """Ask for another run of a demonstration, whether or not its upload changed.

        Args:
            id: a demonstration that is known or will be; one that is gone is not run.
            reason: goes into the request. `decisions.SUPERSEDED` asks only to look again.
        """
        statement = "INSERT OR REPLACE INTO wishes (id, reason, run_key) VALUES (?, ?, NULL)"
        self._connection.execute(statement, (id, reason))

    def states(self) -> dict[str, UploadState]:
        """Every id ever seen; of those that several folders meet on, the first not gone."""
        rows = self._connection.execute(
            "SELECT id, state FROM demonstrations ORDER BY state = 'gone' DESC, name DESC"
        )
        return {key: UploadState(state) for key, state in rows}

    def counts(self) -> dict[UploadState, int]:
        """How many folders are in each state."""
        rows = self._connection.execute("SELECT state, count(*) FROM demonstrations GROUP BY state")
        return dict.fromkeys(UploadState, 0) | {UploadState(state): count for state, count in rows}

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders meet on, with the folders' names, sorted."""
        there = "FROM demonstrations WHERE state != 'gone'"
        meeting = f"SELECT id {there} GROUP BY id HAVING count(*) > 1"
        rows = self._connection.execute(
            f"SELECT id, name {there} AND id IN ({meeting}) ORDER BY id, name"
        )
        found: dict[str, tuple[str, ...]] = {}
        for key, name in rows:
            found[key] = (*found.get(key, ()), _read_text(name))
        return found

    def begin(self, now: float) -> float:
        """The ledger's time at machine time `now`; wakes those that somebody wished for."""
        with self.transaction():
            row = self._connection.execute("SELECT time, wall, debt FROM clock").fetchone()
            clock = advance(LedgerClock(*row), now) if row else LedgerClock(now, now)
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
            self._connection.execute(
                "UPDATE demonstrations SET due = ? WHERE state = 'accepted' AND due IS NULL "
                "AND id IN (SELECT id FROM wishes WHERE run_key IS NULL)",
                (clock.time,),
            )
        return clock.time

    def looked(self) -> float | None:
        """When the last look began by the machine's clock, epoch seconds; None: there was none."""
        row = self._connection.execute("SELECT wall FROM clock").fetchone()
        return None if row is None else float(row[0])

    def resting(self, ids: Iterable[str]) -> list[str]:
        """Of these ids those that are accepted and not to be looked at, sorted."""
        there = "SELECT id FROM demonstrations WHERE state = 'accepted' AND due IS NULL AND id = ?"
        return [
            key for key in sorted(set(ids)) if self._connection.execute(there, (key,)).fetchone()
        ]

    def wake(self, ids: Iterable[str], time: float) -> None:
        """Look at those of these ids that are accepted."""
        self._connection.executemany(
            "UPDATE demonstrations SET due = ? WHERE state = 'accepted' AND id = ?",
            ((time, key) for key in ids),
        )

    def wishes(self, demonstration: str) -> list[tuple[str, str | None]]:
        """(reason, key of the run requested for it) of each wish for a run, sorted."""
        return self._connection.execute(
            "SELECT reason, run_key FROM wishes WHERE id = ? AND reason != ? ORDER BY reason",
            (demonstration, SUPERSEDED_REASON),
        ).fetchall()

    def grant(self, demonstration: str, run_key: str) -> None:
        """All wishes for a run of a demonstration are met by the run with this key."""
        self._connection.execute(
            "UPDATE wishes SET run_key = ? WHERE id = ? AND reason != ?",
            (run_key, demonstration, SUPERSEDED_REASON),
        )

    def forget_wishes(self, demonstration: str, run_key: str | None) -> None:
        """Those that the run with this key has met; None: all of them."""
        chosen = "" if run_key is None else " AND run_key = ?"
        self._connection.execute(
            f"DELETE FROM wishes WHERE id = ?{chosen}",  # noqa: S608 - constants
            (demonstration,) if run_key is None else (demonstration, run_key),
        )

    def requested(self, limit: int) -> list[UploadRecord]:
        """Those a run was requested for, longest waiting first."""
        return self._select("WHERE state = 'requested' ORDER BY due, name LIMIT ?", limit)

    def due(self, time: float, limit: int, *, complete: bool) -> list[UploadRecord]:
        """Those to look at by `time`, longest waiting first, with all files there or without."""
        return self._select(
            "WHERE (fingerprint IS NULL) = ? AND due <= ? ORDER BY due, name LIMIT ?",
            int(not complete),
            time,
            limit,
        )

    def entries(self, names: Sequence[str]) -> dict[str, UploadRecord]:
        """What is known of these folders, by name."""
        found: dict[str, UploadRecord] = {}
        for start in range(0, len(names), _AT_ONCE):
            part = [_write_text(name) for name in names[start : start + _AT_ONCE]]
            marks = ", ".join("?" * len(part))
            found |= {each.name: each for each in self._select(f"WHERE name IN ({marks})", *part)}
        return found

    def save(self, entries: Iterable[UploadRecord]) -> None:
        """Write what is known of folders, new or known."""
        columns = f"{_COLUMNS}, expected"
        marks = ", ".join("?" * (columns.count(",") + 1))
        updates = ", ".join(f"{each} = excluded.{each}" for each in columns.split(", ")[1:])
        self._connection.executemany(
            f"INSERT INTO demonstrations ({columns}) VALUES ({marks}) "  # noqa: S608 - constants
            f"ON CONFLICT (name) DO UPDATE SET {updates}",
            map(_write_record, entries),
        )

    def mark_seen(self, sweep: int, files: Iterable[tuple[str, Iterable[str]]]) -> None:
        """A sweep saw these of `FILES` (or only others) in these folders."""
        bits = ((sum(_BIT[each] for each in found), name) for name, found in files)
        self._connection.executemany(
            "UPDATE demonstrations SET seen = CASE WHEN sweep = ?2 THEN seen | ?1 ELSE ?1 END, "
            "sweep = ?2 WHERE name = ?3",
            ((bit, sweep, _write_text(name)) for bit, name in bits),
        )

    def wake_unseen(self, sweep: int, time: float) -> None:
        """Look at all that a sweep, now at its end, did not see whole."""
        self._connection.execute(
            "UPDATE demonstrations SET due = min(ifnull(due, ?1), ?1) WHERE state != 'gone' "
            "AND (sweep != ?2 OR (seen & expected) != expected)",
            (time, sweep),
        )

    def listing(self, kind: ListingKind) -> Listing:
        """How far the listing has come."""
        row = self._connection.execute(
            "SELECT token, number, failures FROM listings WHERE kind = ?", (kind,)
        ).fetchone()
        if row is None:
            return Listing()
        token, number, failures = row
        return Listing(None if token is None else _read_text(token), number, failures)

    def set_listing(self, kind: ListingKind, listing: Listing) -> None:
        """Remember how far the listing has come."""
        token = None if listing.token is None else _write_text(listing.token)
        self._connection.execute(
            "INSERT OR REPLACE INTO listings VALUES (?, ?, ?, ?)",
            (kind, token, listing.number, listing.failures),
        )

    def _select(self, where: str, *values: Any) -> list[UploadRecord]:
        statement = f"SELECT {_COLUMNS} FROM demonstrations {where}"  # noqa: S608 - constants
        return [_read_record(row) for row in self._connection.execute(statement, values)]


def _read_record(row: tuple[Any, ...]) -> UploadRecord:
    """The entry that a row of `_COLUMNS` holds."""
    name, key, state, files, *rest = row
    return UploadRecord(_read_text(name), key, UploadState(state), _FILES.decode(files), *rest)


def _write_record(entry: UploadRecord) -> tuple[Any, ...]:
    """Values for `_COLUMNS` and, last, the bits of the files that are there."""
    return (
        _write_text(entry.name),
        entry.id,
        entry.state,
        msgspec.json.encode(entry.files).decode(),
        entry.fingerprint,
        entry.since,
        entry.changed,
        entry.run_key,
        entry.accepted,
        entry.missing,
        entry.missing_sweep,
        entry.due,
        sum(_BIT[name] for name, *_ in entry.files),
    )


def _write_text(text: str) -> bytes:
    """Bytes, for a folder's name may have lone surrogates, which SQLite's text may not."""
    return text.encode("utf-8", "surrogatepass")


def _read_text(data: bytes) -> str:
    """The inverse of `_write_text`."""
    return data.decode("utf-8", "surrogatepass")
