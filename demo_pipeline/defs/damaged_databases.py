"""Which of Dagster's SQLite files is damaged, told without Dagster.

Belongs here: naming the file that SQLite's own check finds broken, once an error says that one is.
"""

import sqlite3
from contextlib import closing
from pathlib import Path


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
