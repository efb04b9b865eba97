"""The tables of a trajectory: provenance.parquet and hidden_actions.parquet.

provenance.parquet has a row for each step, with facts that OSWorld-Desktopd cannot express.
hidden_actions.parquet has a row for each *hidden action*: an action that is not a step. These rows
have no coordinates and no text.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from demo_pipeline.desktopd.models import AGREEMENTS, FRESHNESS, ActionType, StepAction
from demo_pipeline.desktopd.target_box import TARGET_BOX_COLUMNS
from demo_pipeline.files.parquet import (
    ANY,
    COUNT,
    TEXT,
    between,
    described_schema,
    fitting,
    one_of,
    read_rows,
    read_table,
    write_rows,
)
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.recording.key_names import LAYOUTS

Provenance: TypeAlias = Sequence[Path] | pa.Table
"""Paths of provenance tables, or an Arrow table with some of their columns."""


ProvenanceRow = Mapping[str, Any]

# Columns about the quest in meta.json. task.json contains only the quest's instruction.
QUEST_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    (
        "objectives",
        pa.list_(pa.string()),
        True,
        "objectives of the quest in meta.json, in order; null if meta.json has no quest",
    ),
    (
        "max_reward",
        pa.float64(),
        True,
        "maximum reward of the quest in meta.json, in $VIRAL; null if unknown",
    ),
    (
        "reward_time_ms",
        pa.int64(),
        True,
        "time at which the reward was calculated, epoch milliseconds; null if unknown",
    ),
)
QUEST_NAMES = tuple(name for name, *_ in QUEST_COLUMNS)
IMPORTED = "imported"  # reason code of a screenshot that came with an imported trajectory
# Columns that repeat the content of action.json.
_ACTION_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    (
        "x",
        pa.int32(),
        True,
        "x of the action, or of a drag's start, canvas pixels; null for keys and waits",
    ),
    (
        "y",
        pa.int32(),
        True,
        "y of the action, or of a drag's start, canvas pixels; null for keys and waits",
    ),
    ("end_x", pa.int32(), True, "x of a drag's end, canvas pixels; null for other actions"),
    ("end_y", pa.int32(), True, "y of a drag's end, canvas pixels; null for other actions"),
    ("text", pa.string(), True, "typed text; null if the action is not typing"),
    (
        "keys",
        pa.list_(pa.string()),
        True,
        "keys of a hotkey, which are held together; null for other actions",
    ),
    (
        "direction",
        pa.string(),
        True,
        "direction of a scroll: up, down, left or right; null for other actions",
    ),
    ("amount", pa.int32(), True, "wheel notches of a scroll; null for other actions"),
    ("target_role", pa.string(), True, "role of the target element; null if the target is unknown"),
    ("target_name", pa.string(), True, "name of the target element; null if the target is unknown"),
)

# name, type, nullable, meaning (with unit)
_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("trajectory_id", pa.string(), False, "id of the demonstration"),
    ("step_index", pa.int32(), False, "0-based number of the step, as in steps/NNN"),
    (
        "action_index",
        pa.int32(),
        False,
        "index in actions.parquet of the action that became the step",
    ),
    ("action_type", pa.string(), False, "action type of OSWorld-Desktopd"),
    ("press_ms", pa.int64(), False, "time at which the action began, epoch milliseconds"),
    ("end_ms", pa.int64(), False, "time at which the action ended, epoch milliseconds"),
    (
        "end_filmed",
        pa.bool_(),
        False,
        "whether the video lasts until the end of the action, within the clock's uncertainty",
    ),
    (
        "pts",
        pa.float64(),
        True,
        (
            "presentation time of the screenshot in the video, seconds; null if the "
            "screenshot is missing or imported"
        ),
    ),
    (
        "lead_ms",
        pa.float64(),
        True,
        "time from the screenshot to the press, milliseconds; null if pts is null",
    ),
    (
        "reason_code",
        pa.string(),
        False,
        (
            "how the screenshot was chosen: pre_move, settled, backoff, "
            "first_frame, waiting, missing or imported"
        ),
    ),
    (
        "leak",
        pa.bool_(),
        False,
        "whether the screenshot may already reveal the action, for example by the pointer",
    ),
    ("unavoidable", pa.bool_(), False, "whether no earlier frame would have avoided the leak"),
    (
        "pointer_distance_px",
        pa.float64(),
        True,
        (
            "distance from the pointer in the screenshot to the press, screen "
            "pixels as logged; null if unknown"
        ),
    ),
    (
        "settle_ms",
        pa.float64(),
        True,
        (
            "how long the screen was unchanged before the screenshot, milliseconds; "
            "null if pts is null"
        ),
    ),
    (
        "clock_method",
        pa.string(),
        False,
        (
            "how log times were matched with video times: ffmpeg_start, pixels, "
            "typing, inputs, click_onsets, meta_timestamp or none"
        ),
    ),
    (
        "clock_uncertainty_ms",
        pa.float64(),
        False,
        "uncertainty of the match between log times and video times, milliseconds",
    ),
    (
        "tree_age_ms",
        pa.int64(),
        True,
        (
            "time from the end of the accessibility scan to the press, "
            "milliseconds; null without a scan"
        ),
    ),
    (
        "freshness",
        pa.string(),
        False,
        "how current the UI tree is: fresh, stale, changed, running, sparse, unreadable or none",
    ),
    (
        "tree_agreement",
        pa.string(),
        False,
        "whether the UI tree agrees with the screenshot: agrees, partial, differs or unknown",
    ),
    (
        "cursor_agrees",
        pa.bool_(),
        True,
        (
            "whether the pipeline's hit test at the pointer agrees with the "
            "recorder's; null if not compared"
        ),
    ),
    *TARGET_BOX_COLUMNS,
    *_ACTION_COLUMNS,
    (
        "wheel_method",
        pa.string(),
        True,
        (
            "source of a scroll's direction: evidence (video), override (setting) "
            "or unit_signature (deltas); null for other actions"
        ),
    ),
    (
        "wheel_disagrees",
        pa.bool_(),
        True,
        (
            "whether the video shows a scroll in the opposite direction to the one "
            "that its deltas imply; null if unknown or no scroll"
        ),
    ),
    (
        "screen_changed",
        pa.bool_(),
        True,
        "whether the screen changed until the next screenshot; null if unknown",
    ),
    (
        "changed_x",
        pa.int32(),
        True,
        "left edge of the largest changed area, canvas pixels; null if no change is known",
    ),
    (
        "changed_y",
        pa.int32(),
        True,
        "top edge of the largest changed area, canvas pixels; null if no change is known",
    ),
    (
        "changed_width",
        pa.int32(),
        True,
        "width of the largest changed area, canvas pixels; null if no change is known",
    ),
    (
        "changed_height",
        pa.int32(),
        True,
        "height of the largest changed area, canvas pixels; null if no change is known",
    ),
    (
        "taken_back_by",
        pa.int32(),
        True,
        (
            "number of a later step that undoes this one with Ctrl+Z or Escape; "
            "null if none is known"
        ),
    ),
    (
        "doubtful_text",
        pa.bool_(),
        True,
        (
            "true if the typed text may be wrong, or if an Enter may only have "
            "confirmed a composition; otherwise null"
        ),
    ),
    (
        "off_screen",
        pa.bool_(),
        False,
        "always false, because actions outside the recorded screen do not become steps",
    ),
    (
        "hidden_before",
        pa.int32(),
        False,
        "number of actions after the previous step that no screenshot shows",
    ),
    ("complete", pa.bool_(), False, "whether screenshots show all actions of the demonstration"),
    (
        "scale",
        pa.float64(),
        False,
        "canvas pixels per logged screen pixel: canvas = screen * scale + pad",
    ),
    ("pad_x", pa.float64(), False, "horizontal offset of the screen on the canvas, canvas pixels"),
    ("pad_y", pa.float64(), False, "vertical offset of the screen on the canvas, canvas pixels"),
    (
        "instruction_source",
        pa.string(),
        False,
        "field of meta.json with the instruction, or task.json if the trajectory was imported",
    ),
    (
        "reasoning_source",
        pa.string(),
        False,
        "who wrote the reasoning: template (a sentence from a template) or imported",
    ),
    ("split_group", pa.string(), False, "group of tasks that are always in the same split"),
    ("platform", pa.string(), False, "windows, macos or linux; empty if unknown"),
    ("recorded_at", pa.string(), False, "time of the recording, ISO 8601 in UTC"),
    ("status", pa.string(), False, "status in meta.json"),
    ("reason", pa.string(), False, "reason in meta.json; empty if it has none"),
    (
        "osworld_task_id",
        pa.string(),
        True,
        "id of the matching OSWorld task; null if no task matches",
    ),
    (
        "osworld_match",
        pa.string(),
        True,
        "how the OSWorld task was matched: id or instruction; null if no task matches",
    ),
    (
        "osworld_match_field",
        pa.string(),
        True,
        "field of meta.json that matched the OSWorld task; null if no task matches",
    ),
    (
        "osworld_task_kind",
        pa.string(),
        True,
        "kind of the OSWorld task: ordinary or risk; null if no task matches",
    ),
    (
        "osworld_matches",
        pa.int32(),
        True,
        "number of task files that match equally; the first is used; null if no task matches",
    ),
    *QUEST_COLUMNS,
    (
        "text_evidence",
        pa.string(),
        True,
        (
            "whether scans show the typed text: confirmed, contradicted or unseen; "
            "null if nothing was typed"
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
            "field; null if nothing was typed"
        ),
    ),
    (
        "keyboard_layout",
        pa.string(),
        True,
        "keyboard layout by which the typed keys were read; null if nothing was typed",
    ),
    (
        "unproven_clock",
        pa.bool_(),
        True,
        (
            "true if the clock may be off by so much that the screenshot shows "
            "another state; otherwise null"
        ),
    ),
    (
        "opened_by_hover",
        pa.bool_(),
        True,
        (
            "whether hovering had opened the pressed element, such as a menu item; "
            "null if the trajectory was imported"
        ),
    ),
    (
        "hover_x",
        pa.int32(),
        True,
        (
            "x of the place where hovering opened the pressed element, canvas "
            "pixels; null if none did"
        ),
    ),
    (
        "hover_y",
        pa.int32(),
        True,
        (
            "y of the place where hovering opened the pressed element, canvas "
            "pixels; null if none did"
        ),
    ),
    (
        "hover_ms",
        pa.int64(),
        True,
        (
            "time at which the pointer came to rest at that place, epoch "
            "milliseconds; null if hovering opened nothing"
        ),
    ),
    (
        "hovered_before",
        pa.list_(pa.int32()),
        True,
        (
            "earlier places where hovering opened the way to that place, such as a "
            "submenu: x, y, x, y, …, canvas pixels; null if none"
        ),
    ),
    (
        "erased_text",
        pa.bool_(),
        True,
        (
            "whether the screenshot may show text that was typed and erased again "
            "without becoming a step; null if unknown"
        ),
    ),
)

_MATCHED = "osworld_task_id"
# Types of actions that may have values in the columns about typed text. Hotkeys are included
# because a typed space that pressed a button becomes a hotkey.
_TYPED = ("type", "hotkey")
_POINTED = ("click", "double_click", "right_click", "scroll", "drag")
PROVENANCE_SCHEMA = described_schema(
    _COLUMNS,
    {
        "trajectory_id split_group": TEXT,
        "step_index action_index press_ms end_ms clock_uncertainty_ms hidden_before": COUNT,
        "scale pad_x pad_y": COUNT,
        "action_type": one_of(*ActionType),
        "lead_ms": ANY.where("pts"),
        "settle_ms pointer_distance_px": COUNT.only_where("pts"),
        "reason_code": one_of(
            "pre_move", "settled", "backoff", "first_frame", "waiting", "missing", IMPORTED
        ),
        "clock_method": one_of(
            "ffmpeg_start",
            "pixels",
            "typing",
            "inputs",
            "click_onsets",
            "meta_timestamp",
            "none",
        ),
        "freshness": one_of(*FRESHNESS),
        "tree_agreement": one_of(*AGREEMENTS),
        "target_y": ANY.where("target_x"),
        "target_width target_height": COUNT.where("target_x"),
        "x y": COUNT.where("action_type", *_POINTED),
        "end_x end_y": COUNT.where("action_type", "drag"),
        "text": ANY.where("action_type", "type"),
        "keys": TEXT.where("action_type", "hotkey"),
        "direction": one_of("up", "down", "left", "right").where("action_type", "scroll"),
        "amount": COUNT.where("action_type", "scroll"),
        "target_name": ANY.where("target_role"),
        "changed_y changed_width changed_height": ANY.where("changed_x"),
        "taken_back_by": COUNT,
        "wheel_method": one_of("evidence", "override", "unit_signature").where(
            "action_type", "scroll"
        ),
        "doubtful_text": ANY.only_where("action_type", "type", "hotkey"),
        "text_evidence": one_of("confirmed", "contradicted", "unseen").only_where(
            "action_type", *_TYPED
        ),
        "text_scan_event": between(1).only_where("action_type", *_TYPED),
        "text_source": one_of("keys", "field").only_where("action_type", *_TYPED),
        "keyboard_layout": one_of(*LAYOUTS).only_where("action_type", *_TYPED),
        "wheel_disagrees": ANY.only_where("action_type", "scroll"),
        "instruction_source": one_of(
            "quest.content", "quest.title", "title", "description", "task.json"
        ),
        "reasoning_source": one_of("template", "imported"),
        "platform": one_of("windows", "macos", "linux", ""),
        "recorded_at": fitting(r"\d{4}-\d\d-\d\dT.*\+00:00"),
        "osworld_match": one_of("id", "instruction").where(_MATCHED),
        "osworld_match_field": TEXT.where(_MATCHED),
        "osworld_task_kind": one_of("ordinary", "risk").where(_MATCHED),
        "osworld_matches": between(1).where(_MATCHED),
        "hover_y hover_ms": COUNT.where("hover_x"),
        "hovered_before": ANY.only_where("hover_x"),
    },
)


def recorded_outcome(status: str | None, *, success: bool) -> str:
    """Returns how a demonstration ended: `done`, `failed`, `aborted`, or `unknown`.

    Args:
        status: the status in meta.json, which is ignored for a success.
    """
    if success:
        return "done"
    if not status:
        return "unknown"
    return "failed" if status == "completed" else "aborted"


def has_picture(row: ProvenanceRow) -> bool:
    """Returns whether a step has a screenshot."""
    return row["pts"] is not None or row["reason_code"] == IMPORTED


def action_columns(action: StepAction) -> dict[str, Any]:
    """Returns the provenance columns that repeat the content of action.json."""
    values = action.parameters.model_dump()
    target = action.target_element
    if "start_x" in values:
        values["x"] = values["start_x"]
        values["y"] = values["start_y"]
    if target:
        values["target_role"] = target.role
        values["target_name"] = target.name
    return {name: _without_surrogates(values.get(name)) for name, *_ in _ACTION_COLUMNS}


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, list):
        return [replace_surrogates(text) for text in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def write_provenance(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes provenance.parquet: a row for each step, with the columns of `PROVENANCE_SCHEMA`."""
    write_rows(path, rows, PROVENANCE_SCHEMA)


