"""One row of CUA-Lite against its form, a folder of its datasets, and an answer in its form.

Belongs here: the order of the turns, calls and their results, images and their places, what a task
type allows, the files of a folder and its ids; finding the calls in an answer, and our actions in
the actions of `computer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from demo_pipeline.desktopd.models import (
    ActionType,
    DragParameters,
    HotkeyParameters,
    Pixel,
    ScrollParameters,
    TypeParameters,
    WaitParameters,
    pixel_at,
)
from demo_pipeline.exports.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
    click_action,
    merge_presses,
    parse_answer,
)
from demo_pipeline.exports.cua_lite_models import (
    BBOX,
    COMPUTER,
    LITE_COLUMNS,
    LITE_DONE,
    LITE_IMAGE,
    LITE_MAX,
    LITE_ROOT,
    LITE_SPLITS,
    PLATFORMS,
    POINT,
    TASK_TYPES,
    BoxArguments,
    ComputerArguments,
    LiteAction,
    LiteAssistantTurn,
    LiteCall,
    LiteClick,
    LiteConversation,
    LiteDocument,
    LiteDrag,
    LiteImagePart,
    LiteKeys,
    LiteMetadata,
    LiteMove,
    LiteScroll,
    LiteTextPart,
    LiteToolTurn,
    LiteTurn,
    LiteType,
    LiteUserTurn,
    LiteWait,
    PointArguments,
    from_lite_key,
)
from demo_pipeline.exports.record_checks import REBUILD, Fault, NamedFiles, RecordFormat
from demo_pipeline.exports.record_files import ExportReader, unused_images
from demo_pipeline.files.base_model import DocumentT, explain, field_name, limited
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.parquet import read_schema
from demo_pipeline.files.shown_text import MARKER
from demo_pipeline.problems import Problem

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


class LiteRow(LiteDocument):
    """A row; two of its columns are JSON text, whose faults are told by the column's name."""

    images: list[str]
    messages: str
    metadata: str

    @property
    def id(self) -> str | None:
        """That of its metadata; None when these are bad."""
        metadata = parse_column(LiteMetadata, self.metadata)
        return metadata.others.id if isinstance(metadata, LiteMetadata) else None


def lite_format(dims: Sequence[str], name: str) -> RecordFormat[LiteRow]:
    """The form of the rows of a folder.

    Args:
        dims: its platform and task type.
        name: of the dataset, whose folder its images are in.
    """
    faults = partial(_row_faults, list(dims), name)
    return RecordFormat(LiteRow, lambda row: [("an image", one) for one in row.images], faults)


def _row_faults(dims: list[str], name: str, row: LiteRow, files: NamedFiles) -> Iterator[Fault]:
    for number, image in enumerate(row.images):
        found = LITE_IMAGE.fullmatch(image)
        if not found or found["name"] != name:
            yield Fault("images", f"images[{number}]: is not a path of this dataset's images")
        elif not found["hash"].startswith(found["head"]):
            yield Fault("images", f"images[{number}]: the folder is not the beginning of the hash")
        elif not isinstance(files.picture(image), str) and files.digest(image) != found["hash"]:
            yield Fault("image", f"images[{number}]: has another content than its name says")
    metadata = parse_column(LiteMetadata, row.metadata)
    if isinstance(metadata, list):
        yield from (Fault("metadata", f"metadata: {fault}") for fault in metadata)
    else:
        if metadata.dims != dims:
            yield Fault("dims", f"metadata.dims is not {dims}, the folder's")
        if "split" in metadata.others.members():
            message = "metadata.others: the split is that of the folder and not named here"
            yield Fault("split", message)
    talk = parse_column(LiteConversation, row.messages, "messages")
    if isinstance(talk, list):
        yield from (Fault("messages", fault) for fault in talk)
    else:
        faults = _talk_faults(talk.messages, row.images, dims[1])
        yield from (Fault(code, message) for code, message in faults)


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


