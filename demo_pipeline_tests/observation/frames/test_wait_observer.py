"""Tests the search for waits: the frames it compares, and changes by the pointer."""

from collections.abc import Iterator
from dataclasses import replace

import av
import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath, TargetArea
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma, Span
from demo_pipeline.observation.frames.wait_observer import WaitObserver, intervals_between
from demo_pipeline.observation.frames.waits import Interval

FRAME_S = 1 / 15
TIMES = np.arange(0, 8, FRAME_S)
LONG = np.arange(0, 14, FRAME_S)
PLACE = PixelBox(276, 176, 48, 48)
# Clicks at 1 s and 5 s. The pointer starts towards the second click at 4.7 s.
PAUSE = Interval(float("-inf"), 1.0, 1.1, 4.7, 4.9, 5.0, PLACE, 4, 3.9)
APPEARED_S = 3.9
Move = tuple[float, float, float]


def pointer(*moves: Move) -> VideoPointer:
    """Returns a pointer with these moves (seconds, x, y)."""
    path = PointerPath.through((int(time * 1000), x, y) for time, x, y in moves)
    screen = ScreenParts.single(fit_canvas((640, 360), 1.0))
    return VideoPointer(path, Clock(0.0, "pixels", 5.0), screen, FRAME_S)


def looked_at(interval: Interval, times: np.ndarray = TIMES) -> list[float]:
    return [span.start for span in WaitObserver([interval], times, pointer()).spans]


def video(content: PixelBox) -> Iterator[Frame]:
    """Yields the frames of a grey page on which the dark box `content` appears."""
    for number, time in enumerate(TIMES.tolist()):
        page = _page(content, has_content=time >= APPEARED_S)
        yield Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray"))


def _page(content: PixelBox, *, has_content: bool) -> Luma:
    page = np.full((360, 640), 220, np.uint8)
    if has_content:
        left = int(content.x)
        top = int(content.y)
        page[top : top + int(content.height), left : left + int(content.width)] = 60
    return page


def waits(content: PixelBox, *moves: Move) -> list[int]:
    """Returns the indexes of the pauses that are found to be waits, if `content` appears."""
    observer = WaitObserver([PAUSE], TIMES, pointer(*moves))
    for frame in video(content):
        observer.see(frame)
    return [wait.action_index for wait in observer.result()]


def test_a_pause_is_looked_at_four_times_a_second_until_the_screen_before_the_press() -> None:
    moments = np.array(looked_at(PAUSE))
    late = moments[moments > PAUSE.since + 1.0]
    assert np.diff(late).max() <= 0.25 + FRAME_S
    assert len(late) <= 4 * (PAUSE.limit - PAUSE.since - 1.0) + 2
    assert PAUSE.limit - FRAME_S < moments.max() <= PAUSE.limit
    assert any(PAUSE.pressed - FRAME_S < time <= PAUSE.pressed for time in moments)


def test_without_a_pause_nothing_is_looked_at() -> None:
    assert WaitObserver([], TIMES, pointer()).spans == []


def test_text_that_a_key_wrote_is_compared_after_the_press() -> None:
    assert max(looked_at(replace(PAUSE, place=None))) > PAUSE.until > max(looked_at(PAUSE))


def test_a_frame_is_shown_until_the_next_however_long_that_takes() -> None:
    """A video with a variable frame rate has no frames while nothing changes."""
    assert looked_at(PAUSE, np.array([0.0, 3.9, 6.0])) == [0.0, 3.9]


def test_a_long_pause_is_not_looked_at_to_its_end() -> None:
    long = replace(PAUSE, looked=999.0, limit=999.5, until=1000.0)
    moments = looked_at(long, np.arange(0, 1001, 1.0))
    assert len(moments) < 130
    assert moments[-1] == 999.0


PANEL = PixelBox(240, 140, 160, 120)
AWAY = (0.5, 40.0, 40.0)


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        pytest.param([AWAY], [4], id="a pointer that rests"),
        pytest.param(
            [AWAY, *((2.0 + 0.1 * n, 40.0 + n, 330.0) for n in range(27))],
            [4],
            id="idly moved elsewhere",
        ),
        pytest.param(
            [AWAY, *((3.0 + 0.05 * n, 200.0 + 2 * n, 200.0) for n in range(22))],
            [],
            id="moved beside what appears, which it opened itself",
        ),
    ],
)
def test_content_that_appears_was_awaited_unless_the_pointer_opened_it(
    moves: list[Move], expected: list[int]
) -> None:
    assert waits(PANEL, *moves) == expected


def test_a_place_that_the_pointer_was_idly_moved_over_does_not_move_by_itself() -> None:
    """The pointer crosses the place in two pauses; in the third, content appears there."""
    elsewhere = PixelBox(20, 20, 40, 40)
    pauses = [
        _later(replace(PAUSE, place=elsewhere, pause=number), 4.0 * number) for number in (0, 1)
    ]
    moves = [AWAY]
    for begin in (2.3, 6.3):
        moves += [(begin + 0.05 * step, 240.0 + 3 * step, 195.0) for step in range(40)]
    moves.append((9.0, 40.0, 330.0))
    observer = WaitObserver([*pauses, _later(PAUSE, 8.0)], LONG, pointer(*moves))
    for number, time in enumerate(LONG.tolist()):
        page = _page(PANEL, has_content=time >= APPEARED_S + 8.0)
        _, x, y = max(move for move in moves if move[0] <= max(time, AWAY[0]))
        page[int(y) : int(y) + 22, int(x) : int(x) + 14] = 0
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    assert [wait.action_index for wait in observer.result()] == [PAUSE.pause]


