"""Grouping: consecutive gestures become one action.

Belongs here: double and triple clicks, scroll bursts, typed text with its corrections, and how a
group of gestures becomes an `Action`. The time and distance limits are in `ActionSettings`; the
action types are those of OSWorld-Desktopd.
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.inputs import distance
from demo_pipeline.actions.wheel import WheelRule
from demo_pipeline.settings import ActionSettings

MAX_CLICKS = 3  # a fourth click begins a new action
MIN_PATH_POINTS = 2  # a drag path keeps at least its two ends
_TYPING = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


class Grouper:
    """Takes gestures in time order; the group of the last one stays open until another begins."""

    def __init__(self, settings: ActionSettings, rule: WheelRule, reasons: dict[int, str]) -> None:
        self._settings = settings
        self._rule = rule
        self._reasons = reasons
        self._open: list[Gesture] = []
        self._text: list[str] = []
        self._actions: list[Action] = []

    def add(self, gesture: Gesture) -> None:
        """Add `gesture` to the open group, or close the group and begin another."""
        if self._open and not self._continues(gesture):
            self._close()
        if gesture.kind is GestureKind.BACKSPACE and not self._text:
            self._close()
            self._actions.append(_hotkey(gesture))
            return
        if gesture.kind is GestureKind.CHAR:
            self._text.append(gesture.char)
        elif gesture.kind is GestureKind.BACKSPACE:
            self._text.pop()
        self._open.append(gesture)
        if gesture.kind in {GestureKind.HOTKEY, GestureKind.DRAG}:
            self._close()

    def finish(self) -> list[Action]:
        """Close the open group and return all actions."""
        self._close()
        return self._actions

    def _continues(self, gesture: Gesture) -> bool:
        last = self._open[-1]
        if last.kind in _TYPING:
            paused = gesture.start - last.start > self._settings.typing_pause_ms
            split = paused and self._settings.split_typing_at_pauses
            return gesture.kind in _TYPING and not split
        if last.kind is not gesture.kind or last.modifiers != gesture.modifiers:
            return False
        if gesture.kind is GestureKind.CLICK:
            return self._is_multi_click(last, gesture)
        return gesture.kind is GestureKind.WHEEL and self._continues_burst(last, gesture)

    def _is_multi_click(self, last: Gesture, gesture: Gesture) -> bool:
        return (
            len(self._open) < MAX_CLICKS
            and gesture.button == last.button == "left"
            and gesture.start - last.start <= self._settings.multi_click_ms
            and distance(self._open[0], gesture) <= self._settings.click_radius_px
        )

    def _continues_burst(self, last: Gesture, gesture: Gesture) -> bool:
        return (
            (gesture.delta > 0) == (last.delta > 0)
            and gesture.start - last.start <= self._settings.scroll_gap_ms
            and distance(self._open[0], gesture) <= self._settings.click_radius_px
        )

    def _close(self) -> None:
        gestures, self._open = self._open, []
        text, self._text = "".join(self._text), []
        if not gestures:
            return
        kind = gestures[0].kind
        if kind in _TYPING:
            self._close_typing(gestures, text)
        elif kind is GestureKind.HOTKEY:
            self._actions.append(_hotkey(gestures[0]))
        elif kind is GestureKind.WHEEL:
            self._actions.append(_scroll(gestures, self._rule))
        elif kind is GestureKind.DRAG:
            self._actions.append(_drag(gestures[0], self._settings))
        else:
            self._actions.append(_click(gestures))

    def _close_typing(self, gestures: list[Gesture], text: str) -> None:
        if text:
            action = _action("type", gestures)
            action.text, action.modifiers = text, []
            self._actions.append(action)
            return
        unknown = any("unknown_character" in gesture.flags for gesture in gestures)
        reason = "unknown_character" if unknown else "typed_and_erased"
        for gesture in gestures:
            self._reasons.update(dict.fromkeys(gesture.events, reason))


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


def _hotkey(gesture: Gesture) -> Action:
    action = _action("hotkey", [gesture])
    action.keys, action.modifiers = list(gesture.keys), []
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


def _scroll(gestures: list[Gesture], rule: WheelRule) -> Action:
    action = _action("scroll", gestures)
    total = sum(gesture.delta for gesture in gestures)
    action.direction, action.amount = rule.direction(total), rule.notches(total)
    action.wheel_sum, action.wheel_unit, action.wheel_method = total, rule.unit, rule.method
    return action
