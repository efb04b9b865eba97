"""Imports recordings of cua-driver (trycua/cua): folders with one `turn-NNNNN/` per tool call.

In a turn's folder, `action.json` is a call of one of the driver's tools. `before.png` and
`after.png` show only the window of the call. The elements in `before_state.json` are ignored,
because they have no boxes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_trajectory import (
    SourceAct,
    SourceImage,
    SourcePoint,
    SourceStep,
    SourceTrajectory,
    click,
    drag,
    key_name,
    press_keys,
    scroll,
    type_text,
)
from demo_pipeline.importers.source_values import (
    UnreadableSourceError,
    as_object,
    json_object,
    moment,
    number,
    plain_text,
)

_TURN = re.compile(r"turn-\d{5,}")
_ACTION = "action.json"
_BEFORE = "before.png"
_AFTER = "after.png"
# The driver's tools that click, with their default button and default number of clicks.
_CLICKS = {"click": ("left", 1), "right_click": ("right", 1), "double_click": ("left", 2)}
_KEY_TOOLS = frozenset({"press_key", "hotkey", "type_text", "type_text_chars"})
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_NOTCHES = 3  # default of `amount` in calls that scroll
_LOST = (
    "the screen around the window: the driver's screenshots show only the window of the call",
    "trees of windows (before_state.json, after_state.json), which have no boxes",
    "the video and the pointer's path (recording.mp4, cursor.jsonl)",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as one recording if it contains folders of turns, else an empty list."""
    if names and "session.json" not in names and not any(map(_is_sibling, names)):
        return []
    turns = sorted(path for path in folder.iterdir() if _TURN.fullmatch(path.name))
    logs = [path / _ACTION for path in turns if (path / _ACTION).is_file()]
    if not logs:
        return []
    images = (path / name for path, name in product(turns, (_BEFORE, _AFTER)))
    others = tuple(path for path in images if path.is_file())
    name = folder.resolve().name
    return [SourceFiles(folder=folder, name=name, logs=tuple(logs), others=others)]


def _is_sibling(name: str) -> bool:
    """Returns whether a file of this name is expected next to the folders of turns."""
    return name in {"cursor.jsonl", "recording.mp4", "import.json"} or name.startswith(".")


def _read(source: SourceFiles) -> SourceTrajectory:
    trajectory = SourceTrajectory(lost=list(_LOST))
    complete = {log.parent for log in source.logs}
    for turn_folder in sorted({path.parent for path in source.others} - complete):
        trajectory.damaged.append(f"{turn_folder.name}: {_ACTION} is missing: its call is unknown")
    steps = list[SourceStep]()
    for log in source.logs:
        try:
            turn = json_object(log)
        except UnreadableSourceError as error:
            trajectory.damaged.append(str(error))
            continue
        if turn.get("result_error") is True:
            trajectory.left_out["calls that failed"] += 1
            continue
        act = _act(turn, trajectory)
        try:
            begin, end = _times(turn, log)
        except UnreadableSourceError as error:
            trajectory.damaged.append(str(error))
            continue
        steps.append(
            SourceStep(
                acts=[act],
                screenshot=_image(source, log.with_name(_BEFORE)),
                time_ms=begin,
                end_ms=end,
            )
        )
        trajectory.final = _image(source, log.with_name(_AFTER))
    trajectory.steps = steps
    trajectory.require_steps(source.folder)
    return trajectory


def _image(source: SourceFiles, path: Path) -> SourceImage | None:
    if path not in source.others:
        return None
    return SourceImage(path=path)


def _times(turn: Mapping[str, Any], log: Path) -> tuple[float, float]:
    """Returns start and end of a call in epoch milliseconds; `timestamp` in the log is the end."""
    try:
        end = float(turn.get("timestamp") or "") * 1000
        moment(end, log)
    except (TypeError, ValueError, OverflowError):
        raise UnreadableSourceError(
            f"{log}: timestamp: expected seconds since 1970 as the driver writes them"
        ) from None
    began = number(turn.get("t_start_ms_from_session_start"))
    ended = number(turn.get("t_ms_from_session_start"))
    if began is None or ended is None:
        return end, end
    return end - max(ended - began, 0.0), end


def _act(turn: Mapping[str, Any], trajectory: SourceTrajectory) -> SourceAct:
    """Returns the action of a call.

    An unreadable call becomes an action without a position, and later a hidden action.
    """
    tool = plain_text(turn.get("tool"))
    values = as_object(turn.get("arguments"))
    modifiers = [key_name(str(key)) for key in values.get("modifier") or ()]
    at = _point(as_object(turn.get("click_point"))) or _point(values)
    act: SourceAct | None = None
    if tool in _CLICKS:
        button, clicks = _CLICKS[tool]
        button = plain_text(values.get("button")) or button
        clicks = round(number(values.get("count")) or clicks)
        if clicks > (3 if button == "left" else 1):
            trajectory.left_out[
                "turns with more clicks than an action can have: they are hidden actions"
            ] += 1
            return SourceAct(kind=ActionType.CLICK)
        act = click(at, button, clicks)
    elif tool == "drag":
        start = _point(values, "from_")
        end = _point(values, "to_")
        act = drag(start, end, plain_text(values.get("button")) or "left")
    elif tool == "scroll":
        across, down = _DIRECTIONS.get(plain_text(values.get("direction")), (0, 0))
        amount = number(values.get("amount")) or _NOTCHES
        if plain_text(values.get("by")) == "page":
            trajectory.left_out["scrolls by pages: they are hidden actions"] += 1
            return SourceAct(kind=ActionType.SCROLL)
        act = scroll(at, across * amount, down * amount)
    elif tool in _KEY_TOOLS:
        if at is not None:
            trajectory.left_out["clicks that gave a field the focus before keys"] += 1
        act = _keys(tool, values)
    if act is None:
        trajectory.left_out[f"calls of {tool or 'no tool'}: they are hidden actions"] += 1
        return SourceAct(kind=ActionType.CLICK)
    if modifiers and tool not in _KEY_TOOLS:
        act = replace(act, values={**act.values, "modifiers": modifiers})
    return act


def _keys(tool: str, values: Mapping[str, Any]) -> SourceAct | None:
    """Returns the action of a call that presses keys; None if its arguments cannot be read."""
    text = values.get("text")
    if tool.startswith("type_text"):
        if not isinstance(text, str) or not text:
            return None
        return type_text(text)
    if tool == "hotkey":
        names = values.get("keys")
    else:
        names = [*(values.get("modifiers") or ()), values.get("key")]
    if not isinstance(names, list) or not names or not all(map(plain_text, names)):
        return None
    return press_keys([key_name(name) for name in names])


def _point(values: Mapping[str, Any], prefix: str = "") -> SourcePoint | None:
    """Returns the position in the members `<prefix>x` and `<prefix>y`; None if one is missing."""
    x = number(values.get(f"{prefix}x"))
    y = number(values.get(f"{prefix}y"))
    if x is None or y is None:
        return None
    return x, y


CUA_DRIVER = Importer(
    tool="cua-driver",
    files="turn-NNNNN/action.json with before.png and after.png",
    find=_find,
    read_trajectory=_read,
)
