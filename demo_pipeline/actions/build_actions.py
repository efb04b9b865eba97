"""The `actions` stage: events in, actions and a ledger that accounts for every line out.

Belongs here: running repair and segmentation over the committed events, the ledger, its proof.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.actions.action_tables import (
    ACTIONS_FILE,
    ACTIONS_SCHEMA,
    BUCKETS,
    LEDGER_FILE,
    LEDGER_SCHEMA,
    read_actions,
    write_actions,
)
from demo_pipeline.actions.inputs import INPUT_KINDS, MOVE, TREE, inputs_of
from demo_pipeline.actions.repair import Repairs, repair
from demo_pipeline.actions.segmentation import Segmentation, segment
from demo_pipeline.problems import Problem
from demo_pipeline.recording.event_tables import LOG_FILE, REJECTED_SCHEMA, read_table
from demo_pipeline.recording.events import REJECTED_FILE, read_events, schema_problems
from demo_pipeline.recording.key_names import public_name
from demo_pipeline.settings import ActionSettings

_DEFECT = "this is a defect of the pipeline: report it with the demonstration"
_REPAIRED = frozenset({"release_without_press", "zero_delta", "typed_and_erased", "stop_shortcut"})


def build_actions(
    events_folder: Path, out: Path, platform: str, settings: ActionSettings
) -> dict[str, Any]:
    """Write actions.parquet and ledger.parquet for committed events; return a summary.

    `platform` is meta.platform: key names and the wheel's unit depend on it.
    """
    events = read_events(events_folder)
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    inputs, repairs = repair(inputs_of(events), platform, settings)
    found = segment(inputs, platform, settings)
    write_actions(out / ACTIONS_FILE, found.actions)
    ledger = _ledger(events, rejected, repairs, found)
    pq.write_table(ledger, out / LEDGER_FILE, compression="zstd", compression_level=3)
    return _summary(found, repairs, ledger)


def _ledger(
    events: pa.Table, rejected: pa.Table, repairs: Repairs, found: Segmentation
) -> pa.Table:
    part_of = {index: a.action_index for a in found.actions for index in a.events}
    rows = [
        (index, *_bucket(index, kind, part_of, repairs.dropped, found.reasons))
        for index, kind in zip(
            events["event_index"].to_pylist(), events["event"].to_pylist(), strict=True
        )
    ]
    rows += [
        (line, "rejected", None, code)
        for line, code in zip(
            rejected["line"].to_pylist(), rejected["code"].to_pylist(), strict=True
        )
    ]
    rows.sort(key=lambda row: row[0])
    columns = zip(*rows, strict=True) if rows else [()] * len(LEDGER_SCHEMA)
    arrays = [
        pa.array(column, type=field.type)
        for column, field in zip(columns, LEDGER_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=LEDGER_SCHEMA)


def _bucket(
    index: int,
    kind: str,
    part_of: dict[int, int],
    dropped: dict[int, str],
    reasons: dict[int, str],
) -> tuple[str, int | None, str]:
    if index in dropped:
        return "repaired", None, dropped[index]
    if index in part_of:
        return "action", part_of[index], ""
    reason = reasons.get(index)
    if reason is not None:
        return ("repaired" if reason in _REPAIRED else "other"), None, reason
    if kind == TREE:
        return "tree_scan", None, ""
    if kind == MOVE:
        return "pointer_travel", None, ""
    return "other", None, "no_effect" if kind in INPUT_KINDS else "not_input"


def _summary(found: Segmentation, repairs: Repairs, ledger: pa.Table) -> dict[str, Any]:
    actions = [action for action in found.actions if action.action_type != "pause"]
    span = actions[-1].end_ms - actions[0].press_ms if actions else 0
    reasons: Counter[str] = Counter(ledger["reason"].to_pylist())
    return {
        "actions": len(actions),
        "pauses": len(found.actions) - len(actions),
        "by_type": dict(sorted(Counter(action.action_type for action in actions).items())),
        "seconds": span / 1000,
        "ledger": dict(sorted(Counter(ledger["bucket"].to_pylist()).items())),
        "reasons": {reason: n for reason, n in sorted(reasons.items()) if reason},
        "copy_factors": repairs.copy_factors,
        "joined_positions": repairs.joined_positions,
        "late_lines": repairs.late_lines,
        "second_shifts": repairs.second_shifts,
        "unknown_keys": sorted({public_name(name) for name in found.unknown_keys}),
        "preview": [action.describe() for action in found.actions[:50]],
    }


def check_action_tables(folder: Path) -> list[Problem]:
    """The written tables fit `tables.py`, and the actions are in order and complete by type."""
    problems = [
        *schema_problems(folder / ACTIONS_FILE, ACTIONS_SCHEMA),
        *schema_problems(folder / LEDGER_FILE, LEDGER_SCHEMA),
    ]
    if problems:
        return problems
    last = None
    for position, action in enumerate(read_actions(folder)):
        wrong = None
        if action.action_index != position:
            wrong = f"row {position} has action_index {action.action_index}"
        elif last is not None and action.press_ms < last:
            wrong = f"action {position} begins before its predecessor"
        elif action.end_ms < action.press_ms:
            wrong = f"action {position} ends before it begins"
        elif action.action_type != "pause" and not action.events:
            wrong = f"action {position} has no raw events"
        if wrong:
            problems.append(Problem("wrong_action", ACTIONS_FILE, wrong, remedy=_DEFECT))
        last = action.press_ms
    return problems


def check_ledger(folder: Path, events_folder: Path) -> list[Problem]:
    """Every line of the log is in exactly one bucket, and action rows and ledger agree."""
    ledger = read_table(folder / LEDGER_FILE, LEDGER_SCHEMA)
    indexes, buckets, owners = (
        ledger[name].to_pylist() for name in ("event_index", "bucket", "action_index")
    )
    lines = read_events(events_folder)["event_index"].to_pylist()
    rejected = read_table(events_folder / REJECTED_FILE, REJECTED_SCHEMA)
    lines += rejected["line"].to_pylist()
    problems = []
    if sorted(lines) != indexes:
        message = f"{len(lines)} lines, {len(indexes)} rows in the ledger, or other line numbers"
        problems.append(Problem("ledger_sum", LOG_FILE, message, remedy=_DEFECT))
    stray = set(buckets) - set(BUCKETS)
    if stray:
        message = f"unknown buckets {sorted(stray)}"
        problems.append(Problem("ledger_bucket", LEDGER_FILE, message, remedy=_DEFECT))
    claimed = [(i, a.action_index) for a in read_actions(folder) for i in a.events]
    booked = [
        (index, owner)
        for index, bucket, owner in zip(indexes, buckets, owners, strict=True)
        if bucket == "action"
    ]
    if sorted(claimed) != sorted(booked):
        message = "the events of the actions are not the events the ledger gives them"
        problems.append(Problem("ledger_actions", LEDGER_FILE, message, remedy=_DEFECT))
    return problems
