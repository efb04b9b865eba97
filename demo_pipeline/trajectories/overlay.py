"""Draws an action and its target on a screenshot: rings, arrows, boxes and labels.

Colours are BGR; points and boxes are pixels of the picture. The constants are for a picture that is
480 pixels wide. They are multiplied by `unit`, the width divided by 480.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np

from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    ScrollParameters,
    StepAction,
    TypeParameters,
    WaitParameters,
    points,
)

Picture = np.ndarray[Any, np.dtype[np.uint8]]
PixelPoint = tuple[int, int]
Colour = tuple[int, int, int]

RED: Colour = (50, 50, 220)
GREEN: Colour = (80, 170, 40)
WHITE: Colour = (255, 255, 255)
DARK: Colour = (40, 36, 32)
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_RING = 8  # radius of the ring of a click
_STEP = 5  # difference between the radii of two successive rings of a click
_ARROW = 44  # length of the arrow of a scroll
_GAP = 4  # space around the text of a label, and between a label and a mark
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


class _Rectangle(NamedTuple):
    """A rectangle in pixels; `right` and `bottom` are exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    def overlaps(self, other: "_Rectangle") -> bool:
        """Returns whether two rectangles share a pixel."""
        overlaps_across = self.left < other.right and other.left < self.right
        return overlaps_across and self.top < other.bottom and other.top < self.bottom

    def encloses(self, other: "_Rectangle") -> bool:
        """Returns whether another rectangle is inside this rectangle."""
        encloses_across = self.left <= other.left and other.right <= self.right
        return encloses_across and self.top <= other.top and other.bottom <= self.bottom


def label_of(action: StepAction) -> str:
    """Returns a label for details that rings and arrows cannot show, such as keys.

    The label does not contain typed text.
    """
    match parameters := action.parameters:
        case TypeParameters():
            return f"type({len(parameters.text)} chars)"
        case HotkeyParameters():
            times = f" {parameters.presses} times" if parameters.presses else ""
            return f"hotkey({'+'.join(parameters.keys)}{times})"
        case WaitParameters():
            return f"wait({parameters.seconds:.1f} s)"
    keys = getattr(parameters, "modifiers", None) or ()
    kind = _kind(action)
    if not keys:
        return kind
    return "+".join((*keys, kind or "left"))


def _kind(action: StepAction) -> str:
    """Returns the kind of a pointing action, such as `triple`; empty for a left click or drag."""
    match parameters := action.parameters:
        case ScrollParameters():
            return f"scroll {parameters.direction} {parameters.amount}"
        case DragParameters():
            return f"{parameters.button} drag" if parameters.button in {"middle", "right"} else ""
        case ClickParameters():
            kind = "triple" if parameters.clicks == 3 else parameters.button
            return "" if kind == "left" else kind
    return str(action.action_type).removesuffix("_click")


def draw_action(
    picture: Picture, action: StepAction, scale: float, box: tuple[int, int, int, int] | None
) -> None:
    """Draws an action and its target on the screenshot before the action.

    Clicks are drawn as rings, drags and scrolls as arrows, and the target as a box. The label comes
    from `label_of`.

    Args:
        picture: the screenshot, (height, width, 3) BGR, which is changed.
        scale: pixels of the picture per canvas pixel.
        box: (x, y, width, height) of the target on the canvas. None if no target is known.
    """
    unit = picture.shape[1] / 480
    marks = [(round(x * scale), round(y * scale)) for x, y in points(action)]
    if len(marks) == 2:
        _arrow(picture, marks[0], marks[1], unit)
    elif isinstance(action.parameters, ScrollParameters):
        marks = _scroll(picture, marks[0], action.parameters.direction, unit)
    elif marks:
        _rings(picture, marks[0], _clicks(action), unit)
    taken: list[_Rectangle] = []
    if marks:
        reach = round((_RING + _STEP * (_clicks(action) - 1) + 2) * unit)
        taken.append(_bounds(marks, reach))
    if box is not None:
        taken.append(_draw_box(picture, box, scale))
    label = label_of(action)
    if label:
        place_label(picture, label, taken, 0.42 if unit >= 0.75 else 0.36)


def text_size(text: str, scale: float) -> tuple[int, int]:
    """Returns the width of a text and its height above the baseline, in pixels."""
    (width, height), _ = cv2.getTextSize(text, _FONT, scale, 1)
    return width, height


def write(picture: Picture, text: str, start: PixelPoint, scale: float, colour: Colour) -> None:
    """Writes a text, with `start` as the left end of the baseline.

    Characters that are not ASCII become "?".
    """
    plain = text.encode("ascii", "replace").decode("ascii")
    cv2.putText(picture, plain, start, _FONT, scale, colour, 1, cv2.LINE_AA)


