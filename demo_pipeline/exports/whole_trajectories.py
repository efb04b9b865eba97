"""What exports of whole trajectories share: their stretch, and our actions in other forms.

Belongs here: where a trajectory is cut (a stretch ends where an action is hidden, where a step
gives no record, and where the form cannot say an action; the longest stretch is exported), and the
encoders. An action that a form cannot say exactly is a loss that the export counts; it is never
written as another one.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.export_loop import ExportSummary
from demo_pipeline.datasets.selection import BAD_STEP, Candidate
from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    ActionType,
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    Pixel,
    PointParameters,
    ScrollParameters,
    StepAction,
    TypeParameters,
    WaitParameters,
    points,
    shares_of,
)
from demo_pipeline.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.exports.agentnet_code import MOST_CALLS, MOST_PRESSES, is_code_key
from demo_pipeline.exports.answers import AnsweredAction
from demo_pipeline.exports.cua_lite_models import LITE_MAX, to_lite_key
from demo_pipeline.exports.cudag.actions import is_last_end_filmed, is_off_screen
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.files.image_header import png_size
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.files.shown_text import escape_markers, replace_surrogates
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import INCOMPLETE, ProvenanceRow

Place = tuple[str, str]
"""A trajectory, and the part of the export that one of its records is in."""


UNKNOWN_KEY, HELD_KEYS, CLICKS_OF_BUTTON = "unknown_key", "held_keys", "clicks_of_button"
LITE_LOSSES = (UNKNOWN_KEY,)
AGENTNET_LOSSES = (UNKNOWN_KEY, HELD_KEYS, CLICKS_OF_BUTTON)
_DIGITS = 4  # of a share: 0.0001 of 1920 pixels is a fifth of a pixel
_CODE_OF_CLICK = {
    ("left", 1): "pyautogui.click",
    ("right", 1): "pyautogui.rightClick",
    ("middle", 1): "pyautogui.middleClick",
    ("left", 2): "pyautogui.doubleClick",
    ("left", 3): "computer.tripleClick",
}


class InexpressibleError(ValueError):
    """A form has no words for an action.

    Attributes:
        reason: one of the form's losses.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ActionEncoder = Callable[[AnsweredAction, Pixel], Any]
"""Writes an action in a form; the size is that of its screenshot.

Raises `InexpressibleError` for what the form cannot say.
"""


def lite_actions(action: AnsweredAction, size: Pixel) -> list[dict[str, Any]]:
    """An action as the `actions` of CUA-Lite's `computer`; see `ActionEncoder`.

    Members with the form's default value are left out, as the form's own rows do. Modifiers are
    keys that go down before the action and up after it; keys pressed n times are n actions.
    """
    match action.parameters:
        case TypeParameters(text=text):
            return [{"action": "type", "text": text}]
        case HotkeyParameters(keys=keys, presses=presses):
            return [{"action": "key", "keys": _lite_keys(keys)} for _ in range(presses or 1)]
        case WaitParameters(seconds=seconds):
            return [{"action": "wait", "duration": seconds}]
    done = _lite_pointing(action, size)
    modifiers = _lite_keys(action.parameters.members().get("modifiers") or [])
    if not modifiers:
        return [done]
    down = {"action": "key_down", "keys": modifiers}
    return [down, done, {"action": "key_up", "keys": modifiers[::-1]}]


def _lite_pointing(action: AnsweredAction, size: Pixel) -> dict[str, Any]:
    match action.parameters:
        case DragParameters() as drag:
            start = _units(drag.start_x, drag.start_y, size)
            done = {"action": "drag", "start_coordinate": start}
            done["coordinate"] = _units(drag.end_x, drag.end_y, size)
            return done | _unless("button", drag.button or "left", "left")
        case ScrollParameters() as scroll:
            turned = {"direction": scroll.direction, "amount": scroll.amount}
            return {"action": "scroll", **turned, "coordinate": _units(scroll.x, scroll.y, size)}
    button, clicks, x, y = _click(action)
    done = {"action": "click", "coordinate": _units(x, y, size)}
    return done | _unless("button", button, "left") | _unless("clicks", clicks, 1)


def _click(action: AnsweredAction) -> tuple[str, int, int, int]:
    """Button, number of clicks, x and y."""
    match action.parameters:
        case ClickParameters() as click:
            return click.button, click.clicks or 1, click.x, click.y
        case PointParameters(x=x, y=y) if action.action_type is ActionType.DOUBLE_CLICK:
            return "left", 2, x, y
        case PointParameters(x=x, y=y):
            return "right", 1, x, y
    raise TypeError(f"no encoder for {type(action.parameters).__name__}")


def _unless(name: str, value: object, default: object) -> dict[str, Any]:
    return {} if value == default else {name: value}


def _units(x: int, y: int, size: Pixel) -> list[int]:
    return [round(share * LITE_MAX) for share in shares_of(x, y, size)]


