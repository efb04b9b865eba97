"""What a model answers when it is asked where an element is, and the click that it means.

Belongs here: the texts of a point `[x, y]`, of a box `[x1, y1, x2, y2]` and of a refusal `null` in
pixels of the screenshot, the arguments of CUA-Lite's calls `point` and `bbox`, and their inverses.
"""

import math
from dataclasses import replace
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
)
from demo_pipeline.formats.cua_lite.decoder import decode_cua_lite_answer
from demo_pipeline.formats.cua_lite.models import BBOX, POINT
from demo_pipeline.formats.cudag.models import to_ru
from demo_pipeline.formats.desktopd.step_actions import ClickParameters
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.formats.grounding.models import InclusiveBox

REFUSAL = "null"


def point_text(point: tuple[int, int]) -> str:
    """A point as a model answers it."""
    return f"[{point[0]}, {point[1]}]"


def box_text(box: InclusiveBox) -> str:
    """A box as a model answers it."""
    return f"[{box[0]}, {box[1]}, {box[2]}, {box[3]}]"


def decode_point_text(text: str, size: tuple[int, int]) -> Answer:
    """The left click that an answer means: at the point, or in the middle of the box.

    A refusal is a `failure` without an action.

    Raises:
        AnswerFormatError: the text is nothing of these, or not in the picture.
    """
    value = _parsed(text)
    if value is None:
        return Answer((), status="failure")
    if not isinstance(value, list) or len(value) not in {2, 4} or not all(map(_is_finite, value)):
        raise AnswerFormatError("no list of two or four numbers")
    corners = [value[:2], value[-2:]]
    if not all(0 <= x < size[0] and 0 <= y < size[1] for x, y in corners):
        raise AnswerFormatError("not in the picture")
    (left, top), (right, bottom) = corners
    if left > right or top > bottom:
        raise AnswerFormatError("a box that ends before it begins")
    x, y = math.floor((left + right) / 2), math.floor((top + bottom) / 2)
    return Answer((AnsweredAction(ActionType.CLICK, ClickParameters(x=x, y=y)),))


def lite_point(point: tuple[int, int], size: tuple[int, int]) -> list[int]:
    """A point as the coordinate of CUA-Lite's `point`, 0 to 1000 on each axis."""
    return list(to_ru(*point, size))


def lite_box(box: InclusiveBox, size: tuple[int, int]) -> list[int]:
    """A box as the coordinate of CUA-Lite's `bbox`, 0 to 1000 on each axis."""
    return [*to_ru(box[0], box[1], size), *to_ru(box[2], box[3], size)]


def decode_lite_grounding(text: str, size: tuple[int, int]) -> Answer:
    """The left click that an answer in CUA-Lite's form means: a `point`, a `bbox` or a `computer`.

    Raises:
        AnswerFormatError: as `decode_cua_lite_answer`; also for more than one place.
    """
    answer = decode_cua_lite_answer(text, size)
    places = [
        action.point
        for action in answer.actions
        if isinstance(action, ForeignAction) and action.name in {POINT, BBOX}
    ]
    if not places:
        return answer
    if len(answer.actions) > 1 or places[0] is None:
        raise AnswerFormatError("more than one place")
    x, y = map(round, places[0])
    return replace(answer, actions=(AnsweredAction(ActionType.CLICK, ClickParameters(x=x, y=y)),))


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 2**31


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, "answer")
    except (JsonFileError, RecursionError, ValueError):
        raise AnswerFormatError("no JSON") from None
