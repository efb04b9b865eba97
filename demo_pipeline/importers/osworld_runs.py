"""Imports results of OSWorld's runner: folders with `traj.jsonl`, `result.txt` and screenshots.

The runner (`lib_run_single.py`) writes a line for each action, either as code that calls pyautogui
or as an action of its action space `computer_13`. The screenshot of a line was taken after the
line's action, so the screenshot before an action is in the previous line. The screenshot before the
first action is the first frame of `recording.mp4`. The name of the folder is the task's id. The
task's instruction may be missing.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.pyautogui_code import CodeReader
from demo_pipeline.importers.python_program import NotPythonError, UnreadCodeError
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_trajectory import (
    SourceAct,
    SourceImage,
    SourceStep,
    SourceTrajectory,
    key_name,
    last_time_ms,
    press_keys,
    type_text,
    wait,
)
from demo_pipeline.importers.source_values import (
    file_name,
    json_lines,
    number,
    plain_text,
    zoneless_time,
)

_LOG = "traj.jsonl"
_RESULT = "result.txt"
_VIDEO = "recording.mp4"
_FIRST_SCREENSHOT = re.compile(r"(step_0(_.*)?|initial_state)\.png")
_OBSERVATIONS = ("screenshot", "a11y_tree", "screenshot_a11y_tree", "som")
_TIME = re.compile(r"(\d{8}@\d{6})(\d{0,6})")  # date and time in whole seconds, then microseconds
_WAIT_S = 1.0  # assumed duration of the action WAIT, seconds; the log does not contain a duration
_LOST = (
    "the time zone of action_timestamp, which is taken as UTC",
    "the video except its first frame; runtime.log; rewards and infos of the lines",
    "pasted texts as such: they are written as typed texts",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as one recording if it contains the log of a run, else an empty list."""
    if _LOG not in names:
        return []
    images = [name for name in sorted(names) if name.endswith(".png")]
    others = [name for name in (_RESULT, _VIDEO) if name in names]
    return [
        SourceFiles(
            folder=folder,
            name=folder.resolve().name,
            logs=(folder / _LOG,),
            others=tuple(folder / name for name in (*others, *images)),
        )
    ]


def _read(source: SourceFiles) -> SourceTrajectory:
    log = source.logs[0]
    trajectory = SourceTrajectory(lost=list(_LOST))
    model, domain = _model_and_domain(source.folder.resolve())
    trajectory.actor = model
    trajectory.application = domain
    trajectory.status, trajectory.status_source = _result(source.folder / _RESULT)
    actions = _ActionReader(trajectory.left_out)
    steps = list[SourceStep]()
    before = _first_screenshot(source)
    for line in json_lines(log, trajectory.damaged):
        trajectory.task = trajectory.task or plain_text(line.get("instruction"))
        if "action" not in line:
            trajectory.left_out["lines without an action, such as notes of errors"] += 1
            continue
        after = _image(source, line)
        if after is not None and before == after:
            # Two actions in the same second have the same screenshot file, which shows the screen
            # after the later action.
            before = None
            trajectory.left_out["screenshots that were replaced within the same second"] += 1
        acts = actions.read(line["action"])
        if acts:
            step = SourceStep(
                acts=acts,
                screenshot=before,
                time_ms=_time(line, steps),
                reasoning=plain_text(line.get("response")),
            )
            steps.append(step)
        before = after
    trajectory.steps = steps
    trajectory.require_steps(log)
    trajectory.final = before
    return trajectory


def _model_and_domain(folder: Path) -> tuple[str, str]:
    """Returns the names of the model and the domain, from the path of a task's folder.

    The runner's path is …/OBSERVATION/MODEL/DOMAIN/TASK. For any other path, the model is `unknown`
    and the domain is empty.
    """
    observation, model, domain = ([""] * 3 + list(folder.parts[:-1]))[-3:]
    if observation in _OBSERVATIONS:
        return model, domain
    return "unknown", ""


