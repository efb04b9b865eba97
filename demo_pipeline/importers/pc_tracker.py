"""Imports recordings of PC Tracker, the recorder of PC Agent and PC Agent-E for Windows.

A recording is a log such as `task1_TIME.jsonl`, a Markdown page of the same name, and the folder
`screenshot/`. The screenshot of a line shows the screen before the line's action. The target of a
step is the element that UI Automation found under the pointer at the press.

In the published data set, which is supported too, a drag is one line instead of two, keys are
`press key: NAME`, and boxes are lists.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_trajectory import (
    SourceAct,
    SourceElement,
    SourceImage,
    SourceStep,
    SourceTrajectory,
    click,
    drag,
    key_name,
    last_time_ms,
    press_keys,
    scroll,
    type_text,
    wait,
)
from demo_pipeline.importers.source_values import (
    as_list,
    file_name,
    json_lines,
    numbers,
    plain_text,
    zoneless_time,
)

_LOG = re.compile(r"(task\d*|free_task|events)_\d{8}_\d{6}\.jsonl")
_SCREENSHOTS = "screenshot"
_DESCRIPTION = "**Description:**"
_NO_TASK = "free task"  # the recorder's description if the person stated no task
_PAUSE_S = 6.0  # seconds without input after which the recorder logs `wait`
_SIDES = ("left", "top", "right", "bottom")
_NAMELESS = "Unknown"  # the recorder's text for an element without a name
# Keys that have no effect if they are pressed alone. The Windows key is missing, because it opens
# a menu.
_HELD = frozenset({"ctrl", "shift", "alt"})
_ENDS = {"finish": "completed", "fail": "failed"}  # maps the last action of the log to the outcome
_TIME = "%Y-%m-%d_%H:%M:%S"
_CLICKS = {"click": ("left", 1), "right click": ("right", 1), "double click": ("left", 2)}
_POINT = r"\((-?\d+), *(-?\d+)\)"
_POINTED = re.compile(rf"(click|right click|double click|press|drag to) {_POINT}")
_DRAG = re.compile(rf"drag from {_POINT} to {_POINT}")
_SCROLL = re.compile(r"scroll \((-?\d+)(?:, *(-?\d+))?\)")
_KEY = re.compile(r"press key:? (.+)", re.DOTALL)
_HOTKEY = re.compile(r"hotkey \((.+)\)", re.DOTALL)
_TEXT = re.compile(r"type text: (.+)", re.DOTALL)
_LOST = (
    "the time zone, which is taken as UTC, and fractions of seconds",
    "positions of scrolls: the recorder does not log them",
    "roles of elements: the recorder logs their names and boxes",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the recordings in a folder. They share one folder of screenshots."""
    recordings = []
    for name in sorted(names):
        if not _LOG.fullmatch(name) or not (folder / _SCREENSHOTS).is_dir():
            continue
        log = folder / name
        page = log.with_suffix(".md")
        images: dict[Path | None, None] = {}
        with suppress(OSError):  # `_read` reports an unreadable log
            images = dict.fromkeys(_image_path(log, line) for line in json_lines(log, []))
        others = [path for path in images if path is not None]
        if page.name in names:
            others.insert(0, page)
        recordings.append(
            SourceFiles(folder=folder, name=log.stem, logs=(log,), others=tuple(others))
        )
    return recordings


def _image_path(log: Path, line: Mapping[str, Any]) -> Path | None:
    """Returns the path of a line's screenshot; None if the line names no screenshot."""
    name = file_name(line.get("screenshot"))
    if not name:
        return None
    return log.parent / _SCREENSHOTS / name


def _read(source: SourceFiles) -> SourceTrajectory:
    log = source.logs[0]
    trajectory = SourceTrajectory(
        platform="windows", actor="human", task=_task(source), lost=list(_LOST)
    )
    steps = list[SourceStep]()
    pressed: SourceStep | None = None
    for line in json_lines(log, trajectory.damaged):
        path = _image_path(log, line)
        image = None
        if path is not None:
            image = SourceImage(path=path)
        action = plain_text(line.get("action"))
        if action in _ENDS:
            trajectory.status = _ENDS[action]
            trajectory.status_source = f"the person ended it with {action}"
            trajectory.final = image
            continue
        acts = _acts(action, pressed, trajectory)
        is_press = action.startswith("press (")
        time = zoneless_time(line.get("timestamp"), _TIME)
        step = SourceStep(
            acts=acts,
            screenshot=image,
            time_ms=last_time_ms(steps) if time is None else time.timestamp() * 1000,
            element=_element(line),
            reasoning=plain_text(line.get("thought")),
        )
        if pressed is not None and action.startswith("drag to"):
            # The previous line is the press of this drag, and its screenshot shows the screen
            # before the drag.
            step = SourceStep(
                acts=acts,
                screenshot=pressed.screenshot,
                time_ms=pressed.time_ms,
                end_ms=step.time_ms,
                element=pressed.element,
            )
        pressed = None
        if is_press:
            pressed = step
        if acts and not is_press:
            steps.append(step)
    trajectory.steps = steps
    trajectory.require_steps(log)
    trajectory.steps = _without_idle_pauses(steps, trajectory)
    return trajectory


