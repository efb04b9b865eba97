"""Tests presses on content that the resting pointer opened, such as menus and card buttons."""

from collections.abc import Callable

import av
import cv2
import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.canvas import ScreenParts, fit_canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.evidence import Hover, HoverPlace, Wait
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.hovers import HoverObserver, waits_without_hovers
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath, TargetArea
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma, Span

FRAME_S = 1 / 15
TIMES = np.arange(0, 6, FRAME_S)
CANVAS = fit_canvas((640, 360), 1.0)
SINCE = 0.5  # end of the previous action, seconds
PRESS = 4.0  # time of the press, seconds
START = (500.0, 300.0)
TITLE = (60.0, 20.0)
ITEM = (90.0, 92.0)
MENU = PixelBox(40, 36, 140, 90)
Move = tuple[float, tuple[float, float]]
TO_MENU: list[Move] = [(0.0, START), (1.5, (200.0, 150.0)), (1.6, TITLE), (3.6, ITEM)]


def page(*panels: PixelBox, lit: PixelBox | None = None) -> Luma:
    """Draws a page of text, parts of which are covered by panels with other lines of text."""
    luma = np.full((360, 640), 220, np.uint8)
    rows = range(60, 340, 24)
    for number, top in enumerate(rows):
        cv2.putText(luma, f"line {number} of a page", (20, top), 0, 0.5, 40, 1)
    for panel in panels:
        left = int(panel.x)
        top = int(panel.y)
        luma[top : top + int(panel.height), left : left + int(panel.width)] = 250
        for number, line in enumerate(range(top + 16, top + int(panel.height), 22)):
            cv2.putText(luma, f"entry {number}", (left + 8, line), 0, 0.45, 20, 1)
    if lit:
        left = int(lit.x)
        top = int(lit.y)
        inside = luma[top : top + int(lit.height), left : left + int(lit.width)]
        inside[:] = (inside.astype(int) * 4 // 5).astype(np.uint8)
    return luma


def hovers(moves: list[Move], screen_at: Callable[[float], Luma]) -> tuple[Hover, ...]:
    """Returns the hovers that are found for a click at the end of the last move.

    `screen_at` returns the screen at a time.
    """
    path = PointerPath.through((1000 * time, *point) for time, point in moves)
    pointer = VideoPointer(path, Clock(0.0, "pixels", 5.0), ScreenParts.single(CANVAS), FRAME_S)
    x, y = moves[-1][1]
    press_ms = int(1000 * PRESS)
    click = Action("click", press_ms, press_ms + 80, [], x=x, y=y, button="left", clicks=1)
    request = FrameRequest(
        0,
        PRESS,
        SINCE,
        PRESS - 0.07,
        moves[-1][0],
        TargetArea(x, y, 40),
        Span(3.0, PRESS),
        point=(x, y),
        press_ms=press_ms,
        canvas=CANVAS,
    )
    observer = HoverObserver([click], [request], TIMES, pointer)
    for number, time in enumerate(TIMES.tolist()):
        luma = screen_at(time)
        _, (left, top) = max(move for move in moves if move[0] <= time)
        luma[int(top) : int(top) + 16, int(left) : int(left) + 10] = 0
        observer.see(Frame(number, time, av.VideoFrame.from_ndarray(luma, format="gray")))
    return observer.result()


def opened_at(second: float, *panels: PixelBox) -> Callable[[float], Luma]:
    return lambda time: page(*(panels if time >= second else ()))


def test_a_menu_that_opened_below_the_resting_pointer_is_known_with_its_place_and_time() -> None:
    (hover,) = hovers(TO_MENU, opened_at(1.7, MENU))
    assert hover.action_index == 0
    assert hover.places == ((*TITLE, 1600.0),)


def test_a_submenu_tells_of_the_menu_that_was_opened_before_it() -> None:
    submenu = PixelBox(180, 80, 140, 90)
    item = (100.0, 92.0)
    entry = (230.0, 118.0)
    moves: list[Move] = [*TO_MENU[:3], (2.6, item), (3.6, entry)]

    def screen_at(time: float) -> Luma:
        return page(*[MENU] * (time >= 1.7), *[submenu] * (time >= 2.8))

    (hover,) = hovers(moves, screen_at)
    assert [place[:2] for place in hover.places] == [TITLE, item]


@pytest.mark.parametrize(
    "screen_at",
    [
        pytest.param(opened_at(0.0, MENU), id="it was open all along"),
        pytest.param(opened_at(9.0, MENU), id="nothing opened"),
        pytest.param(opened_at(0.8, MENU), id="the action before opened it"),
        pytest.param(opened_at(3.4, MENU), id="it came long after the pointer"),
        pytest.param(opened_at(1.7, PixelBox(0, 0, 640, 360)), id="another page"),
        pytest.param(opened_at(1.7, PixelBox(400, 200, 140, 90)), id="something elsewhere"),
        pytest.param(
            lambda time: page(*[MENU] * (1.7 <= time < 3.3)), id="a hint that goes before the press"
        ),
        pytest.param(
            lambda time: page(lit=PixelBox(10, 10, 300, 120) if time >= 1.7 else None),
            id="a card that is lit",
        ),
    ],
)
def test_content_that_the_resting_pointer_did_not_open_is_no_hover(
    screen_at: Callable[[float], Luma],
) -> None:
    assert hovers(TO_MENU, screen_at) == ()


def test_a_pointer_that_does_not_rest_opens_nothing() -> None:
    passing: list[Move] = [(0.0, START), (3.5, (200.0, 150.0)), (3.55, TITLE), (3.6, ITEM)]
    assert hovers(passing, opened_at(3.57, MENU)) == ()


@pytest.mark.parametrize(("settled_s", "is_kept"), [(2.9, True), (3.4, False)])
def test_a_wait_for_a_menu_is_dropped_and_a_wait_for_its_page_is_kept(
    settled_s: float, is_kept: bool
) -> None:
    wait = Wait(action_index=4, seconds=2.0, settled_s=settled_s)
    hover = Hover(action_index=5, places=(HoverPlace(60, 20, 3000.0),))
    clock = Clock(0.0, "pixels", 5.0)
    assert waits_without_hovers([wait], [hover], clock) == [wait] * is_kept
    assert waits_without_hovers([wait], [], clock) == [wait]
