"""Reads what a model answers as a step of ATIF: its words and the calls of our actions.

Belongs here: our actions in the calls of a step.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.answers import Answer, AnsweredAction, AnswerFormatError
from demo_pipeline.formats.base_model import unknown_fields
from demo_pipeline.formats.desktopd.step_actions import PARAMETERS, Parameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.formats.pixels import Pixel

_MOST_CHARACTERS = 1_000_000
_ACROSS, _DOWN = ("x", "start_x", "end_x"), ("y", "start_y", "end_y")


def decode_atif_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `formats.answers.AnswerDecoder`.

    It is JSON: a step of the agent, its list of calls, or one call.

    Args:
        text: the answer.
        size: width and height of the step's screenshot, pixels.

    Raises:
        AnswerFormatError: it is something else, or a call is none of our actions on this screen.
    """
    if len(text) > _MOST_CHARACTERS:
        raise AnswerFormatError("too long")
    try:
        value = parse_json(text.strip(), "answer")
    except JsonFileError:
        raise AnswerFormatError("not JSON") from None
    calls = _calls(value)
    if not calls:
        raise AnswerFormatError("no tool call")
    message = value.get("message") if isinstance(value, dict) else None
    words = message if isinstance(message, str) else ""
    return Answer(tuple(decode_call(call, size) for call in calls), thought=words)


def _calls(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return ()
    calls = [value] if "function_name" in value else value.get("tool_calls")
    return calls if isinstance(calls, list) else ()


def decode_call(call: Any, size: Pixel) -> AnsweredAction:
    """Our action in one call.

    Raises:
        AnswerFormatError: it is none, or points outside the screenshot.
    """
    if not isinstance(call, dict):
        raise AnswerFormatError("not a tool call")
    try:
        kind = ActionType(str(call.get("function_name")))
    except ValueError:
        raise AnswerFormatError("unknown tool") from None
    try:
        parameters = PARAMETERS[kind].model_validate(call.get("arguments"))
        strangers = unknown_fields(parameters)
    except (ValidationError, RecursionError):
        raise AnswerFormatError("wrong arguments") from None
    if strangers:
        raise AnswerFormatError("wrong arguments")
    if not _inside(parameters, size):
        raise AnswerFormatError("place outside the screen")
    return AnsweredAction(kind, parameters)


def _inside(parameters: Parameters, size: Pixel) -> bool:
    given = parameters.members()
    return all(
        0 <= given[name] < side
        for names, side in ((_ACROSS, size[0]), (_DOWN, size[1]))
        for name in names
        if name in given
    )
