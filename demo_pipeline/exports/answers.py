"""What a model answers for one step, whatever the form that it answers in.

Belongs here: the types that the decoder of every form returns, other names of keys, joining decoded
actions, and our own form: `{"action_type": …, "parameters": …}` as action.json has it, without the
target and the sentence. Written datasets are read without the aliases: a key there has our name.
Points are pixels of the screenshot. The decoders lie beside the models of their forms.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic import ValidationError

from demo_pipeline.desktopd.models import (
    PARAMETERS,
    ActionType,
    Button,
    ClickParameters,
    HotkeyParameters,
    Parameters,
    Pixel,
    PointParameters,
    is_canonical_key,
)
from demo_pipeline.files.base_model import unknown_fields
from demo_pipeline.files.json_files import JsonFileError, parse_json


@dataclass(frozen=True, slots=True)
class AnsweredAction:
    """One of our actions, without target and reasoning; points are pixels of the screenshot."""

    action_type: ActionType
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class ForeignAction:
    """An action of the form that is none of ours: the pointer moved, a key held, a screenshot.

    Attributes:
        name: as the form calls it.
        point: pixels of the screenshot, when it has a place.
    """

    name: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answers for one step.

    Attributes:
        actions: in the order in which they are to be done.
        status: how the model says the task ended; None: it does not end it.
        thought: its words beside the actions; empty: none.
    """

    actions: tuple[AnsweredAction | ForeignAction, ...]
    status: Literal["success", "failure"] | None = None
    thought: str = ""


class AnswerFormatError(ValueError):
    """An answer that the form does not allow.

    Attributes:
        reason: one of a few fixed phrases, such as "no tool call"; never words of the answer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


AnswerDecoder = Callable[[str, tuple[int, int]], Answer]
"""Reads a model's answer; the size is that of the step's screenshot, width and height in pixels.

Raises `AnswerFormatError` and nothing else, for any text.
"""


_MOST_CHARACTERS = 1_000_000
_POINT_TYPES: Mapping[tuple[str, int], ActionType] = {
    ("left", 2): ActionType.DOUBLE_CLICK,
    ("right", 1): ActionType.RIGHT_CLICK,
}
_ALIASES: Mapping[str, str] = {
    "return": "enter",
    "escape": "esc",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "cmd": "command",
    "option": "alt",
    "control": "ctrl",
    "windows": "win",
    **{
        f"{key}{side}": key for key in ("ctrl", "shift", "alt", "win") for side in ("left", "right")
    },
    "prtsc": "printscreen",
    " ": "space",
}


def answered_key(name: str) -> str:
    """Our name of a key that an answer names in another way; an unknown name stays as it is.

    Case does not count, so that `Enter`, `Return` and `return` are `enter`; of the two keys of a
    name (`ctrlleft`, `ctrlright`) we have one.
    """
    lower = name.strip().lower() or name
    known = _ALIASES.get(lower, lower)
    return known if is_canonical_key(known) else name


_KINDS = {model: kind for kind, model in PARAMETERS.items()}  # of a point it is not the only one


def answered(parameters: Parameters) -> AnsweredAction:
    """The action of its parameters, which say its type unless they are a bare point."""
    return AnsweredAction(_KINDS[type(parameters)], parameters)


def merge_presses(
    actions: Iterable[AnsweredAction | ForeignAction],
) -> Iterator[AnsweredAction | ForeignAction]:
    """Yield the actions; the same keys one after another are one action with `presses`."""
    for keys, run in groupby(actions, _keys):
        same = list(run)
        if keys and len(same) > 1:
            given = [one.parameters.members() for one in same if isinstance(one, AnsweredAction)]
            presses = sum(one.get("presses") or 1 for one in given)
            same = [answered(HotkeyParameters(keys=keys, presses=presses))]
        yield from same


def _keys(action: AnsweredAction | ForeignAction) -> list[str] | None:
    parameters = action.parameters if isinstance(action, AnsweredAction) else None
    return parameters.keys if isinstance(parameters, HotkeyParameters) else None


def action_text(action_type: ActionType, parameters: Parameters) -> str:
    """The action as JSON on one line; lone surrogates, which UTF-8 has not, become "?"."""
    value = {"action_type": action_type.value, "parameters": parameters.model_dump(mode="json")}
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def decode_action_text(text: str, _size: tuple[int, int]) -> Answer:
    """The answer in a line of our own form.

    Raises:
        AnswerFormatError: it is not a JSON object, or not of an action.
    """
    value = parse_answer(text)
    if not isinstance(value, dict) or set(value) != {"action_type", "parameters"}:
        raise AnswerFormatError("no object of action_type and parameters")
    unfit = "parameters that do not fit the action_type"
    return Answer(
        (own_action(value["action_type"], value["parameters"], "unknown action_type", unfit),)
    )


def own_action(name: object, parameters: object, unknown: str, unfit: str) -> AnsweredAction:
    """An action of the name and the parameters of ours.

    Raises:
        AnswerFormatError: `unknown` when there is no such name, `unfit` for other parameters.
    """
    try:
        kind = ActionType(str(name))
    except ValueError:
        raise AnswerFormatError(unknown) from None
    try:
        known = PARAMETERS[kind].model_validate(parameters)
        strangers = unknown_fields(known)
    except (ValidationError, RecursionError):
        raise AnswerFormatError(unfit) from None
    if strangers:
        raise AnswerFormatError(unfit)
    return AnsweredAction(kind, known)


def parse_answer(text: str) -> Any:
    """The JSON value of an answer.

    Raises:
        AnswerFormatError: it is not JSON, or too long to be an answer.
    """
    if len(text) > _MOST_CHARACTERS:
        raise AnswerFormatError("too long")
    try:
        return parse_json(text.strip(), "answer", any_depth=False)
    except (JsonFileError, RecursionError, ValueError):
        raise AnswerFormatError("not JSON") from None


def click_action(
    button: Button, clicks: int, at: Pixel, modifiers: list[str] | None = None
) -> AnsweredAction | None:
    """A click; None: we have no click of so many presses of this button."""
    x, y = at
    if (button, clicks) in _POINT_TYPES:
        point = PointParameters(x=x, y=y, modifiers=modifiers)
        return AnsweredAction(_POINT_TYPES[button, clicks], point)
    if clicks not in {1, 3}:
        return None
    times: Literal[3] | None = 3 if clicks == 3 else None
    click = ClickParameters(x=x, y=y, button=button, clicks=times, modifiers=modifiers)
    return AnsweredAction(ActionType.CLICK, click)


def click_of(action: AnsweredAction) -> tuple[str, int, int, int]:
    """Button, number of clicks, x and y of a click of any type: the inverse of `click_action`."""
    match action.parameters:
        case ClickParameters(button=button, clicks=clicks, x=x, y=y):
            return button, clicks or 1, x, y
        case PointParameters(x=x, y=y):
            is_double = action.action_type == ActionType.DOUBLE_CLICK
            return *(("left", 2) if is_double else ("right", 1)), x, y
    raise TypeError(f"no click: {type(action.parameters).__name__}")
