"""Which action of a log may have stopped the recorder itself.

Belongs here: the forms of such an action. Whether the video and the scans confirm that the
recorder was meant is decided in observation/.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from demo_pipeline.actions.action_tables import ACCOUNTING_FILE, ACCOUNTING_SCHEMA, Action
from demo_pipeline.actions.inputs import Input, distance
from demo_pipeline.common.parquet import read_table
from demo_pipeline.formats.demonstration.event_types import EventType

STOP_SHORTCUT = "stop_shortcut"  # reason in the event accounting
STOP_MODIFIERS = 2  # held with a key; a recorder's shortcut must not collide with those in use
STOP_KEYS = frozenset({"pause", "printscreen", "scrolllock", "playpause", "nexttrack", "prevtrack"})
STILL_PX = 5.0  # screen pixels; a pointer that moved farther after a click may hide its effect

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "altgr", "win", "command", "fn"})
_FUNCTION_KEY = re.compile(r"f[0-9]{1,2}")


def first_action(actions: Sequence[Action]) -> Action | None:
    """The first action that is not a pause."""
    return next((action for action in actions if action.action_type != "pause"), None)


def last_action(actions: Sequence[Action]) -> Action | None:
    """The last action that is not a pause."""
    return first_action(actions[::-1])


def possible_stop(actions: Sequence[Action], inputs: Sequence[Input]) -> Action | None:
    """The last action when its form allows that it stopped the recorder and no input follows it.

    Such a form is a shortcut as `has_stop_form` describes, or one click of the left button after
    which the pointer rests. `inputs` are those of the log, in time order.
    """
    last = last_action(actions)
    if last is None:
        return None
    following = [item for item in inputs if item.time > last.end_ms]
    if any(item.kind != EventType.MOUSEMOVE for item in following):
        return None
    if last.action_type == "hotkey":
        return last if has_stop_form(last.keys) else None
    single = last.action_type == "click" and last.clicks == 1 and last.button == "left"
    rests = all(distance(last, item) <= STILL_PX for item in following)
    return last if single and not last.modifiers and rests else None


def known_stop_ms(actions_folder: Path, inputs: Sequence[Input]) -> int | None:
    """When the setting `actions.stop_shortcut` was pressed at the end, epoch milliseconds.

    None when the log does not end with it: the event accounting has no event of it.
    """
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    rows = zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    events = {index for index, reason in rows if reason == STOP_SHORTCUT}
    return min((item.time for item in inputs if item.index in events), default=None)


def has_stop_form(keys: Sequence[str]) -> bool:
    """Whether a hotkey looks like a recorder's: F1…F24, a media key, or two modifiers and a key.

    Pause and Print Screen count too. Ctrl and a letter never does: Ctrl+S saves something.
    """
    pressed = set(keys) - _MODIFIERS
    if any(key in STOP_KEYS or _FUNCTION_KEY.fullmatch(key) for key in pressed):
        return True
    return bool(pressed) and len(_MODIFIERS & set(keys)) >= STOP_MODIFIERS
