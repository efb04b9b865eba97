"""Writes the text of `demo-pipeline inspect`: timeline, steps and datasets of a demonstration.

The text comes from the committed tables, without typed characters.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACCOUNTING_SCHEMA,
    BUCKETS,
    DOUBTFUL_TEXT,
    Action,
    read_actions,
)
from demo_pipeline.actions.inputs import inputs_of, late_lines
from demo_pipeline.actions.scrolls import Vertical, direction_of
from demo_pipeline.datasets.index import EXPORTS_SCHEMA, EXPORTS_TABLE
from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.parquet import read_rows, read_table
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.files.shown_text import counted
from demo_pipeline.recording.events import read_events, rejected_lines
from demo_pipeline.recording.input_log import BUTTON_EVENTS, POINTER_EVENTS
from demo_pipeline.recording.key_names import public_name
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.meta import Meta
from demo_pipeline.runs.demonstration_outputs import is_refused, noted_damage
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.plan import reasons_to_build
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.results import LEFT_OUT_REMEDIES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.provenance import read_provenance

_REPAIRS = {
    "phantom_modifier": "duplicate releases of a modifier, logged as presses: dropped",
    "release_without_press": "releases without a press: dropped",
    "zero_delta": "wheel events with delta 0: dropped",
    "typed_and_erased": "events of text that was typed and erased: left out",
    "stop_shortcut": "events of the shortcut that stopped the recorder: left out",
    "held_with_button": "events of keys held while a mouse button was down: no typing",
    "modifier_never_released": "events of modifiers that were never released: ignored",
}
_FLAGS = {
    "never_released": "button presses without a release: treated as clicks",
    "modifier_never_released": "actions whose modifier was never released: treated as released",
    "key_held": "drags with another key held than a modifier: the action does not name it",
    "end_points_only": "drags without logged moves: only start and end are known",
}
_MAX_REJECTED = 20  # maximum number of rejected lines that are printed


def timeline_lines(
    events_folder: Path, actions_folder: Path, manifest: RecordingManifest
) -> list[str]:
    """Returns the timeline as lines of plain text, without typed characters.

    Seconds are counted from the `timestamp` in meta.json.
    """
    events = read_events(events_folder)
    actions = read_actions(actions_folder)
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    reasons_of_rows = accounting["reason"].to_pylist()
    reasons = dict(zip(accounting["event_index"].to_pylist(), reasons_of_rows, strict=True))
    counts = Counter(zip(accounting["bucket"].to_pylist(), reasons_of_rows, strict=True))
    meta = manifest.parsed_meta()
    return [
        *_title_lines(manifest, meta),
        "",
        *_action_lines(actions, manifest.recorded_at.timestamp()),
        "",
        *_repair_lines(events, reasons, actions),
        "",
        *_rejected_lines(events_folder, counts),
        "",
        f"Event accounting: {accounting.num_rows} lines",
        *_bucket_lines(counts),
        "",
        f"Wheel: {_wheel(actions)}",
        *_keyboard_lines(actions, meta),
        _unknown_keys(events, reasons),
    ]


def _title_lines(manifest: RecordingManifest, meta: Meta) -> Iterator[str]:
    if meta.status:
        status = meta.status
    else:
        status = "no status" if meta.reason else "no outcome said"
    if meta.reason:
        status += f" ({meta.reason})"
    time = f"{manifest.recorded_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{manifest.id}: {', '.join(filter(None, (meta.platform, time, status)))}"
    if meta.title:
        yield meta.title


def _repair_lines(
    events: pa.Table, reasons: Mapping[int, str], actions: Sequence[Action]
) -> list[str]:
    repairs = list(_repairs(events, reasons, actions))
    if not repairs:
        return ["Repairs: none"]
    return ["Repairs", *(f"  {repair}" for repair in repairs)]


def _rejected_lines(events_folder: Path, counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    rejected = sum(lines for (bucket, _), lines in counts.items() if bucket == "rejected")
    yield f"Rejected lines: {rejected}"
    problems = rejected_lines(events_folder)[:_MAX_REJECTED]
    for problem in problems:
        yield f"  {problem.location}: {problem.message}"
    if rejected > len(problems):
        yield f"  and {rejected - len(problems)} more"


def _unknown_keys(events: pa.Table, reasons: Mapping[int, str]) -> str:
    keys = Counter(map(public_name, _by_reason(events, "key", reasons, "unknown_key")))
    names = ", ".join(f"{name} ({number})" for name, number in sorted(keys.items()))
    return f"Unknown keys: {names or 'none'}"


def _action_lines(actions: Sequence[Action], origin: float) -> Iterator[str]:
    pauses = sum(not action.events for action in actions)
    yield f"Actions: {len(actions) - pauses}, pauses: {pauses}"
    if actions:
        yield f"{'#':>5}{'second':>10}{'pre-move':>10}{'events':>8}  action"
    for action in actions:
        pre_move = ""
        if action.pre_move_ms is not None:
            pre_move = f"{action.pre_move_ms / 1000 - origin:.3f}"
        notes = list(action.flags)
        if action.text_evidence:
            notes.append(f"text {action.text_evidence}")
        flags = f"  [{', '.join(notes)}]" if notes else ""
        yield (
            f"{action.action_index:>5}{action.press_ms / 1000 - origin:>10.3f}{pre_move:>10}"
            f"{len(action.events) or '':>8}  {'+'.join([*action.modifiers, action.describe()])}"
            f"{flags}"
        )


def _by_reason(events: pa.Table, column: str, reasons: Mapping[int, str], reason: str) -> list[str]:
    """Returns the values of a column for the events with a given reason.

    Args:
        reasons: maps the index of each event to its reason in the event accounting.
        reason: a reason such as `hook_copy`.
    """
    rows = zip(events["event_index"].to_pylist(), events[column].to_pylist(), strict=True)
    return [value for index, value in rows if reasons[index] == reason]


def _repairs(
    events: pa.Table, reasons: Mapping[int, str], actions: Sequence[Action]
) -> Iterator[str]:
    kinds = Counter(events["event"].to_pylist())
    dropped = Counter(_by_reason(events, "event", reasons, "hook_copy"))
    for kind, number in sorted(dropped.items()):
        times = round(kinds[kind] / (kinds[kind] - number), 2)
        yield f"{number} duplicates of {kind}: dropped (each logged {times:g} times)"
    late = late_lines(inputs_of(events))
    if late:
        yield f"{late} input events logged after a later one: sorted by time"
    filled = _filled_positions(events, reasons)
    if filled:
        yield f"{filled} presses and releases without a position: taken from the moves around them"
    counts = Counter(reasons.values())
    for reason, text in _REPAIRS.items():
        if counts[reason]:
            yield f"{counts[reason]} {text}"
    flags = Counter[str]()
    for action in actions:
        flags.update(action.flags)
    for flag, text in _FLAGS.items():
        if flags[flag]:
            yield f"{flags[flag]} {text}"


def _filled_positions(events: pa.Table, reasons: Mapping[int, str]) -> int:
    rows = zip(*(events[name].to_pylist() for name in ("event_index", "event", "x")), strict=True)
    without_position = 0
    any_position = False
    for index, kind, x in rows:
        if kind in POINTER_EVENTS and x is not None:
            any_position = True
        elif kind in BUTTON_EVENTS and reasons[index] != "hook_copy":
            without_position += 1
    return without_position if any_position else 0


def _bucket_lines(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for bucket in BUCKETS:
        lines = 0
        reasons = []
        for (bucket_of_count, reason), number in sorted(counts.items()):
            if bucket_of_count == bucket:
                lines += number
                if reason:
                    reasons.append(f"{reason} {number}")
        yield f"  {bucket:<16}{lines:>8}  {', '.join(reasons)}".rstrip()


def _wheel(actions: Sequence[Action]) -> str:
    """Describes the direction of positive wheel deltas, their unit, and how both were found."""
    for action in actions:
        if action.wheel_sum is not None:
            direction: Vertical = "up" if action.direction == "up" else "down"
            positive = direction_of(action.wheel_sum, direction)
            return f"positive = {positive}, unit {action.wheel_unit}, by {action.wheel_method}"
    return "not used"


def _keyboard_lines(actions: Sequence[Action], meta: Meta) -> Iterator[str]:
    """Yields lines about the assumed keyboard layouts, the reasons for them, and doubtful texts."""
    typed = [action for action in actions if action.action_type == "type"]
    if not typed:
        yield "Keyboard: nothing was typed"
    for layout, run in groupby(typed, key=attrgetter("keyboard_layout")):
        texts = list(run)
        counts = Counter(action.text_evidence for action in texts)
        evidence = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        if counts["confirmed"]:
            reason = "the scans show what was typed"
        elif layout == meta.usual_layout:
            reason = f"usual for {meta.locale or 'this recorder'}"
        else:
            reason = "nothing says which layout it was"
        doubtful = sum(DOUBTFUL_TEXT in action.flags for action in texts)
        doubt = f"; {doubtful} doubtful, in no training record" if doubtful else ""
        from_field = sum(action.text_source == "field" for action in texts)
        composed = f"; {from_field} taken from the field" if from_field else ""
        yield f"Keyboard: {layout}, as {reason}; texts: {evidence}{composed}{doubt}"


_COLUMNS = ("step_index", "action_index", "leak", "unavoidable")


def step_lines(trajectory: Path, shown: str) -> Iterator[str]:
    """Yields the lines of a table of a trajectory's steps.

    The column `leak` tells whether the screenshot already shows the pointer at the target. Names of
    targets are not printed, because they may be typed text.

    Args:
        shown: the path to print for `trajectory`.
    """
    steps = read_trajectory(trajectory).steps
    rows = read_provenance(trajectory / "provenance.parquet", _COLUMNS)
    row_of_step = {row["step_index"]: row for row in rows}
    yield f"Steps: {len(steps)}, in {shown}"
    if steps:
        yield f"{'step':>5}{'#':>5}  {'screenshot':<25}{'leak':<12}{'action':<13}target"
    for step in steps:
        row = row_of_step[step.index]
        element = step.action.target_element
        target = f"{element.role} {element.id}" if element else ""
        leak = "no"
        if row["unavoidable"]:
            leak = "unavoidable"
        elif row["leak"]:
            leak = "leak"
        yield (
            f"{step.index:>5}{row['action_index']:>5}  "
            f"{step.screenshot.relative_to(trajectory)!s:<25}{leak:<12}"
            f"{step.action.action_type:<13}{target}"
        ).rstrip()


def dataset_lines(store: Store, demonstration: str) -> Iterator[str]:
    """Yields how many records of a demonstration each dataset has, or why it has none."""
    if store.current(INDEX_STAGE.folder) is None:
        yield "Datasets: none was built yet; `demo-pipeline run` builds them"
        return
    folder = store.open(INDEX_STAGE.folder, EXPORTS_TABLE)[0]
    rows = read_rows(folder / EXPORTS_TABLE, EXPORTS_SCHEMA)
    own = [row for row in rows if row["trajectory_id"] == demonstration]
    yield "Datasets:" if own else "Datasets: built without it; `demo-pipeline run` takes it in"
    for row in own:
        if row["status"] == "built":
            yield f"  {row['export']:<14}{_membership(row)}"
        elif row["status"] != "disabled":
            yield f"  {row['export']:<14}is {row['status']}"


def _membership(row: Mapping[str, Any]) -> str:
    """Returns how many records of a demonstration a built export has, or why it has none.

    Args:
        row: the row of the demonstration and the export in `exports.parquet`.
    """
    reason = row["left_out"]
    if reason and not row["records"]:
        remedy = LEFT_OUT_REMEDIES.get(reason, "")
        setting = f"include_{reason}"
        if setting in DatasetSettings.model_fields:
            remedy = f"the setting datasets.{setting} takes it in"
        words = f"left out: {reason.replace('_', ' ')}"
        return f"{words} ({remedy})" if remedy else words
    records = counted(row["records"], "records")
    return f"{records} in {row['split']}" if row["split"] else records


def pending_lines(workspace: Workspace, demonstration: str) -> Iterator[str]:
    """Yields lines about outputs that are damaged or not up to date, with the command to run.

    Outputs that are not up to date are left out if the demonstration has no upload or if its upload
    was rejected.
    """
    graph = Graph(workspace)
    damage = noted_damage(graph, {demonstration})
    for problem in damage:
        yield f"damaged: {problem}"
    if workspace.uploads.find(demonstration) is None:
        if damage:
            yield "its upload is gone, so it cannot be built again"
        return
    reasons = reasons_to_build(graph, demonstration)
    if reasons and not is_refused(graph, demonstration):
        stages = ", ".join(stage for stage, _ in reasons)
        yield f"not up to date: {stages} ({reasons[0][1]}); `demo-pipeline run` builds them"


def quarantine_lines(store: Store, demonstration: str) -> Iterator[str]:
    """Yields lines that say why a demonstration is quarantined and what to do.

    Yields nothing if the demonstration is not quarantined.
    """
    record = read_quarantine(store, demonstration)
    if record is not None:
        yield f"{demonstration} is quarantined in {record.stage}:"
        yield from (f"  {problem}" for problem in record.known_problems())
        yield f"Correct the upload; then `demo-pipeline run`, or `run {demonstration}` as it is"


def absence(workspace: Workspace, demonstration: str) -> str:
    """Returns why a demonstration has no outputs to show, and what to do."""
    upload = workspace.uploads.find(demonstration)
    if upload is None:
        ids = [listed.id for listed in workspace.uploads.list_demonstrations()]
        near = difflib.get_close_matches(demonstration, ids, 1)
        hint = f"; the nearest id is {near[0]}" if near else ""
        return (
            f"no recording {demonstration} in {workspace.uploads.url}{hint}; "
            f"copy its folder there, then `demo-pipeline run {demonstration}`"
        )
    missing = [name for name in RECORDING_FILES if name not in upload.files]
    if missing:
        return f"{demonstration} lacks {', '.join(missing)}: copy it into its folder, then run it"
    return f"{demonstration} was not processed yet: `demo-pipeline run {demonstration}` does it"
