"""The event types of a Training Gym recording's input log."""

from enum import StrEnum


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
