"""The pointer: presses and releases joined into clicks and drags, wheel notches into tokens.

Belongs here: what one press of a button was. Not here: double clicks and scroll bursts, which join
tokens (join.py).
"""

from dataclasses import dataclass, field

from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import Input
from demo_pipeline.actions.modifiers import ModifierTracker
from demo_pipeline.actions.repair import distance
from demo_pipeline.formats.demonstration.event_types import EventType
from demo_pipeline.settings import ActionSettings

BUTTONS = {"left": "left", "right": "right", "middle": "middle", "center": "middle"}


@dataclass
class _Press:
    item: Input
    token: Gesture
    reach: float = 0.0
    moves: list[Input] = field(default_factory=list)


class PointerReader:
    """Reads pointer and wheel events in time order; `tokens` and `reasons` are its findings."""

    def __init__(self, settings: ActionSettings, holds: ModifierTracker) -> None:
        self._settings = settings
        self._holds = holds
        self._presses: dict[str, _Press] = {}
        self._claimed: set[int] = set()
        self.tokens: list[Gesture] = []
        self.reasons: dict[int, str] = {}

    def read(self, item: Input) -> None:
        """Take one event."""
        if item.kind == EventType.MOUSEMOVE:
            self._move(item)
        elif item.kind == EventType.MOUSEDOWN:
            self._down(item)
        elif item.kind == EventType.MOUSEUP:
            self._up(item)
        elif item.kind == EventType.MOUSEWHEEL:
            self._wheel(item)

    def finish(self) -> None:
        """The end of the log: a press without a release was still a press."""
        for name in list(self._presses):
            self._unreleased(name)

    def _move(self, item: Input) -> None:
        for press in self._presses.values():
            press.moves.append(item)
            press.reach = max(press.reach, distance(press.item, item))

    def _down(self, item: Input) -> None:
        button = BUTTONS.get(item.name.lower())
        if button is None:
            self.reasons[item.index] = "other_button"
            return
        if button in self._presses:
            self._unreleased(button)
        token = Gesture(
            GestureKind.CLICK,
            item.time,
            item.time,
            item.index,
            [item.index],
            x=item.x,
            y=item.y,
            button=button,
        )
        token.modifiers = self._holds.modify(token, item.time)
        self.tokens.append(token)
        self._presses[button] = _Press(item, token)

    def _up(self, item: Input) -> None:
        button = BUTTONS.get(item.name.lower())
        press = self._presses.pop(button, None) if button else None
        if press is None:
            self.reasons[item.index] = "release_without_press" if button else "other_button"
            return
        token = press.token
        token.end = item.time
        mine = [move.index for move in press.moves if move.index not in self._claimed]
        if self._presses:
            self._claimed.update(mine)
        token.events.extend([*mine, item.index])
        reach = max(press.reach, distance(press.item, item))
        if reach > self._settings.click_radius_px:
            token.kind = GestureKind.DRAG
            token.end_x, token.end_y = item.x, item.y
            moves = [m for m in press.moves if m.x is not None and m.y is not None]
            token.path = [(float(m.x or 0), float(m.y or 0), m.time) for m in moves]
            if not moves:
                token.flags.add("end_points_only")
        elif item.time - press.item.time > self._settings.click_max_ms:
            token.flags.add("long")

    def _unreleased(self, button: str) -> None:
        self._presses.pop(button).token.flags.add("never_released")

    def _wheel(self, item: Input) -> None:
        if not item.delta:
            self.reasons[item.index] = "zero_delta"
            return
        token = Gesture(
            GestureKind.WHEEL,
            item.time,
            item.time,
            item.index,
            [item.index],
            x=item.x,
            y=item.y,
            delta=item.delta,
        )
        token.modifiers = self._holds.modify(token, item.time)
        self.tokens.append(token)
