"""The `actions` stage: turns events into actions and accounts for every line of the log.

actions.parquet has a row for each action. ledger.parquet, called the event accounting, has a row
for each log line. This module also finds the action that may have stopped the recorder.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
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

# Reason in ledger.parquet for the events of the shortcut that stopped the recorder.
STOP_SHORTCUT = "stop_shortcut"
# Reason in ledger.parquet for the events of text that was typed and then erased.
TYPED_AND_ERASED = "typed_and_erased"
# Minimum number of modifiers in a shortcut that stops a recorder.
STOP_MODIFIERS = 2
# Keys that may stop a recorder even without modifiers.
STOP_KEYS = frozenset({"pause", "printscreen", "scrolllock", "playpause", "nexttrack", "prevtrack"})
# A pointer that moves at most 5 screen pixels after a click counts as resting.
STILL_PX = 5.0

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "altgr", "win", "command", "fn"})
_FUNCTION_KEY = re.compile(r"f[0-9]{1,2}")


def first_action(actions: Sequence[Action]) -> Action | None:
    """Returns the first action that is not a pause."""
    for action in actions:
        if action.action_type != "pause":
            return action
    return None


def last_action(actions: Sequence[Action]) -> Action | None:
    """Returns the last action that is not a pause."""
    return first_action(actions[::-1])


def possible_stop(actions: Sequence[Action], inputs: Sequence[Input]) -> Action | None:
    """Returns the last action if it may have stopped the recorder, else None.

    The action must be a shortcut that may stop a recorder (see `has_stop_form`), or a single left
    click after which the pointer rests. No press, release or turn of the wheel may follow.

    Args:
        actions: actions of the recording, in time order.
        inputs: all inputs of the log, in time order.
    """
    last = last_action(actions)
    if last is None:
        return None
    pointer_rests = True
    for item in inputs:
        if item.time <= last.end_ms:
            continue
        if item.kind != EventType.MOUSEMOVE:
            return None
        if distance(last, item) > STILL_PX:
            pointer_rests = False
    if last.action_type == "hotkey":
        return last if has_stop_form(last.keys) else None
    is_left_click = (
        last.action_type == "click"
        and last.clicks == 1
        and last.button == "left"
        and not last.modifiers
    )
    return last if is_left_click and pointer_rests else None


def known_stop_ms(actions_folder: Path, inputs: Sequence[Input]) -> int | None:
    """Returns the time at which the shortcut that stops the recorder was pressed, epoch ms.

    Returns None if the log does not end with the shortcut that `actions.stop_shortcut` names.

    Args:
        actions_folder: output of the `actions` stage. Its ledger.parquet marks the shortcut.
        inputs: inputs of the log, in any order.
    """
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    rows = zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    stop_events = {index for index, reason in rows if reason == STOP_SHORTCUT}
    return min((item.time for item in inputs if item.index in stop_events), default=None)


def erased_typing(actions_folder: Path, events: pa.Table) -> list[tuple[int, int]]:
    """Returns the time range of each text that was typed and then erased.

    No action contains these texts.

    Args:
        actions_folder: output of the `actions` stage.
        events: the table of the `events` stage.

    Returns:
        The times of the first and the last event of each erased text, epoch milliseconds.
    """
    accounting = read_table(actions_folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    indexes = events["event_index"].to_pylist()
    times = events["time_ms"].to_pylist()
    time_of = dict(zip(indexes, times, strict=True))
    spans: list[tuple[int, int]] = []
    is_open = False
    for index, bucket, reason in zip(
        accounting["event_index"].to_pylist(),
        accounting["bucket"].to_pylist(),
        accounting["reason"].to_pylist(),
        strict=True,
    ):
        if reason == TYPED_AND_ERASED:
            first = time_of[index]
            last = first
            if is_open:
                earlier_first, earlier_last = spans.pop()
                first = min(earlier_first, first)
                last = max(earlier_last, last)
            spans.append((first, last))
            is_open = True
        elif bucket == "action":
            is_open = False
    return spans


def has_stop_form(keys: Sequence[str]) -> bool:
    """Returns whether a hotkey looks like a shortcut that stops a recorder.

    Recorders are stopped with F1 to F24, Pause, Print Screen, Scroll Lock, a media key, or a key
    with at least two modifiers. A letter with only Ctrl, such as Ctrl+S, is a shortcut of other
    programs.
    """
    pressed = set(keys) - _MODIFIERS
    if any(key in STOP_KEYS or _FUNCTION_KEY.fullmatch(key) for key in pressed):
        return True
    return bool(pressed) and len(_MODIFIERS & set(keys)) >= STOP_MODIFIERS


MAX_PREVIEW = 50  # maximum number of actions that the summary describes
_LOG = logging.getLogger(__package__)
# Maximum number of actions in a demonstration, to limit time and memory. The pipeline needs 22 ms
# and 70 kB for each action (measured).
_MAX_ACTIONS = 10_000
# Events that belong to no action for one of these reasons are in the bucket `repaired` of
# ledger.parquet, like the events that actions/repair.py drops.
_REPAIR_REASONS = {"release_without_press", "zero_delta", TYPED_AND_ERASED, "stop_shortcut"}
# Bucket, action index and reason in ledger.parquet for event types that never belong to an action.
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
    """Writes actions.parquet and ledger.parquet, and returns the summary of the stage.

    Args:
        events_folder: output of the `events` stage.
        platform: platform in meta.json, which decides the meaning of key names and the unit of the
            wheel. If empty, it is inferred from the logged key names.
        language: language and keyboard of the person, or None if unknown.
        log: input_log.jsonl, whose scans show the typed text. If it is None, no scan is read.

    Raises:
        DemonstrationError: there are more than `_MAX_ACTIONS` actions.
    """
    events = read_events(events_folder)
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    logged = inputs_of(events)
    platform = platform or platform_of_keys(item.name for item in logged if item.kind in KEY_EVENTS)
    inputs, repairs = repair(logged, platform, settings)
    clock_steps = [step.line for step in read_clock_steps(events_folder)]
    language = language or typing_language(settings.keyboard_layout, None)
    segmented = partial(
        segment,
        inputs,
        platform,
        settings,
        clock_steps=clock_steps,
        withheld=withheld_inputs(events),
        input_method=bool(language.input_method),
    )
    scans = read_logged_scans(events_folder) if log else []
    witness = TextWitness(ScanFields(log or Path(), platform, scans))
    reader = TextReader(language, segmented, witness, keypad=has_keypad(inputs))
    segmentation = reader.read()
    without_pauses = _without_pauses(segmentation.actions)
    if len(without_pauses) > _MAX_ACTIONS:
        raise too_many("actions", without_pauses[_MAX_ACTIONS].first_event, _MAX_ACTIONS)
    lacks_uncut_positions = events["raw_x"].null_count == events.num_rows
    if lacks_uncut_positions:
        _flag_border_runs(segmentation.actions, inputs)
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


def _without_pauses(actions: Sequence[Action]) -> list[Action]:
    return [action for action in actions if action.action_type != "pause"]


def _flag_border_runs(actions: Sequence[Action], inputs: Sequence[Input]) -> None:
    """Flags actions that follow a move of the pointer along the border of the logged area.

    These actions may have happened on another display.
    """
    border_events = after_border_runs(inputs)
    for action in actions:
        if border_events.intersection(action.events):
            action.flags.append(BORDER_RUN)


def _log_decisions(segmentation: Segmentation, repairs: Repairs) -> None:
    for kind, factor in repairs.duplicate_factors.items():
        _LOG.debug("every %s was logged %d times: copies dropped", kind, factor)
    for line, reason in repairs.dropped.items():
        _LOG.debug("line %d dropped: %s", line, reason)
    _LOG.debug("%d positions taken from moves nearby", repairs.filled_positions)
    for action in segmentation.actions:
        _LOG.debug(
            "action %d: %s of lines %d to %d",
            action.action_index,
            action.describe(),
            action.first_event,
            action.last_event,
        )


def _accounting(
    events: pa.Table, rejected: pa.Table, repairs: Repairs, segmentation: Segmentation
) -> pa.Table:
    """Returns ledger.parquet, which says what became of each log line, in log order."""
    action_of: dict[int, int] = {}
    for action in segmentation.actions:
        action_of.update(dict.fromkeys(action.events, action.action_index))
    reasons = segmentation.reasons | repairs.dropped
    pairs = zip(events["event_index"].to_pylist(), events["event"].to_pylist(), strict=True)
    rows: list[tuple[int, str, int | None, str]] = []
    for index, kind in pairs:
        reason = reasons.get(index)
        if index in action_of and index not in repairs.dropped:
            rows.append((index, "action", action_of[index], ""))
        elif reason is not None:
            is_repair = index in repairs.dropped or reason in _REPAIR_REASONS
            rows.append((index, "repaired" if is_repair else "other", None, reason))
        elif kind in _OWN_BUCKETS:
            rows.append((index, *_OWN_BUCKETS[kind]))
        else:
            rows.append(
                (index, "other", None, "no_effect" if kind in INPUT_EVENTS else "not_input")
            )
    codes = zip(rejected["line"].to_pylist(), rejected["code"].to_pylist(), strict=True)
    rows += [(line, "rejected", None, code) for line, code in codes]
    rows.sort(key=lambda row: row[0])
    columns = list(zip(*rows, strict=True)) or [()] * len(ACCOUNTING_SCHEMA)
    return rows_table(columns, ACCOUNTING_SCHEMA)


def _summary(segmentation: Segmentation, repairs: Repairs, accounting: pa.Table) -> dict[str, Any]:
    """Returns the counts for the summary of the stage."""
    actions = _without_pauses(segmentation.actions)
    duration_ms = actions[-1].end_ms - actions[0].press_ms if actions else 0
    reasons: Counter[str] = Counter(accounting["reason"].to_pylist())
    return {
        "actions": len(actions),
        "pauses": len(segmentation.actions) - len(actions),
        "by_type": dict(sorted(Counter(action.action_type for action in actions).items())),
        "seconds": duration_ms / 1000,
        "ledger": dict(sorted(Counter(accounting["bucket"].to_pylist()).items())),
        "reasons": {reason: count for reason, count in sorted(reasons.items()) if reason},
        "copy_factors": repairs.duplicate_factors,
        "joined_positions": repairs.filled_positions,
        "late_lines": repairs.late_lines,
        "second_shifts": repairs.second_shifts,
        "wheel_remainder": round(segmentation.wheel_remainder, 6),
        "unknown_keys": sorted({public_name(name) for name in segmentation.unknown_keys}),
        "preview": [action.describe() for action in segmentation.actions[:MAX_PREVIEW]],
    }


def check_action_tables(folder: Path) -> list[Problem]:
    """Checks the schemas of actions.parquet and ledger.parquet, and the rows of actions.parquet."""
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


def check_lines_of_actions(
    actions: Sequence[Action], events: pa.Table, scans: AbstractSet[int]
) -> Iterator[Problem]:
    """Yields a problem for each action whose line numbers or position contradict its events.

    Args:
        scans: line numbers of the scans.
    """
    lines = events["event_index"].to_pylist()
    x_of_line = dict(zip(lines, events["x"].to_pylist(), strict=True))
    for action in actions:
        number = action.action_index
        ends = (action.first_event, action.last_event)
        message = None
        if action.events and ends != (action.events[0], action.events[-1]):
            message = f"action {number} has other first and last lines than its events"
        elif not action.events and not x_of_line.keys() >= set(ends):
            message = f"pause {number} begins or ends at a line that is not in the log"
        elif action.action_type in POINTER_TYPES and action.x is None:
            if any(x_of_line.get(line) is not None for line in action.events):
                message = f"action {number} has no position, although its events have one"
        elif action.text_scan_event is not None and action.text_scan_event not in scans:
            message = f"action {number} names a scan that is not in the log"
        if message:
            yield Problem("wrong_action", ACTIONS_FILE, message, remedy=DEFECT_REMEDY)


def check_event_accounting(folder: Path, events_folder: Path) -> list[Problem]:
    """Checks that ledger.parquet has a row for each log line, and agrees with the actions."""
    accounting = read_table(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    indexes = accounting["event_index"].to_pylist()
    buckets = accounting["bucket"].to_pylist()
    owners = accounting["action_index"].to_pylist()
    events = read_events(events_folder)
    actions = read_actions(folder)
    scans = {scan["event_index"] for scan in read_scans(events_folder)}
    problems = list(check_lines_of_actions(actions, events, scans))
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    lines = [*events["event_index"].to_pylist(), *rejected["line"].to_pylist()]
    if sorted(lines) != indexes:
        message = (
            f"{len(lines)} lines, but {len(indexes)} rows of accounting, or other line numbers"
        )
        problems.append(Problem("ledger_sum", LOG_FILE, message, remedy=DEFECT_REMEDY))
    events_of_actions: list[tuple[int, int]] = []
    for action in actions:
        events_of_actions += [(event, action.action_index) for event in action.events]
    accounted: list[tuple[int, int]] = []
    for index, bucket, owner in zip(indexes, buckets, owners, strict=True):
        if bucket == "action":
            accounted.append((index, owner))
    if sorted(events_of_actions) != sorted(accounted):
        message = "actions.parquet and the event accounting disagree on the events of the actions"
        problems.append(Problem("ledger_actions", ACCOUNTING_FILE, message, remedy=DEFECT_REMEDY))
    return problems
