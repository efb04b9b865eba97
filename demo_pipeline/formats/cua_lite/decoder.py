"""Reads what a model answers in CUA-Lite's form: an assistant's message, or a call of a tool.

Belongs here: finding the calls in an answer, and our actions in the actions of `computer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.answer_merging import merge_presses
from demo_pipeline.formats.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
)
from demo_pipeline.formats.cua_lite.keys import from_lite_key
from demo_pipeline.formats.cua_lite.models import (
    BBOX,
    COMPUTER,
    LITE_DONE,
    LITE_MAX,
    POINT,
    BoxArguments,
    ComputerArguments,
    LiteAction,
    LiteClick,
    LiteDrag,
    LiteKeys,
    LiteMove,
    LiteScroll,
    LiteType,
    LiteWait,
    PointArguments,
)
from demo_pipeline.formats.cua_lite.row_rules import parse_value
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    Parameters,
    PointParameters,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
)
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.formats.pixels import Pixel, pixel_at

_Done = AnsweredAction | ForeignAction
_WORDS = ("inline_reasoning", "action_description", "text")
_MOST_CHARACTERS = 1_000_000


def decode_cua_lite_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `formats.answers.AnswerDecoder`.

    It is JSON: an assistant's message, its list of calls, one call, or the arguments of `computer`.
    The words `Done.` without a call end the task. Keys that are held around one action are its
    modifiers; held otherwise they are foreign.

    Args:
        text: the answer.
        size: width and height of the step's screenshot, pixels.

    Raises:
        AnswerFormatError: it is something else, or a call is not as the form defines it.
    """
    if len(text) > _MOST_CHARACTERS:
        raise AnswerFormatError("too long")
    try:
        value = parse_json(text.strip(), "answer")
    except JsonFileError:
        if text.strip() == LITE_DONE:
            return Answer((), "success")
        raise AnswerFormatError("not JSON") from None
    words = _words(value)
    calls = _calls(value)
    if not calls and words == LITE_DONE:
        return Answer((), "success")
    if not calls:
        raise AnswerFormatError("no tool call")
    actions = merge_presses(action for call in calls for action in _decoded(call, size))
    return Answer(tuple(actions), thought=words)


