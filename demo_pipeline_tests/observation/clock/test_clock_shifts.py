"""Tests recordings during which somebody sets the recorder's clock."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from demo_pipeline.observation.clock.clock import Clock, ClockShift
from demo_pipeline.observation.frames import decode_pass
from demo_pipeline.observation.frames.screenshot_checks import check_frames_present
from demo_pipeline.recording.clock_steps import read_clock_steps
from demo_pipeline_tests.observation.made import Observed, observe
from demo_pipeline_tests.observation.test_one_pass import OFFICE, USUAL, check_screenshots
from demo_pipeline_tests.simulator.form import SMALL
from demo_pipeline_tests.simulator.recording import GroundTruth, write_recording
from demo_pipeline_tests.simulator.script import Script, click, drag

ACTS = tuple(map(click, ("Drafts", "Print", "Sent", "Help", "Inbox", "Delete", "Drafts")))
STORY = Script(OFFICE, (*ACTS[:3], drag("Mail/title bar", 60, 40), *ACTS[3:]), lead_in_ms=2500)
Simulated = tuple[Path, GroundTruth]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    folder = tmp_path_factory.mktemp("steps") / "demo"
    return folder, write_recording(folder, STORY, replace(SMALL, video=USUAL))


def stepped(
    root: Path, simulated: Simulated, at_ms: float, step_ms: int, late_ms: int = 0
) -> Observed:
    """Observes the recording after its clock was set by `step_ms` at the time `at_ms`.

    The video begins `late_ms` after the time in meta.json.
    """
    source, truth = simulated
    folder = root / "uploads" / "demo"
    shutil.copytree(source, folder)
    lines = [json.loads(line) for line in (folder / "input_log.jsonl").read_text().splitlines()]
    for line in lines:
        line["time"] += step_ms * (line["time"] >= at_ms)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "input_log.jsonl").write_text(text)
    meta = json.loads((folder / "meta.json").read_text())
    began = datetime.fromtimestamp((truth.timestamp_ms - late_ms) / 1000, UTC)
    (folder / "meta.json").write_text(json.dumps({**meta, "timestamp": began.isoformat()}))
    return observe(folder, root / "store", truth)


def middle_of_drag(truth: GroundTruth) -> float:
    [drag] = [drag for drag in truth.actions if drag.action_type == "drag"]
    return (drag.press_ms + drag.end_ms) / 2


@pytest.mark.parametrize("step_ms", [-3_600_000, -800, 2_400_000])
@pytest.mark.parametrize("place", ["in a drag", "before a press"])
def test_actions_and_screenshots_are_those_of_the_recording(
    tmp_path: Path, simulated: Simulated, place: str, step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Mock(wraps=decode_pass.show_frames)
    monkeypatch.setattr(decode_pass, "show_frames", passes)
    truth = simulated[1]
    at_ms = middle_of_drag(truth) if place == "in a drag" else truth.actions[4].press_ms
    observed = stepped(tmp_path, simulated, at_ms, step_ms)
    [step] = read_clock_steps(observed.out / "events")
    [shift] = observed.evidence.clock.shifts
    assert shift.shift_ms + step.moved_ms + step_ms == pytest.approx(0, abs=20)
    kinds = [action.action_type for action in observed.actions]
    assert kinds == [action.action_type for action in truth.actions]
    clock = replace(observed.evidence.clock, shifts=())
    check_screenshots(
        replace(observed, evidence=observed.evidence.model_copy(update={"clock": clock}))
    )
    assert passes.call_count == 1
    assert check_frames_present(observed.out / "screenshots") == []


def test_setting_the_clock_early_affects_only_the_events_before_it(
    tmp_path: Path, simulated: Simulated
) -> None:
    """The clock is set right after the first press. Later events show that the video is late."""
    truth = simulated[1]
    observed = stepped(tmp_path, simulated, truth.actions[0].press_ms + 1, -3_600_000, late_ms=1700)
    clock = observed.evidence.clock
    assert [row["file"] is None for row in observed.rows] == [True] + 7 * [False]
    assert not clock.is_known(observed.actions[0].press_ms)
    for action, true in zip(observed.actions[1:], truth.actions[1:], strict=True):
        off_ms = clock.elapsed_ms(action.press_ms) - clock.origin_ms
        assert off_ms == pytest.approx(true.press_ms - truth.timestamp_ms, abs=clock.uncertainty_ms)
    assert clock.uncertainty_ms < 50
    rule = replace(clock, shifts=(), origin_ms=truth.timestamp_ms)
    evidence = observed.evidence.model_copy(update={"clock": rule})
    later = replace(truth, actions=truth.actions[1:])
    check_screenshots(replace(observed, evidence=evidence, truth=later, rows=observed.rows[1:]))


def test_events_after_a_change_of_the_clock_that_cannot_be_measured_are_left_out(
    tmp_path: Path, simulated: Simulated
) -> None:
    """The clock is set right before the last press. Too few events follow to measure the step."""
    observed = stepped(tmp_path, simulated, simulated[1].actions[-1].press_ms - 60, -3_600_000)
    *before, last = observed.rows
    assert last["file"] is None
    assert all(row["file"] for row in before)
    assert not observed.evidence.clock.is_known(observed.actions[-1].press_ms)
    [problem] = check_frames_present(observed.out / "screenshots")
    assert "since the recorder's clock was set" in problem.message


def test_times_of_a_clock_that_was_set_come_back() -> None:
    clock = Clock(1000.0, "pixels", 30.0, shifts=(ClockShift(5000, -200), ClockShift(9000, 700)))
    for event_ms in (1500, 4700, 5000, 8999, 9000, 20_000):
        assert clock.event_time(clock.video_time(event_ms)) == pytest.approx(event_ms)
    assert clock.video_time(5000) == 3.8
    assert 8999 < clock.event_time(8.2) < 9000