def _result(path: Path) -> tuple[str, str]:
    """Returns `status` and `status_source` according to the score in result.txt.

    Both are empty if there is no score. `status_source` is also empty for a completed task.
    """
    try:
        score = float(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return "", ""
    if score >= 1:
        return "completed", ""
    return "failed", f"the benchmark's score is {score:g}"


def _first_screenshot(source: SourceFiles) -> SourceImage | None:
    """Returns the first screenshot, or else the video's first frame; None if both are missing."""
    for path in source.others:
        if _FIRST_SCREENSHOT.fullmatch(path.name):
            return SourceImage(path=path)
    video = source.folder / _VIDEO
    if video not in source.others:
        return None
    return SourceImage(path=video, is_video=True)


def _image(source: SourceFiles, line: Mapping[str, Any]) -> SourceImage | None:
    name = file_name(line.get("screenshot_file"))
    if not name:
        return None
    return SourceImage(path=source.folder / name)


def _time(line: Mapping[str, Any], before: Sequence[SourceStep]) -> float:
    """Returns the time of a line in epoch milliseconds.

    If the line has no valid time, returns the time of the last step in `before`.
    """
    match = _TIME.fullmatch(plain_text(line.get("action_timestamp")))
    second = zoneless_time(match[1], "%Y%m%d@%H%M%S") if match else None
    if match is None or second is None:
        return last_time_ms(before)
    return second.timestamp() * 1000 + int(match[2].ljust(6, "0")) / 1000


class _ActionReader:
    """Reads the actions of a run in order; `left_out` counts actions that do not become steps."""

    def __init__(self, left_out: Counter[str]) -> None:
        self._left_out = left_out
        self._code = CodeReader()

    def read(self, action: Any) -> list[SourceAct]:
        """Returns the actions of a line; an empty list if the line does nothing on the screen."""
        if isinstance(action, dict) and isinstance(action.get("command"), str):
            action = action["command"]  # the agent for Claude logs a tool call that contains code
        elif isinstance(action, dict) and action.get("action_type") in _ENDS:
            action = action["action_type"]
        if isinstance(action, dict):
            return self._read_computer_13(action)
        text = plain_text(action)
        if text.upper() in _ENDS:
            return []
        if text.upper() == "WAIT":
            return [wait(_WAIT_S)]
        try:
            acts = self._code.read(text)
        except NotPythonError:
            self._left_out["actions without effect: their code is not Python"] += 1
            return []
        except UnreadCodeError:
            return self._unknown()
        self._left_out["actions that only move the pointer"] += not acts
        return acts

    def _unknown(self) -> list[SourceAct]:
        """Returns an action without a position, for code that cannot be read."""
        self._left_out["actions that cannot be read: they are hidden actions"] += 1
        return [SourceAct(kind=ActionType.CLICK)]

    def _read_computer_13(self, action: Mapping[str, Any]) -> list[SourceAct]:
        """Reads an action of `computer_13`; converts most actions to calls of pyautogui first."""
        kind = plain_text(action.get("action_type")).upper()
        given = action.get("parameters")
        values: dict[str, Any] = given if isinstance(given, dict) else dict(action)
        keys = values.get("keys")
        match kind:
            case "WAIT":
                return [wait(_WAIT_S)]
            case "TYPING" if plain_text(values.get("text")):
                return [type_text(values["text"])]
            case "HOTKEY" if isinstance(keys, list) and keys:
                return [press_keys([key_name(str(key)) for key in keys])]
            case "SCROLL":
                return self._scroll(values)
        try:
            acts = self._code.read(_call(kind, values))
        except UnreadCodeError:
            return self._unknown()
        self._left_out["actions that only move the pointer"] += not acts
        return acts

    def _scroll(self, values: Mapping[str, Any]) -> list[SourceAct]:
        """Reads a scroll: the runner passes `dx` to pyautogui.hscroll and `dy` to vscroll."""
        across = round(number(values.get("dx")) or 0.0)
        up = round(number(values.get("dy")) or 0.0)
        return self._code.read(f"pyautogui.hscroll({across})\npyautogui.vscroll({up})")


_ENDS = frozenset({"DONE", "FAIL"})
# For each action of computer_13, the function of pyautogui and the names of its arguments.
# `num_clicks=clicks` means `num_clicks` in computer_13 and `clicks` in pyautogui.
_CALLS: Mapping[str, tuple[str, ...]] = {
    "MOVE_TO": ("moveTo", "x", "y"),
    "CLICK": ("click", "x", "y", "button", "num_clicks=clicks"),
    "MOUSE_DOWN": ("mouseDown", "button"),
    "MOUSE_UP": ("mouseUp", "button"),
    "RIGHT_CLICK": ("rightClick", "x", "y"),
    "DOUBLE_CLICK": ("doubleClick", "x", "y"),
    "DRAG_TO": ("dragTo", "x", "y"),
    "PRESS": ("press", "key=keys"),
    "KEY_DOWN": ("keyDown", "key"),
    "KEY_UP": ("keyUp", "key"),
}


def _call(kind: str, values: Mapping[str, Any]) -> str:
    """Returns code that calls pyautogui for an action of computer_13.

    For an unknown action, the code calls a function that pyautogui does not have.
    """
    name, *arguments = _CALLS.get(kind, ("unknown",))
    texts = []
    for argument in arguments:
        source_name, _, code_name = argument.partition("=")
        value = values.get(source_name)
        if isinstance(value, str) or number(value) is not None:
            texts.append(f"{code_name or source_name}={value!r}")
    return f"pyautogui.{name}({', '.join(texts)})"


OSWORLD = Importer(
    tool="OSWorld's runner",
    files="traj.jsonl with the screenshots that it names",
    find=_find,
    read_trajectory=_read,
)
