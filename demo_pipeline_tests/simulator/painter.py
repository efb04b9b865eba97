"""Draws the desktop with OpenCV: wallpaper, windows, widgets in their states, and the pointer."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline_tests.simulator.desktop import Box, Desktop, Kind, Placed, ScreenState
from demo_pipeline_tests.simulator.frame_numbers import stamp
from demo_pipeline_tests.simulator.script import Moment

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]

INK: Colour = (45, 40, 38)
PAPER: Colour = (250, 250, 250)
FACE: Colour = (243, 241, 240)
EDGE: Colour = (178, 172, 168)
ACCENT: Colour = (196, 110, 30)
CHOSEN: Colour = (247, 222, 196)
SHADE: Colour = (90, 76, 64)
TASKBAR: Colour = (58, 46, 38)
_ARROW = ((0, 0), (0, 19), (4.6, 15), (7.6, 22), (10.6, 20.6), (7.7, 14), (13.6, 13.6))


class Painter:
    """Draws a desktop. The last image is cached, so that an unchanged screen costs little."""

    def __init__(self, desktop: Desktop) -> None:
        self.desktop = desktop
        self._state: ScreenState | None = None
        self._picture = _wallpaper(desktop.width, desktop.height)
        self._moment: Moment | None = None
        self._planes: Image = np.zeros((0, 0), np.uint8)

    def draw(self, moment: Moment) -> Image:
        """Returns the screen with the pointer as a BGR image of shape (H, W, 3)."""
        if moment.state is not self._state:
            self._picture = _wallpaper(self.desktop.width, self.desktop.height).copy()
            for thing in self.desktop.placed(moment.state):
                if thing.visible:
                    _DRAW[thing.kind](self._picture, thing, moment.state, self.desktop.scale)
            self._state = moment.state
        picture = self._picture.copy()
        _pointer(picture, moment.pointer, self.desktop.scale)
        return picture

    def planes(self, moment: Moment, number: int | None) -> Image:
        """Returns the screen as planar YUV 4:2:0 (BT.601, limited range), shape (H * 3 / 2, W).

        The screen shows the frame number `number`, unless it is None. The next call reuses the
        returned array.
        """
        if self._moment is None or moment != self._moment:
            self._planes = cv2.cvtColor(self.draw(moment), cv2.COLOR_BGR2YUV_I420)
            self._moment = moment
        if number is not None:
            stamp(self._planes[: self.desktop.height], number)
        return self._planes


@lru_cache(maxsize=2)
def _wallpaper(width: int, height: int) -> Image:
    """Returns the background: a colour gradient with two hills."""
    ramp = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    top = np.array((150, 112, 72))
    bottom = np.array((196, 168, 150))
    image: Image = np.ascontiguousarray(
        np.broadcast_to((1 - ramp) * top + ramp * bottom, (height, width, 3)).astype(np.uint8)
    )
    for at, radius, colour in ((0.22, 0.5, (140, 122, 92)), (0.74, 0.62, (122, 104, 74))):
        middle = (round(width * at), round(height * 1.22))
        axes = (round(width * radius * 0.8), round(height * radius))
        cv2.ellipse(image, middle, axes, 0, 0, 360, colour, -1, cv2.LINE_AA)
    return image


def _rectangle(image: Image, box: Box, fill: Colour, edge: Colour | None = EDGE) -> None:
    corner = (box.x + box.width - 1, box.y + box.height - 1)
    cv2.rectangle(image, (box.x, box.y), corner, fill, -1)
    if edge is not None:
        cv2.rectangle(image, (box.x, box.y), corner, edge, 1)


def _text(image: Image, text: str, box: Box, scale: float, ink: Colour = INK) -> int:
    """Draws a text at the left of a box, clipped to the box.

    Returns the x coordinate at which the text ends.
    """
    size = 0.55 * scale
    indent = round(10 * scale)
    ascii_text = text.encode("ascii", "replace").decode()
    (width, height), _ = cv2.getTextSize(ascii_text, cv2.FONT_HERSHEY_SIMPLEX, size, _stroke(scale))
    part = image[max(box.y, 0) : box.y + box.height, max(box.x, 0) : box.x + box.width]
    left = indent + min(box.x, 0)
    base = (box.height + height) // 2 + min(box.y, 0)
    if part.size:
        face = cv2.FONT_HERSHEY_SIMPLEX
        cv2.putText(part, ascii_text, (left, base), face, size, ink, _stroke(scale), cv2.LINE_AA)
    return box.x + indent + int(width)


def _stroke(scale: float) -> int:
    return max(1, round(1.2 * scale))


def _centred(image: Image, text: str, box: Box, scale: float, ink: Colour = INK) -> None:
    width = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.55 * scale, _stroke(scale))[0][0]
    left = max(0, (box.width - width) // 2 - round(10 * scale))
    _text(image, text, Box(box.x + left, box.y, box.width - left, box.height), scale, ink)


def _window(image: Image, thing: Placed, _state: ScreenState, scale: float) -> None:
    drop = round(5 * scale)
    _rectangle(image, thing.box.moved((drop, drop)), SHADE, None)
    _rectangle(image, thing.box, FACE)


def _title_bar(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    front = state.windows[-1] == thing.widget.name
    _rectangle(image, thing.box, ACCENT if front else EDGE)
    _text(image, thing.widget.name, thing.box, scale, PAPER)
    size = thing.box.height // 6
    middle = thing.box.height // 2
    x = thing.box.x + thing.box.width - middle
    y = thing.box.y + middle
    for sign in (-1, 1):
        ends = (x - size, y - sign * size), (x + size, y + sign * size)
        cv2.line(image, *ends, PAPER, _stroke(scale), cv2.LINE_AA)


def _label(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    _text(image, state.texts.get(thing.name, ""), thing.box, scale)


def _button(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    if state.pressed == thing.name:
        _rectangle(image, thing.box, ACCENT, INK)
        _centred(image, thing.name, thing.box, scale, PAPER)
    else:
        _rectangle(image, thing.box, (228, 224, 221), EDGE)
        _centred(image, thing.name, thing.box, scale, INK)


def _text_field(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    text = state.texts.get(thing.name, "")
    focused = state.focused == thing.name
    _rectangle(image, thing.box, PAPER, ACCENT if focused else EDGE)
    inside = Box(thing.box.x + 2, thing.box.y + 2, thing.box.width - 4, thing.box.height - 4)
    if focused and state.selected and text:
        end = _text(image, text, inside, scale)
        marked = Box(inside.x + round(8 * scale), inside.y + 3, end - inside.x, inside.height - 6)
        _rectangle(image, marked, CHOSEN, None)
    end = _text(image, text, inside, scale)
    if focused:
        top = inside.y + round(6 * scale)
        foot = inside.y + inside.height - round(6 * scale)
        cv2.line(image, (end + 2, top), (end + 2, foot), INK, _stroke(scale))


def _check_box(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    side = round(20 * scale)
    square = Box(thing.box.x, thing.box.y + (thing.box.height - side) // 2, side, side)
    ticked = thing.name in state.checked
    colour = ACCENT if ticked else PAPER
    if state.pressed == thing.name:
        colour = EDGE
    _rectangle(image, square, colour, INK)
    if ticked:
        corners = ((0.2, 0.5), (0.42, 0.74), (0.82, 0.26))
        tick = [(square.x + round(x * side), square.y + round(y * side)) for x, y in corners]
        cv2.polylines(image, [np.array(tick)], False, PAPER, 2 * _stroke(scale), cv2.LINE_AA)
    _text(image, thing.name, thing.box.moved((side, 0)), scale)


def _list(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    _rectangle(image, thing.box, PAPER)
    total = max(1, len(state.rows[thing.name]))
    visible_rows = min(total, thing.box.height // max(1, round(34 * scale)))
    first = state.scrolled.get(thing.name, 0)
    width = round(10 * scale)
    left = thing.box.x + thing.box.width - width
    height = thing.box.height
    thumb = Box(left, thing.box.y + height * first // total, width, height * visible_rows // total)
    _rectangle(image, thumb, EDGE, None)


def _row(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    width = thing.box.width - round(12 * scale)  # leaves the scroll bar visible
    box = Box(thing.box.x + 1, thing.box.y + 1, width, thing.box.height)
    if state.chosen.get(thing.widget.name) == thing.label:
        _rectangle(image, box, CHOSEN, None)
    _text(image, thing.label, box, scale)


def _menu_item(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    if state.pressed == thing.name:
        _rectangle(image, thing.box, CHOSEN, None)
    _text(image, thing.name, thing.box, scale)


def _progress_bar(image: Image, thing: Placed, state: ScreenState, scale: float) -> None:
    _rectangle(image, thing.box, PAPER)
    filled = round((thing.box.width - 2) * state.progress[thing.name])
    part = Box(thing.box.x + 1, thing.box.y + 1, max(1, filled), thing.box.height - 2)
    _rectangle(image, part, ACCENT, None)
    _text(image, f"{round(100 * state.progress[thing.name])} %", thing.box, scale)


def _pane(image: Image, thing: Placed, _state: ScreenState, scale: float) -> None:
    _rectangle(image, thing.box, TASKBAR, None)
    _centred(image, thing.widget.text, thing.box, scale, PAPER)


def _pointer(image: Image, at: tuple[int, int], scale: float) -> None:
    """Draws the pointer, an arrow whose tip is the pixel `at`."""
    fine = 16
    points = [(at[0] + x * scale, at[1] + y * scale) for x, y in _ARROW]
    shape: NDArray[Any] = np.array([(round(x * fine), round(y * fine)) for x, y in points])
    cv2.fillPoly(image, [shape], (255, 255, 255), cv2.LINE_AA, 4)
    cv2.polylines(image, [shape], True, (0, 0, 0), _stroke(scale), cv2.LINE_AA, 4)


_DRAW: dict[Kind, Callable[[Image, Placed, ScreenState, float], None]] = {
    "window": _window,
    "title_bar": _title_bar,
    "menu": _window,
    "pane": _pane,
    "label": _label,
    "button": _button,
    "text_field": _text_field,
    "check_box": _check_box,
    "list": _list,
    "row": _row,
    "menu_item": _menu_item,
    "progress_bar": _progress_bar,
}
