"""One row of CUA-Lite against its form: what no single part of it shows.

Belongs here: the order of the turns, calls and their results, images and their places, and what a
task type allows. Files and ids over several rows are in validator.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.base_model import DocumentT, explain, field_name
from demo_pipeline.formats.cua_lite.models import (
    BBOX,
    COMPUTER,
    LITE_COLUMNS,
    LITE_DONE,
    LITE_IMAGE,
    POINT,
    BoxArguments,
    ComputerArguments,
    LiteAssistantTurn,
    LiteCall,
    LiteClick,
    LiteConversation,
    LiteDocument,
    LiteImagePart,
    LiteMetadata,
    LiteScroll,
    LiteTextPart,
    LiteToolTurn,
    LiteTurn,
    LiteUserTurn,
    PointArguments,
)
from demo_pipeline.formats.cudag.tool_calls import MARKER

_ARGUMENTS: Mapping[str, type[LiteDocument]] = {
    COMPUTER: ComputerArguments,
    POINT: PointArguments,
    BBOX: BoxArguments,
}
_TOOL_OF = {
    "use": COMPUTER,
    "grounding.action": COMPUTER,
    "grounding.point": POINT,
    "grounding.bbox": BBOX,
}
LiteFault = tuple[str, str]
"""Code and message of what is wrong with a row."""


def row_faults(row: Mapping[str, Any], dims: Sequence[str], name: str) -> Iterator[LiteFault]:
    """Yield what is wrong with one row.

    Args:
        row: column → value.
        dims: platform and task type of the folder that the row is in.
        name: of the dataset, whose folder its images are in.
    """
    images = row.get("images")
    if set(row) != set(LITE_COLUMNS):
        yield "columns", f"the columns must be {', '.join(LITE_COLUMNS)}"
    if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
        yield "images", "images: must be a list of paths"
        return
    yield from _path_faults(images, name)
    metadata = parse_column(LiteMetadata, row.get("metadata"))
    if isinstance(metadata, LiteMetadata):
        yield from _metadata_faults(metadata, dims)
    else:
        yield from (("metadata", f"metadata: {fault}") for fault in metadata)
    talk = parse_column(LiteConversation, row.get("messages"), "messages")
    if isinstance(talk, LiteConversation):
        yield from _talk_faults(talk.messages, images, dims[1])
    else:
        yield from (("messages", fault) for fault in talk)


def parse_column(model: type[DocumentT], text: Any, key: str = "") -> DocumentT | list[str]:
    """The model of a column of JSON text, or what is wrong with it.

    Args:
        model: the expected model.
        text: the value of the column.
        key: the only member that holds the value; empty: the value is the object itself.
    """
    if not isinstance(text, str):
        return ["must be JSON text"]
    try:
        value = parse_json(text, "the column")
    except JsonFileError as error:
        return [error.message]
    return parse_value(model, {key: value} if key else value)


def parse_value(model: type[DocumentT], value: Any) -> DocumentT | list[str]:
    """The model of a JSON value, or what is wrong with it, without the value itself."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        return [f"{field_name(place) or 'value'}: {said}" for place, said in explain(error)]


def _path_faults(images: Sequence[str], name: str) -> Iterator[LiteFault]:
    for number, image in enumerate(images):
        found = LITE_IMAGE.fullmatch(image)
        if not found or found["name"] != name:
            yield "images", f"images[{number}]: is not a path of this dataset's images"
        elif not found["hash"].startswith(found["head"]):
            yield "images", f"images[{number}]: the folder is not the beginning of the hash"


def _metadata_faults(metadata: LiteMetadata, dims: Sequence[str]) -> Iterator[LiteFault]:
    if metadata.dims != list(dims):
        yield "dims", f"metadata.dims is not {list(dims)}, the folder's"
    if "split" in metadata.others.members():
        yield "split", "metadata.others: the split is that of the folder and not named here"


