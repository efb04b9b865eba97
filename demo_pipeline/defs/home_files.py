"""What the databases in DAGSTER_HOME say, read without Dagster, which takes a second to import.

Belongs here: a few questions of commands that otherwise need no Dagster. Only the form that Dagster
itself chooses is read, SQLite files in history/; of any other the answer is None, and the caller
asks Dagster.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.defs.tags import (
    BATCH_OUTCOMES_TAG,
    BATCH_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    PROCESS_TAG,
    WAITING_OUTCOME,
    WAITING_TAG,
)

PARTITIONS_NAME = "demonstrations"
UNFINISHED = ("NOT_STARTED", "STARTING", "STARTED", "CANCELING")
# Entries of dagster.yaml that do not change where and how runs and events are stored.
_HARMLESS = {
    "auto_materialize",
    "backfills",
    "code_servers",
    "compute_logs",
    "concurrency",
    "freshness",
    "nux",
    "python_logs",
    "retention",
    "run_coordinator",
    "run_launcher",
    "run_monitoring",
    "run_queue",
    "run_retries",
    "schedules",
    "secrets",
    "sensors",
    "telemetry",
}
_TOP_LEVEL = re.compile(r"(\w+):(?:\s|$)")

_PARTITIONS = "SELECT partition FROM dynamic_partitions WHERE partitions_def_name = ?"
_CLAIMED = f"""
    SELECT 1 FROM runs JOIN run_tags USING (run_id)
    WHERE run_tags.key = ? AND runs.status IN ({", ".join("?" * len(UNFINISHED))}) LIMIT 1
"""  # noqa: S608 - question marks only
# What waits in runs over many demonstrations stands in other tags, which only Dagster's way reads.
_BATCHED = """
    SELECT 1 FROM run_tags WHERE key IN (?, ?)
    AND EXISTS (SELECT 1 FROM run_tags WHERE key = ? AND value = ?) LIMIT 1
"""
# Every run of a demonstration that waits or waited, newest first: its status, whether it waits.
_WAITING = """
    SELECT names.value, runs.status != 'SUCCESS' AND outcomes.value IS NOT NULL, reasons.value
    FROM run_tags AS names
    JOIN runs USING (run_id)
    LEFT JOIN run_tags AS outcomes
        ON outcomes.run_id = runs.run_id AND outcomes.key = ? AND outcomes.value = ?
    LEFT JOIN run_tags AS reasons ON reasons.run_id = runs.run_id AND reasons.key = ?
    WHERE names.key = ? AND names.value IN (
        SELECT waiting.value FROM run_tags AS waiting JOIN run_tags AS tags USING (run_id)
        WHERE waiting.key = names.key AND tags.key = ? AND tags.value = ?
    )
    ORDER BY runs.id DESC
"""


@dataclass(frozen=True, slots=True)
class WaitingDemonstration:
    """A demonstration whose newest run waits.

    Attributes:
        demonstration: its id.
        reason: what it waits for, in plain words.
        attempts: how many of its runs ended so.
    """

    demonstration: str
    reason: str
    attempts: int


def is_settled(home: Path, ids: Sequence[str]) -> bool:
    """Whether every id is registered and no process, alive or dead, holds an unfinished run.

    False when the databases cannot be read here.
    """
    if not _stores_files(home):
        return False
    registered = _rows(home / "history/runs/index.db", _PARTITIONS, (PARTITIONS_NAME,))
    if registered is None or not set(ids) <= {key for (key,) in registered}:
        return False
    return _rows(home / "history/runs.db", _CLAIMED, (PROCESS_TAG, *UNFINISHED)) == []


def waiting_in_home(home: Path) -> list[WaitingDemonstration] | None:
    """As `waiting_demonstrations` of an instance; None when the databases cannot be read here."""
    if not _stores_files(home):
        return None
    if not (home / "history/runs.db").exists():  # no run was recorded yet
        return []
    outcome = (OUTCOME_TAG, WAITING_OUTCOME)
    batched = (BATCH_TAG, BATCH_OUTCOMES_TAG, *outcome)
    values = (*outcome, WAITING_TAG, PARTITION_NAME_TAG, *outcome)
    rows = _rows(home / "history/runs.db", _WAITING, values)
    if rows is None or _rows(home / "history/runs.db", _BATCHED, batched) != []:
        return None
    runs: dict[str, list[tuple[bool, str]]] = {}
    for key, waits, reason in rows:
        runs.setdefault(key, []).append((bool(waits), reason or ""))
    return [
        WaitingDemonstration(key, found[0][1], sum(waits for waits, _ in found))
        for key, found in sorted(runs.items())
        if found[0][0]
    ]


def damaged_database(home: Path) -> str:
    """Which of the databases is damaged, and what to do; empty when none is. It reads all of them.

    A database that is locked or that cannot be opened is not damaged.
    """
    names = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
    runs = sorted((home / "history" / "runs").glob("*-*.db"))
    for file in (*(home / name for name in names), *runs):
        try:
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
                [(found,)] = database.execute("PRAGMA quick_check(1)").fetchall()
        except sqlite3.Error as error:
            found = str(error) if is_damage(error) else "ok"
        if found != "ok":
            return (
                f"{file} is damaged: {found.splitlines()[0]}; stop Dagster and put back a copy of "
                "the file, or move it away: Dagster makes a new one without the history that was "
                "in it, and what is built stays in the store"
            )
    return ""


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says that a file is not a database, or not a whole one."""
    cause = getattr(error, "orig", None) or error  # of an error of SQLAlchemy
    name = getattr(cause, "sqlite_errorname", "")
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _stores_files(home: Path) -> bool:
    """Whether dagster.yaml leaves the storage at Dagster's default."""
    try:
        lines = (home / "dagster.yaml").read_text().splitlines()
    except FileNotFoundError:
        return True
    except (OSError, UnicodeDecodeError):
        return False
    top = [line for line in lines if line.strip() and line[0] not in " \t#"]
    found = [_TOP_LEVEL.match(line) for line in top]
    return all(match is not None and match[1] in _HARMLESS for match in found)


def _rows(file: Path, query: str, values: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The answer of a database that is opened for reading only; None when it gives none."""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error:
        return None