def _later(interval: Interval, seconds: float) -> Interval:
    times = ("earlier", "pressed", "since", "looked", "limit", "until")
    return replace(interval, **{name: getattr(interval, name) + seconds for name in times})


@pytest.mark.parametrize("times", [TIMES, np.array([0.0, APPEARED_S, 5.2, 7.0])])
def test_a_wait_that_a_key_ends_is_found(times: np.ndarray) -> None:
    """The last compared frame is late enough to show the text that the key typed."""
    observer = WaitObserver([replace(PAUSE, place=None)], times, pointer(AWAY))
    for number, time in enumerate(times.tolist()):
        page = _page(PANEL, has_content=time >= APPEARED_S)
        if time >= PAUSE.until + 0.1:
            page[200:216, 300:324] = 255
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    assert [wait.action_index for wait in observer.result()] == [PAUSE.pause]


def test_a_submenu_beside_a_pointer_that_came_there_of_late_was_not_awaited() -> None:
    assert waits(PANEL, AWAY, (1.0, 40.0, 40.0), (3.2, 150.0, 200.0)) == []
    assert waits(PANEL, AWAY, (1.0, 40.0, 40.0), (1.6, 150.0, 200.0)) == [4]


def test_a_panel_that_only_disappears_was_not_awaited() -> None:
    observer = WaitObserver([PAUSE], TIMES, pointer(AWAY))
    for number, time in enumerate(TIMES.tolist()):
        page = _page(PANEL, has_content=time < APPEARED_S)
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    assert observer.result() == []


def test_a_wait_lasts_until_the_screen_came_to_rest() -> None:
    """The person reads the new content for another 0.8 s, which is not part of the wait."""
    observer = WaitObserver([PAUSE], TIMES, pointer(AWAY))
    for frame in video(PANEL):
        observer.see(frame)
    (wait,) = observer.result()
    assert wait.seconds == pytest.approx(APPEARED_S - PAUSE.since, abs=0.3)
    assert wait.seconds < PAUSE.seconds


@pytest.mark.parametrize(("ground", "expected"), [(220, [4]), (60, [])])
def test_a_list_that_came_back_was_awaited_but_not_what_a_toast_had_covered(
    ground: int, expected: list[int]
) -> None:
    """In both cases, the screen ends as it was. Only the notification has another background."""
    elsewhere = replace(PAUSE, place=PixelBox(20, 20, 48, 48))
    observer = WaitObserver([elsewhere], TIMES, pointer(AWAY))
    for number, time in enumerate(TIMES.tolist()):
        page = np.full((360, 640), 220, np.uint8)
        for top in range(148, 252, 16):
            page[top : top + 8, 248:392:2] = 40
        if PAUSE.pressed < time < APPEARED_S:
            page[140:260, 240:400] = ground
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    assert [wait.action_index for wait in observer.result()] == expected


def _cards(*, loaded: bool) -> Luma:
    """Draws six cards, with their content if they are loaded, or else as pale boxes."""
    page = np.full((360, 640), 245, np.uint8)
    for left in (40, 240, 440):
        for top in (60, 220):
            page[top : top + 120, left : left + 160] = 225
            if loaded:
                page[top : top + 120, left : left + 160] = 255
                for line in range(top + 10, top + 110, 20):
                    page[line : line + 8, left + 10 : left + 150 : 3] = 30
    return page


@pytest.mark.parametrize("stands_in", [True, False])
def test_cards_that_load_below_a_pointer_that_plays_were_awaited(stands_in: bool) -> None:
    moves = [(0.1 * step, 300 + 40 * np.sin(step), 150 + 30 * np.cos(step)) for step in range(48)]
    card = replace(PAUSE, place=PixelBox(80, 100, 48, 48))
    observer = WaitObserver([card], TIMES, pointer(*moves))
    blank = np.full((360, 640), 245, np.uint8)
    for number, time in enumerate(TIMES.tolist()):
        page = _cards(loaded=time >= APPEARED_S)
        if time < PAUSE.pressed + 0.2 or (time < APPEARED_S and not stands_in):
            page = blank.copy()
        _, x, y = max(move for move in moves if move[0] <= time)
        page[int(y) : int(y) + 20, int(x) : int(x) + 12] = 0
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(page, format="gray")))
    assert [wait.action_index for wait in observer.result()] == [PAUSE.pause]


@pytest.mark.parametrize(("x", "expected"), [(100.0, None), (400.0, 376.0)])
def test_a_wheel_that_is_turned_where_the_click_was_shows_by_its_effect_what_it_was_turned_for(
    x: float, expected: float | None
) -> None:
    canvas = fit_canvas((640, 360), 1.0)
    kinds = (("click", 1000, 1100, 100.0), ("pause", 1100, 4700, None), ("scroll", 5000, 5100, x))
    actions = []
    requests = []
    for index, (kind, press, end, place) in enumerate(kinds):
        action = Action(kind, press, end, [1], index, seconds=3.6)
        area = None
        if place is not None:
            action = replace(action, x=place, y=100.0)
            area = TargetArea(place, 100.0, 40)
        actions.append(action)
        press_s = press / 1000
        request = FrameRequest(
            index, press_s, 1.1, press_s - 0.1, 4.7, area, Span(0.0, 1.0), canvas=canvas
        )
        requests.append(request)
    (interval,) = intervals_between(actions, requests, pointer(AWAY))
    assert (interval.place and interval.place.x) == expected
