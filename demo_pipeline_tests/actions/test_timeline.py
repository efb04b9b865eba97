"""The timeline that people read: every action, repair and line, and no typed characters."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.actions.timeline import BucketCount, Timeline, build_timeline, render
from demo_pipeline.recording.events import build_events
from demo_pipeline.settings import ActionSettings, RecordingSettings
from demo_pipeline_tests.actions.fuzzing import manifest_for
from demo_pipeline_tests.actions.streams import (
    Part,
    chord,
    click,
    down,
    lift,
    move,
    press,
    tap,
    text_of,
    typed,
    wheel,
)

START = 1_741_119_496_000  # the manifest's meta.timestamp


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def timeline_of(folder: Path, *lines: Part, tail: bytes = b"", **settings: Any) -> Timeline:
    """The timeline of a log whose times are counted from `START`."""
    flat = [one for item in lines for one in (item if isinstance(item, list) else [item])]
    log = text_of(one | {"time": START + one["time"]} for one in flat) + tail
    (folder / "input_log.jsonl").write_bytes(log)
    build_events(folder / "input_log.jsonl", folder, RecordingSettings())
    build_actions(folder, folder, "linux", ActionSettings(**settings))
    return build_timeline(folder, folder, manifest_for("linux"))


def test_seconds_are_counted_from_the_start_of_the_recording(folder: Path) -> None:
    found = timeline_of(
        folder, move(1000, 5, 5), move(1200, 50, 60), click(1250), click(4500, hold=900)
    )
    assert [(m.number, m.seconds, m.pre_move_seconds, m.description) for m in found.entries] == [
        (0, 1.25, 1.0, "click(50, 60)"),
        (1, 1.33, None, "pause(3.2 s)"),
        (2, 4.5, None, "click(50, 60)"),
    ]
    assert [entry.flags for entry in found.entries] == [(), (), ("long",)]
    assert [entry.raw_events for entry in found.entries] == [2, 0, 2]


def test_a_held_modifier_is_named(folder: Path) -> None:
    found = timeline_of(folder, down(0, "ControlLeft"), click(100), chord(900, "AltGr"))
    assert found.entries[0].description == "ctrl+click(50, 60)"


def test_no_typed_character_is_shown(folder: Path) -> None:
    found = timeline_of(
        folder, typed(0, "KeyQ", "KeyZ"), tap(500, "ñandú"), tap(700, "Unknown(95)")
    )
    assert found.entries[0].description == "type(2 chars)"
    assert dict(found.unknown_keys) == {"unknown key, 5 characters": 1, "Unknown(95)": 1}
    text = "\n".join(render(found))
    assert "qz" not in text
    assert "ñ" not in text
    assert "Unknown keys: Unknown(95) (1), unknown key, 5 characters (1)" in text


def test_repairs_are_counted(folder: Path) -> None:
    twice = [one for n in range(4) for one in tap(200 * n, "KeyA") for _ in range(2)]
    found = timeline_of(
        folder, move(0, 9, 9), twice, press(2000), lift(2050), lift(2500), wheel(2600, 0),
        press(3000),
    )  # fmt: skip
    assert dict(found.duplicate_factors) == {"keydown": 2, "keyup": 2}
    assert found.repairs == (
        "4 duplicates of keydown: dropped (each logged 2 times)",
        "4 duplicates of keyup: dropped (each logged 2 times)",
        "4 presses and releases without a position: taken from the moves around them",
        "1 releases without a press: dropped",
        "1 wheel events with delta 0: dropped",
        "1 button presses without a release: treated as clicks",
    )


def test_lines_out_of_order_are_counted(folder: Path) -> None:
    found = timeline_of(folder, move(500, 5, 5), move(300, 4, 4), click(900))
    assert found.repairs == ("1 input events logged after a later one: sorted by time",)


def test_positions_that_no_event_gives_stay_unknown(folder: Path) -> None:
    assert timeline_of(folder, press(0), lift(80)).repairs == ()


def test_the_stop_shortcut_is_among_the_repairs(folder: Path) -> None:
    keys = ("ctrl", "q")
    found = timeline_of(folder, click(0), chord(900, "ControlLeft", "KeyQ"), stop_shortcut=keys)
    assert found.repairs == ("4 events of the shortcut that stopped the recorder: left out",)


def test_the_accounting_adds_up_by_bucket_and_reason(folder: Path) -> None:
    lines = [move(0, 9, 9), *click(100), *tap(300, "CapsLock"), wheel(600, 0)]
    found = timeline_of(folder, lines, tail=b"\n{broken\n\n")
    assert found.accounting == (
        BucketCount("action", "", 2),
        BucketCount("pointer_travel", "", 1),
        BucketCount("repaired", "zero_delta", 1),
        BucketCount("rejected", "blank_line", 2),
        BucketCount("rejected", "invalid_json", 1),
        BucketCount("other", "keyboard_state", 2),
    )
    assert found.lines == sum(count.lines for count in found.accounting) == 9
    text = render(found)
    assert "Event accounting: 9 lines" in text
    assert "  rejected               3  blank_line 2, invalid_json 1" in text


def test_rejected_lines_are_listed_up_to_a_limit(folder: Path) -> None:
    found = timeline_of(folder, click(0), tail=b"{\n" * 130)
    assert (found.rejected_total, len(found.rejected)) == (130, 100)
    text = render(found)
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
def test_the_wheels_rule(
    folder: Path, deltas: list[float], settings: dict[str, Any], rule: str
) -> None:
    turns = [wheel(100 * n, delta) for n, delta in enumerate(deltas)]
    assert f"Wheel: {rule}" in render(timeline_of(folder, turns, click(5000), **settings))


def test_an_empty_log_has_a_timeline_too(folder: Path) -> None:
    found = timeline_of(folder)
    assert (found.entries, found.lines, found.repairs) == ((), 0, ())
    text = render(found)
    assert text[0] == "demo: linux, 2025-03-04 20:18:16 UTC"
    assert "Actions: 0, pauses: 0" in text
    assert "Repairs: none" in text


def test_the_rendered_entries(folder: Path) -> None:
    text = render(timeline_of(folder, move(1000, 5, 5), click(1250, hold=700), tap(2500, "Return")))
    assert text[text.index("Actions: 2, pauses: 0") :][:4] == [
        "Actions: 2, pauses: 0",
        "    #    second  pre-move  events  action",
        "    0     1.250     1.000       2  click(50, 60)  [long]",
        "    1     2.500                 2  hotkey(enter)",
    ]