def _lite_keys(keys: Sequence[str]) -> list[str]:
    named = [to_lite_key(key) for key in keys]
    if None in named:
        raise InexpressibleError(UNKNOWN_KEY)
    return [key for key in named if key]


def agentnet_code(action: AnsweredAction, size: Pixel) -> str:
    """An action as AgentNet's code, one call a line; see `ActionEncoder`."""
    if action.parameters.members().get("modifiers"):
        raise InexpressibleError(HELD_KEYS)
    lines = list(_code_lines(action, size))
    if len(lines) > MOST_CALLS:  # of keys that were held down until they repeated as often
        raise InexpressibleError(HELD_KEYS)
    return "\n".join(lines)


def _code_lines(action: AnsweredAction, size: Pixel) -> Iterator[str]:
    match action.parameters:
        case TypeParameters(text=text):
            yield f"pyautogui.write(message={text!r})"
        case HotkeyParameters(keys=keys, presses=presses):
            yield from _key_lines(keys, presses or 1)
        case WaitParameters(seconds=seconds):
            whole = seconds.is_integer()
            yield f"computer.wait({int(seconds) if whole else seconds!r})"
        case DragParameters() as drag:
            yield f"pyautogui.moveTo({_place(drag.start_x, drag.start_y, size)})"
            end = _place(drag.end_x, drag.end_y, size)
            yield f"pyautogui.dragTo({end}, button={drag.button or 'left'!r})"
        case ScrollParameters() as scroll:
            yield f"pyautogui.moveTo({_place(scroll.x, scroll.y, size)})"
            name = "scroll" if scroll.direction in ("up", "down") else "hscroll"
            sign = 1 if scroll.direction in ("up", "right") else -1
            yield f"pyautogui.{name}({sign * scroll.amount})"
        case _:
            button, clicks, x, y = _click(action)
            if (button, clicks) not in _CODE_OF_CLICK:
                raise InexpressibleError(CLICKS_OF_BUTTON)
            yield f"{_CODE_OF_CLICK[button, clicks]}({_place(x, y, size)})"


def _key_lines(keys: Sequence[str], presses: int) -> Iterator[str]:
    if not all(map(is_code_key, keys)):
        raise InexpressibleError(UNKNOWN_KEY)
    if len(keys) > 1:
        yield from [f"pyautogui.hotkey({list(keys)!r})"] * presses
    else:
        full, rest = divmod(presses, MOST_PRESSES)
        for times in [MOST_PRESSES] * full + [rest] * bool(rest):
            yield f"pyautogui.press({keys[0]!r}{f', presses={times}' if times > 1 else ''})"


def share_text(x: int, y: int, size: Pixel) -> str:
    """A place as AgentNet writes its two numbers: `0.5, 0.25`."""
    return ", ".join(map(repr, _shares(x, y, size)))


def _place(x: int, y: int, size: Pixel) -> str:
    across, down = _shares(x, y, size)
    return f"x={across!r}, y={down!r}"


def _shares(x: int, y: int, size: Pixel) -> tuple[float, float]:
    across, down = shares_of(x, y, size)
    return round(across, _DIGITS), round(down, _DIGITS)


LOSSES_FILE = "metadata.json"
OUTSIDE, TOO_SHORT = "outside_stretch", "too_short"
UNKNOWN_SYSTEM, NO_STEPS = "unknown_system", "no_steps"
STRETCH_EXCLUSIONS = ("off_screen", "missing_frame", *LEAK_EXCLUSIONS, OUTSIDE, TOO_SHORT)
STRETCH_SETTINGS = ("min_steps", "include_avoidable_leaks", "include_unavoidable_leaks")
_MEANINGS = {
    "off_screen": "the action is outside the screenshot",
    "missing_frame": "the step has no screenshot",
    BAD_STEP: "a reviewer marked the step as bad",
    INCOMPLETE: "more than datasets.max_hidden_share of the actions before the step are hidden",
    "avoidable_leak": "the screenshot already shows the pointer at the target",
    "unavoidable_leak": "the same, but the pointer was there before",
    OUTSIDE: "before or after the longest stretch that can be shown",
    TOO_SHORT: "no stretch of the trajectory has datasets.min_steps steps",
    "split_leak": "another split begins with the same screenshot and task (trajectories)",
    NO_STEPS: "no step of the trajectory can be shown (trajectories)",
    UNKNOWN_SYSTEM: "the form has no name for the computer's system",
    UNKNOWN_KEY: "the form has no name for a key",
    HELD_KEYS: "the form cannot hold a key during another action",
    CLICKS_OF_BUTTON: "the form has no such clicks of this button",
}
_POINT = re.compile(r"\(\d+, \d+\)")
_ENDS = {True: "End the task: it is done.", False: "End the task: it was not done."}


