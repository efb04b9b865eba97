"""The `actions` stage: turns events into actions and accounts for every line of the log.

Belongs here: running repair and grouping over the committed events, the event accounting
(ledger.parquet: one row per log line, in exactly one bucket), the checks of both tables, and the
forms of an action that may have stopped the recorder itself. Whether the video and the scans
confirm that is decided in observation/.
"""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACCOUNTING_SCHEMA,
    ACTIONS_FILE,
    ACTIONS_SCHEMA,
    POINTER_TYPES,
    Action,
    read_actions,
    write_actions,
)
from demo_pipeline.actions.field_texts import ScanFields
from demo_pipeline.actions.grouping import Segmentation, segment
from demo_pipeline.actions.inputs import Input, distance, inputs_of, withheld_inputs
from demo_pipeline.actions.keyboard_stretches import has_keypad
from demo_pipeline.actions.repair import BORDER_RUN, Repairs, after_border_runs, repair
from demo_pipeline.actions.text_evidence import (
    TextReader,
    TextWitness,
    TypingLanguage,
    evidence_counts,
    typing_language,
)
from demo_pipeline.files.parquet import read_table, rows_table, schema_problems, write_table
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.clock_steps import read_clock_steps
from demo_pipeline.recording.events import (
    DEFECT_REMEDY,
    REJECTED_FILE,
    read_events,
    read_scans,
    too_many,
)
from demo_pipeline.recording.input_log import INPUT_EVENTS, KEY_EVENTS, REJECTED_SCHEMA, EventType
from demo_pipeline.recording.key_names import platform_of_keys, public_name
from demo_pipeline.recording.logged_scans import read_logged_scans
from demo_pipeline.settings import ActionSettings

STOP_SHORTCUT = "stop_shortcut"  # reason in the event accounting
TYPED_AND_ERASED = "typed_and_erased"  # likewise
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


def erased_typing(actions_folder: Path, events: pa.Table) -> list[tuple[int, int]]:
    """When text stood that was typed and erased again, so that no action has it.

    First and last event of each such typing, epoch milliseconds. `events`: the events table.
    """
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    indexes = events["event_index"].to_pylist()
    times = events["time_ms"].to_pylist()
    time_of = dict(zip(indexes, times, strict=True))
    spans: list[tuple[int, int]] = []
    is_open = False
    columns = (accounting[name].to_pylist() for name in ("event_index", "bucket", "reason"))
    for index, bucket, reason in zip(*columns, strict=True):
        if reason == TYPED_AND_ERASED:
            time = time_of[index]
            first, last = spans.pop() if is_open else (time, time)
            spans.append((min(first, time), max(last, time)))
            is_open = True
        elif bucket == "action":
            is_open = False
    return spans


def has_stop_form(keys: Sequence[str]) -> bool:
    """Whether a hotkey looks like a recorder's: F1…F24, a media key, or two modifiers and a key.

    Pause and Print Screen count too. Ctrl and a letter never does: Ctrl+S saves something.
    """
    pressed = set(keys) - _MODIFIERS
    if any(key in STOP_KEYS or _FUNCTION_KEY.fullmatch(key) for key in pressed):
        return True
    return bool(pressed) and len(_MODIFIERS & set(keys)) >= STOP_MODIFIERS


MAX_PREVIEW = 50  # actions in the summary
_LOG = logging.getLogger(__package__)
_MAX_ACTIONS = 10_000  # each costs 22 ms and 70 kB (measured)
# Reasons of events that were left out to repair the recording.
_REPAIR_REASONS = {"release_without_press", "zero_delta", TYPED_AND_ERASED, "stop_shortcut"}
# Of events that are part of no action and have no reason: bucket, action index and reason.
_OWN_BUCKETS: dict[str, tuple[str, None, str]] = {
    EventType.AXTREE: ("tree_scan", None, ""),
    EventType.MOUSEMOVE: ("pointer_travel", None, ""),
}


