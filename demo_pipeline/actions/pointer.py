"""The pointer: button presses and wheel events as gestures, and which presses are a double click.

Belongs here: whether one press of a button was a click or a drag. Clicks and scroll bursts
are grouped in grouping.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from demo_pipeline.actions.inputs import Gesture, GestureKind, Input, distance
from demo_pipeline.actions.keyboard import ModifierTracker
from demo_pipeline.recording.log_events import EventType
from demo_pipeline.settings import ActionSettings

MAX_CLICKS = 3  # a fourth click begins a new action

# Logged button name in lower case → button.
BUTTONS = {"left": "left", "right": "right", "middle": "middle", "center": "middle"}


@dataclass
class _Press:
    """A button that is held down: its mousedown, and the gesture that it becomes."""

    item: Input
    gesture: Gesture
    reach: float = 0.0  # farthest distance of the pointer from the press so far, screen pixels
    moves: list[Input] = field(default_factory=list)  # of the pointer since the press


class PointerReader:
    """Reads the pointer and wheel events in time order.

    `in_pixels`: the deltas are pixels, and those of 0 are phases of a scroll.

    Attributes:
        gestures: clicks, drags, wheel events and presses of unknown buttons, in order.
        reasons: line number → why the event is part of no action.
    """

    def __init__(
        self, settings: ActionSettings, modifiers: ModifierTracker, *, in_pixels: bool = False
    ) -> None:
        self._settings = settings
        self._modifiers = modifiers
        self._in_pixels = in_pixels
        self._presses: dict[str, _Press] = {}
        self._assigned_moves: set[int] = set()
        self.gestures: list[Gesture] = []
        self.reasons: dict[int, str] = {}

    def read(self, item: Input) -> None:
        """Read the next event."""
        if item.kind == EventType.MOUSEMOVE:
            for press in self._presses.values():
                press.moves.append(item)
                press.reach = max(press.reach, distance(press.item, item))
        elif item.kind == EventType.MOUSEDOWN:
            self._down(item)
        elif item.kind == EventType.MOUSEUP:
            self._up(item)
        elif item.kind == EventType.MOUSEWHEEL and not item.delta and not self._in_pixels:
            self.reasons[item.index] = "zero_delta"
        elif item.kind == EventType.MOUSEWHEEL:
            gesture = _gesture(GestureKind.WHEEL, item)
            gesture.delta = item.delta
            if item.delta:  # a touchpad's phase without movement uses no modifier
                gesture.modifiers = self._modifiers.apply_to(gesture, item.time)
            self.gestures.append(gesture)

    def finish(self) -> None:
        """The end of the log: presses that are still held were never released."""
        for name in list(self._presses):
            self._unreleased(name)

    def _down(self, item: Input) -> None:
        button = BUTTONS.get(item.name.lower())
        if button is None:
            self.reasons[item.index] = "other_button"
            unknown = Gesture(GestureKind.UNKNOWN, item.time, item.time, item.index, [])
            self._modifiers.apply_to(unknown, item.time)
            self.gestures.append(unknown)
            return
        if button in self._presses:
            self._unreleased(button)
        gesture = _gesture(GestureKind.CLICK, item)
        gesture.button = button
        gesture.modifiers = self._modifiers.apply_to(gesture, item.time)
        self.gestures.append(gesture)
        self._presses[button] = _Press(item, gesture)

    def _up(self, item: Input) -> None:
        button = BUTTONS.get(item.name.lower())
        press = self._presses.pop(button, None) if button else None
        if press is None:
            self.reasons[item.index] = "release_without_press" if button else "other_button"
            return
        gesture = press.gesture
        gesture.end = item.time
        moves = [m.index for m in press.moves if m.index not in self._assigned_moves]
        if self._presses:
            self._assigned_moves.update(moves)
        gesture.events.extend([*moves, item.index])
        reach = max(press.reach, distance(press.item, item))
        if reach > self._settings.click_radius_px:
            gesture.kind = GestureKind.DRAG
            gesture.end_x, gesture.end_y = item.x, item.y
            gesture.path = [
                (float(m.x), float(m.y), m.time)
                for m in press.moves
                if m.x is not None and m.y is not None
            ]
            if not gesture.path:
                gesture.flags.add("end_points_only")
        elif item.time - press.item.time > self._settings.click_max_ms:
            gesture.flags.add("long")

    def _unreleased(self, button: str) -> None:
        self._presses.pop(button).gesture.flags.add("never_released")


def _gesture(kind: GestureKind, item: Input) -> Gesture:
    return Gesture(kind, item.time, item.time, item.index, [item.index], x=item.x, y=item.y)


def is_multi_click(clicks: Sequence[Gesture], gesture: Gesture, settings: ActionSettings) -> bool:
    """Whether a click belongs to the clicks before it: a double or triple click.

    It comes soon enough after the last one, near the first one, with the left button and the same
    modifiers held.
    """
    last = clicks[-1]
    return (
        gesture.kind is GestureKind.CLICK
        and len(clicks) < MAX_CLICKS
        and gesture.button == last.button == "left"
        and last.modifiers == gesture.modifiers
        and gesture.start - last.start <= settings.multi_click_ms
        and distance(clicks[0], gesture) <= settings.click_radius_px
    )