def place_label(picture: Picture, text: str, taken: Sequence[_Rectangle], scale: float) -> None:
    """Writes a label on a dark background.

    If possible, the label is placed next to a rectangle in `taken`, otherwise in a corner.
    """
    text_width, text_height = text_size(text, scale)
    wide = text_width + 2 * _GAP
    high = text_height + 2 * _GAP + 2
    height, width = picture.shape[:2]
    spots: list[_Rectangle] = []
    for x, y in _label_corners(taken, wide, high, _Rectangle(0, 0, width, height)):
        left = max(0, min(x, width - wide))
        top = max(0, min(y, height - high))
        spots.append(_Rectangle(left, top, left + wide, top + high))
    best = next((spot for spot in spots if _is_free(spot, taken)), spots[-1])
    cv2.rectangle(picture, best[:2], (best.right - 1, best.bottom - 1), DARK, cv2.FILLED)
    write(picture, text, (best.left + _GAP, best.bottom - _GAP - 2), scale, WHITE)


def _is_free(spot: _Rectangle, taken: Sequence[_Rectangle]) -> bool:
    """Returns whether a label at this spot leaves all marks visible.

    The label must not touch the first rectangle, which contains the action's marks. It may lie
    inside the target's box.
    """
    if taken and spot.overlaps(taken[0]):
        return False
    return not any(spot.overlaps(mark) and not mark.encloses(spot) for mark in taken)


def _label_corners(
    taken: Sequence[_Rectangle], wide: int, high: int, inside: _Rectangle
) -> Iterator[PixelPoint]:
    """Yields positions to try for the upper left corner of a label.

    The first positions are next to the rectangles `taken`, the last in the corners of `inside`.
    """
    for left, top, right, bottom in taken:
        middle_x = (left + right - wide) // 2
        middle_y = (top + bottom - high) // 2
        yield right + _GAP, middle_y
        yield left - wide - _GAP, middle_y
        yield middle_x, bottom + _GAP
        yield middle_x, top - high - _GAP
    right = inside.right - wide - _GAP
    bottom = inside.bottom - high - _GAP
    yield right, bottom
    yield right, _GAP
    yield _GAP, _GAP
    yield _GAP, bottom


def _clicks(action: StepAction) -> int:
    if action.action_type is ActionType.DOUBLE_CLICK:
        return 2
    return getattr(action.parameters, "clicks", None) or 1


def _draw_box(picture: Picture, box: tuple[int, int, int, int], scale: float) -> _Rectangle:
    left, top, wide, high = (round(value * scale) for value in box)
    cv2.rectangle(picture, (left, top), (left + wide, top + high), GREEN, 1, cv2.LINE_AA)
    return _Rectangle(left - 1, top - 1, left + wide + 2, top + high + 2)


def _bounds(marks: Sequence[PixelPoint], reach: int) -> _Rectangle:
    """Returns the rectangle around points, with a margin of `reach` pixels."""
    xs = [x for x, _ in marks]
    ys = [y for _, y in marks]
    return _Rectangle(min(xs) - reach, min(ys) - reach, max(xs) + reach, max(ys) + reach)


def _strokes(unit: float) -> tuple[tuple[Colour, int], tuple[Colour, int]]:
    """Returns colour and thickness of a white stroke and of a thinner red stroke on top.

    Together they are visible on any background.
    """
    thickness = max(1, round(2 * unit))
    return (WHITE, thickness + 2), (RED, thickness)


def _rings(picture: Picture, centre: PixelPoint, count: int, unit: float) -> None:
    for number in range(count):
        radius = round((_RING + _STEP * number) * unit)
        for colour, thickness in _strokes(unit):
            cv2.circle(picture, centre, radius, colour, thickness, cv2.LINE_AA)


def _arrow(picture: Picture, start: PixelPoint, end: PixelPoint, unit: float) -> None:
    length = max(1.0, float(np.hypot(end[0] - start[0], end[1] - start[1])))
    tip = min(0.5, 12 * unit / length)
    for colour, thickness in _strokes(unit):
        cv2.circle(picture, start, round(3 * unit), colour, thickness, cv2.LINE_AA)
        cv2.arrowedLine(picture, start, end, colour, thickness, cv2.LINE_AA, tipLength=tip)


def _scroll(picture: Picture, start: PixelPoint, direction: str, unit: float) -> list[PixelPoint]:
    """Draws an arrow in the direction of a scroll, and returns its two ends.

    The arrow starts at the pointer. If it would leave the picture, it ends at the pointer instead.
    """
    across, down = _DIRECTIONS[direction]
    step = round(_ARROW * unit)
    end = (start[0] + across * step, start[1] + down * step)
    height, width = picture.shape[:2]
    if not (0 <= end[0] < width and 0 <= end[1] < height):
        end = start
        start = (start[0] - across * step, start[1] - down * step)
    _arrow(picture, start, end, unit)
    return [start, end]
