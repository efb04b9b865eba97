"""The tables of a trajectory: provenance.parquet and hidden_actions.parquet.

provenance.parquet has a row for each step, with the facts that the OSWorld-Desktopd files cannot
express. hidden_actions.parquet has a row for each *hidden action*: an action that is not a step.
These rows have no coordinates and no text. `HiddenActions` finds the gaps that hidden actions leave
between the steps. exports/prompts.py decides how a prompt names a hidden action.
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
"""The paths of provenance tables, or an Arrow table with all their rows and some columns."""


ProvenanceRow = Mapping[str, Any]

# Columns about the quest in meta.json. They are needed because task.json contains only the quest's
# instruction.
QUEST_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("objectives", pa.list_(pa.string()), True, "of meta.quest, in order; null: no quest"),
    ("max_reward", pa.float64(), True, "of meta.quest, in $VIRAL; null: unknown"),
    ("reward_time_ms", pa.int64(), True, "when it was calculated, epoch milliseconds"),
)
QUEST_NAMES = tuple(name for name, *_ in QUEST_COLUMNS)
IMPORTED = "imported"  # reason code of a screenshot that came with an imported trajectory
# Columns that repeat the content of action.json.
_ACTION_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("x", pa.int32(), True, "of the action on the canvas, pixels; a drag's start"),
    ("y", pa.int32(), True, "of the action on the canvas, pixels; a drag's start"),
    ("end_x", pa.int32(), True, "a drag's end on the canvas, pixels"),
    ("end_y", pa.int32(), True, "a drag's end on the canvas, pixels"),
    ("text", pa.string(), True, "what was typed"),
    ("keys", pa.list_(pa.string()), True, "hotkey: keys held together"),
    ("direction", pa.string(), True, "scroll: up, down, left, right"),
    ("amount", pa.int32(), True, "scroll: notches of the wheel"),
    ("target_role", pa.string(), True, "role of the element that was acted on; null: not known"),
    ("target_name", pa.string(), True, "its name; null: not known"),
)

# name, type, nullable, meaning (with unit)
_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("trajectory_id", pa.string(), False, "demonstration id"),
    ("step_index", pa.int32(), False, "0-based, as in steps/NNN"),
    ("action_index", pa.int32(), False, "row of actions.parquet that the step came from"),
    ("action_type", pa.string(), False, "OSWorld-Desktopd action type"),
    ("press_ms", pa.int64(), False, "when the action began, epoch milliseconds"),
    ("end_ms", pa.int64(), False, "when the action ended, epoch milliseconds"),
    ("end_filmed", pa.bool_(), False, "the video goes on until the action ended, or about"),
    ("pts", pa.float64(), True, "presentation time of the screenshot, seconds; null: missing"),
    ("lead_ms", pa.float64(), True, "screenshot to press, milliseconds"),
    ("reason_code", pa.string(), False, "why this frame: pre_move, settled, backoff, …"),
    ("leak", pa.bool_(), False, "the screenshot may already show the answer"),
    ("unavoidable", pa.bool_(), False, "a leak that no earlier frame would avoid"),
    ("pointer_distance_px", pa.float64(), True, "shown pointer to press, screen pixels"),
    ("settle_ms", pa.float64(), True, "how long the screen had been still, milliseconds"),
    (
        "clock_method",
        pa.string(),
        False,
        "ffmpeg_start, pixels, typing, inputs, click_onsets, meta_timestamp",
    ),
    ("clock_uncertainty_ms", pa.float64(), False, "of the video clock, milliseconds"),
    ("tree_age_ms", pa.int64(), True, "end of the scan to the press, milliseconds; null: no scan"),
    ("freshness", pa.string(), False, "fresh, stale, changed, running, sparse, unreadable or none"),
    (
        "tree_agreement",
        pa.string(),
        False,
        "agrees, partial, differs or unknown: tree and picture",
    ),
    ("cursor_agrees", pa.bool_(), True, "the scan's own hit test finds the same; null: unchecked"),
    ("target_x", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_y", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_width", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_height", pa.int32(), True, "target box on the canvas, pixels"),
    *_ACTION_COLUMNS,
    ("wheel_method", pa.string(), True, "scroll: evidence, override or unit_signature"),
    ("wheel_disagrees", pa.bool_(), True, "scroll: the video shows the opposite sign of the rule"),
    ("screen_changed", pa.bool_(), True, "until the next screenshot; null: not known"),
    ("changed_x", pa.int32(), True, "box of the largest part that changed, canvas pixels"),
    ("changed_y", pa.int32(), True, "box of the largest part that changed, canvas pixels"),
    ("changed_width", pa.int32(), True, "box of the largest part that changed, canvas pixels"),
    ("changed_height", pa.int32(), True, "box of the largest part that changed, canvas pixels"),
    ("taken_back_by", pa.int32(), True, "the later step that undoes it by keys; null: none known"),
    (
        "doubtful_text",
        pa.bool_(),
        True,
        "typed text that may be another one, or an Enter that may only have ended it; else null",
    ),
    ("off_screen", pa.bool_(), False, "the action is outside the recorded screen"),
    ("hidden_before", pa.int32(), False, "hidden actions between the previous step and this one"),
    ("complete", pa.bool_(), False, "no action of the demonstration is hidden"),
    ("scale", pa.float64(), False, "screen pixels * scale + pad = canvas pixels"),
    ("pad_x", pa.float64(), False, "canvas pixels"),
    ("pad_y", pa.float64(), False, "canvas pixels"),
    ("instruction_source", pa.string(), False, "the meta.json field the instruction came from"),
    (
        "reasoning_source",
        pa.string(),
        False,
        "template: the program wrote the reasoning",
    ),
    ("split_group", pa.string(), False, "task group; no group is in two splits"),
    ("platform", pa.string(), False, "windows, macos, linux"),
    ("recorded_at", pa.string(), False, "meta.timestamp in UTC, ISO 8601"),
    ("status", pa.string(), False, "meta.status"),
    ("reason", pa.string(), False, "meta.reason, empty when null"),
    ("osworld_task_id", pa.string(), True, "OSWorld task of the demonstration; null: none known"),
    ("osworld_match", pa.string(), True, "how the task was matched: id or instruction"),
    ("osworld_match_field", pa.string(), True, "the meta.json field that matched"),
    ("osworld_task_kind", pa.string(), True, "ordinary or risk"),
    ("osworld_matches", pa.int32(), True, "task files with this match; the first is used"),
    *QUEST_COLUMNS,
    (
        "text_evidence",
        pa.string(),
        True,
        "type: whether the scans show the text: confirmed, contradicted or unseen",
    ),
    ("text_scan_event", pa.int64(), True, "type: line of the scan that says so; null: unseen"),
    ("text_source", pa.string(), True, "type: keys, or field: what the field gained"),
    ("keyboard_layout", pa.string(), True, "type: the layout by which the keys were read"),
    ("unproven_clock", pa.bool_(), True, "the clock may be off so far that it is another screen"),
    (
        "opened_by_hover",
        pa.bool_(),
        True,
        "what was pressed had opened beside the resting pointer; null: nobody looked",
    ),
    ("hover_x", pa.int32(), True, "where the pointer rested, canvas pixels"),
    ("hover_y", pa.int32(), True, "where the pointer rested, canvas pixels"),
    ("hover_ms", pa.int64(), True, "when the pointer came to rest there, epoch milliseconds"),
    (
        "hovered_before",
        pa.list_(pa.int32()),
        True,
        "x, y, x, y, … of the rests that opened the place of that one, in order; null: none",
    ),
    (
        "erased_text",
        pa.bool_(),
        True,
        "the screenshot may show text that was typed and erased again, which no step typed",
    ),
)

_MATCHED = "osworld_task_id"
# Types of actions that may have values in the columns about typed text. Hotkeys may have them,
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
        status: the status in meta.json. It matters only if the demonstration is not a success.
        success: whether the demonstration is a success.
    """
    if success:
        return "done"
    if not status:
        return "unknown"
    return "failed" if status == "completed" else "aborted"


