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


POINTER_EVENTS = frozenset({EventType.MOUSEMOVE, EventType.MOUSEDOWN, EventType.MOUSEUP})
BUTTON_EVENTS = frozenset({EventType.MOUSEDOWN, EventType.MOUSEUP})
KEY_EVENTS = frozenset({EventType.KEYDOWN, EventType.KEYUP})
INPUT_EVENTS = POINTER_EVENTS | KEY_EVENTS | {EventType.MOUSEWHEEL}
