"""Tests keys on a black or a locked screen, with real videos of a small desktop."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import pytest

from demo_pipeline.observation.frames.evidence import Hover
from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.observation.videos import Picture, painted
from demo_pipeline_tests.simulator.form import DESKTOP
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, RecordingOptions
from demo_pipeline_tests.simulator.script import (
    Act,
    IntendedAction,
    Script,
    click,
    hotkey,
    think,
    type_text,
)
from demo_pipeline_tests.simulator.video import VideoOptions, encode

SECRET = "sesam7"  # noqa: S105
BLACK = 16

Draw = Callable[[Any, float, list[IntendedAction]], None]


def story_of(*acts: Act) -> Script:
    return Script(DESKTOP, (click("Name"), *acts), seed=3)


def options_for(platform: Any) -> RecordingOptions:
    """Returns options of a recording with an exact clock, whose log has ffmpeg's start time."""
    return RecordingOptions(
        platform=platform,
        width=960,
        height=540,
        video=VideoOptions(preset="ultrafast", fps=15, frame_numbers=False),
        ffmpeg_start_line=True,
    )


def write_video(path: Path, painter: Painter, truth: GroundTruth, draw: Draw) -> None:
    """Writes the video of a recording, in which `draw` changes each frame.

    `draw` gets the frame, the time and the actions.
    """

    def images() -> Iterable[tuple[int, Picture]]:
        for frame in truth.frames:
            planes = painter.planes(truth.timeline.at(frame.wall_ms), None).copy()
            draw(planes[: truth.screen[1]], frame.wall_ms, list(truth.actions))
            yield frame.pts, planes

    encode(path, images(), truth.screen, options_for("linux").video)


