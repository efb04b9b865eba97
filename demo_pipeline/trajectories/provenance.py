"""What is known about a step beside its OSWorld-Desktopd files, and the actions that are not steps.

Belongs here: the schemas of `provenance.parquet` (one row per step) and `hidden_actions.parquet`
(one row per hidden action, with neither coordinates nor text), their readers and writers, and where
the gaps between the steps are. How a prompt names a hidden action is in exports/prompts.py.
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
"""The provenance tables of trajectories, or their rows with the columns that are counted."""


ProvenanceRow = Mapping[str, Any]

# What the quest says beyond the instruction; the format's own files have no place for it.
QUEST_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("objectives", pa.list_(pa.string()), True, "of meta.quest, in order; null: no quest"),
    ("max_reward", pa.float64(), True, "of meta.quest, in $VIRAL; null: unknown"),
    ("reward_time_ms", pa.int64(), True, "when it was calculated, epoch milliseconds"),
)
QUEST_NAMES = tuple(name for name, *_ in QUEST_COLUMNS)
IMPORTED = "imported"  # a reason code: the picture came with a trajectory of other origin
# What action.json says, as plain columns.
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
_TYPED = ("type", "hotkey")  # a typed space that pressed a button is a key
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
            *("pre_move", "settled", "backoff", "first_frame", "waiting", "missing", IMPORTED)
        ),
        "clock_method": one_of(
            *(
                "ffmpeg_start",
                "pixels",
                "typing",
                "inputs",
                "click_onsets",
                "meta_timestamp",
                "none",
            )
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
    """How a demonstration ended: `done`, `failed`, `aborted`, or `unknown`.

    By its result, and what the recorder noted in `status`: `unknown` is one that says nothing.
    """
    if success:
        return "done"
    if not status:
        return "unknown"
    return "failed" if status == "completed" else "aborted"


def has_picture(row: ProvenanceRow) -> bool:
    """Whether a step has a screenshot: a frame of its film, or one that was imported with it."""
    return row["pts"] is not None or row["reason_code"] == IMPORTED


def action_columns(action: StepAction) -> dict[str, Any]:
    """The columns of a step that repeat its action.json."""
    values = action.parameters.model_dump()
    target = action.target_element
    values |= {side: values[f"start_{side}"] for side in "xy" if f"start_{side}" in values}
    if target:
        values |= {"target_role": target.role, "target_name": target.name}
    return {name: _written(values.get(name)) for name, *_ in _ACTION_COLUMNS}


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [replace_surrogates(text) for text in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def write_provenance(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row per step; the keys are the columns of `PROVENANCE_SCHEMA`."""
    write_rows(path, rows, PROVENANCE_SCHEMA)