def build_actions(
    events_folder: Path,
    out: Path,
    platform: str,
    settings: ActionSettings,
    *,
    language: TypingLanguage | None = None,
    log: Path | None = None,
) -> dict[str, Any]:
    """Write actions.parquet and ledger.parquet for committed events and return a summary.

    `platform` is meta.platform: the meaning of key names and the wheel's unit depend on it. If it
    is empty, the names of the keys decide when they leave no doubt. `language`: how the person
    types; None: nothing is known of it. `log`: input_log.jsonl, whose scans show what was typed;
    None: they are not read.

    Raises:
        DemonstrationError: there are more than `_MAX_ACTIONS`.
    """
    events = read_events(events_folder)
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    logged = inputs_of(events)
    platform = platform or platform_of_keys(item.name for item in logged if item.kind in KEY_EVENTS)
    inputs, repairs = repair(logged, platform, settings)
    steps = [step.line for step in read_clock_steps(events_folder)]
    language = language or typing_language(settings.keyboard_layout, None)
    segmented = partial(
        segment,
        inputs,
        platform,
        settings,
        clock_steps=steps,
        withheld=withheld_inputs(events),
        input_method=bool(language.input_method),
    )
    scans = read_logged_scans(events_folder) if log else []
    witness = TextWitness(ScanFields(log or Path(), platform, scans))
    reader = TextReader(language, segmented, witness, keypad=has_keypad(inputs))
    segmentation = reader.read()
    if events["raw_x"].null_count == events.num_rows:
        cut = after_border_runs(inputs)
        for action in segmentation.actions:
            action.flags += [BORDER_RUN] if cut.intersection(action.events) else []
    acts = [action for action in segmentation.actions if action.action_type != "pause"]
    if len(acts) > _MAX_ACTIONS:
        raise too_many("actions", acts[_MAX_ACTIONS].first_event, _MAX_ACTIONS)
    _log_decisions(segmentation, repairs)
    write_actions(out / ACTIONS_FILE, segmentation.actions)
    accounting = _accounting(events, rejected, repairs, segmentation)
    write_table(out / ACCOUNTING_FILE, accounting)
    return {
        **_summary(segmentation, repairs, accounting),
        "platform": platform,
        "unreadable_characters": sum(item.unreadable for item in inputs),
        "text_evidence": evidence_counts(segmentation.actions),
        "keyboard_layouts": [asdict(layout) for layout in reader.layouts],
    }


def _log_decisions(segmentation: Segmentation, repairs: Repairs) -> None:
    for kind, factor in repairs.duplicate_factors.items():
        _LOG.debug("every %s was logged %d times: copies dropped", kind, factor)
    for line, reason in repairs.dropped.items():
        _LOG.debug("line %d dropped: %s", line, reason)
    _LOG.debug("%d positions taken from moves nearby", repairs.filled_positions)
    for action in segmentation.actions:
        lines = (action.first_event, action.last_event)
        _LOG.debug(
            "action %d: %s of lines %d to %d", action.action_index, action.describe(), *lines
        )


def _accounting(
    events: pa.Table, rejected: pa.Table, repairs: Repairs, segmentation: Segmentation
) -> pa.Table:
    action_of = {index: a.action_index for a in segmentation.actions for index in a.events}
    reasons = segmentation.reasons | repairs.dropped
    pairs = zip(events["event_index"].to_pylist(), events["event"].to_pylist(), strict=True)
    rows: list[tuple[int, str, int | None, str]] = []
    for index, kind in pairs:
        reason = reasons.get(index)
        if index in action_of and index not in repairs.dropped:
            rows.append((index, "action", action_of[index], ""))
        elif reason is not None:
            repaired = index in repairs.dropped or reason in _REPAIR_REASONS
            rows.append((index, "repaired" if repaired else "other", None, reason))
        else:
            other = ("other", None, "no_effect" if kind in INPUT_EVENTS else "not_input")
            rows.append((index, *_OWN_BUCKETS.get(kind, other)))
    codes = zip(rejected["line"].to_pylist(), rejected["code"].to_pylist(), strict=True)
    rows += [(line, "rejected", None, code) for line, code in codes]
    rows.sort(key=lambda row: row[0])
    columns = list(zip(*rows, strict=True)) or [()] * len(ACCOUNTING_SCHEMA)
    return rows_table(columns, ACCOUNTING_SCHEMA)