def _talk_faults(
    turns: Sequence[LiteTurn], images: Sequence[str], task_type: str
) -> Iterator[LiteFault]:
    yield from _image_faults(turns, len(images))
    yield from _first_faults(turns)
    yield from _order_faults(turns)
    yield from _end_faults(turns, task_type)
    calls = [(n, call) for n, turn in enumerate(turns) for call in _calls(turn)]
    ids = [call.id for _, call in calls]
    if len(set(ids)) < len(ids):
        yield "call_id", "messages: two calls have the same id"
    if task_type.startswith("grounding.") and len(calls) != 1:
        yield "calls", "messages: a grounding row has one call"
    for number, call in calls:
        place = f"messages[{number}].tool_calls"
        yield from _call_faults(call, task_type, place)


def _calls(turn: LiteTurn) -> Sequence[LiteCall]:
    return turn.tool_calls if isinstance(turn, LiteAssistantTurn) else ()


def _image_faults(turns: Sequence[LiteTurn], total: int) -> Iterator[LiteFault]:
    """Every image is shown once, in the order of the column."""
    shown = [
        part.index
        for turn in turns
        if not isinstance(turn, LiteAssistantTurn)
        for part in turn.content
        if isinstance(part, LiteImagePart)
    ]
    if shown != list(range(total)):
        yield "image_index", f"messages: the images must be those from 0 to {total - 1}, in order"


def _first_faults(turns: Sequence[LiteTurn]) -> Iterator[LiteFault]:
    first = turns[0]
    parts = first.content if isinstance(first, LiteUserTurn) else []
    if [part.type for part in parts] != ["image", "text"]:
        yield "first_turn", "messages[0]: must be the user's, an image and then a text"
    if any(isinstance(part, LiteTextPart) and MARKER.search(part.text) for part in parts):
        yield "marker", "messages[0]: the text contains a control marker of a model"


def _order_faults(turns: Sequence[LiteTurn]) -> Iterator[LiteFault]:
    """After the user come the assistant and, in turns, the results of its calls."""
    waiting: list[str] = []
    for number, turn in enumerate(turns[1:], start=1):
        if isinstance(turn, LiteToolTurn):
            if turn.tool_call_id not in waiting:
                yield "orphan_result", f"messages[{number}]: no call before it waits for a result"
            else:
                waiting.remove(turn.tool_call_id)
            continue
        if waiting:
            yield "no_result", f"messages[{number}]: a call before it has no result"
        after = turns[number - 1]
        if isinstance(turn, LiteUserTurn) or isinstance(after, LiteAssistantTurn):
            yield "roles", f"messages[{number}]: the turns must be user, assistant, tool, assistant"
        waiting = [call.id for call in _calls(turn)]


def _end_faults(turns: Sequence[LiteTurn], task_type: str) -> Iterator[LiteFault]:
    last = turns[-1]
    if not isinstance(last, LiteAssistantTurn):
        yield "end", "messages: the last turn must be the assistant's"
        return
    words = [part.text for part in last.content if part.type == "text"]
    if not last.tool_calls and not words:
        yield "end", "messages: the last turn has neither a call nor words"
    if task_type == "use" and not last.tool_calls and words != [LITE_DONE]:
        yield "end", f"messages: the words of the last turn must be {LITE_DONE!r}"
    if task_type == "use" and not any(map(_calls, turns)):
        yield "calls", "messages: no turn has a call"
    if task_type == "understanding" and any(map(_calls, turns)):
        yield "calls", "messages: a row of this task type has no calls"


def _call_faults(call: LiteCall, task_type: str, place: str) -> Iterator[LiteFault]:
    tool = call.function.name
    if tool != _TOOL_OF.get(task_type, tool):
        yield "tool", f"{place}: the tool must be {_TOOL_OF[task_type]}"
    arguments = parse_value(_ARGUMENTS[tool], call.function.arguments)
    if isinstance(arguments, list):
        yield from (("arguments", f"{place}.arguments: {fault}") for fault in arguments)
    elif isinstance(arguments, BoxArguments):
        left, top, right, bottom = arguments.coordinate
        if left > right or top > bottom:
            yield "box", f"{place}: the box ends before it begins"
    elif isinstance(arguments, ComputerArguments):
        placeless = (
            action.action
            for action in arguments.actions
            if isinstance(action, LiteClick | LiteScroll) and action.coordinate is None
        )
        yield from (("no_place", f"{place}: a {name} has no coordinate") for name in placeless)
