"""OpenAdapt Capture (the package openadapt-capture, 1.x): a folder with `recording.db` and a film.

Belongs here: the tables `recording` and `action_event` of its SQLite file, in which
times are epoch seconds. Positions are screen points, or pixels of the film when a window or several
displays were captured.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from demo_pipeline.importers.source_keys import pynput_key, virtual_key
from demo_pipeline.importers.source_recording import (
    FilmPart,
    FoundRecording,
    Importer,
    SourceLine,
    SourceRecording,
    UnreadableSourceError,
    moment,
    number,
    plain_text,
    pointer_lines,
)

_DATABASE, _FILM = "recording.db", "oa_recording-"
_PLATFORMS = {"win32": "windows", "darwin": "macos", "linux": "linux"}
_SCOPES = ("capture_window", "capture_desktop")
_Row = dict[str, Any]


def _find(folder: Path, names: Sequence[str]) -> list[FoundRecording]:
    """The folder, if it holds the database."""
    if _DATABASE not in names:
        return []
    films = sorted(name for name in names if name.startswith(_FILM) and name.endswith(".mp4"))
    return [
        FoundRecording(
            folder=folder,
            name=folder.resolve().name,
            logs=(folder / _DATABASE,),
            films=tuple(folder / name for name in films or {"video.mp4"} & set(names)),
        )
    ]


def _read(found: FoundRecording) -> SourceRecording:
    database = found.logs[0]
    if len(found.films) != 1:
        many = "is missing" if not found.films else "is one of several"
        message = f"its film {many}: expected one {_FILM}*.mp4 beside it"
        raise UnreadableSourceError(f"{database}: {message}")
    tables = _tables(database)
    if len(tables["recording"]) != 1:
        count = len(tables["recording"])
        raise UnreadableSourceError(f"{database}: expected one recording, found {count}")
    recording = tables["recording"][0]
    began = number(recording.get("video_start_time"))
    at = began or number(recording.get("timestamp")) or -1.0
    platform = _PLATFORMS.get(plain_text(recording.get("platform")), "")
    left_out = Counter[str]()
    events = tables["action_event"]
    lines = [line for row in events for line in _lines(row, platform, left_out)]
    lost = ["windows, narration, browser events and pictures of the database"]
    observed = sum(1 for row in events if row.get("structural_observation"))
    if observed:
        lost.append(f"elements under {observed} actions: trees of whole windows are not recorded")
    scoped = any(scope in plain_text(recording.get("config")) for scope in _SCOPES)
    width, height = (number(recording.get(f"monitor_{side}")) for side in ("width", "height"))
    return SourceRecording(
        recorded_at=moment(at * 1000, database),
        platform=platform,
        lines=sorted(lines, key=lambda line: line.time),
        film=(FilmPart(found.films[0]),),
        film_zero_ms=None if began is None else began * 1000,
        screen=(round(width), round(height)) if width and height and not scoped else None,
        task=plain_text(recording.get("task_description")),
        lost=lost,
        left_out=left_out,
    )


def _tables(database: Path) -> dict[str, list[_Row]]:
    """The rows of the two tables, whatever columns this version has, in order of time."""
    try:
        uri = f"file:{quote(str(database.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            [(fault,)] = connection.execute("PRAGMA quick_check(1)")
            [(page,)] = connection.execute("PRAGMA page_size")
            if fault != "ok" or database.stat().st_size % page:
                raise UnreadableSourceError(f"{database}: is damaged, or cut off")
            return {
                table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608
                for table in ("recording", "action_event")
            }
    except (sqlite3.Error, UnicodeError) as error:
        reason = str(error) if isinstance(error, sqlite3.Error) else "holds damaged text"
        raise UnreadableSourceError(f"{database}: cannot be read: {reason}") from None


def _lines(row: _Row, platform: str, left_out: Counter[str]) -> Iterator[SourceLine]:
    """Yield the lines for an action, and count what has none."""
    seconds, kind = number(row.get("timestamp")), plain_text(row.get("name"))
    if seconds is None or row.get("disabled"):
        left_out["actions without time, or disabled"] += 1
        return
    time = seconds * 1000
    if kind in {"press", "release"}:
        yield SourceLine("keydown" if kind == "press" else "keyup", _key(row, platform), time)
        return
    event = {name.removeprefix("mouse_").removesuffix("_name"): row[name] for name in row}
    yield from pointer_lines(kind, event, time, platform, left_out)


def _key(row: _Row, platform: str) -> dict[str, Any]:
    """The data of a key: its name, else the character that it typed, else its code."""
    name, char = plain_text(row.get("key_name")), row.get("key_char")
    if name or char:
        return pynput_key(name or char, platform)
    code = plain_text(row.get("key_vk") or row.get("canonical_key_vk"))
    if platform == "windows" and code.isdecimal():
        return {"key": virtual_key(int(code))}
    return {"key": f"Unknown({code})" if code.isdecimal() else "Unknown(0)"}


OPENADAPT = Importer(
    tool="OpenAdapt Capture",
    files=f"{_DATABASE} with {_FILM}*.mp4 in one folder",
    find=_find,
    read=_read,
)