def _task(source: SourceFiles) -> str:
    """Returns the task's description from the page next to the log; empty if it is missing."""
    page = source.logs[0].with_suffix(".md")
    if page not in source.others:
        return ""
    for line in page.read_text(encoding="utf-8", errors="replace").splitlines()[:5]:
        if line.startswith(_DESCRIPTION):
            text = line.removeprefix(_DESCRIPTION).strip()
            if text != _NO_TASK:
                return text
    return ""


def _element(line: Mapping[str, Any]) -> SourceElement | None:
    """Returns the element under the pointer at a press; None if the line has no box."""
    box = line.get("rect")
    if isinstance(box, dict):
        box = [box.get(side) for side in _SIDES]
    sides = numbers(as_list(box))
    if len(sides) != 4:
        return None
    name = plain_text(line.get("element"))
    if name == _NAMELESS:
        name = ""
    left, top, right, bottom = sides
    return SourceElement(name=name, box=(left, top, right, bottom))


def _acts(action: str, pressed: SourceStep | None, trajectory: SourceTrajectory) -> list[SourceAct]:
    """Returns a list with the action of a line; an empty list if the action is not imported.

    Args:
        pressed: the step of the previous line if that line is the press of a drag, else None.
    """
    act = _pointer_act(action, pressed) or _keyboard_act(action)
    if act is None and action == "wait":
        act = wait(_PAUSE_S)
    if act is None:
        trajectory.left_out["lines with another action"] += 1
        return []
    if act.kind is ActionType.HOTKEY and set(act.values["keys"]) <= _HELD:
        trajectory.left_out["presses of Ctrl, Shift or Alt alone"] += 1
        return []
    return [act]


def _pointer_act(action: str, pressed: SourceStep | None) -> SourceAct | None:
    """Returns a click, drag or scroll; None if the text is not an action with the pointer.

    For the press that begins a drag, the result is a drag without an end.
    """
    if match := _POINTED.fullmatch(action):
        at = (float(match[2]), float(match[3]))
        if match[1] == "press":
            return SourceAct(kind=ActionType.DRAG, at=at)
        if match[1] == "drag to":
            if pressed is None:
                return drag(None, at)
            return drag(pressed.acts[0].at, at)
        return click(at, *_CLICKS[match[1]])
    if match := _DRAG.fullmatch(action):
        left, top, right, bottom = (float(side) for side in match.groups())
        return drag((left, top), (right, bottom))
    if match := _SCROLL.fullmatch(action):
        if match[2] is None:  # lines of the published data set have only the vertical distance
            return scroll(None, 0.0, -float(match[1]))
        return scroll(None, float(match[1]), -float(match[2]))
    return None


def _keyboard_act(action: str) -> SourceAct | None:
    if match := _KEY.fullmatch(action):
        return press_keys([key_name(match[1], "windows")])
    if match := _HOTKEY.fullmatch(action):
        names = [key.strip(" '\"") for key in match[1].split(", ")]
        return press_keys([key_name(name, "windows") for name in names])
    if match := _TEXT.fullmatch(action):
        return type_text(match[1])
    return None


def _without_idle_pauses(
    steps: Sequence[SourceStep], trajectory: SourceTrajectory
) -> list[SourceStep]:
    """Returns the steps, except for waits during which the screen did not change."""
    kept = list[SourceStep]()
    following = [*(step.screenshot for step in steps[1:]), trajectory.final]
    for step, after in zip(steps, following, strict=True):
        is_wait = step.acts[0].kind is ActionType.WAIT
        if is_wait and _bytes(step.screenshot) == _bytes(after):
            trajectory.left_out["pauses in which nothing on the screen changed"] += 1
        else:
            kept.append(step)
    return kept


def _bytes(image: SourceImage | None) -> bytes:
    """Returns the bytes of a screenshot; empty if it is missing or unreadable.

    The recorder writes equal bytes for equal screens.
    """
    if image is None:
        return b""
    try:
        return image.path.read_bytes()
    except OSError:
        return b""


PC_TRACKER = Importer(
    tool="PC Tracker (PC Agent-E)",
    files="taskN_TIME.jsonl or free_task_TIME.jsonl with the folder screenshot/",
    find=_find,
    read_trajectory=_read,
)
