"""Checks of the input: keys and buttons in no table, and a keyboard layout that may not fit.

Belongs here: problems for people, without what was typed.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from demo_pipeline.actions.action_tables import ACCOUNTING_FILE, ACCOUNTING_SCHEMA, read_actions
from demo_pipeline.actions.typed_text import UNKNOWN_CHARACTER
from demo_pipeline.common.parquet import read_table
from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.problems import Problem
from demo_pipeline.recording.events import read_events
from demo_pipeline.recording.key_names import KeyboardLayout, lookup
from demo_pipeline.recording.key_vocabulary import platform_of_keys, public_name
from demo_pipeline.recording.locale_layouts import layout_of_locale, layout_sensitive
from demo_pipeline.recording.typed_characters import read_typed_character

_UNKNOWN: Mapping[str, str] = {  # reason in the event accounting → kind of the name
    "unknown_key": "key",
    "other_button": "button",
}
_REMEDY = "a recorder that logs `actual_char`, or the name of the key, makes the typing whole"


def check_known_input(folder: Path, events_folder: Path) -> list[Problem]:
    """A problem for each unknown key or button, and one for characters that no table has.

    Each names its first line in the log and counts its presses.
    """
    events = read_events(events_folder)
    accounting = read_table(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    reasons = dict(
        zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    )
    lines: dict[tuple[str, str], list[int]] = {}
    columns = (events[name].to_pylist() for name in ("event_index", "event", "key", "button"))
    for index, event, key, button in zip(*columns, strict=True):
        reason = reasons[index]
        if event not in {EventType.KEYDOWN, EventType.MOUSEDOWN}:
            continue
        if reason in _UNKNOWN:
            name = public_name(key or button or "", _UNKNOWN[reason])
            lines.setdefault((reason, name), []).append(index)
        elif reason == UNKNOWN_CHARACTER and not lookup(key or "").modifier:
            lines.setdefault((reason, "a key with an unknown character"), []).append(index)
    return [
        Problem(reason, LOG_FILE, _message(name, len(at)), line=at[0], remedy=_REMEDY)
        for (reason, name), at in sorted(lines.items(), key=lambda item: item[1][0])
    ]


def _message(name: str, presses: int) -> str:
    times = "once" if presses == 1 else f"{presses} times"
    return f"{name}, pressed {times}: what it did is not known; typing is split there"


def check_keyboard_layout(
    folder: Path, events_folder: Path, locale: str, layout: KeyboardLayout, platform: str
) -> list[Problem]:
    """A problem if typed characters depend on which layout the keyboard had.

    Args:
        folder: output of the `actions` stage.
        events_folder: output of the `events` stage.
        locale: meta.locale, e.g. `en-GB`.
        layout: the setting `actions.keyboard_layout`, which logs without characters are read with.
        platform: meta.platform; if it is empty, the names of the keys decide as for the actions.
    """
    usual = layout_of_locale(locale)
    events = read_events(events_folder)
    if usual is None or usual == layout or _logs_characters(events):
        return []
    platform = platform or platform_of_keys(events["key"].drop_null().unique().to_pylist())
    affected = [
        (
            action.first_event,
            sum(layout_sensitive(char, layout, usual, platform) for char in action.text),
        )
        for action in read_actions(folder)
        if action.text
    ]
    count = sum(n for _, n in affected)
    if not count:
        return []
    message = (
        f"{count} typed character{'' if count == 1 else 's'} would differ: actions.keyboard_layout "
        f"is {layout}, but meta.locale {locale} usually has another keyboard"
    )
    remedy = "check what was typed; " + (
        f"set actions.keyboard_layout to {usual} if the person had that keyboard"
        if usual in {"uk", "us"}
        else "record with `actual_char`: there is no table for that keyboard"
    )
    line = next(line for line, n in affected if n)
    return [Problem("keyboard_layout", LOG_FILE, message, line=line, remedy=remedy)]


def _logs_characters(events: pa.Table) -> bool:
    """Whether the log says of any key what it typed."""
    logged = events["actual_char"].drop_null().unique().to_pylist()
    return any(read_typed_character(value).text for value in logged)
