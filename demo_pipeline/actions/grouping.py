"""Tokens joined into the actions a person would say they did.

Belongs here: double and triple clicks, scroll bursts, typed text with its corrections, and how a
group is written as an `Action`. Source of the rules: seed 000 (Event Processing), seed 001
(action types), formats notes.
"""

from collections.abc import Sequence
from math import hypot

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.gestures import Gesture, GestureKind
from demo_pipeline.actions.wheel import WheelRule
from demo_pipeline.settings import ActionSettings

_TYPING = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


class Grouper:
    """Takes tokens in time order and keeps the one group that is still open."""

    def __init__(self, settings: ActionSettings, rule: WheelRule, reasons: dict[int, str]) -> None:
        self._settings = settings
        self._rule = rule
        self._reasons = reasons
        self._open: list[Gesture] = []
        self._text: list[str] = []
        self._actions: list[Action] = []

    def take(self, token: Gesture) -> None:
        """Join `token` to the open group, or close that and begin another."""
        if self._open and not self._joins(token):
            self._close()
        if token.kind is GestureKind.BACKSPACE and not self._text:
            self._close()
            self._actions.append(_hotkey(token))
            return
        if token.kind is GestureKind.CHAR:
            self._text.append(token.char)
        elif token.kind is GestureKind.BACKSPACE:
            self._text.pop()
        self._open.append(token)
        if token.kind in {GestureKind.HOTKEY, GestureKind.DRAG}:
            self._close()

    def finish(self) -> list[Action]:
        """Close what is open and return all actions."""
        self._close()
        return self._actions

    def _joins(self, token: Gesture) -> bool:
        last = self._open[-1]
        if last.kind in _TYPING:
            paused = token.start - last.start > self._settings.typing_pause_ms
            return token.kind in _TYPING and not (paused and self._settings.split_typing_at_pauses)
        if last.kind is not token.kind or last.modifiers != token.modifiers:
            return False
        if token.kind is GestureKind.CLICK:
            return self._is_multi_click(last, token)
        return token.kind is GestureKind.WHEEL and self._continues_burst(last, token)

    def _is_multi_click(self, last: Gesture, token: Gesture) -> bool:
        return (
            len(self._open) < 3
            and token.button == last.button == "left"
            and token.start - last.start <= self._settings.multi_click_ms
            and _distance(self._open[0], token) <= self._settings.click_radius_px
        )

    def _continues_burst(self, last: Gesture, token: Gesture) -> bool:
        return (
            (token.delta > 0) == (last.delta > 0)
            and token.start - last.start <= self._settings.scroll_gap_ms
            and _distance(self._open[0], token) <= self._settings.click_radius_px
        )

    def _close(self) -> None:
        tokens, self._open = self._open, []
        text, self._text = "".join(self._text), []
        if not tokens:
            return
        kind = tokens[0].kind
        if kind in _TYPING:
            self._close_typing(tokens, text)
        elif kind is GestureKind.HOTKEY:
            self._actions.append(_hotkey(tokens[0]))
        elif kind is GestureKind.WHEEL:
            self._actions.append(_scroll(tokens, self._rule))
        elif kind is GestureKind.DRAG:
            self._actions.append(_drag(tokens[0], self._settings))
        else:
            self._actions.append(_click(tokens))

    def _close_typing(self, tokens: list[Gesture], text: str) -> None:
        if text:
            action = _action("type", tokens)
            action.text, action.modifiers = text, []
            self._actions.append(action)
            return
        lost = any("unknown_character" in token.flags for token in tokens)
        reason = "unknown_character" if lost else "typed_and_erased"
        for token in tokens:
            self._reasons.update(dict.fromkeys(token.events, reason))


def _distance(a: Gesture, b: Gesture) -> float:
    if a.x is None or a.y is None or b.x is None or b.y is None:
        return 0.0
    return hypot(a.x - b.x, a.y - b.y)


def _action(action_type: str, tokens: Sequence[Gesture]) -> Action:
    first = tokens[0]
    events = sorted({index for token in tokens for index in token.events})
    return Action(
        action_type,
        press_ms=first.start,
        end_ms=max(token.end for token in tokens),
        events=events,
        x=first.x,
        y=first.y,
        modifiers=["alt" if name == "altgr" else name for name in first.modifiers],
        first_event=events[0],
        last_event=events[-1],
        flags=sorted({flag for token in tokens for flag in token.flags}),
    )


def _hotkey(token: Gesture) -> Action:
    action = _action("hotkey", [token])
    action.keys, action.modifiers = list(token.keys), []
    return action


def _click(tokens: list[Gesture]) -> Action:
    button = tokens[0].button
    kind = "double_click" if len(tokens) == 2 else "click"
    action = _action("right_click" if button == "right" else kind, tokens)
    action.button, action.clicks = button, len(tokens)
    return action


def _drag(token: Gesture, settings: ActionSettings) -> Action:
    action = _action("drag", [token])
    action.button, action.end_x, action.end_y = token.button, token.end_x, token.end_y
    most = max(2, settings.drag_path_points)
    count = len(token.path)
    chosen = sorted({round(i * (count - 1) / (most - 1)) for i in range(most)}) if count else []
    action.path = [
        {"x": x, "y": y, "time_ms": time} for x, y, time in (token.path[i] for i in chosen)
    ]
    return action


def _scroll(tokens: list[Gesture], rule: WheelRule) -> Action:
    action = _action("scroll", tokens)
    total = sum(token.delta for token in tokens)
    action.direction, action.amount = rule.direction(total), rule.notches(total)
    action.wheel_sum, action.wheel_unit, action.wheel_method = total, rule.unit, rule.method
    return action