def record(root: Path, acts: Iterable[Act], draw: Draw, platform: Any = "linux") -> Observed:
    """Records the acts and observes the recording."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        write_video(path, painter, truth, draw)

    return painted(root, options_for(platform), write, story_of(*acts))


def press_of(actions: list[IntendedAction], text: str) -> float:
    """Returns when the typing of a text began, or the last key of a hotkey was pressed."""
    for action in actions:
        given = action.parameters
        if given.get("text") == text or "+".join(given.get("keys", ())) == text:
            return action.press_ms
    raise AssertionError(f"nobody did {text}")


def black(start: Callable[[list[IntendedAction]], float], seconds: float) -> Draw:
    """Returns a function that makes frames black for some seconds."""

    def draw(luma: Any, now: float, actions: list[IntendedAction]) -> None:
        began = start(actions)
        if began <= now < began + 1000 * seconds:
            luma[:] = BLACK

    return draw


def lock_screen(chord: str, end: Callable[[list[IntendedAction]], float]) -> Draw:
    """Returns a function that draws a lock screen, with a dot for each key of the password."""

    def draw(luma: Any, now: float, actions: list[IntendedAction]) -> None:
        if not press_of(actions, chord) + 200 <= now < end(actions):
            return
        luma[:] = 90
        luma[: len(luma) // 3] = 120
        cv2.putText(luma, "12:45", (380, 180), cv2.FONT_HERSHEY_SIMPLEX, 2, 235, 3, cv2.LINE_AA)
        luma[300:340, 380:580] = 235
        typed = press_of(actions, SECRET)
        for number in range(int(max(0.0, min(len(SECRET), (now - typed) / 120)))):
            cv2.circle(luma, (400 + 20 * number, 320), 5, 40, cv2.FILLED)

    return draw


def texts(seen: Observed) -> list[tuple[str, str]]:
    """Returns the text or keys of each keyboard action, and whether a screenshot shows them.

    The second value is `private`, `continued` or `shown`.
    """
    outcomes = []
    for action, row in zip(seen.actions, seen.rows, strict=True):
        if action.action_type not in {"type", "hotkey"}:
            continue
        reason = row["reason_code"]
        kept = reason in {Reason.PRIVATE, Reason.CONTINUED}
        assert kept == (row["file"] is None)
        done = action.text if action.action_type == "type" else "+".join(action.keys)
        outcomes.append((done or "", str(reason) if kept else "shown"))
    return outcomes


@pytest.mark.parametrize("before", ["an", "anna maria"])
def test_text_typed_while_the_screen_is_black_is_private(tmp_path: Path, before: str) -> None:
    acts = [type_text(before), think(2.5), type_text(SECRET), hotkey("enter"), think(1.5)]
    draw = black(lambda actions: press_of(actions, SECRET) - 1800, 3.2)
    seen = record(tmp_path, [*acts, type_text("na")], draw)
    assert texts(seen) == [
        (before, "shown"),
        (SECRET, "private"),
        ("enter", "private"),
        ("na", "shown"),
    ]
    assert len(seen.evidence.private_actions) == 2


def test_nothing_is_known_about_hovers_before_a_private_press(tmp_path: Path) -> None:
    seen = record(tmp_path, [type_text("an"), think(0.5), type_text("na")], lambda *_: None)
    hovers = tuple(Hover(action_index=index, places=()) for index in (0, 1))
    evidence = seen.evidence.model_copy(update={"hovers": hovers})
    assert evidence.without([1], []).hovers == hovers[:1]


def test_typing_goes_on_after_a_black_screen_as_a_step_of_its_own(tmp_path: Path) -> None:
    acts = [type_text("anna maria"), think(2.5), type_text(SECRET), think(2.0), type_text("na")]
    draw = black(lambda actions: press_of(actions, SECRET) - 1500, 3.0)
    seen = record(tmp_path, acts, draw)
    assert texts(seen) == [("anna maria", "shown"), (SECRET, "private"), ("na", "shown")]


def test_a_black_flash_costs_no_text(tmp_path: Path) -> None:
    acts = [type_text("anna maria"), think(1.5), type_text("karin")]
    seen = record(tmp_path, acts, black(lambda actions: press_of(actions, "karin") - 200, 0.6))
    assert texts(seen) == [("anna maria", "shown"), ("karin", "continued")]
    assert not seen.evidence.private_actions


def test_a_long_rest_parts_no_text_on_a_lit_screen(tmp_path: Path) -> None:
    acts = [type_text("anna maria"), think(2.5), type_text("karin")]
    seen = record(tmp_path, acts, lambda *_: None)
    assert texts(seen) == [("anna maria", "shown"), ("karin", "continued")]


CHORDS = {
    "windows": ("win", "l"),
    "macos": ("ctrl", "command", "q"),
    "linux": ("ctrl", "alt", "l"),
}


@pytest.mark.parametrize("platform", CHORDS)
def test_from_the_lock_chord_until_the_desktop_is_back_all_is_private(
    tmp_path: Path, platform: str
) -> None:
    chord = CHORDS[platform]
    acts = [type_text("anna maria"), think(0.5), hotkey(*chord), think(2.0), type_text(SECRET)]
    acts += [hotkey("enter"), think(2.0), type_text("na")]
    name = "+".join(chord)
    draw = lock_screen(name, lambda actions: press_of(actions, "enter") + 500)
    seen = record(tmp_path, acts, draw, platform)
    assert texts(seen) == [
        ("anna maria", "shown"),
        (name, "shown"),
        (SECRET, "private"),
        ("enter", "private"),
        ("na", "shown"),
    ]
    indexes = [typed.action_index for typed in seen.evidence.typed]
    assert not {*indexes} & {*seen.evidence.private_actions}


def test_the_final_screenshot_shows_no_lock_screen(tmp_path: Path) -> None:
    acts = [type_text("anna"), think(0.5), hotkey("win", "l"), think(2.0), type_text(SECRET)]
    seen = record(tmp_path, acts, lock_screen("win+l", lambda _: float("inf")))
    assert texts(seen)[-1] == (SECRET, "private")
    final = seen.screenshot("final.png")
    before = seen.screenshot(next(row["file"] for row in seen.rows if row["file"]))
    assert (abs(final.astype(int) - before) < 40).mean() > 0.9


@pytest.mark.parametrize("platform", ["windows", "linux"])
def test_a_chord_that_locks_nothing_makes_nothing_private(tmp_path: Path, platform: str) -> None:
    """Ctrl+Alt+L reformats text in some editors, and the lock screen may be switched off."""

    def reformatted(luma: Any, now: float, actions: list[IntendedAction]) -> None:
        if now > press_of(actions, "+".join(CHORDS[platform])) + 200:
            luma[300:400, 150:450] = 200

    acts = [type_text("anna"), think(0.5), hotkey(*CHORDS[platform]), think(2.0)]
    seen = record(tmp_path, [*acts, type_text("maria")], reformatted, platform)
    assert [kind for _, kind in texts(seen)] == ["shown", "shown", "shown"]
