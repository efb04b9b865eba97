"""Where the answer of each step is, in a table of SQLite's.

Belongs here: the table, and which of several lines of a step counts. It is a temporary database,
which SQLite keeps in memory up to a limit and beyond it in a file without a name. It holds no
answer.
"""

import errno
import sqlite3
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

FAILED = "the request failed"
_REASONS = {"doubled": "doubled", "failed": FAILED}
StepKey = tuple[str, int]
_CACHE_KIB = 2048
_TABLE = """
    CREATE TABLE answers (
        trajectory TEXT, step INTEGER, place INTEGER, reason TEXT, PRIMARY KEY (trajectory, step)
    ) WITHOUT ROWID
"""
_NOTE = """
    INSERT INTO answers VALUES (:trajectory, :step, :place, NULL) ON CONFLICT DO UPDATE SET
        reason = CASE WHEN place IS NOT NULL THEN :doubled
            WHEN reason = :failed THEN NULL ELSE reason END,
        place = ifnull(place, excluded.place)
"""
_NOTE_FAILED = "INSERT INTO answers VALUES (?, ?, NULL, ?) ON CONFLICT DO NOTHING"
_REFUSE = """
    INSERT INTO answers VALUES (?, ?, NULL, ?) ON CONFLICT DO UPDATE SET reason = excluded.reason
"""
_FIND = "SELECT place, reason FROM answers WHERE trajectory = ? AND step = ?"


class AnswerPlaces:
    """Steps and the places of their answers. A context manager, which deletes the table.

    Its methods raise OSError when the disk is full.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        for setting in ("journal_mode = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(_TABLE)
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def note(self, key: StepKey, place: int) -> None:
        """Remember an answer; a second one for a step leaves it without one."""
        values = {"trajectory": key[0], "step": key[1], "place": place, **_REASONS}
        self._execute(_NOTE, values)

    def note_failed(self, key: StepKey) -> None:
        """Remember a request that failed; another line for the step counts in its stead."""
        self._execute(_NOTE_FAILED, (*key, FAILED))

    def refuse(self, key: StepKey, reason: str) -> None:
        """Remember that a line of a step cannot be used; the step has no answer then."""
        self._execute(_REFUSE, (*key, reason))

    def find(self, key: StepKey) -> tuple[int | None, str | None] | None:
        """The place of a step's answer, and why it cannot be used; None: the step has no line."""
        found: tuple[int | None, str | None] | None = self._execute(_FIND, key).fetchone()
        return found

    def __len__(self) -> int:
        """The number of steps."""
        return int(self._execute("SELECT count(*) FROM answers").fetchone()[0])

    def _execute(
        self, command: str, values: Mapping[str, Any] | Sequence[Any] = ()
    ) -> sqlite3.Cursor:
        try:
            return self._database.execute(command, values)
        except sqlite3.OperationalError as error:
            message = f"a temporary file cannot be written ({error}); make room, or set TMPDIR"
            raise OSError(errno.ENOSPC, message) from None