def read_provenance(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Reads the rows of provenance.parquet in the order of the steps.

    Args:
        columns: names of columns; None for all. The values of a missing column are None.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read as Parquet.
    """
    return read_rows(path, PROVENANCE_SCHEMA, columns)


def provenance_batches(path: Path, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of provenance.parquet in lists of up to a thousand; see `read_provenance`."""
    table = read_table(path, PROVENANCE_SCHEMA, columns)
    for batch in table.to_batches(max_chunksize=1000):
        yield batch.to_pylist()


HIDDEN_ACTIONS_FILE = "hidden_actions.parquet"
# Reason why exports leave out a step or a trajectory: too many hidden actions.
INCOMPLETE = "incomplete"


class HiddenReason(StrEnum):
    """Why an action is not a step.

    - `off_screen`: the action happened on another display, or used the keyboard after a click on
      another display.
    - `no_position`: the position was not logged, or may have been clipped to the border of the
      screen.
    - `never_released`: a button was pressed, but its release was not logged.
    - `unknown_scale`: the position was logged, but the scale of the log is unknown.
    - `before_video`: the action began before the first frame.
    - `after_video`: the action began after the last frame.
    - `undecodable`: the frames before the action cannot be decoded, or are all black.
    - `unknown_time`: the recorder's clock changed, and the video does not show the action's time.
    - `unclear_scroll`: the unit of the wheel's deltas is unknown, or the only scroll visible in the
      video contradicts the direction that the unit and the platform imply.
    - `private`: the action happened while the screen was locked, or keys were pressed while the
      screen was dark. Successive private actions share a row, unless a step or another hidden
      action lies between them.
    """

    OFF_SCREEN = "off_screen"
    NO_POSITION = "no_position"
    NEVER_RELEASED = "never_released"
    UNKNOWN_SCALE = "unknown_scale"
    BEFORE_VIDEO = "before_video"
    AFTER_VIDEO = "after_video"
    UNDECODABLE = "undecodable"
    UNKNOWN_TIME = "unknown_time"
    UNCLEAR_SCROLL = "unclear_scroll"
    PRIVATE = "private"


HIDDEN_ACTIONS_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        (
            "before_step",
            pa.int32(),
            False,
            "number of the step after the action; the number of steps if no step follows",
        ),
        ("action_index", pa.int32(), False, "index of the action in actions.parquet"),
        ("action_type", pa.string(), False, "action type of OSWorld-Desktopd"),
        ("press_ms", pa.int64(), False, "time at which the action began, epoch milliseconds"),
        ("reason", pa.string(), False, f"why the action is not a step: {', '.join(HiddenReason)}"),
    ),
    {
        "trajectory_id": TEXT,
        "before_step action_index press_ms": COUNT,
        "action_type": one_of(*ActionType),
        "reason": one_of(*HiddenReason),
    },
)


