"""Builds the log lines of inputs for tests, and finds the actions in such logs."""

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from demo_pipeline.actions.action_tables import CONTINUED, Action
from demo_pipeline.actions.grouping import Segmentation, segment
from demo_pipeline.actions.inputs import Input, as_input, in_order
from demo_pipeline.actions.keyboard_stretches import Keyboards
from demo_pipeline.actions.repair import Repairs, repair
from demo_pipeline.recording.input_log import INPUT_EVENTS, Event, parse_log
from demo_pipeline.recording.key_names import keyboard_of, layout_of_locale
from demo_pipeline.settings import ActionSettings
from demo_pipeline.trajectories.steps import joined_typing
from demo_pipeline_tests.fixed_values import settings_with

Line = dict[str, Any]
Part = Any  # a line or a list of lines


def line(time: int, event: str, **data: Any) -> Line:
    return {"event": event, "data": data, "time": time}


def move(time: int, x: float, y: float) -> Line:
    return line(time, "mousemove", x=x, y=y)


def press(time: int, x: float | None = None, y: float | None = None, button: str = "Left") -> Line:
    at = {} if x is None else {"x": x, "y": y}
    return line(time, "mousedown", **at, button=button)


def lift(time: int, x: float | None = None, y: float | None = None, button: str = "Left") -> Line:
    at = {} if x is None else {"x": x, "y": y}
    return line(time, "mouseup", **at, button=button)


def click(
    time: int, x: float = 50, y: float = 60, button: str = "Left", hold: int = 80
) -> list[Line]:
    return [press(time, x, y, button), lift(time + hold, x, y, button)]


def wheel(time: int, delta: float) -> Line:
    return line(time, "mousewheel", delta=delta)


def down(time: int, key: str, char: str = "") -> Line:
    data = {"key": key, "actual_char": char} if char else {"key": key}
    return line(time, "keydown", **data)


def up(time: int, key: str) -> Line:
    return line(time, "keyup", key=key)


def tap(time: int, key: str, char: str = "", hold: int = 60) -> list[Line]:
    return [down(time, key, char), up(time + hold, key)]


def typed(time: int, *keys: str) -> list[Line]:
    """Returns the lines of key presses that follow each other at intervals of 120 ms."""
    lines: list[Line] = []
    for number, key in enumerate(keys):
        lines += tap(time + 120 * number, key)
    return lines


def chord(time: int, *keys: str) -> list[Line]:
    """Returns the lines of keys pressed 50 ms apart and released in reverse order."""
    end = time + 50 * len(keys)
    return [
        *(down(time + 50 * n, key) for n, key in enumerate(keys)),
        *(up(end + 40 * n, key) for n, key in enumerate(reversed(keys))),
    ]


def text_of(lines: Iterable[Line]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in lines)


def flattened(parts: Iterable[Part]) -> list[Line]:
    """Returns all lines of `parts` in a single list."""
    lines: list[Line] = []
    for part in parts:
        lines += part if isinstance(part, list) else [part]
    return lines


def inputs(lines: Iterable[Line]) -> list[Input]:
    """Returns the inputs of a log, as the parser reads them."""
    parsed = []
    for item in parse_log(io.BytesIO(text_of(lines))):
        assert isinstance(item, Event), item
        if item.event in INPUT_EVENTS:
            parsed.append(as_input(item))
    return in_order(parsed)


def read(
    *lines: Part, platform: str = "linux", locale: str = "en-US", **settings: Any
) -> tuple[Segmentation, Repairs]:
    """Returns the segmentation and the repairs of a log."""
    chosen = settings_with(ActionSettings, **settings)
    repaired, repairs = repair(inputs(flattened(lines)), platform, chosen)
    keyboard = keyboard_of(chosen.keyboard_layout, layout_of_locale(locale))
    segmentation = segment(repaired, platform, chosen, Keyboards.of(keyboard))
    return replace(segmentation, actions=whole(segmentation.actions)), repairs


def actions(*lines: Part, **options: Any) -> list[Action]:
    """Returns the actions of a log; `options` are those of `read`."""
    return read(*lines, **options)[0].actions


def summaries(*lines: Part, **options: Any) -> list[str]:
    """Describes each action of a log with its typed text; `options` are those of `read`."""
    return [summary_of(action) for action in actions(*lines, **options)]


def summary_of(action: Action) -> str:
    kind = action.action_type
    words = {
        "type": f"type {action.text}",
        "hotkey": "+".join(action.keys) + (f" x{action.presses}" if action.presses != 1 else ""),
        "scroll": f"scroll {action.direction} {action.amount}",
        "pause": f"pause {action.seconds}",
        "drag": f"drag {action.button}",
        "click": f"click {action.button} {action.clicks}",
    }
    return "+".join([*action.modifiers, words.get(kind, kind)])


def whole(actions: Iterable[Action]) -> list[Action]:
    """Joins typing that was divided at breaks, as the pipeline does if the screen is unchanged.

    test_typing.py tests the places at which typing is divided.
    """
    joined = [action for action, _, _ in joined_typing((a, _frame(a), {}) for a in actions)]
    return [replace(action, action_index=number) for number, action in enumerate(joined)]


def _frame(action: Action) -> dict[str, str]:
    return {"reason_code": CONTINUED if CONTINUED in action.flags else ""}