def read_provenance(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows in step order.

    Args:
        path: the file.
        columns: names of columns, all of them when None. A column that the file does not have is
            null.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read as Parquet.
    """
    return read_rows(path, PROVENANCE_SCHEMA, columns)


def provenance_batches(path: Path, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows a thousand at a time; arguments and errors as of `read_provenance`."""
    table = read_table(path, PROVENANCE_SCHEMA, columns)
    for batch in table.to_batches(max_chunksize=1000):
        yield batch.to_pylist()


HIDDEN_ACTIONS_FILE = "hidden_actions.parquet"
INCOMPLETE = "incomplete"  # why a step or a trajectory with hidden actions gives no record


class HiddenReason(StrEnum):
    """Why an action is not a step.

    `off_screen`: on another display, or keys after a click there that may have gone there.
    `no_position`: the log does not say where it was, or may have cut it to the screen's border.
    `never_released`: a press of a button that the log never lets go: no click, and no drag.
    `unknown_scale`: the log says where, but not in pixels of the video.
    `before_video`: it began before the first frame.
    `after_video`: it began after the last frame.
    `undecodable`: no frame shows the screen before it: none could be decoded, or they are black.
    `unknown_time`: the recorder's clock was set, and the video does not show when the action was.
    `unclear_scroll`: neither the log nor the video tells in what unit the wheel's deltas are, or
    the video contradicts the wheel's rule in a single scroll, so that the direction is unknown.
    `private`: keys were pressed while the screen was dark or locked; one row stands for all of them
    up to the next step, whatever they were.
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
    """One hidden action; fields as in `HIDDEN_ACTIONS_SCHEMA`."""

    before_step: int
    action_index: int
    action_type: str
    press_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class HiddenActions:
    """The hidden actions of one demonstration, in time order."""

    actions: tuple[HiddenAction, ...] = ()

    def __len__(self) -> int:
        """How many there are."""
        return len(self.actions)

    def before(self, step_index: int) -> tuple[HiddenAction, ...]:
        """Those between the previous step and this one."""
        return tuple(action for action in self.actions if action.before_step == step_index)

    def follow(self, step_index: int) -> bool:
        """Whether one comes after a step, so that the state after it is not this step's doing."""
        return any(action.before_step > step_index for action in self.actions)

    def by_reason(self) -> dict[str, int]:
        """How many there are by reason; reasons without any are left out."""
        return dict(sorted(Counter(action.reason for action in self.actions).items()))

    def around(self, steps: Sequence[int]) -> "HiddenActions":
        """Those between these steps and after them, when the others are cut off."""
        first = steps[0]
        last = steps[-1]
        kept = (one for one in self.actions if one.before_step > first or not first)
        return HiddenActions(tuple(one for one in kept if one.before_step <= last + 1))

    def incomplete_steps(
        self, steps: int, waits: AbstractSet[int], max_share: float, first: int = 0
    ) -> frozenset[int]:
        """Steps before which a larger share of the actions is hidden than `max_share`.

        Args:
            steps: number of steps; the index after the last stands for the end in the answer.
            waits: indexes of the steps that are waits, so no actions.
            max_share: 0 to 1.
            first: index of the first step.
        """
        found = set()
        hidden = 0
        visible = 0
        for index in range(first, first + steps + 1):
            hidden += len(self.before(index))
            if hidden and hidden / (hidden + visible) > max_share:
                found.add(index)
            visible += index not in waits
        return frozenset(found)

    def longest_stretch(self, steps: int, first: int = 0) -> range:
        """Indexes of the most successive steps without a hidden action between them.

        The earliest of equally long stretches; empty without steps. Arguments as of
        `incomplete_steps`.
        """
        end = first + steps
        inside = {action.before_step for action in self.actions if first < action.before_step < end}
        bounds = [first, *sorted(inside), end]
        stretches = [range(*pair) for pair in pairwise(bounds)]
        return max(stretches, key=len)

    def whole_stretch(self, steps: int, min_steps: int, first: int = 0) -> range | None:
        """The steps that an export of whole trajectories takes; None: too few without a gap.

        All of them when nothing is hidden, however few.

        Args:
            steps: number of steps.
            min_steps: the shortest stretch of a demonstration with hidden actions.
            first: index of the first step.
        """
        if not self.actions:
            return range(first, first + steps)
        stretch = self.longest_stretch(steps, first)
        return stretch if len(stretch) >= min_steps else None


NOTHING_HIDDEN = HiddenActions()


def hidden_rows(trajectory_id: str, actions: Iterable[HiddenAction]) -> list[Mapping[str, object]]:
    """Rows of `HIDDEN_ACTIONS_SCHEMA`."""
    return [{"trajectory_id": trajectory_id, **asdict(action)} for action in actions]


def write_hidden_actions(folder: Path, trajectory_id: str, actions: Iterable[HiddenAction]) -> None:
    """Write hidden_actions.parquet into a trajectory's folder, without rows when none is hidden."""
    rows = hidden_rows(trajectory_id, actions)
    write_rows(folder / HIDDEN_ACTIONS_FILE, rows, HIDDEN_ACTIONS_SCHEMA)


def read_hidden_actions(folder: Path) -> HiddenActions:
    """The hidden actions of a trajectory; none for one that was written before the table existed.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read as Parquet.
    """
    path = folder / HIDDEN_ACTIONS_FILE
    if not path.is_file():
        return NOTHING_HIDDEN
    names = [name for name in HIDDEN_ACTIONS_SCHEMA.names if name != "trajectory_id"]
    rows = read_rows(path, HIDDEN_ACTIONS_SCHEMA, names)
    return HiddenActions(tuple(HiddenAction(**row) for row in rows))