def _summary(segmentation: Segmentation, repairs: Repairs, accounting: pa.Table) -> dict[str, Any]:
    actions = [action for action in segmentation.actions if action.action_type != "pause"]
    span = actions[-1].end_ms - actions[0].press_ms if actions else 0
    reasons: Counter[str] = Counter(accounting["reason"].to_pylist())
    return {
        "actions": len(actions),
        "pauses": len(segmentation.actions) - len(actions),
        "by_type": dict(sorted(Counter(action.action_type for action in actions).items())),
        "seconds": span / 1000,
        "ledger": dict(sorted(Counter(accounting["bucket"].to_pylist()).items())),
        "reasons": {reason: n for reason, n in sorted(reasons.items()) if reason},
        "copy_factors": repairs.duplicate_factors,
        "joined_positions": repairs.filled_positions,
        "late_lines": repairs.late_lines,
        "second_shifts": repairs.second_shifts,
        "wheel_remainder": round(segmentation.wheel_remainder, 6),
        "unknown_keys": sorted({public_name(name) for name in segmentation.unknown_keys}),
        "preview": [action.describe() for action in segmentation.actions[:MAX_PREVIEW]],
    }


def check_action_tables(folder: Path) -> list[Problem]:
    """Check the schemas of the written tables, and the order, times and events of the actions."""
    problems = [
        *schema_problems(folder / ACTIONS_FILE, ACTIONS_SCHEMA),
        *schema_problems(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA),
    ]
    if problems:
        return problems
    previous_press = None
    for position, action in enumerate(read_actions(folder)):
        message = None
        if action.action_index != position:
            message = f"row {position} has action_index {action.action_index}"
        elif previous_press is not None and action.press_ms < previous_press:
            message = f"action {position} begins before action {position - 1}"
        elif action.end_ms < action.press_ms:
            message = f"action {position} ends before it begins"
        elif action.action_type != "pause" and not action.events:
            message = f"action {position} has no raw events"
        if message:
            problems.append(Problem("wrong_action", ACTIONS_FILE, message, remedy=DEFECT_REMEDY))
        previous_press = action.press_ms
    return problems


def check_lines_of_actions(folder: Path, events_folder: Path) -> list[Problem]:
    """Check that actions name the lines that they were built from, and have their positions."""
    events = read_events(events_folder)
    lines = events["event_index"].to_pylist()
    positioned = {
        line for line, x in zip(lines, events["x"].to_pylist(), strict=True) if x is not None
    }
    scans = {scan["event_index"] for scan in read_scans(events_folder)}
    problems = []
    for action in read_actions(folder):
        number = action.action_index
        message = None
        if action.events:
            if (action.first_event, action.last_event) != (action.events[0], action.events[-1]):
                message = f"action {number} has other first and last lines than its events"
        elif not {action.first_event, action.last_event} <= set(lines):
            message = f"pause {number} begins or ends at a line that is not in the log"
        is_placed = action.action_type not in POINTER_TYPES or action.x is not None
        if not is_placed and positioned.intersection(action.events):
            message = f"action {number} has no position, although its events have one"
        if action.text_scan_event is not None and action.text_scan_event not in scans:
            message = f"action {number} names a scan that is not in the log"
        if message:
            problems.append(Problem("wrong_action", ACTIONS_FILE, message, remedy=DEFECT_REMEDY))
    return problems


def check_event_accounting(folder: Path, events_folder: Path) -> list[Problem]:
    """Check that every log line is in exactly one bucket and that the two tables agree."""
    accounting = read_table(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    indexes, buckets, owners = (
        accounting[name].to_pylist() for name in ("event_index", "bucket", "action_index")
    )
    lines = read_events(events_folder)["event_index"].to_pylist()
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    lines += rejected["line"].to_pylist()
    problems = check_lines_of_actions(folder, events_folder)
    if sorted(lines) != indexes:
        message = f"{len(lines)} lines, but {len(indexes)} rows of accounting, or other numbers"
        problems.append(Problem("ledger_sum", LOG_FILE, message, remedy=DEFECT_REMEDY))
    events_of_actions = [(i, a.action_index) for a in read_actions(folder) for i in a.events]
    accounted = [
        (index, owner)
        for index, bucket, owner in zip(indexes, buckets, owners, strict=True)
        if bucket == "action"
    ]
    if sorted(events_of_actions) != sorted(accounted):
        message = "actions.parquet and the event accounting disagree on the events of the actions"
        problems.append(Problem("ledger_actions", ACCOUNTING_FILE, message, remedy=DEFECT_REMEDY))
    return problems