def _words(value: Any) -> str:
    """The words of a message, a line a part."""
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, str):
        return content
    parts = (
        [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    texts = (part.get("text") for part in parts if part.get("type") in _WORDS)
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return ()
    if "actions" in value:
        return [{"name": COMPUTER, "arguments": value}]
    if "function" in value or "name" in value:
        return [value]
    calls = value.get("tool_calls")
    return calls if isinstance(calls, list) else ()


def _decoded(call: Any, size: Pixel) -> Iterator[_Done]:
    """Yield the actions of one call."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, Mapping):
        raise AnswerFormatError("not a tool call")
    name, arguments = function.get("name"), function.get("arguments")
    if name == COMPUTER:
        done = parse_value(ComputerArguments, arguments)
        if isinstance(done, ComputerArguments):
            yield from _actions(done.actions, size)
            return
    elif name == POINT:
        point = parse_value(PointArguments, arguments)
        if isinstance(point, PointArguments):
            yield ForeignAction(POINT, _pixel(point.coordinate, size))
            return
    elif name == BBOX:
        box = parse_value(BoxArguments, arguments)
        if isinstance(box, BoxArguments):
            left, top, right, bottom = box.coordinate
            yield ForeignAction(BBOX, _pixel(((left + right) / 2, (top + bottom) / 2), size))
            return
    else:
        raise AnswerFormatError("unknown tool")
    raise AnswerFormatError("wrong arguments")


def _actions(actions: Sequence[LiteAction], size: Pixel) -> Iterator[_Done]:
    """Yield an action each; keys held around one action become its modifiers."""
    number = 0
    while number < len(actions):
        held = _held_around(actions[number : number + 3])
        action = actions[number + 1] if held else actions[number]
        number += 3 if held else 1
        done = _single(action, held, size)
        yield done or ForeignAction(action.action, _place(action, size))


def _held_around(actions: Sequence[LiteAction]) -> list[str] | None:
    """The keys that are held while one pointing action is done; None: it is something else."""
    if len(actions) < 3:
        return None
    down, action, up = actions
    if not isinstance(down, LiteKeys) or not isinstance(up, LiteKeys):
        return None
    if (down.action, up.action) != ("key_down", "key_up") or up.keys != down.keys[::-1]:
        return None
    return down.keys if isinstance(action, LiteClick | LiteDrag | LiteScroll) else None


def _single(action: LiteAction, held: list[str] | None, size: Pixel) -> AnsweredAction | None:
    """Our action; None: we have no such action."""
    match action:
        case LiteClick() | LiteDrag() | LiteScroll():
            return _pointing(action, None if held is None else _our_keys(held), size)
        case LiteType(text=text):
            return AnsweredAction(ActionType.TYPE, TypeParameters(text=text))
        case LiteKeys(action="key", keys=keys):
            return AnsweredAction(ActionType.HOTKEY, HotkeyParameters(keys=_our_keys(keys)))
        case LiteWait(duration=seconds) if seconds > 0:
            return AnsweredAction(ActionType.WAIT, WaitParameters(seconds=seconds))
    return None


def _pointing(
    action: LiteClick | LiteDrag | LiteScroll, modifiers: list[str] | None, size: Pixel
) -> AnsweredAction | None:
    match action:
        case LiteClick(coordinate=[_, _] as place):
            return _click(action, _pixel(place, size), modifiers)
        case LiteDrag(start_coordinate=[_, _] as start):
            (x, y), (to_x, to_y) = _pixel(start, size), _pixel(action.coordinate, size)
            button = None if action.button == "left" else action.button
            places = {"start_x": x, "start_y": y, "end_x": to_x, "end_y": to_y}
            drag = DragParameters(**places, button=button, modifiers=modifiers)
            return AnsweredAction(ActionType.DRAG, drag)
        case LiteScroll(coordinate=[_, _] as place, direction=direction, amount=amount):
            x, y = _pixel(place, size)
            scroll = ScrollParameters(
                x=x, y=y, direction=direction, amount=amount, modifiers=modifiers
            )
            return AnsweredAction(ActionType.SCROLL, scroll)
    return None


def _click(action: LiteClick, at: Pixel, modifiers: list[str] | None) -> AnsweredAction | None:
    x, y = at
    parameters: Parameters
    match action.button, action.clicks:
        case "left", 2:
            parameters = PointParameters(x=x, y=y, modifiers=modifiers)
            return AnsweredAction(ActionType.DOUBLE_CLICK, parameters)
        case "right", 1:
            parameters = PointParameters(x=x, y=y, modifiers=modifiers)
            return AnsweredAction(ActionType.RIGHT_CLICK, parameters)
        case _, 1 | 3:
            clicks: Literal[3] | None = 3 if action.clicks == 3 else None
            button = action.button
            parameters = ClickParameters(
                x=x, y=y, button=button, clicks=clicks, modifiers=modifiers
            )
            return AnsweredAction(ActionType.CLICK, parameters)
    return None


def _place(action: LiteAction, size: Pixel) -> Pixel | None:
    """Where an action is; None: where the pointer is, or nowhere."""
    if isinstance(action, LiteClick | LiteDrag | LiteScroll | LiteMove) and action.coordinate:
        return _pixel(action.coordinate, size)
    return None


def _pixel(coordinate: Sequence[float], size: Pixel) -> Pixel:
    return pixel_at(coordinate[0] / LITE_MAX, coordinate[1] / LITE_MAX, size)


def _our_keys(keys: Sequence[str]) -> list[str]:
    return [from_lite_key(key) or key for key in keys]