@dataclass(frozen=True, slots=True)
class HiddenAction:
    """An action that is not a step. `HIDDEN_ACTIONS_SCHEMA` describes the fields."""

    before_step: int
    action_index: int
    action_type: str
    press_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class HiddenActions:
    """The hidden actions of a demonstration, in time order."""

    actions: tuple[HiddenAction, ...] = ()

    def __len__(self) -> int:
        """Returns the number of hidden actions."""
        return len(self.actions)

    def before(self, step_index: int) -> tuple[HiddenAction, ...]:
        """Returns the hidden actions between the previous step and this step."""
        return tuple(action for action in self.actions if action.before_step == step_index)

    def follow(self, step_index: int) -> bool:
        """Returns whether any hidden action follows a step."""
        return any(action.before_step > step_index for action in self.actions)

    def by_reason(self) -> dict[str, int]:
        """Returns the number of hidden actions for each reason that occurs."""
        return dict(sorted(Counter(action.reason for action in self.actions).items()))

    def around(self, steps: Sequence[int]) -> "HiddenActions":
        """Returns the hidden actions between the first of `steps` and the step after the last.

        If `steps` begins with step 0, the hidden actions before step 0 are included.

        Args:
            steps: the indexes of the steps, ascending.
        """
        first = steps[0]
        last = steps[-1]
        remaining = [
            action
            for action in self.actions
            if (action.before_step > first or first == 0) and action.before_step <= last + 1
        ]
        return HiddenActions(tuple(remaining))

    def incomplete_steps(
        self, steps: int, waits: AbstractSet[int], max_share: float, first: int = 0
    ) -> frozenset[int]:
        """Returns the indexes of the steps that follow too many hidden actions.

        Args:
            waits: indexes of the waits, which do not count as actions.
            max_share: largest share of hidden actions among the actions before a step, 0 to 1.
            first: index of the first step.

        Returns:
            The indexes, plus `first + steps` if too many hidden actions precede the end of the
            demonstration.
        """
        incomplete: set[int] = set()
        hidden = 0
        visible = 0
        for index in range(first, first + steps + 1):
            hidden += len(self.before(index))
            if hidden and hidden / (hidden + visible) > max_share:
                incomplete.add(index)
            visible += index not in waits
        return frozenset(incomplete)

    def longest_stretch(self, steps: int, first: int = 0) -> range:
        """Returns the longest run of steps without a hidden action between them.

        Among equally long runs, returns the earliest. Empty if there are no steps.
        """
        end = first + steps
        gaps = {action.before_step for action in self.actions if first < action.before_step < end}
        bounds = [first, *sorted(gaps), end]
        return max((range(start, stop) for start, stop in pairwise(bounds)), key=len)

    def whole_stretch(self, steps: int, min_steps: int, first: int = 0) -> range | None:
        """Returns the steps that an export of whole trajectories uses.

        If the demonstration has hidden actions, this is the longest run of steps without a hidden
        action in between. Otherwise it is all steps.

        Args:
            min_steps: minimum length of the run, if there are hidden actions.
            first: index of the first step.

        Returns:
            Indexes of steps, or None if the run is too short.
        """
        if not self.actions:
            return range(first, first + steps)
        stretch = self.longest_stretch(steps, first)
        return stretch if len(stretch) >= min_steps else None


NOTHING_HIDDEN = HiddenActions()


def hidden_rows(trajectory_id: str, actions: Iterable[HiddenAction]) -> list[Mapping[str, object]]:
    """Returns hidden actions as rows of hidden_actions.parquet."""
    return [{"trajectory_id": trajectory_id, **asdict(action)} for action in actions]


def write_hidden_actions(folder: Path, trajectory_id: str, actions: Iterable[HiddenAction]) -> None:
    """Writes hidden_actions.parquet into a trajectory."""
    rows = hidden_rows(trajectory_id, actions)
    write_rows(folder / HIDDEN_ACTIONS_FILE, rows, HIDDEN_ACTIONS_SCHEMA)


def read_hidden_actions(folder: Path) -> HiddenActions:
    """Reads the hidden actions of a trajectory; empty if hidden_actions.parquet is missing.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read as Parquet.
    """
    path = folder / HIDDEN_ACTIONS_FILE
    if not path.is_file():
        return NOTHING_HIDDEN
    names = [name for name in HIDDEN_ACTIONS_SCHEMA.names if name != "trajectory_id"]
    rows = read_rows(path, HIDDEN_ACTIONS_SCHEMA, names)
    return HiddenActions(tuple(HiddenAction(**row) for row in rows))
