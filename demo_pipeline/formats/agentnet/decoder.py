"""Reads what a model answers in AgentNet's form: words, and the code of the next action.

Belongs here: finding the code in an answer, and our actions in its calls.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, cast

from demo_pipeline.formats.agentnet.pyautogui_code import CLICKS, CodeCall, read_code
from demo_pipeline.formats.answer_merging import merge_presses
from demo_pipeline.formats.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
)
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    PointParameters,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
)
from demo_pipeline.formats.desktopd.vocabulary import ActionType, Button
from demo_pipeline.formats.pixels import Pixel, pixel_at

_HEADING = re.compile(r"^[ \t]*#{2,3}[ \t]*(\w+)[ \t]*:?[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_Done = AnsweredAction | ForeignAction


def decode_agentnet_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `formats.answers.AnswerDecoder`.

    The code is what stands below the heading `## Code`, else the last fenced block, else the whole
    text. A scroll without a place, a drag without a start and a move of the pointer are foreign.

    Args:
        text: the answer.
        size: width and height of the step's screenshot, pixels.

    Raises:
        AnswerFormatError: there is no code, or it is more than the calls of the form.
    """
    code, thought = _parts(text)
    return Answer(*_decoded(read_code(code, tolerant=True), size), thought)


def decode_code(code: str, size: Pixel) -> Answer:
    """Read the code of one step, as AgentNet's own readers would.

    Raises:
        AnswerFormatError: see `decode_agentnet_answer`.
    """
    return Answer(*_decoded(read_code(code), size))


def _parts(text: str) -> tuple[str, str]:
    """The code and the words of an answer."""
    headings = list(_HEADING.finditer(text))
    ends = [*(found.start() for found in headings[1:]), len(text)]
    sections = {
        found[1].lower(): (found.end(), end) for found, end in zip(headings, ends, strict=False)
    }
    if "code" in sections:
        begin, _ = sections["code"]
        code, before = text[begin:], text[:begin]
        fenced = list(_FENCED.finditer(code))[:1]
        code = fenced[0][1] if fenced else code
    else:
        fenced = list(_FENCED.finditer(text))[-1:]
        code, before = (fenced[0][1], text[: fenced[0].start()]) if fenced else (text, "")
    thought = text[slice(*sections["thought"])] if "thought" in sections else before
    return code.strip(), _HEADING.sub("", thought).strip()


def _decoded(
    calls: Sequence[CodeCall], size: Pixel
) -> tuple[tuple[_Done, ...], Literal["success", "failure"] | None]:
    if any(call.name == "terminate" for call in calls[:-1]):
        raise AnswerFormatError("a call after the end")
    status = calls[-1].status
    actions = tuple(merge_presses(_actions([call for call in calls if not call.status], size)))
    return actions, cast('Literal["success", "failure"]', status) if status else None


def _actions(calls: Sequence[CodeCall], size: Pixel) -> Iterator[_Done]:
    """Yield an action a call; where the pointer moves first, the two are one."""
    number = 0
    while number < len(calls):
        call, after = calls[number], calls[number + 1] if number + 1 < len(calls) else None
        number += 1
        if call.name == "moveTo" and after and after.name == "dragTo":
            number += 1
            yield _drag(call, after, size)
        elif call.name == "moveTo" and after and _is_scroll(after) and after.point is None:
            number += 1
            yield _scroll(after, call.point, size)
        elif _is_scroll(call):
            yield _scroll(call, call.point, size)
        elif call.name in ("hotkey", "press"):
            yield from _keys_of(call)
        else:
            yield _single(call, size)


def _pixel(call: CodeCall, size: Pixel) -> Pixel:
    x, y = call.point or (0.0, 0.0)
    return pixel_at(x, y, size)


def _is_scroll(call: CodeCall) -> bool:
    return call.name in ("scroll", "hscroll")


def _drag(start: CodeCall, end: CodeCall, size: Pixel) -> _Done:
    (x, y), (to_x, to_y) = _pixel(start, size), _pixel(end, size)
    button = None if end.button == "left" else cast(Button, end.button)
    parameters = DragParameters(start_x=x, start_y=y, end_x=to_x, end_y=to_y, button=button)
    return AnsweredAction(ActionType.DRAG, parameters)


def _scroll(call: CodeCall, point: tuple[float, float] | None, size: Pixel) -> _Done:
    if point is None:
        return ForeignAction(call.name)
    x, y = pixel_at(*point, size)
    names = ("up", "down") if call.name == "scroll" else ("right", "left")
    direction = cast('Literal["up", "down", "left", "right"]', names[call.amount < 0])
    parameters = ScrollParameters(x=x, y=y, direction=direction, amount=abs(call.amount))
    return AnsweredAction(ActionType.SCROLL, parameters)


def _keys_of(call: CodeCall) -> Iterator[_Done]:
    """Yield a chord, or the keys of a `press`, which follow one another."""
    chords = [call.keys] if call.name == "hotkey" else [(key,) for key in call.keys]
    for _ in range(call.presses if len(chords) > 1 else 1):
        for chord in chords:
            presses = call.presses if len(chords) == 1 and call.presses > 1 else None
            keys = HotkeyParameters(keys=list(chord), presses=presses)
            yield AnsweredAction(ActionType.HOTKEY, keys)


def _single(call: CodeCall, size: Pixel) -> _Done:
    if call.name == "write":
        return AnsweredAction(ActionType.TYPE, TypeParameters(text=call.text))
    if call.name == "wait":
        return AnsweredAction(ActionType.WAIT, WaitParameters(seconds=call.seconds))
    x, y = _pixel(call, size)
    if call.name in CLICKS and (clicked := _click(call, x, y)):
        return clicked
    return ForeignAction(call.name, (x, y))


def _click(call: CodeCall, x: int, y: int) -> AnsweredAction | None:
    """The click; None: we have no such click."""
    match call.button, call.clicks:
        case "left", 2:
            return AnsweredAction(ActionType.DOUBLE_CLICK, PointParameters(x=x, y=y))
        case "right", 1:
            return AnsweredAction(ActionType.RIGHT_CLICK, PointParameters(x=x, y=y))
        case button, 1 | 3:
            times: Literal[3] | None = 3 if call.clicks == 3 else None
            click = ClickParameters(x=x, y=y, button=cast(Button, button), clicks=times)
            return AnsweredAction(ActionType.CLICK, click)
    return None
