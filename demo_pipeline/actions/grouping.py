"""Grouping: consecutive gestures become one action.

Belongs here: double and triple clicks, runs of one key, typing, and how a group of gestures becomes
an `Action`. The text of typing is in typed_text.py, the joining of wheel events in scrolls.py. The
time and distance limits are in `ActionSettings`; the action types are those of OSWorld-Desktopd.
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import CONTINUED, Action
from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import distance
from demo_pipeline.actions.keyboard import NAVIGATION_KEYS
from demo_pipeline.actions.typed_text import TypedPart, TypedText
from demo_pipeline.actions.wheel import wheel_rule
from demo_pipeline.settings import ActionSettings

MAX_CLICKS = 3  # a fourth click begins a new action
MIN_PATH_POINTS = 2  # a drag path keeps at least its two ends
_TYPING = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


class Grouper:
    """Takes gestures in time order; the group of the last one stays open until another begins."""

    def __init__(
        self, settings: ActionSettings, reasons: dict[int, str], *, in_pixels: bool = False
    ) -> None:
        self._settings = settings
        self._reasons = reasons
        self._in_pixels = in_pixels
        self._open: list[Gesture] = []
        self._typing = TypedText()
        self._after_unknown = False
        self._actions: list[Action] = []

    def add(self, gesture: Gesture) -> None:
        """Add `gesture` to the open group, or close the group and begin another."""
        if gesture.kind is GestureKind.UNKNOWN:
            self._interrupt(gesture)
            return
        if gesture.kind is GestureKind.BACKSPACE and not self._erases(gesture):
            gesture.kind = GestureKind.HOTKEY
        if self._open and not self._continues(gesture):
            self._close()
        if gesture.kind in _TYPING:
            self._typing.add(gesture)
            if self._after_unknown:
                gesture.flags.add("unknown_input")
        self._after_unknown = False
        self._open.append(gesture)
        if gesture.kind is GestureKind.DRAG or (
            gesture.kind is GestureKind.HOTKEY and gesture.keys[-1] not in NAVIGATION_KEYS
        ):
            self._close()

    def finish(self) -> list[Action]:
        """Close the open group and return all actions."""
        self._close()
        return self._actions

    def _interrupt(self, gesture: Gesture) -> None:
        """A key or button whose effect is not known: typing and runs of a key end before it."""
        self._reasons.update(dict.fromkeys(gesture.events, "modifier_without_effect"))
        if self._open and self._open[0].kind in _TYPING:
            self._open[-1].flags.add("unknown_input")
        if self._open and self._open[0].kind in _TYPING | {GestureKind.HOTKEY}:
            self._close()
        self._after_unknown = True

    def _erases(self, backspace: Gesture) -> bool:
        """Whether a Backspace corrects the text being typed; otherwise it is a hotkey."""
        return bool(self._open) and not self._typing.is_empty and self._continues(backspace)

    def _continues(self, gesture: Gesture) -> bool:
        last = self._open[-1]
        if last.kind in _TYPING:
            paused = gesture.start - last.start > self._settings.typing_pause_ms
            split = paused and self._settings.split_typing_at_pauses
            return gesture.kind in _TYPING and not split
        if last.kind is not gesture.kind:
            return False
        if gesture.kind is GestureKind.HOTKEY:
            return self._is_same_run(last, gesture)
        return gesture.kind is GestureKind.CLICK and self._is_multi_click(last, gesture)

    def _is_same_run(self, last: Gesture, gesture: Gesture) -> bool:
        """Whether a key is held, or tapped again before the person can look at the result."""
        soon = gesture.key_press - last.key_press < self._settings.key_run_gap_ms
        return sorted(gesture.keys) == sorted(last.keys) and (gesture.repeat or soon)

    def _is_multi_click(self, last: Gesture, gesture: Gesture) -> bool:
        return (
            len(self._open) < MAX_CLICKS
            and gesture.button == last.button == "left"
            and last.modifiers == gesture.modifiers
            and gesture.start - last.start <= self._settings.multi_click_ms
            and distance(self._open[0], gesture) <= self._settings.click_radius_px
        )

    def _close(self) -> None:
        gestures, self._open = self._open, []
        typing, self._typing = self._typing, TypedText()
        if not gestures:
            return
        kind = gestures[0].kind
        if kind in _TYPING:
            for part in typing.parts():
                self._close_typing(part)
        elif kind is GestureKind.HOTKEY:
            self._actions.append(_hotkey(gestures))
        elif kind is GestureKind.WHEEL:
            self._actions.append(_scroll(gestures[0], self._settings, in_pixels=self._in_pixels))
        elif kind is GestureKind.DRAG:
            self._actions.append(_drag(gestures[0], self._settings))
        else:
            self._actions.append(_click(gestures))

    def _close_typing(self, part: TypedPart) -> None:
        if part.text:
            action = _action("type", part.gestures)
            action.text, action.modifiers = part.text, []
            if part.continued:
                action.flags = sorted([*action.flags, CONTINUED])
            self._actions.append(action)
            return
        for gesture in part.gestures:
            self._reasons.update(dict.fromkeys(gesture.events, part.reason))


def _action(action_type: str, gestures: Sequence[Gesture]) -> Action:
    first = gestures[0]
    events = sorted({index for gesture in gestures for index in gesture.events})
    return Action(
        action_type,
        press_ms=first.start,
        end_ms=max(gesture.end for gesture in gestures),
        events=events,
        x=first.x,
        y=first.y,
        modifiers=["alt" if name == "altgr" else name for name in first.modifiers],
        first_event=events[0],
        last_event=events[-1],
        flags=sorted({flag for gesture in gestures for flag in gesture.flags}),
    )


def _hotkey(gestures: Sequence[Gesture]) -> Action:
    action = _action("hotkey", gestures)
    action.keys, action.modifiers = list(gestures[0].keys), []
    action.presses = len(gestures)
    return action


def _click(gestures: list[Gesture]) -> Action:
    button = gestures[0].button
    kind = "double_click" if len(gestures) == 2 else "click"
    action = _action("right_click" if button == "right" else kind, gestures)
    action.button, action.clicks = button, len(gestures)
    return action


def _drag(gesture: Gesture, settings: ActionSettings) -> Action:
    action = _action("drag", [gesture])
    action.button, action.end_x, action.end_y = gesture.button, gesture.end_x, gesture.end_y
    limit = max(MIN_PATH_POINTS, settings.drag_path_points)
    count = len(gesture.path)
    chosen = sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)}) if count else []
    action.path = [
        {"x": x, "y": y, "time_ms": time} for x, y, time in (gesture.path[i] for i in chosen)
    ]
    return action


def _scroll(gesture: Gesture, settings: ActionSettings, *, in_pixels: bool) -> Action:
    action = _action("scroll", [gesture])
    rule = wheel_rule(gesture.deltas, settings, in_pixels=in_pixels)
    action.direction, action.amount = rule.direction(gesture.delta), rule.notches(gesture.delta)
    action.wheel_sum, action.wheel_remainder = gesture.delta, rule.remainder(gesture.delta)
    action.wheel_unit, action.wheel_method = rule.unit, rule.method
    return action
