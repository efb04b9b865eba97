"""Declares `Action` and the tables of the `actions` stage: actions.parquet and ledger.parquet."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.desktopd.models import KEY_NAMES, ActionType
from demo_pipeline.files.parquet import (
    ANY,
    COUNT,
    between,
    described_schema,
    fitting,
    one_of,
    read_rows,
    write_rows,
)
from demo_pipeline.recording.key_names import LAYOUTS, public_key

ACTIONS_FILE = "actions.parquet"
ACCOUNTING_FILE = "ledger.parquet"

# Flag for a pause in which the pointer moved so often that it never rested for `pause_ms`.
POINTER_MOVED = "pointer_moved"
# Flag for typing that follows other typing after a break. Both texts become one step unless the
# video shows that the screen changed during the break.
CONTINUED = "continued"
# Additional flag for continued typing if the break was long and the earlier text is too long to be
# a command. Both texts become one step unless the screen was dark or locked during the break.
AFTER_LONG_REST = "after_long_rest"
# Flag for typing whose text may be wrong, and for an Enter that may only have confirmed the
# composition of an input method.
DOUBTFUL_TEXT = "doubtful_text"
POINTER_TYPES = frozenset({"click", "double_click", "right_click", "drag", "scroll"})

_PATH = pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64()), ("time_ms", pa.int64())]))

_ACTION_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "0-based index of the action, in time order"),
    ("action_type", pa.string(), False, "action type of OSWorld-Desktopd, or pause"),
    (
        "x",
        pa.float64(),
        True,
        (
            "position of the first press or wheel event, screen pixels as logged; "
            "null if the action has none"
        ),
    ),
    (
        "y",
        pa.float64(),
        True,
        (
            "position of the first press or wheel event, screen pixels as logged; "
            "null if the action has none"
        ),
    ),
    (
        "end_x",
        pa.float64(),
        True,
        "position of a drag's release, screen pixels as logged; null for other actions",
    ),
    (
        "end_y",
        pa.float64(),
        True,
        "position of a drag's release, screen pixels as logged; null for other actions",
    ),
    ("button", pa.string(), True, "left, middle or right; null for scrolls, keys and pauses"),
    (
        "clicks",
        pa.int32(),
        True,
        "number of presses of a click, or of a drag that begins with clicks; null for others",
    ),
    (
        "modifiers",
        pa.list_(pa.string()),
        False,
        "modifier keys that were held during a pointer action, in press order",
    ),
    (
        "path",
        _PATH,
        False,
        "positions of the pointer during a drag, screen pixels; empty for other actions",
    ),
    (
        "text",
        pa.string(),
        True,
        "text that was typed, after corrections with Backspace; null for other actions",
    ),
    (
        "keys",
        pa.list_(pa.string()),
        False,
        "keys of a hotkey as pyautogui names, in press order; empty for other actions",
    ),
    (
        "presses",
        pa.int32(),
        True,
        "how often a hotkey was pressed, at least 1; null for other actions",
    ),
    (
        "direction",
        pa.string(),
        True,
        "direction of a scroll that follows from its deltas, up or down; null for other actions",
    ),
    (
        "amount",
        pa.int32(),
        True,
        "number of wheel notches of a scroll, rounded; null for other actions",
    ),
    (
        "wheel_sum",
        pa.float64(),
        True,
        "sum of the logged wheel deltas of a scroll; null for other actions",
    ),
    (
        "wheel_remainder",
        pa.float64(),
        True,
        (
            "exact minus rounded number of notches, with the sign of the deltas; "
            "null except for scrolls"
        ),
    ),
    (
        "wheel_unit",
        pa.string(),
        True,
        (
            "unit of a scroll's deltas: 120 (120 are a notch), notch or pixel; null "
            "for other actions"
        ),
    ),
    (
        "wheel_method",
        pa.string(),
        True,
        (
            "source of a scroll's direction: override (a setting) or unit_signature "
            "(the unit of the deltas); null for other actions"
        ),
    ),
    (
        "seconds",
        pa.float64(),
        True,
        (
            "length of a pause in seconds, until the next input or the approach to "
            "it; null for other actions"
        ),
    ),
    (
        "press_ms",
        pa.int64(),
        False,
        "time of the first press or the start of a pause, epoch milliseconds",
    ),
    (
        "end_ms",
        pa.int64(),
        False,
        "time of the last release or the end of a pause, epoch milliseconds",
    ),
    (
        "pre_move_ms",
        pa.int64(),
        True,
        (
            "time at which the pointer started towards the press, epoch "
            "milliseconds; null if it did not move"
        ),
    ),
    (
        "first_event",
        pa.int64(),
        False,
        "first line of the action's events in input_log.jsonl; for a pause, the line before it",
    ),
    (
        "last_event",
        pa.int64(),
        False,
        "last line of the action's events in input_log.jsonl; for a pause, the line after it",
    ),
    (
        "events",
        pa.list_(pa.int64()),
        False,
        "line numbers of all events of the action, ascending; empty for pauses",
    ),
    (
        "flags",
        pa.list_(pa.string()),
        False,
        "names of unusual circumstances, such as long or never_released",
    ),
    (
        "text_evidence",
        pa.string(),
        True,
        (
            "whether scans show the typed text: confirmed, contradicted or unseen; "
            "null if not typing"
        ),
    ),
    (
        "text_scan_event",
        pa.int64(),
        True,
        "line of the scan that confirms or contradicts the typed text; null if there is none",
    ),
    (
        "text_source",
        pa.string(),
        True,
        (
            "source of the typed text: keys, or field if it was read in the text "
            "field; null if not typing"
        ),
    ),
    (
        "keyboard_layout",
        pa.string(),
        True,
        "keyboard layout by which the typed keys were read; null if the action is not typing",
    ),
)

_TYPE = "action_type"
_POINTER = (_TYPE, *sorted(POINTER_TYPES))
_KEYS = fitting("|".join(sorted(KEY_NAMES)) + "|[^A-Z]")
ACTIONS_SCHEMA = described_schema(
    _ACTION_COLUMNS,
    {
        _TYPE: one_of(*(kind for kind in ActionType if kind != ActionType.WAIT), "pause"),
        "action_index press_ms end_ms pre_move_ms first_event last_event events": COUNT,
        "x y": ANY.only_where(*_POINTER),
        "button": one_of("left", "middle", "right").only_where(*_POINTER),
        "clicks": between(1, 3).only_where(*_POINTER),
        "modifiers": _KEYS.only_where(*_POINTER),
        "end_x end_y path": ANY.only_where(_TYPE, "drag"),
        "text": ANY.where(_TYPE, "type"),
        "keys": _KEYS.where(_TYPE, "hotkey"),
        "presses": between(1).where(_TYPE, "hotkey"),
        "direction": one_of("up", "down", "left", "right").where(_TYPE, "scroll"),
        "amount": between(1).where(_TYPE, "scroll"),
        "wheel_sum wheel_remainder": ANY.where(_TYPE, "scroll"),
        "wheel_unit": one_of("120", "notch", "pixel").where(_TYPE, "scroll"),
        "wheel_method": one_of("override", "unit_signature").where(_TYPE, "scroll"),
        "seconds": COUNT.where(_TYPE, "pause"),
        "text_evidence": one_of("confirmed", "contradicted", "unseen").only_where(_TYPE, "type"),
        "text_scan_event": between(1).only_where(_TYPE, "type"),
        "text_source": one_of("keys", "field").only_where(_TYPE, "type"),
        "keyboard_layout": one_of(*LAYOUTS).only_where(_TYPE, "type"),
    },
)

# Values of the column `bucket` in ledger.parquet, which says what became of each log line.
BUCKETS = ("action", "tree_scan", "pointer_travel", "repaired", "rejected", "other")

_ACCOUNTING_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("event_index", pa.int64(), False, "1-based line number in input_log.jsonl"),
    (
        "bucket",
        pa.string(),
        False,
        "use of the line: action, tree_scan, pointer_travel, repaired, rejected or other",
    ),
    (
        "action_index",
        pa.int32(),
        True,
        "index of the action that contains the event; null if no action does",
    ),
    (
        "reason",
        pa.string(),
        False,
        (
            "why no action contains the event, or why the line was rejected; empty "
            "for actions, scans and pointer moves"
        ),
    ),
)

ACCOUNTING_SCHEMA = described_schema(
    _ACCOUNTING_COLUMNS,
    {
        "event_index": between(1),
        "bucket": one_of(*BUCKETS),
        "action_index": COUNT.where("bucket", "action"),
    },
)


@dataclass
class Action:
    """A row of actions.parquet; `_ACTION_COLUMNS` describes fields and units."""

    action_type: str
    press_ms: int
    end_ms: int
    events: list[int]
    action_index: int = 0
    x: float | None = None
    y: float | None = None
    end_x: float | None = None
    end_y: float | None = None
    button: str | None = None
    clicks: int | None = None
    modifiers: list[str] = field(default_factory=list)
    path: list[dict[str, Any]] = field(default_factory=list)
    text: str | None = None
    keys: list[str] = field(default_factory=list)
    presses: int | None = None
    direction: str | None = None
    amount: int | None = None
    wheel_sum: float | None = None
    wheel_remainder: float | None = None
    wheel_unit: str | None = None
    wheel_method: str | None = None
    seconds: float | None = None
    pre_move_ms: int | None = None
    first_event: int = 0
    last_event: int = 0
    flags: list[str] = field(default_factory=list)
    text_evidence: str | None = None
    text_scan_event: int | None = None
    text_source: str | None = None
    keyboard_layout: str | None = None

    def describe(self) -> str:
        """Describes the action without its typed text, for example as `type(15 chars)`."""
        if self.action_type == "type":
            return f"type({len(self.text or '')} chars)"
        if self.action_type == "hotkey":
            times = f" {self.presses} times" if (self.presses or 1) > 1 else ""
            return f"hotkey({'+'.join(map(public_key, self.keys))}{times})"
        if self.action_type == "pause":
            return f"pause({self.seconds:.1f} s)"
        position = "?" if self.x is None or self.y is None else f"{self.x:.0f}, {self.y:.0f}"
        if self.action_type == "scroll":
            return f"scroll({position}, {self.direction} {self.amount})"
        if self.action_type == "drag" and self.end_x is not None and self.end_y is not None:
            return f"drag({position} → {self.end_x:.0f}, {self.end_y:.0f})"
        return f"{self.action_type}({position})"


def write_actions(path: Path, actions: Sequence[Action]) -> None:
    """Writes actions.parquet."""
    write_rows(path, [asdict(action) for action in actions], ACTIONS_SCHEMA)


def read_actions(folder: Path) -> list[Action]:
    """Reads the actions of a recording from actions.parquet in `folder`, in time order."""
    return [Action(**row) for row in read_rows(folder / ACTIONS_FILE, ACTIONS_SCHEMA)]
