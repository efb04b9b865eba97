"""Tests that actions which start or stop the recorder are left out, and all others are kept."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.observation.frames.screenshot_checks import (
    check_frames_present,
    check_screenshot_files,
)
from demo_pipeline.observation.frames.video_reader import Span
from demo_pipeline.trajectories.steps import Steps, build_steps
from demo_pipeline_tests.observation.made import Observed, cut_video, observe
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Effect, Widget
from demo_pipeline_tests.simulator.form import DESKTOP, SMALL
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import (
    Act,
    Script,
    click,
    hotkey,
    think,
    type_text,
    wait_for_screen,
)

Line = dict[str, Any]
RECORDER = (
    Widget("OBS 30.2 - Profile: Demo", "window", Box(1430, 600, 450, 300)),
    Widget("Start", "button", Box(1450, 660, 150, 60), "OBS 30.2 - Profile: Demo"),
    Widget("Stop", "button", Box(1650, 660, 150, 60), "OBS 30.2 - Profile: Demo"),
)
LABEL = Widget("Note", "label", Box(240, 800, 500, 60), "Form", text="Nothing to press")
WORK = (click("Agree"), click("Name"), type_text("Ab"))
STOP = hotkey("ctrl", "shift", "f9")
SIMULATED = Span(float("-inf"), float("inf"))


@dataclass(frozen=True)
class Seen:
    """An observed recording and its steps."""

    observed: Observed
    steps: Steps

    @property
    def kinds(self) -> list[str]:
        return [str(step.written.action_type) for step in self.steps.steps]

    @property
    def trimmed(self) -> int:
        return self.steps.left_out["recorder_control"]

    @property
    def final_ms(self) -> float:
        """The time at which the screen was as in final.png, epoch milliseconds."""
        number = read_frame_number(self.observed.screenshot("final.png"))
        assert number is not None
        return self.observed.truth.frames[number].wall_ms


def seen(
    root: Path,
    *acts: Act,
    widgets: tuple[Widget, ...] = (),
    tail_ms: int = 1200,
    edit: Callable[[Path], None] = lambda _: None,
    **script: Any,
) -> Seen:
    desktop = Desktop((*DESKTOP.widgets, LABEL, *widgets))
    story = Script(desktop, acts, seed=3, tail_ms=tail_ms, **script)
    folder = root / "uploads" / "demo"
    truth = write_recording(folder, story, SMALL)
    edit(folder)
    observed = observe(folder, root / "store", truth)
    trees = [{"target_id": None}] * len(observed.rows)
    steps = build_steps(observed.actions, observed.rows, trees, observed.evidence, SIMULATED)
    return Seen(observed, steps)


def test_a_last_shortcut_without_effect_is_trimmed_and_costs_nothing(tmp_path: Path) -> None:
    outcome = seen(tmp_path, *WORK, STOP)
    assert outcome.kinds == ["click", "click", "type"]
    assert outcome.trimmed == 1
    assert sum(outcome.steps.left_out.values()) == 1
    stop = outcome.observed.truth.actions[-1]
    typing = outcome.observed.truth.actions[-2]
    assert typing.end_ms <= outcome.final_ms < stop.press_ms
    state = outcome.observed.truth.timeline.at(outcome.final_ms).state
    assert state.texts["Name"] == "oldAb"
    folder = outcome.observed.out / "screenshots"
    assert check_frames_present(folder) == []
    assert check_screenshot_files(folder, outcome.observed.out / "actions") == []
    assert len(list(folder.glob("*.png"))) == 4


@pytest.mark.parametrize(
    ("acts", "kinds"),
    [
        pytest.param((*WORK, hotkey("ctrl", "s")), ["click", "click", "type", "hotkey"], id="save"),
        pytest.param(
            (click("Agree"), hotkey("ctrl", "shift", "f9"), click("Name")),
            ["click", "hotkey", "click"],
            id="not the last",
        ),
        pytest.param((*WORK, click("Agree")), ["click", "click", "type", "click"], id="a tick"),
        pytest.param((click("Agree"), click("Note")), ["click", "click"], id="the video goes on"),
    ],
)
def test_real_last_actions_stay(tmp_path: Path, acts: tuple[Act, ...], kinds: list[str]) -> None:
    outcome = seen(tmp_path, *acts, tail_ms=2600)
    assert outcome.kinds == kinds
    assert outcome.trimmed == 0


def test_a_shortcut_that_changes_anything_stays(tmp_path: Path) -> None:
    """F5 may be a hotkey of the recorder, but here it changes a label."""
    reloaded = Effect("set_text", "Note", text="Reloaded")
    field = replace(DESKTOP.widgets[1], on_enter=(reloaded,))
    widgets = (field, *DESKTOP.widgets[2:])
    story = Script(
        Desktop((DESKTOP.widgets[0], LABEL, *widgets)), (click("Name"), hotkey("enter")), seed=3
    )
    folder = tmp_path / "uploads" / "demo"
    truth = write_recording(folder, story, SMALL)
    log = folder / "input_log.jsonl"
    text = log.read_text(encoding="utf-8").replace('"Return"', '"F5"')
    log.write_text(text, encoding="utf-8")
    observed = observe(folder, tmp_path / "store", truth)
    assert observed.actions[-1].keys == ["f5"]
    assert observed.evidence.recorder_control == ()


def test_a_click_without_effect_that_ends_the_video_is_trimmed(tmp_path: Path) -> None:
    outcome = seen(tmp_path, *WORK, click("Note"), tail_ms=500)
    assert outcome.kinds == ["click", "click", "type"]
    assert outcome.trimmed == 1
    assert outcome.final_ms < outcome.observed.truth.actions[-1].press_ms


def test_a_video_that_ends_with_the_press_was_ended_by_it(tmp_path: Path) -> None:
    """The video is too short to show an effect of the press; only a text cursor may blink."""

    def cut(folder: Path) -> None:
        log = (folder / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in log]
        press = next(e["time"] for e in reversed(events) if e["event"] == "keydown")
        start = min(e["time"] for e in events) - 120
        whole = folder / "recording.mp4"
        cut_video(whole, folder / "cut.mp4", (press - start) / 1000 + 0.05)
        (folder / "cut.mp4").replace(whole)

    outcome = seen(tmp_path, *WORK, STOP, edit=cut)
    assert outcome.kinds == ["click", "click", "type"]
    assert outcome.trimmed == 1


def test_the_screen_that_keeps_moving_proves_nothing(tmp_path: Path) -> None:
    """A progress bar keeps moving after the shortcut, and may hide an effect of the shortcut."""
    outcome = seen(tmp_path, click("Agree"), click("Load"), STOP, tail_ms=1500)
    assert outcome.kinds == ["click", "click", "hotkey"]


def test_the_configured_shortcut_is_no_action_and_the_final_screenshot_lies_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_PIPELINE_ACTIONS__STOP_SHORTCUT", '["ctrl", "q"]')
    outcome = seen(tmp_path, click("Agree"), click("Load"), hotkey("ctrl", "q"), tail_ms=4000)
    assert outcome.kinds == ["click", "click"]
    assert outcome.final_ms < outcome.observed.truth.actions[-1].press_ms


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        ("Please fill in the form.", ["click", "click", "type"]),
        ("Stop the recording in obs.", ["click", "click", "click", "type", "click"]),
    ],
)
def test_clicks_on_the_recorders_own_window(tmp_path: Path, content: str, kinds: list[str]) -> None:
    """These clicks are left out whatever the video shows, unless the task is about the recorder."""
    acts = (click("Start"), *WORK, click("Stop"))
    outcome = seen(tmp_path, *acts, widgets=RECORDER, tail_ms=3000, content=content)
    assert outcome.kinds == kinds
    assert outcome.trimmed == 5 - len(kinds)
    if outcome.trimmed:
        assert outcome.final_ms < outcome.observed.truth.actions[-1].press_ms


def test_a_window_is_named_by_whole_words(tmp_path: Path) -> None:
    names = [(w, w.name.replace("OBS", "Jobs"), w.parent.replace("OBS", "Jobs")) for w in RECORDER]
    other = tuple(replace(widget, name=name, parent=parent) for widget, name, parent in names)
    outcome = seen(tmp_path, click("Start"), *WORK, widgets=other)
    assert outcome.kinds == ["click", "click", "click", "type"]


def test_a_demonstration_of_nothing_else_keeps_its_actions(tmp_path: Path) -> None:
    outcome = seen(tmp_path, click("Start"), widgets=RECORDER)
    assert outcome.kinds == ["click"]


def test_no_wait_is_left_beside_a_trimmed_action(tmp_path: Path) -> None:
    """A bar fills while the person waits before stopping the recorder, so it was not awaited."""
    acts = (click("Agree"), click("Load"), wait_for_screen(), STOP)
    assert seen(tmp_path, *acts).kinds == ["click", "click"]
    again = (click("Agree"), click("Load"), wait_for_screen(), click("Name"), think(2.5), STOP)
    assert seen(tmp_path / "again", *again).kinds == ["click", "click", "wait", "click"]


def test_a_last_click_stays_when_the_video_ends_with_its_effect(tmp_path: Path) -> None:
    """A video with a variable frame rate ends like this if nothing changes after the effect."""

    def cut(folder: Path) -> None:
        log = (folder / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in log]
        press = next(e["time"] for e in reversed(events) if e["event"] == "mousedown")
        whole = folder / "recording.mp4"
        start = min(e["time"] for e in events) - 120
        cut_video(whole, folder / "cut.mp4", (press - start) / 1000 + 0.36)
        (folder / "cut.mp4").replace(whole)

    outcome = seen(tmp_path, *WORK, click("Agree"), edit=cut)
    assert outcome.kinds == ["click", "click", "type", "click"]