@dataclass(frozen=True, slots=True)
class SaidStep:
    """A step of a stretch: its files, its screenshot's size, and its action in the form."""

    files: StepFiles
    size: Pixel
    said: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """The steps of a trajectory that an export shows.

    Attributes:
        steps: one after the other, without anything between them.
        before: what was done before the first of them, a sentence an action.
        final: the screenshot after the last one; None: the trajectory goes on, the video ends
            before the last action does, or it is missing.
        left_out: the steps that are not shown, by reason.
    """

    steps: tuple[SaidStep, ...]
    before: tuple[str, ...]
    final: Path | None
    left_out: Counter[str]


def longest_stretch(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
    encode: ActionEncoder,
) -> Stretch | Counter[str]:
    """The longest stretch, the earliest of equally long ones; or why there is none.

    A trajectory without a cut is taken however short it is; otherwise a stretch has at least
    `settings.min_steps` steps.

    Args:
        candidate: its hidden actions cut the trajectory.
        trajectory: the whole of it.
        rows: its provenance by step index.
        settings: which leaks take part, and the shortest stretch.
        encode: writes an action in the form.

    Returns:
        The stretch, or the number of steps that are left out, by reason.
    """
    left_out: Counter[str] = Counter()
    runs: list[list[SaidStep]] = [[]]
    for step in trajectory.steps:
        if candidate.hidden.before(step.index):
            runs.append([])
        is_bad = step.index in candidate.bad_steps
        said = BAD_STEP if is_bad else said_step(step, rows[step.index], settings, encode)
        if isinstance(said, SaidStep):
            runs[-1].append(said)
        else:
            left_out[said] += 1
            runs.append([])
    best = max(runs, key=len)
    whole = len(best) == len(trajectory.steps) and not len(candidate.hidden)
    rest = sum(map(len, runs)) - len(best)
    if not best or (len(best) < settings.min_steps and not whole):
        return left_out + Counter({TOO_SHORT: rest + len(best)})
    return Stretch(
        tuple(best),
        tuple(_before(candidate, trajectory, best[0].files.index)),
        _final(candidate, trajectory, best[-1].files.index, rows),
        left_out + Counter({OUTSIDE: rest}),
    )


def said_step(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, encode: ActionEncoder
) -> SaidStep | str:
    """The step in the form, or why it cannot be shown."""
    size = readable_size(step.screenshot)
    if is_off_screen(step.action, row, size or (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if row["pts"] is None or size is None:
        return "missing_frame"
    if reason := leak_exclusion(row, settings):
        return reason
    try:
        action = AnsweredAction(step.action.action_type, step.action.parameters)
        return SaidStep(step, size, encode(action, size))
    except InexpressibleError as error:
        return error.reason


def readable_size(screenshot: Path) -> Pixel | None:
    """Width and height of a PNG; None: it is missing or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError):
        return None


def _before(candidate: Candidate, trajectory: Trajectory, first: int) -> Iterator[str]:
    """Yield what was done before a step: hidden actions and steps, in words."""
    for step in trajectory.steps:
        if step.index > first:
            return
        yield from map(hidden_words, candidate.hidden.before(step.index))
        if step.index < first:
            yield _POINT.sub("a place", sentence(step.action))


def _final(
    candidate: Candidate, trajectory: Trajectory, last: int, rows: Mapping[int, ProvenanceRow]
) -> Path | None:
    ended = last == trajectory.steps[-1].index and not candidate.hidden.follow(last)
    ended = ended and is_last_end_filmed(trajectory.steps, rows)
    final = trajectory.final_screenshot
    return final if ended and readable_size(final) else None


def sentence(action: StepAction, places: Sequence[str] = ()) -> str:
    """What a step does, in one line without markers.

    Args:
        action: the action.
        places: its points as the form writes them; they replace the pixels.
    """
    named = dict(zip((f"({x}, {y})" for x, y in points(action)), places, strict=False))
    words = _POINT.sub(lambda found: named.get(found.group(), found.group()), action.reasoning)
    return replace_surrogates(escape_markers(" ".join(words.split()))[0])


def end_sentence(*, success: bool) -> str:
    """How the end of a task is said."""
    return _ENDS[success]


def finish_losses(
    out: Path,
    _plan: object,
    summary: ExportSummary,
    counts: Mapping[str, int],
    _settings: DatasetSettings,
) -> Mapping[str, Any]:
    """Write `metadata.json`: what the export holds, and what it leaves out, by reason.

    The reasons that the form has are listed even when nothing was left out for them.
    """
    left_out = {
        reason: {"count": count, "meaning": _MEANINGS[reason]}
        for reason, count in summary.excluded_records.items()
    }
    details = {"steps": counts.get("steps", 0)}
    known = replace(summary, details=details).as_dict()
    shown = {name: value for name, value in known.items() if name != "problems"}
    dump_json(out / LOSSES_FILE, {**shown, "excluded_steps": left_out})
    return details


def lines_of(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the objects of a file of JSON Lines; none when there is no file."""
    if path.is_file():
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
