"""Tests which screenshot a step gets, on simulated recordings whose screen is known."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.observation.frames.frames_table import read_frames
from demo_pipeline.observation.frames.screenshot_checks import (
    check_frames_present,
    check_screenshot_files,
    check_screenshot_leaks,
)
from demo_pipeline_tests.observation.made import Observed, cut_video, observe
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number


def with_screenshot(observed: Observed) -> list[tuple[dict[str, Any], int]]:
    """Returns the row of each screenshot, and the frame number that the screenshot shows."""
    rows = [row for row in observed.rows if row["file"]]
    numbers = [read_frame_number(observed.screenshot(row["file"])) for row in rows]
    assert None not in numbers
    return [(row, number or 0) for row, number in zip(rows, numbers, strict=True)]


def test_the_screenshot_is_the_frame_that_the_row_names(observed: Observed) -> None:
    rows = with_screenshot(observed)
    assert len(rows) > 8
    for row, number in rows:
        assert row["frame"] == number
        assert row["pts"] == pytest.approx(observed.truth.frames[number].pts / 90_000, abs=1e-5)


def test_no_screenshot_shows_the_press_or_later(observed: Observed) -> None:
    presses = {action.action_index: action for action in observed.actions}
    for row, number in with_screenshot(observed):
        action = presses[row["action_index"]]
        frame_ms = observed.truth.frames[number].wall_ms
        if action.action_type != "pause":
            assert frame_ms < action.press_ms
            guard = max(50.0, observed.evidence.clock.uncertainty_ms)
            assert row["lead_ms"] >= guard - 0.001
            assert observed.truth.timeline.at(frame_ms).state.pressed == ""


def test_a_screenshot_shows_what_the_previous_action_did(observed: Observed) -> None:
    """The chosen frame shows the screen at the press, with the effects of the previous action."""
    for row, number in with_screenshot(observed):
        action = next(a for a in observed.actions if a.action_index == row["action_index"])
        if action.action_type == "pause" or row["reason_code"] == "backoff":
            continue
        state = observed.truth.timeline.at(observed.truth.frames[number].wall_ms).state
        met = observed.truth.timeline.at(action.press_ms).state
        assert (state.windows, state.checked, state.moved) == (met.windows, met.checked, met.moved)


def test_waits_are_found_and_thinking_is_none(observed: Observed) -> None:
    pauses = {pause.kind: pause for pause in observed.truth.pauses}
    assert set(pauses) == {"wait", "think"}
    (wait,) = observed.evidence.waits
    action = observed.actions[wait.action_index]
    assert action.press_ms == pytest.approx(pauses["wait"].start_ms, abs=60)
    timeline = observed.truth.timeline
    pause = range(pauses["wait"].start_ms, pauses["wait"].end_ms, 10)
    last = timeline.at(pauses["wait"].end_ms).state
    loaded_ms = next(time for time in pause if timeline.at(time).state == last)
    # The wait ends when the awaited content is there, not when the person acts on it.
    assert wait.seconds == pytest.approx((loaded_ms - pauses["wait"].start_ms) / 1000, abs=0.15)
    codes = [row["reason_code"] for row in observed.rows]
    assert codes.count("pause") == 1


def test_nothing_leaks_and_the_checks_agree(observed: Observed) -> None:
    folder = observed.out / "screenshots"
    assert check_screenshot_leaks(folder) == []
    assert check_frames_present(folder) == []
    assert check_screenshot_files(folder, observed.out / "actions") == []


def test_the_final_screenshot_shows_the_last_effect(observed: Observed) -> None:
    number = read_frame_number(observed.screenshot("final.png"))
    assert number is not None
    state = observed.truth.timeline.at(observed.truth.frames[number].wall_ms).state
    assert state.checked == observed.truth.timeline.states[-1].checked


def test_a_video_cut_short_leaves_the_steps_after_it_without_a_screenshot(
    plain: Observed, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("input_log.jsonl", "meta.json"):
        (folder / name).write_bytes((plain.folder / name).read_bytes())
    cut = plain.rows[5]["pts"] + 0.5
    cut_video(plain.folder / "recording.mp4", folder / "recording.mp4", cut)
    short = observe(folder, tmp_path / "store", plain.truth)
    for row in short.rows:
        action = short.actions[row["action_index"]]
        if short.evidence.clock.video_time(action.press_ms) > cut + 1:
            assert row["reason_code"] in {"missing", "pause"}
            assert row["file"] is None
    lost = [row["action_index"] for row in short.rows if row["reason_code"] == "missing"]
    assert len(lost) >= 3
    (problem,) = check_frames_present(tmp_path / "store" / "screenshots")
    assert f"{len(lost)} actions" in problem.message
    assert check_screenshot_files(short.out / "screenshots", short.out / "actions") == []


def test_an_action_before_the_video_begins_gets_no_screenshot(
    plain: Observed, tmp_path: Path
) -> None:
    """If the video starts seconds late, it never shows the screen before the first action."""
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("meta.json", "recording.mp4"):
        (folder / name).write_bytes((plain.folder / name).read_bytes())
    first = plain.truth.timestamp_ms + plain.evidence.clock.documented_offset_ms
    early = round(first - 900)
    press = '{{"event":"{}","data":{{"x":5,"y":5,"button":"Left"}},"time":{}}}\n'
    lines = press.format("mousedown", early) + press.format("mouseup", early + 60)
    log = (plain.folder / "input_log.jsonl").read_text(encoding="utf-8")
    (folder / "input_log.jsonl").write_text(lines + log, encoding="utf-8")
    late = observe(folder, tmp_path / "store", plain.truth)
    assert (late.rows[0]["reason_code"], late.rows[0]["file"]) == ("missing", None)
    assert late.rows[-1]["file"] is not None


def test_the_same_recording_gives_the_same_bytes(plain: Observed, tmp_path: Path) -> None:
    again = observe(plain.folder, tmp_path / "store", plain.truth)
    first = plain.out / "screenshots"
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in (again.out / "screenshots").iterdir())
    for name in names:
        assert (first / name).read_bytes() == (again.out / "screenshots" / name).read_bytes()


def test_damaged_screenshots_are_named(plain: Observed, tmp_path: Path) -> None:
    source = plain.out / "screenshots"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = next(row["file"] for row in read_frames(source) if row["file"])
    (tmp_path / victim).write_bytes(b"not a picture")
    (tmp_path / "final.png").unlink()
    problems = check_screenshot_files(tmp_path, plain.out / "actions")
    assert [problem.file for problem in problems] == [victim, "final.png"]
    assert not any(str(tmp_path) in problem.message for problem in problems)
