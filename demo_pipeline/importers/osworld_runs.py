"""Results of OSWorld's runner: a folder with `traj.jsonl`, `result.txt` and a screenshot a step.

`lib_run_single.py` writes a line for each action, in the action spaces `pyautogui` and
`computer_13`. A line's screenshot was taken after its action: the state before an action is the
screenshot of the previous line. The state before the first action is the first frame of
`recording.mp4`, which begins earlier. The folder is named by the task's id and lacks its text.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.pyautogui_code import CodeReader, NotPythonError, UnreadCodeError
from demo_pipeline.importers.source_recording import (
    Importer,
    SourceFiles,
    UnreadableSourceError,
    file_name,
    json_lines,
    number,
    plain_text,
)
from demo_pipeline.importers.source_trajectory import (
    SourceAct,
    SourceImage,
    SourceStep,
    SourceTrajectory,
    key_name,
    press_keys,
    type_text,
    wait,
)

_LOG = "traj.jsonl"
_RESULT = "result.txt"
_VIDEO = "recording.mp4"
_FIRST_SCREENSHOT = re.compile(r"(step_0(_.*)?|initial_state)\.png")
_OBSERVATIONS = ("screenshot", "a11y_tree", "screenshot_a11y_tree", "som")
_TIME = re.compile(r"(\d{8}@\d{6})(\d{0,6})")
_WAIT_S = 1.0  # of WAIT and of computer_13's WAIT: OSWorld's runner only lets time pass
_LOST = (
    "the time zone of action_timestamp, which is taken as UTC",
    "the video, but for its first frame; runtime.log; rewards and infos of the lines",
    "that a text was pasted: it is written as typed",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """The folder, if it holds the log of a run."""
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
    trajectory = SourceTrajectory(steps=(), lost=list(_LOST))
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
            # Two actions within the same second: the second screenshot replaced the first one.
            before = None
            trajectory.left_out["screenshots that were replaced within the same second"] += 1
        acts = actions.of(line["action"])
        if acts:
            step = SourceStep(
                acts=acts,
                screenshot=before,
                time_ms=_time(line, steps),
                reasoning=plain_text(line.get("response")),
            )
            steps.append(step)
        before = after
    if not steps:
        reason = next(iter(trajectory.damaged), "holds no action")
        raise UnreadableSourceError(f"{log}: {reason}")
    trajectory.steps = steps
    trajectory.final = before
    return trajectory


def _model_and_domain(folder: Path) -> tuple[str, str]:
    """Of the folders above, as the runner names them: …/OBSERVATION/MODEL/DOMAIN/TASK."""
    observation, model, domain = ([""] * 3 + list(folder.parts[:-1]))[-3:]
    if observation in _OBSERVATIONS:
        return model, domain
    return "unknown", ""


def _result(path: Path) -> tuple[str, str]:
    """The status by the benchmark's score, and a sentence; empty without a score."""
    try:
        score = float(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return "", ""
    if score >= 1:
        return "completed", ""
    return "failed", f"the benchmark's score is {score:g}"


def _first_screenshot(source: SourceFiles) -> SourceImage | None:
    """The state before the first action: a screenshot, else the first frame of the video."""
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
    """Epoch milliseconds of a line; that of the line before if it says none."""
    match = _TIME.fullmatch(plain_text(line.get("action_timestamp")))
    if match:
        try:
            at = datetime.strptime(match[1], "%Y%m%d@%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            pass
        else:
            return at.timestamp() * 1000 + int(match[2].ljust(6, "0")) / 1000
    return max((step.time_ms for step in before[-1:]), default=0.0)


class _ActionReader:
    """Reads the actions of a run in order, and counts in `left_out` those that do nothing."""

    def __init__(self, left_out: Counter[str]) -> None:
        self._left_out = left_out
        self._code = CodeReader()

    def of(self, action: Any) -> list[SourceAct]:
        """The actions of a line."""
        if isinstance(action, dict) and isinstance(action.get("command"), str):
            action = action["command"]  # of the agent for Claude: its code, next to the tool call
        elif isinstance(action, dict) and action.get("action_type") in _ENDS:
            action = action["action_type"]
        if isinstance(action, dict):
            return self._of_computer_13(action)
        text = plain_text(action)
        if text.upper() in _ENDS:
            return []
        if text.upper() == "WAIT":
            return [wait(_WAIT_S)]
        try:
            acts = self._code.read(text)
        except NotPythonError:
            self._left_out["actions whose code is not Python, so that they did nothing"] += 1
            return []
        except UnreadCodeError:
            return self._unknown()
        self._left_out["actions that only move the pointer"] += not acts
        return acts

    def _unknown(self) -> list[SourceAct]:
        """An action of which only is known that it was done: it is hidden."""
        self._left_out["actions that are not read: they are hidden, without a place"] += 1
        return [SourceAct(kind=ActionType.CLICK)]

    def _of_computer_13(self, action: Mapping[str, Any]) -> list[SourceAct]:
        """The actions of OSWorld's other action space, as the calls of pyautogui they stand for."""
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
        """`dx` right and `dy` up, as the runner passes them to pyautogui's two wheels."""
        across = round(number(values.get("dx")) or 0.0)
        up = round(number(values.get("dy")) or 0.0)
        return self._code.read(f"pyautogui.hscroll({across})\npyautogui.vscroll({up})")


_ENDS = frozenset({"DONE", "FAIL"})
# An action of computer_13, the call of pyautogui, and its arguments: theirs, or theirs=ours.
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
    """The call of pyautogui for an action of computer_13; an unknown one for any other."""
    name, *arguments = _CALLS.get(kind, ("unknown",))
    texts = []
    for argument in arguments:
        theirs, _, ours = argument.partition("=")
        value = values.get(theirs)
        if isinstance(value, str) or number(value) is not None:
            texts.append(f"{ours or theirs}={value!r}")
    return f"pyautogui.{name}({', '.join(texts)})"


OSWORLD = Importer(
    tool="OSWorld's runner",
    files="traj.jsonl with the screenshots that it names",
    find=_find,
    read_trajectory=_read,
)
