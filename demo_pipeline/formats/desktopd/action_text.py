"""An action as one line of JSON, and its inverse: what a model answers in our own form.

Belongs here: `{"action_type": …, "parameters": …}` as action.json has it, without the target and
the sentence. Points are pixels of the screenshot.
"""

import json
from typing import Any

from pydantic import ValidationError

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.answers import Answer, AnsweredAction, AnswerFormatError
from demo_pipeline.formats.base_model import unknown_fields
from demo_pipeline.formats.desktopd.step_actions import PARAMETERS, Parameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType


def action_text(action_type: ActionType, parameters: Parameters) -> str:
    """The action as JSON on one line; lone surrogates, which UTF-8 has not, become "?"."""
    value = {"action_type": action_type.value, "parameters": parameters.model_dump(mode="json")}
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def decode_action_text(text: str, _size: tuple[int, int]) -> Answer:
    """The answer in a line of `action_text`.

    Raises:
        AnswerFormatError: it is no JSON object, or not of an action.
    """
    value = _parsed(text)
    if not isinstance(value, dict) or set(value) != {"action_type", "parameters"}:
        raise AnswerFormatError("no object of action_type and parameters")
    try:
        action_type = ActionType(value["action_type"])
    except ValueError:
        raise AnswerFormatError("unknown action_type") from None
    try:
        parameters = PARAMETERS[action_type].model_validate(value["parameters"])
    except (ValidationError, RecursionError):
        raise AnswerFormatError("parameters that do not fit the action_type") from None
    if unknown_fields(parameters):
        raise AnswerFormatError("parameters that do not fit the action_type")
    return Answer((AnsweredAction(action_type, parameters),))


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, "answer")
    except (JsonFileError, RecursionError, ValueError):
        raise AnswerFormatError("no JSON") from None