def has_picture(row: ProvenanceRow) -> bool:
    """Returns whether a step has a screenshot: a frame of the video, or an imported screenshot."""
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
    """Writes provenance.parquet with a row for each step.

    The keys of the rows are the columns of `PROVENANCE_SCHEMA`.
    """
    write_rows(path, rows, PROVENANCE_SCHEMA)


def read_provenance(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Reads the rows of provenance.parquet in the order of the steps.

    Args:
        path: the file.
        columns: names of columns. If None, all columns are read. A column that the file lacks is
            null.

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
# Reason why exports leave out steps and trajectories with too many hidden actions.
INCOMPLETE = "incomplete"


class HiddenReason(StrEnum):
    """Why an action is not a step.

    - `off_screen`: the action happened on another display, or used the keyboard after a click on
      another display.
    - `no_position`: the position was not logged, or may have been clipped to the border of the
      screen.
    - `never_released`: a button was pressed, but the log lacks its release.
    - `unknown_scale`: the position was logged, but the scale of the log is unknown.
    - `before_video`: the action began before the first frame.
    - `after_video`: the action began after the last frame.
    - `undecodable`: the frames before the action cannot be decoded, or are all black.
    - `unknown_time`: the recorder's clock was set, and the video does not show the action's time.
    - `unclear_scroll`: neither log nor video shows the unit of the wheel's deltas. Or the direction
      is unknown, because the video shows only one scroll, and this scroll contradicts the direction
      that the wheel's unit and the platform imply.
    - `private`: keys were pressed while the screen was dark or locked. A single row stands for all
      these keys up to the next step.
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
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("before_step", pa.int32(), False, "the step that follows; the number of steps: none"),
        ("action_index", pa.int32(), False, "row of actions.parquet"),
        ("action_type", pa.string(), False, "OSWorld-Desktopd action type"),
        ("press_ms", pa.int64(), False, "when the action began, epoch milliseconds"),
        ("reason", pa.string(), False, ", ".join(HiddenReason)),
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
        """Returns reason → number of hidden actions, for the reasons that occur."""
        return dict(sorted(Counter(action.reason for action in self.actions).items()))

    def around(self, steps: Sequence[int]) -> "HiddenActions":
        """Returns the hidden actions of a part of a trajectory.

        These are the hidden actions between the part's first step and the step after the part's
        last step. If the part begins with step 0, the hidden actions before step 0 are included.

        Args:
            steps: the indexes of the part's steps, ascending.
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
        """Returns the steps that have too many hidden actions before them.

        Args:
            steps: number of steps.
            waits: indexes of the steps that are waits. Waits do not count as actions.
            max_share: largest allowed share of hidden actions among all actions before a step, 0 to
                1.
            first: index of the first step.

        Returns:
            Indexes of steps. The index after the last step stands for the end of the demonstration.
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

        Among equally long runs, the earliest is returned. The result is empty if there are no
        steps.
        """
        end = first + steps
        gaps = {action.before_step for action in self.actions if first < action.before_step < end}
        bounds = [first, *sorted(gaps), end]
        return max((range(start, stop) for start, stop in pairwise(bounds)), key=len)

    def whole_stretch(self, steps: int, min_steps: int, first: int = 0) -> range | None:
        """Returns the steps that an export of whole trajectories uses.

        If there are no hidden actions, the export uses all steps. Otherwise it uses the longest run
        of steps without a hidden action between them.

        Args:
            steps: number of steps.
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
    """Writes hidden_actions.parquet into a trajectory, even if there are no hidden actions."""
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
