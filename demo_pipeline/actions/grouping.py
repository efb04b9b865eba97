"""Grouping: consecutive gestures become one action, such as a double click.

Belongs here: from repaired input events to actions and pauses in order; whether one press of a
button was a click or a drag; double and triple clicks,
runs of one key, typing; what is left out (stray modifier taps, the recorder's stop shortcut),
pointer moves before an action, and where a pause begins and ends. The text of typing is in
typed_text.py, the joining of wheel events in scrolls.py; whether a pause was a wait is seen in the
video. The time and distance limits are in `ActionSettings`; the action types are those of
OSWorld-Desktopd.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from demo_pipeline.actions.action_tables import (
    AFTER_LONG_REST,
    CONTINUED,
    POINTER_MOVED,
    Action,
)
from demo_pipeline.actions.inputs import Gesture, GestureKind, Input, distance
from demo_pipeline.actions.keyboard import (
    NAVIGATION_KEYS,
    KeyboardReader,
    ModifierTracker,
    doubt_beside_unknown_keys,
    without_held_keys,
)
from demo_pipeline.actions.keyboard_stretches import Keyboards, switch_lines
from demo_pipeline.actions.scrolls import UNCLEAR_UNIT, Wheel, join_scrolls, read_wheel
from demo_pipeline.actions.typed_text import TypedPart, TypedText
from demo_pipeline.recording.input_log import EventType
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


class _PointerReader:
    """Reads the pointer and wheel events in time order.

    `glides`: the deltas are a touchpad's, and those of 0 are phases of a scroll.

    Attributes:
        gestures: clicks, drags, wheel events and presses of unknown buttons, in order.
        reasons: line number → why the event is part of no action.
    """

    def __init__(
        self, settings: ActionSettings, modifiers: ModifierTracker, *, glides: bool = False
    ) -> None:
        self._settings = settings
        self._modifiers = modifiers
        self._glides = glides
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
        elif item.kind == EventType.MOUSEWHEEL and not item.delta and not self._glides:
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
            gesture.end_x = item.x
            gesture.end_y = item.y
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
    """Whether a click or drag belongs to the clicks before it: a double click, a drag by words.

    It comes soon enough after the last one, near the first one, with the left button and the same
    modifiers held.
    """
    last = clicks[-1]
    return (
        gesture.kind in {GestureKind.CLICK, GestureKind.DRAG}
        and len(clicks) < MAX_CLICKS
        and gesture.button == last.button == "left"
        and last.modifiers == gesture.modifiers
        and gesture.start - last.start <= settings.multi_click_ms
        and distance(clicks[0], gesture) <= settings.click_radius_px
    )


def _same_switch(last: Gesture, gesture: Gesture) -> bool:
    """Whether Tab was pressed again before Alt or Command was let go, which chooses a window."""
    switches = gesture.keys[-1] == "tab" and not {"alt", "command"}.isdisjoint(gesture.keys)
    return switches and gesture.held_since == last.held_since


_TYPING = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


class _Grouper:
    """Takes gestures in time order; the group of the last one stays open until another begins."""

    def __init__(self, settings: ActionSettings, reasons: dict[int, str], wheel: Wheel) -> None:
        self._settings = settings
        self._reasons = reasons
        self._wheel = wheel
        self._open: list[Gesture] = []
        self._typing = TypedText()
        self._after_unknown = False
        self._actions: list[Action] = []

    def add(self, gesture: Gesture) -> None:
        """Add `gesture` to the open group, or close the group and begin another."""
        if gesture.kind is GestureKind.UNKNOWN:
            self._interrupt(gesture)
            return
        erases = self._open and not self._typing.is_empty and self._continues(gesture)
        if gesture.kind is GestureKind.BACKSPACE and not erases:
            gesture.kind = GestureKind.HOTKEY  # it corrects nothing that was just typed
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

    def _continues(self, gesture: Gesture) -> bool:
        last = self._open[-1]
        if last.kind in _TYPING:
            return gesture.kind in _TYPING
        if last.kind is GestureKind.CLICK:
            return is_multi_click(self._open, gesture, self._settings)
        if last.kind is not gesture.kind:
            return False
        if gesture.kind is GestureKind.HOTKEY:
            # A key is held, or tapped again before the person can look at the result.
            soon = gesture.key_press - last.key_press < self._settings.key_run_gap_ms
            soon |= _same_switch(last, gesture)
            return sorted(gesture.keys) == sorted(last.keys) and (gesture.repeat or soon)
        return False

    def _close(self) -> None:
        gestures = self._open
        self._open = []
        typing = self._typing
        self._typing = TypedText()
        if not gestures:
            return
        kind = gestures[-1].kind
        if kind in _TYPING:
            for part in typing.parts():
                if part.text:
                    self._actions.append(_typing(part))
                for gesture in () if part.text else part.gestures:
                    self._reasons.update(dict.fromkeys(gesture.events, part.reason))
        elif kind is GestureKind.HOTKEY:
            action = _action("hotkey", gestures)
            action.keys = list(gestures[0].keys)
            action.modifiers = []
            action.presses = len(gestures)
            self._actions.append(action)
        elif kind is GestureKind.WHEEL:
            self._actions.append(_scroll(gestures[0], self._wheel))
        elif kind is GestureKind.DRAG:
            self._actions.append(_drag(gestures, self._settings))
        else:
            button = gestures[0].button
            double = len(gestures) == 2
            click = "double_click" if double else "click"
            action = _action("right_click" if button == "right" else click, gestures)
            action.button, action.clicks = button, len(gestures)
            self._actions.append(action)


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


def _typing(part: TypedPart) -> Action:
    action = _action("type", part.gestures)
    action.text = part.text
    action.modifiers = []
    if part.continued:
        long_rest = [AFTER_LONG_REST] if part.after_long_rest else []
        action.flags = sorted([*action.flags, CONTINUED, *long_rest])
    return action


def _drag(gestures: Sequence[Gesture], settings: ActionSettings) -> Action:
    """A drag; one that begins with the second press of a double click selects word by word."""
    gesture = gestures[-1]
    action = _action("drag", gestures)
    action.clicks = len(gestures) if len(gestures) > 1 else None
    action.x = gesture.x
    action.y = gesture.y
    action.button = gesture.button
    action.end_x = gesture.end_x
    action.end_y = gesture.end_y
    limit = settings.drag_path_points
    count = len(gesture.path)
    chosen = sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)}) if count else []
    action.path = [
        {"x": x, "y": y, "time_ms": time} for x, y, time in (gesture.path[i] for i in chosen)
    ]
    return action


def _scroll(gesture: Gesture, wheel: Wheel) -> Action:
    action = _action("scroll", [gesture])
    rule = wheel.rule_of(unclear=UNCLEAR_UNIT in gesture.flags)
    action.direction, action.amount = rule.direction(gesture.delta), rule.notches(gesture.delta)
    action.wheel_sum, action.wheel_remainder = gesture.delta, rule.remainder(gesture.delta)
    action.wheel_unit = rule.unit
    action.wheel_method = rule.method
    return action


ARRIVED_PX = 40.0  # screen pixels; a pointer this near to the press has arrived, or overshot it
ARRIVED_MS = 1000  # milliseconds; a pointer that arrived earlier was waiting there, not on its way


def pauses_between(
    actions: Sequence[Action],
    inputs: Sequence[Input],
    settings: ActionSettings,
    breaks: Collection[int] = (),
) -> Iterator[Action]:
    """Yield the pauses of at least `pause_ms` between two actions, none inside one.

    Only the approach to the next target ends a pause; other movements of the pointer do not, nor
    do they begin one. A key that is part of no action does both.

    Args:
        actions: in time order.
        inputs: of the whole log, in time order.
        settings: `pause_ms`, and `pointer_rest_ms`, which ends a movement of the pointer.
        breaks: lines before which the recorder's clock was set, or at which it withheld input.
    """
    if not actions:
        return
    presses = [action.press_ms for action in actions]
    ends = list(accumulate((action.end_ms for action in actions), max))
    first_end = min(action.end_ms for action in actions)
    moves = [item for item in inputs if item.kind == EventType.MOUSEMOVE]
    times = [move.time for move in moves]
    others = (item for item in inputs if item.kind != EventType.MOUSEMOVE)
    for before, after in pairwise(others):
        started = bisect_right(presses, before.time)
        inside = started > 0 and ends[started - 1] >= after.time
        inside |= started < len(actions) and CONTINUED in actions[started].flags
        inside |= any(before.index < line <= after.index for line in breaks)
        if before.time < first_end or after.time > presses[-1] or inside:
            continue
        between = moves[bisect_right(times, before.time) : bisect_right(times, after.time)]
        end = _approach_start(between, after, settings.pointer_rest_ms)
        if end - before.time < settings.pause_ms:
            continue
        pause = Action("pause", before.time, end, [])
        pause.first_event = before.index
        pause.last_event = after.index
        pause.seconds = (end - before.time) / 1000
        instants = [before.time, *(move.time for move in between), after.time]
        if max(later - time for time, later in pairwise(instants)) < settings.pause_ms:
            pause.flags = [POINTER_MOVED]
        yield pause


def _approach_start(moves: Sequence[Input], press: Input, rest_ms: int) -> int:
    """When the last movement towards a press began, epoch milliseconds; the press without one.

    Back from the press, the approach lasts for as long as the pointer comes from farther away and
    does not rest.
    """
    position = len(moves) - 1
    while position >= 0 and distance(moves[position], press) <= ARRIVED_PX:
        position -= 1
    arrived = position + 1
    if arrived == len(moves) or press.x is None or press.time - moves[arrived].time > ARRIVED_MS:
        return press.time
    start = arrived
    farthest = 0.0
    while position >= 0 and moves[position + 1].time - moves[position].time < rest_ms:
        away = distance(moves[position], press)
        if away < farthest - ARRIVED_PX:
            break
        if away > farthest:
            start = position
            farthest = away
        position -= 1
    return moves[start].time


STRAY_SHIFT_MS = 1000  # a Shift tap that is this close to a typed character has no meaning


@dataclass
class Segmentation:
    """The result of the segmentation.

    Attributes:
        actions: with pauses, in time order.
        reasons: line number → why the input event is part of no action.
        unknown_keys: logged key names that are in no table.
        wheel_remainder: notches that no scroll contains, signed as logged.
        switch_lines: lines at which the keyboard layout or the input method may have been switched.
        layout_lines: lines of key presses whose characters follow from the keyboard layout.
        altgr_lines: lines of key presses with the pair of keys that Windows logs for AltGr, which
            the US layout does not have.
    """

    actions: list[Action]
    reasons: dict[int, str]
    unknown_keys: set[str] = field(default_factory=set)
    wheel_remainder: float = 0.0
    switch_lines: list[int] = field(default_factory=list)
    layout_lines: frozenset[int] = frozenset()
    altgr_lines: frozenset[int] = frozenset()


def segment(
    inputs: list[Input],
    platform: str,
    settings: ActionSettings,
    keyboards: Keyboards,
    *,
    clock_steps: Collection[int] = (),
    withheld: Collection[tuple[int, int]] = (),
    input_method: bool = False,
) -> Segmentation:
    """Turn repaired inputs (in time order) into actions.

    `keyboards` are those by which keys are read; `input_method`: the person's language is typed
    with one. `clock_steps` are the lines before which the recorder's clock was set; `withheld` are
    the lines and epoch milliseconds at which the recorder withheld input, whose effect is unknown.
    """
    turns = [item for item in inputs if item.kind == EventType.MOUSEWHEEL]
    wheel = read_wheel(turns, platform, settings)
    modifiers = ModifierTracker(inputs)
    keyboard = KeyboardReader(platform, keyboards, modifiers)
    pointer = _PointerReader(settings, modifiers, glides=wheel.glides)
    readers: dict[str, Callable[[Input], None]] = {
        EventType.KEYDOWN: keyboard.down,
        EventType.KEYUP: keyboard.up,
    }
    for item in inputs:
        readers.get(item.kind, pointer.read)(item)
    modifiers.finish()
    pointer.finish()
    reasons = keyboard.reasons | modifiers.reasons | pointer.reasons
    gaps = [Gesture(GestureKind.UNKNOWN, time, time, line, []) for line, time in withheld]
    unsorted = [*keyboard.gestures, *modifiers.gestures, *pointer.gestures, *gaps]
    in_time_order = sorted(unsorted, key=lambda g: (g.start, g.index))
    in_time_order = without_held_keys(in_time_order, keyboard.holds, reasons)
    gestures = _without_stray_taps(in_time_order, reasons)
    doubt_beside_unknown_keys(gestures)
    joined, remainder = join_scrolls(gestures, settings, reasons, wheel)
    grouper = _Grouper(settings, reasons, wheel)
    for gesture in joined:
        grouper.add(gesture)
    actions = grouper.finish()
    last = actions[-1] if actions and actions[-1].action_type == "hotkey" else None
    if last and settings.stop_shortcut and set(last.keys) == set(settings.stop_shortcut):
        reasons.update(dict.fromkeys(last.events, "stop_shortcut"))
        actions.pop()
    actions.sort(key=_order)
    _add_pre_moves(actions, inputs, settings)
    breaks = [*clock_steps, *(line for line, _ in withheld)]
    actions = sorted([*actions, *pauses_between(actions, inputs, settings, breaks)], key=_order)
    for number, action in enumerate(actions):
        action.action_index = number
    pressed = [*keyboard.gestures, *modifiers.gestures]
    return Segmentation(
        actions,
        reasons,
        keyboard.unknown_keys,
        remainder,
        switch_lines(pressed, inputs, platform, input_method=input_method),
        layout_lines=frozenset(gesture.index for gesture in pressed if gesture.by_layout),
        altgr_lines=_altgr_lines(pressed) if platform == "windows" else frozenset(),
    )


def _altgr_lines(gestures: Sequence[Gesture]) -> frozenset[int]:
    """Lines of key presses with AltGr held, as Windows logs it: LeftCtrl and RightAlt together."""
    return frozenset(gesture.index for gesture in gestures if "altgr" in gesture.modifiers)


def _order(action: Action) -> tuple[int, int]:
    return action.press_ms, action.first_event


def _without_stray_taps(gestures: list[Gesture], reasons: dict[int, str]) -> list[Gesture]:
    """Modifier taps during a drag become part of it; Shift taps close to typing are left out."""
    typed = [gesture.start for gesture in gestures if gesture.kind is GestureKind.CHAR]
    kept: list[Gesture] = []
    drag: Gesture | None = None
    for gesture in gestures:
        if "modifier_tap" in gesture.flags:
            if drag is not None and gesture.start <= drag.end:
                drag.events.extend(gesture.events)
                drag.flags.add("modified_midway")
                continue
            near = bisect_right(typed, gesture.end + STRAY_SHIFT_MS) > bisect_right(
                typed, gesture.start - STRAY_SHIFT_MS
            )
            if near and gesture.keys == ("shift",):
                reasons.update(dict.fromkeys(gesture.events, "modifier_without_effect"))
                continue
        if gesture.kind is GestureKind.DRAG:
            drag = gesture
        kept.append(gesture)
    return kept


def _add_pre_moves(
    actions: list[Action], inputs: Sequence[Input], settings: ActionSettings
) -> None:
    """Set `pre_move_ms`: when the run of moves began that leads to each pointer press.

    A rest of `pointer_rest_ms` ends a run, and so does the previous pointer action.
    """
    times = [item.time for item in inputs if item.kind == EventType.MOUSEMOVE]
    run_starts: list[int] = []
    for position, time in enumerate(times):
        rested = not position or time - times[position - 1] >= settings.pointer_rest_ms
        run_starts.append(position if rested else run_starts[-1])
    previous_end = -1
    for action in actions:
        if action.x is None:
            continue
        last = bisect_right(times, action.press_ms) - 1
        if last >= 0 and action.press_ms - times[last] < settings.pointer_rest_ms:
            first = max(run_starts[last], bisect_right(times, previous_end))
            action.pre_move_ms = times[first] if first <= last else None
        previous_end = max(previous_end, action.end_ms)
