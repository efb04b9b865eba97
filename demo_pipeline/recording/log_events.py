"""The documented events of a Training Gym recording's input log: types, models, a strict check.

Not here: fast and tolerant reading of a whole log (recording/input_log.py).
"""

from collections.abc import Generator, Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from demo_pipeline.files.base_model import MAX_PROBLEMS, Document, Number, explain, field_name


class EventType(StrEnum):
    """The documented values of `event` in input_log.jsonl."""

    AXTREE = "axtree"
    MOUSEMOVE = "mousemove"
    MOUSEDOWN = "mousedown"
    MOUSEUP = "mouseup"
    MOUSEWHEEL = "mousewheel"
    KEYDOWN = "keydown"
    KEYUP = "keyup"


# Plain strings: comparing a string with an enum member is several times slower.
MOUSEMOVE, MOUSEWHEEL = EventType.MOUSEMOVE.value, EventType.MOUSEWHEEL.value
DOCUMENTED_EVENTS = frozenset(event.value for event in EventType)
BUTTON_EVENTS = frozenset({EventType.MOUSEDOWN.value, EventType.MOUSEUP.value})
POINTER_EVENTS = BUTTON_EVENTS | {MOUSEMOVE}
KEY_EVENTS = frozenset({EventType.KEYDOWN.value, EventType.KEYUP.value})
INPUT_EVENTS = POINTER_EVENTS | KEY_EVENTS | {MOUSEWHEEL}
# Events that recorders in the field write besides the documented ones.
_RECORDER_EVENTS = frozenset(
    {
        "axtree_interaction",
        "axtree_post_recording",
        "axtree_pre_recording",
        "ffmpeg_stderr",
        "ffmpeg_stdout",
        "joystickaxis",
        "joystickdown",
        "joystickup",
        "mousedelta",
    }
)


def public_event_name(raw: str) -> str:
    """The name of an event as logs and metadata may show it.

    Any other name may be anything, also typed text; of it only the length is shown.
    """
    if raw in DOCUMENTED_EVENTS or raw in _RECORDER_EVENTS:
        return raw
    return shape_of("event", raw)


def shape_of(kind: str, text: str) -> str:
    """What may be shown of a logged text that could be anything, e.g. `unknown key, 7 characters`.

    Args:
        kind: what the text should name.
        text: as logged.
    """
    return f"unknown {kind}, {len(text)} character{'s' if len(text) != 1 else ''}"


_EXTRA = "Extra inputs are not permitted"  # pydantic's words
_RECORDER_FIELDS = frozenset({"actual_char", "duration"})  # of recorders, in no model


class Documented(Document):
    """A part of an event in the documented form: all keys, and no others."""

    model_config = ConfigDict(extra="forbid")


class PointerData(Documented):
    """The position of the pointer, in screen pixels."""

    x: Number
    y: Number


class ButtonData(PointerData):
    """A press or release of a mouse button, e.g. `Left`."""

    button: str = Field(min_length=1)


class WheelData(Documented):
    """A turn of the wheel: 120 per notch, positive scrolls down."""

    delta: Number


class KeyData(Documented):
    """A key, by its name on Windows or macOS."""

    key: str = Field(min_length=1)


class BoundingBox(PointerData):
    """Position and size in screen pixels."""

    width: Number
    height: Number


class AxStates(Documented):
    """The states of a node."""

    enabled: bool
    keyboard_focusable: bool
    visible: bool


class AxNode(Documented):
    """One element of an accessibility tree; `children` are nodes, checked one by one."""

    bbox: BoundingBox
    children: list[Any]
    description: str
    name: str
    role: str
    states: AxStates
    value: str


class AxQuery(Documented):
    """The element at a position; null if there is none."""

    element: Any
    position: PointerData


class AxTreeData(Documented):
    """A scan of the screen. `duration` is in ms; `focused_element` and `tree` contain nodes."""

    duration: Number = Field(ge=0)
    focused_element: Any
    queries: dict[str, AxQuery]
    tree: list[Any]


class LogEvent(Documented):
    """A line of input_log.jsonl; `time` is in epoch milliseconds."""

    event: Annotated[EventType, Field(strict=False)]
    data: dict[str, Any]
    time: int = Field(ge=0)


EVENT_DATA: dict[EventType, type[Documented]] = {
    EventType.AXTREE: AxTreeData,
    EventType.MOUSEMOVE: PointerData,
    EventType.MOUSEDOWN: ButtonData,
    EventType.MOUSEUP: ButtonData,
    EventType.MOUSEWHEEL: WheelData,
    EventType.KEYDOWN: KeyData,
    EventType.KEYUP: KeyData,
}


def validate_event(value: Any) -> list[str]:
    """How an event deviates from the documented form; empty if it does not.

    Args:
        value: one parsed line of input_log.jsonl.

    Returns:
        `field: what was expected`, at most `MAX_PROBLEMS`; never a logged value.
    """
    return list(islice(_event_faults(value), MAX_PROBLEMS))


def _event_faults(value: Any) -> Iterator[str]:
    event = yield from _model_faults(LogEvent, value, "")
    if not isinstance(event, LogEvent):
        return
    data = yield from _model_faults(EVENT_DATA[event.event], event.data, "data")
    if isinstance(data, AxTreeData):
        for where, root in _roots(data):
            yield from _node_faults(root, where)


def _roots(data: AxTreeData) -> Iterator[tuple[str, Any]]:
    """Yield (name, node) for every root node; elements may be null."""
    if data.focused_element is not None:
        yield "data.focused_element", data.focused_element
    for number, query in enumerate(data.queries.values()):
        if query.element is not None:
            yield f"data.queries[{number}].element", query.element
    for index, node in enumerate(data.tree):
        yield f"data.tree[{index}]", node


def _node_faults(root: Any, where: str) -> Iterator[str]:
    """Yield the faults of a tree of any depth; nodes have their number in document order."""
    pending = [root]
    number = 0
    while pending:
        name = f"{where} node {number}" if number else where
        node = yield from _model_faults(AxNode, pending.pop(), name)
        if isinstance(node, AxNode):
            pending.extend(reversed(node.children))
        number += 1


def _model_faults(
    model: type[Documented], value: Any, where: str
) -> Generator[str, None, Documented | None]:
    """Yield each fault with its field; return the model if there is none."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for location, message in explain(error):
            public = location
            if message == _EXTRA:
                public = (*location[:-1], _public_field(str(location[-1])))
            name = ".".join(part for part in (where, field_name(public)) if part)
            yield f"{name or 'event'}: {message}"
        return None


def _public_field(name: str) -> str:
    """The name of an undocumented field; a name that is not known may be anything."""
    return name if name in _RECORDER_FIELDS else shape_of("field", name)
