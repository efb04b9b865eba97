"""Tests the stage `actions`: tables, event accounting, checks, and privacy of the summary."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACTIONS_FILE,
    ACTIONS_SCHEMA,
    read_actions,
)
from demo_pipeline.actions.build_actions import (
    build_actions,
    check_action_tables,
    check_event_accounting,
)
from demo_pipeline.recording.events import build_events
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import (
    Line,
    chord,
    click,
    down,
    line,
    move,
    tap,
    text_of,
    typed,
    up,
    wheel,
)
from demo_pipeline_tests.fixed_values import settings_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def build_log(folder: Path, log: bytes, platform: str = "linux", **settings: Any) -> dict[str, Any]:
    (folder / "input_log.jsonl").write_bytes(log)
    build_events(folder / "input_log.jsonl", folder)
    return build_actions(folder, folder, platform, settings_with(ActionSettings, **settings))


def ledger(folder: Path) -> list[tuple[int, str, int | None, str]]:
    rows = pq.read_table(folder / ACCOUNTING_FILE).to_pylist()
    return [(r["event_index"], r["bucket"], r["action_index"], r["reason"]) for r in rows]


EVERYTHING: list[Line] = [
    line(0, "axtree", duration=5, tree=[]),
    move(10, 5, 5),
    *click(100, 5, 5),
    line(200, "ffmpeg_stderr", output="?"),
    *tap(300, "Unknown(7)"),
    wheel(500, 0),
    *tap(600, "ShiftLeft"),
    *tap(601, "ShiftLeft"),
]


def test_withheld_input_divides_typing_and_is_no_pause(folder):
    log = [
        *typed(0, "KeyC", "KeyA"),
        line(300, "redacted", reason="other app"),
        *typed(400, "KeyB"),
    ]
    log += [line(900, "redacted", reason="other app"), *tap(9000, "KeyD"), *tap(9200, "KeyE")]
    build_log(folder, text_of(log))
    assert [(action.text, action.flags) for action in read_actions(folder)] == [
        ("ca", ["unknown_input"]),
        ("b", ["unknown_input"]),
        ("de", ["unknown_input"]),
    ]


def test_every_line_is_in_one_bucket(folder):
    build_log(folder, text_of(EVERYTHING) + b"\n{broken\n")
    assert ledger(folder) == [
        (1, "tree_scan", None, ""),
        (2, "pointer_travel", None, ""),
        (3, "action", 0, ""),
        (4, "action", 0, ""),
        (5, "other", None, "not_input"),
        (6, "other", None, "unknown_key"),
        (7, "other", None, "keyboard_state"),
        (8, "repaired", None, "zero_delta"),
        (9, "action", 1, ""),
        (10, "action", 1, ""),
        (11, "repaired", None, "hook_copy"),
        (12, "repaired", None, "hook_copy"),
        (13, "rejected", None, "blank_line"),
        (14, "rejected", None, "invalid_json"),
    ]
    assert check_event_accounting(folder, folder) == check_action_tables(folder) == []


def test_an_empty_log_has_no_actions_and_no_rows_of_accounting(folder):
    summary = build_log(folder, b"")
    assert summary["actions"] == 0
    assert read_actions(folder) == []
    assert ledger(folder) == []
    assert check_event_accounting(folder, folder) == check_action_tables(folder) == []


def test_the_summary_counts(folder):
    lines = [move(0, 5, 5), *click(10), *click(3000), *typed(3500, "KeyA", "KeyB")]
    summary = build_log(folder, text_of(lines))
    assert (summary["actions"], summary["pauses"]) == (3, 1)
    assert summary["by_type"] == {"click": 2, "type": 1}
    assert summary["ledger"] == {"action": 8, "pointer_travel": 1}
    assert summary["seconds"] == 3.67
    assert summary["preview"] == ["click(50, 60)", "pause(2.9 s)", "click(50, 60)", "type(2 chars)"]


def test_the_summary_has_no_typed_character(folder):
    secret = [*typed(0, "KeyQ", "KeyZ"), *tap(500, "ñ"), *tap(700, "Unknown(95)"), *click(900)]
    summary = build_log(folder, text_of(secret))
    text = repr(summary)
    assert "qz" not in text
    assert "ñ" not in text
    assert summary["unknown_keys"] == ["Unknown(95)", "unknown key, 1 character"]
    assert read_actions(folder)[0].text == "qz"


def test_a_text_in_place_of_a_key_name_is_not_published(folder):
    """A key name in a log may be typed text, so the summary must not show it anywhere."""
    keys = [*tap(0, "hunter2"), down(500, "ControlLeft"), *tap(550, "hunter2", char="c")]
    keys += [*tap(700, "hunter2", char="hunter2"), up(800, "ControlLeft"), *click(900)]
    summary = build_log(folder, text_of(keys))
    assert "hunter2" not in repr(summary)
    assert summary["unknown_keys"] == ["unknown key, 7 characters"]
    assert summary["preview"] == ["hotkey(ctrl+c)", "click(50, 60)"]
    assert read_actions(folder)[0].keys == ["ctrl", "c"]


# --- the checks


def rewritten(folder: Path, **changes: Any) -> None:
    """Changes values in the last row of the table of actions."""
    rows = pq.read_table(folder / ACTIONS_FILE).to_pylist()
    rows[-1].update(changes)
    pq.write_table(pa.Table.from_pylist(rows, schema=ACTIONS_SCHEMA), folder / ACTIONS_FILE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_index": 5}, "row 1 has action_index 5"),
        ({"press_ms": 1}, "action 1 begins before action 0"),
        ({"end_ms": 0}, "action 1 ends before it begins"),
        ({"events": []}, "action 1 has no raw events"),
    ],
)
def test_the_schema_check_finds_impossible_actions(folder, changes, message):
    build_log(folder, text_of([*click(100), *chord(900, "ControlLeft", "KeyS")]))
    rewritten(folder, **changes)
    assert [problem.message for problem in check_action_tables(folder)] == [message]


def test_the_schema_check_finds_a_missing_table(folder):
    build_log(folder, text_of(click(0)))
    (folder / ACCOUNTING_FILE).unlink()
    assert [problem.code for problem in check_action_tables(folder)] == ["missing_table"]


def test_the_accounting_check_finds_an_event_of_two_actions(folder):
    build_log(folder, text_of([*click(100), *click(3000)]))
    rewritten(folder, events=[2, 3, 4], first_event=2)
    assert [problem.code for problem in check_event_accounting(folder, folder)] == [
        "ledger_actions"
    ]


def test_the_accounting_check_finds_a_lost_line(folder):
    build_log(folder, text_of([move(0, 1, 1), *click(100)]))
    table = pq.read_table(folder / ACCOUNTING_FILE)
    pq.write_table(table.slice(1), folder / ACCOUNTING_FILE)
    assert [problem.code for problem in check_event_accounting(folder, folder)] == ["ledger_sum"]