LiteFault = tuple[str, str]
"""Code and message of what is wrong with a row."""


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


_IMAGES = "images"
LITE_SCHEMA = pa.schema(
    [
        pa.field("images", pa.list_(pa.string())),
        pa.field("messages", pa.string()),
        pa.field("metadata", pa.string()),
    ]
)


def validate_cua_lite(root: Path) -> list[Problem]:
    """The problems of the datasets below `cua-lite/`, with the numbers of the rows from 1.

    Args:
        root: the folder that the paths of images are relative to.
    """
    home = root / LITE_ROOT
    datasets = sorted(path for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    if not datasets:
        return [Problem("missing_file", LITE_ROOT, "has no dataset", remedy=REBUILD)]
    reader, problems = ExportReader(root), list[Problem]()
    for dataset in datasets:
        for table in sorted(path for path in dataset.rglob("*.parquet") if path.is_file()):
            problems += limited(list(_table_problems(table, dataset, reader)))
        name = f"{LITE_ROOT}/{dataset.name}"
        problems += unused_images(len(reader.unnamed(f"{name}/{_IMAGES}")), name, "row")
    return problems


def _table_problems(table: Path, dataset: Path, reader: ExportReader) -> Iterator[Problem]:
    file = table.relative_to(reader.root).as_posix()
    parts = table.relative_to(dataset).parts
    known = (PLATFORMS, TASK_TYPES, LITE_SPLITS, (table.name,))
    if len(parts) != len(known) or any(a not in b for a, b in zip(parts, known, strict=True)):
        message = "is not at <platform>/<task type>/<split>/<variant>.parquet"
        yield Problem("layout", file, message, remedy=REBUILD)
    elif not _has_columns(table):
        message = "the columns must be images (list of text), messages and metadata (text)"
        yield Problem("columns", file, message, remedy=REBUILD)
    else:
        rows = reader.records(lite_format(parts[:2], dataset.name), file)
        yield from (problem for _, found in rows for problem in found)


def _has_columns(table: Path) -> bool:
    """Whether the columns are a list of text and two of text, of any width, if it can be read."""
    try:
        columns = read_schema(table)
    except (OSError, pa.ArrowException):  # the reader of the rows says why not
        return True
    if columns.names != list(LITE_COLUMNS):
        return False
    first, *others = columns.types
    is_list = pa.types.is_list(first) or pa.types.is_large_list(first)
    plain = [first.value_type if is_list else pa.null(), *others]
    return all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in plain)


_Done = AnsweredAction | ForeignAction
_WORDS = ("inline_reasoning", "action_description", "text")


def decode_cua_lite_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `answers.AnswerDecoder`.

    It is JSON: an assistant's message, its list of calls, one call, or the arguments of `computer`.
    The words `Done.` without a call end the task. Keys that are held around one action are its
    modifiers; held otherwise they are foreign.

    Args:
        text: the answer.
        size: width and height of the step's screenshot, pixels.

    Raises:
        AnswerFormatError: it is something else, or a call is not as the form defines it.
    """
    if text.strip() == LITE_DONE:
        return Answer((), "success")
    value = parse_answer(text)
    words = _words(value)
    calls = _answered_calls(value)
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


def _answered_calls(value: Any) -> Sequence[Any]:
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
            return click_action(action.button, action.clicks, _pixel(place, size), modifiers)
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


def _place(action: LiteAction, size: Pixel) -> Pixel | None:
    """Where an action is; None: where the pointer is, or nowhere."""
    if isinstance(action, LiteClick | LiteDrag | LiteScroll | LiteMove) and action.coordinate:
        return _pixel(action.coordinate, size)
    return None


def _pixel(coordinate: Sequence[float], size: Pixel) -> Pixel:
    return pixel_at(coordinate[0] / LITE_MAX, coordinate[1] / LITE_MAX, size)


def _our_keys(keys: Sequence[str]) -> list[str]:
    return [from_lite_key(key) or key for key in keys]
