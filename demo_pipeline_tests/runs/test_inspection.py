"""Tests that the timeline shows every action, repair and line, but no typed characters."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.recording.events import build_events
from demo_pipeline.runs.inspection import timeline_lines
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import (
    Part,
    chord,
    click,
    lift,
    move,
    press,
    tap,
    text_of,
    typed,
    wheel,
)
from demo_pipeline_tests.fixed_values import settings_with
from demo_pipeline_tests.uploads import made_manifest

START = 1_741_119_496_000  # epoch milliseconds; the `timestamp` of the manifest's meta file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def timeline_of(folder: Path, *lines: Part, tail: bytes = b"", **settings: Any) -> list[str]:
    """Returns the timeline of a log; the times of `lines` are counted from `START`."""
    flat: list[Any] = []
    for part in lines:
        flat += part if isinstance(part, list) else [part]
    log = text_of(line | {"time": START + line["time"]} for line in flat) + tail
    (folder / "input_log.jsonl").write_bytes(log)
    build_events(folder / "input_log.jsonl", folder)
    build_actions(folder, folder, "linux", settings_with(ActionSettings, **settings))
    return timeline_lines(folder, folder, made_manifest("demo", platform="linux"))


def repairs_of(text: list[str]) -> list[str]:
    start = next(number for number, line in enumerate(text) if line.startswith("Repairs"))
    return [line.strip() for line in text[start + 1 : text.index("", start)]]


def test_seconds_are_counted_from_the_start_of_the_recording(folder):
    text = timeline_of(
        folder, move(1000, 5, 5), move(1200, 50, 60), click(1250), click(4500, hold=900)
    )
    assert text[text.index("Actions: 2, pauses: 1") :][:5] == [
        "Actions: 2, pauses: 1",
        "    #    second  pre-move  events  action",
        "    0     1.250     1.000       2  click(50, 60)",
        "    1     1.330                    pause(3.2 s)",
        "    2     4.500                 2  click(50, 60)  [long]",
    ]


def test_no_typed_character_is_shown(folder):
    lines = timeline_of(
        folder, typed(0, "KeyQ", "KeyZ"), tap(500, "ñandú"), tap(700, "Unknown(95)")
    )
    text = "\n".join(lines)
    assert "  type(2 chars)" in text
    assert "qz" not in text
    assert "ñ" not in text
    assert "Unknown keys: Unknown(95) (1), unknown key, 5 characters (1)" in text


def test_repairs_are_counted(folder):
    twice = []
    for n in range(4):
        for event in tap(200 * n, "KeyA"):
            twice += [event, event]
    text = timeline_of(
        folder, move(0, 9, 9), twice, press(2000), lift(2050), lift(2500), wheel(2600, 0),
        press(3000),
    )  # fmt: skip
    assert repairs_of(text) == [
        "4 duplicates of keydown: dropped (each logged 2 times)",
        "4 duplicates of keyup: dropped (each logged 2 times)",
        "4 presses and releases without a position: taken from the moves around them",
        "1 releases without a press: dropped",
        "1 wheel events with delta 0: dropped",
        "1 button presses without a release: treated as clicks",
    ]


@pytest.mark.parametrize(
    ("lines", "settings", "repairs"),
    [
        ([move(500, 5, 5), move(300, 4, 4), *click(900)], {},
         ["1 input events logged after a later one: sorted by time"]),
        ([press(0), lift(80)], {}, []),  # no event has a position, so the position stays unknown
        ([*click(0), *chord(900, "ControlLeft", "KeyQ")], {"stop_shortcut": ("ctrl", "q")},
         ["4 events of the shortcut that stopped the recorder: left out"]),
    ],
)  # fmt: skip
def test_each_kind_of_repair_is_named(folder, lines, settings, repairs):
    assert repairs_of(timeline_of(folder, *lines, **settings)) == repairs


def test_the_accounting_adds_up_by_bucket_and_reason(folder):
    lines = [move(0, 9, 9), *click(100), *tap(300, "CapsLock"), wheel(600, 0)]
    text = timeline_of(folder, lines, tail=b"\n{broken\n\n")
    start = text.index("Event accounting: 9 lines") + 1
    values = {line.split()[0]: line.split(maxsplit=1)[1] for line in text[start:][:6]}
    assert values["action"] == "2"
    assert values["pointer_travel"] == "1"
    assert values["repaired"] == "1  zero_delta 1"
    assert values["rejected"] == "3  blank_line 2, invalid_json 1"
    assert values["other"] == "2  keyboard_state 2"


def test_rejected_lines_are_listed_up_to_a_limit(folder):
    text = timeline_of(folder, click(0), tail=b"{\n" * 130)
    begin = text.index("Rejected lines: 130")
    assert text[begin + 1].startswith("  input_log.jsonl:3: ")
    assert text[begin + 20].startswith("  input_log.jsonl:22: ")
    assert text[begin + 21] == "  and 110 more"


@pytest.mark.parametrize(
    ("deltas", "settings", "rule"),
    [
        ([120, 120], {}, "positive = down, unit 120, by unit_signature"),
        ([-1, -1], {}, "positive = up, unit notch, by unit_signature"),
        ([-1], {"wheel_sign": "positive_down"}, "positive = down, unit notch, by override"),
        ([], {}, "not used"),
    ],
)
def test_the_timeline_names_the_rule_for_the_wheel(folder, deltas, settings, rule):
    turns = [wheel(100 * n, delta) for n, delta in enumerate(deltas)]
    assert f"Wheel: {rule}" in timeline_of(folder, turns, click(5000), **settings)
