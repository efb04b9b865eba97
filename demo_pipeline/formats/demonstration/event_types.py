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
