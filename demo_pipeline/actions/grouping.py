"""Groups repaired inputs into actions and pauses, in time order.

Inputs first become gestures, such as a click or a typed character. Consecutive gestures then become
an action: two clicks become a double click, and characters become typing. The recorder's
stop shortcut, and taps of modifiers that have no effect, are left out. The action types are those
of OSWorld-Desktopd.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter

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

MAX_CLICKS = 3  # maximum number of clicks in an action; a fourth click begins a new action

# Maps logged button names, in lower case, to the names that actions use.
BUTTONS = {"left": "left", "right": "right", "middle": "middle", "center": "middle"}


@dataclass
class _Press:
    """A button that is held down.

    Attributes:
        item: the mousedown event.
        gesture: the gesture that the press becomes.
        reach: largest distance of the pointer from the press so far, screen pixels.
        moves: pointer moves since the press.
    """

    item: Input
    gesture: Gesture
    reach: float = 0.0
    moves: list[Input] = field(default_factory=list)


class _PointerReader:
    """Turns pointer and wheel events into gestures. The events must come in time order.

    Args:
        modifiers: tracks which modifiers are held.
        glides: whether the wheel events come from a touchpad. If so, events with a delta of 0 are
            part of a scroll.

    Attributes:
        gestures: clicks, drags, wheel events and presses of unknown buttons, in order.
        reasons: maps line numbers of events to the reason why the event belongs to no action.
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
        """Reads the next event."""
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
            if item.delta:  # a modifier has no effect on a touchpad event without movement
                gesture.modifiers = self._modifiers.apply_to(gesture, item.time)
            self.gestures.append(gesture)

    def finish(self) -> None:
        """Ends the presses that have no release in the log, and flags their gestures."""
        for name in list(self._presses):
            self._end_unreleased(name)

    def _down(self, item: Input) -> None:
        button = BUTTONS.get(item.name.lower())
        if button is None:
            self.reasons[item.index] = "other_button"
            unknown = Gesture(GestureKind.UNKNOWN, item.time, item.time, item.index, [])
            self._modifiers.apply_to(unknown, item.time)
            self.gestures.append(unknown)
            return
        if button in self._presses:
            self._end_unreleased(button)
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
        moves = [move.index for move in press.moves if move.index not in self._assigned_moves]
        if self._presses:
            self._assigned_moves.update(moves)
        gesture.events.extend([*moves, item.index])
        reach = max(press.reach, distance(press.item, item))
        if reach > self._settings.click_radius_px:
            gesture.kind = GestureKind.DRAG
            gesture.end_x = item.x
            gesture.end_y = item.y
            for move in press.moves:
                if move.x is not None and move.y is not None:
                    gesture.path.append((float(move.x), float(move.y), move.time))
            if not gesture.path:
                gesture.flags.add("end_points_only")
        elif item.time - press.item.time > self._settings.click_max_ms:
            gesture.flags.add("long")

    def _end_unreleased(self, button: str) -> None:
        self._presses.pop(button).gesture.flags.add("never_released")


def _gesture(kind: GestureKind, item: Input) -> Gesture:
    return Gesture(kind, item.time, item.time, item.index, [item.index], x=item.x, y=item.y)


def is_multi_click(clicks: Sequence[Gesture], gesture: Gesture, settings: ActionSettings) -> bool:
    """Returns whether a click or drag belongs to the clicks before it, as in a double click.

    `clicks` has at least one click, in time order.
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


def _is_same_window_switch(last: Gesture, gesture: Gesture) -> bool:
    """Returns whether Tab was pressed again while Alt or Command was held to choose a window."""
    is_switch = gesture.keys[-1] == "tab" and not {"alt", "command"}.isdisjoint(gesture.keys)
    return is_switch and gesture.held_since == last.held_since


_TYPING = frozenset({GestureKind.CHAR, GestureKind.BACKSPACE})


class _Grouper:
    """Groups gestures into actions.

    Further gestures may join the last group until the group is closed.
    """

    def __init__(self, settings: ActionSettings, reasons: dict[int, str], wheel: Wheel) -> None:
        self._settings = settings
        self._reasons = reasons
        self._wheel = wheel
        self._open: list[Gesture] = []
        self._typing = TypedText()
        self._after_unknown = False
        self._actions: list[Action] = []

    def add(self, gesture: Gesture) -> None:
        """Adds a gesture to the open group or to a new group."""
        if gesture.kind is GestureKind.UNKNOWN:
            self._interrupt(gesture)
            return
        erases = self._open and not self._typing.is_empty and self._continues(gesture)
        if gesture.kind is GestureKind.BACKSPACE and not erases:
            # A Backspace counts as a hotkey if the erased text is older than the open group.
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
        """Closes the open group and returns all actions."""
        self._close()
        return self._actions

    def _interrupt(self, gesture: Gesture) -> None:
        """Reads a key or button with an unknown effect, which ends typing and hotkeys."""
        self._reasons.update(dict.fromkeys(gesture.events, "modifier_without_effect"))
        if self._open and self._open[0].kind in _TYPING:
            self._open[-1].flags.add("unknown_input")
        if self._open and self._open[0].kind in _TYPING | {GestureKind.HOTKEY}:
            self._close()
        self._after_unknown = True

    def _continues(self, gesture: Gesture) -> bool:
        """Returns whether a gesture belongs to the open group, which is not empty."""
        last = self._open[-1]
        if last.kind in _TYPING:
            return gesture.kind in _TYPING
        if last.kind is GestureKind.CLICK:
            return is_multi_click(self._open, gesture, self._settings)
        if last.kind is not gesture.kind:
            return False
        if gesture.kind is GestureKind.HOTKEY and sorted(gesture.keys) == sorted(last.keys):
            # A key belongs to the same action if it auto-repeats, or if it was pressed again
            # before the person could see the effect of the first press.
            is_soon = gesture.key_press - last.key_press < self._settings.key_run_gap_ms
            return gesture.repeat or is_soon or _is_same_window_switch(last, gesture)
        return False

    def _close(self) -> None:
        """Turns the open group into an action. Typing may become several actions."""
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
                    continue
                for gesture in part.gestures:
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
            self._actions.append(_click(gestures))


def _action(action_type: str, gestures: Sequence[Gesture]) -> Action:
    """Returns an action with the times, events and flags of all gestures.

    The position of the action is the position of the first gesture.
    """
    first = gestures[0]
    lines: set[int] = set()
    flags: set[str] = set()
    for gesture in gestures:
        lines.update(gesture.events)
        flags.update(gesture.flags)
    events = sorted(lines)
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
        flags=sorted(flags),
    )


def _click(gestures: Sequence[Gesture]) -> Action:
    button = gestures[0].button
    action_type = "click"
    if button == "right":
        action_type = "right_click"
    elif len(gestures) == 2:
        action_type = "double_click"
    action = _action(action_type, gestures)
    action.button = button
    action.clicks = len(gestures)
    return action


def _typing(part: TypedPart) -> Action:
    action = _action("type", part.gestures)
    action.text = part.text
    action.modifiers = []
    if part.continued:
        action.flags.append(CONTINUED)
        if part.after_long_rest:
            action.flags.append(AFTER_LONG_REST)
        action.flags.sort()
    return action


def _drag(gestures: Sequence[Gesture], settings: ActionSettings) -> Action:
    """Returns a single action for a drag and the clicks before the drag at the same place.

    For example, a double click that turns into a drag selects text word by word.
    """
    gesture = gestures[-1]
    action = _action("drag", gestures)
    action.clicks = len(gestures) if len(gestures) > 1 else None
    action.x = gesture.x
    action.y = gesture.y
    action.button = gesture.button
    action.end_x = gesture.end_x
    action.end_y = gesture.end_y
    if gesture.path:
        limit = settings.drag_path_points
        last = len(gesture.path) - 1
        evenly_spaced = sorted({round(point * last / (limit - 1)) for point in range(limit)})
        for position in evenly_spaced:
            x, y, time_ms = gesture.path[position]
            action.path.append({"x": x, "y": y, "time_ms": time_ms})
    return action


def _scroll(gesture: Gesture, wheel: Wheel) -> Action:
    action = _action("scroll", [gesture])
    rule = wheel.rule_of(unclear=UNCLEAR_UNIT in gesture.flags)
    action.direction = rule.direction(gesture.delta)
    action.amount = rule.notches(gesture.delta)
    action.wheel_sum = gesture.delta
    action.wheel_remainder = rule.remainder(gesture.delta)
    action.wheel_unit = rule.unit
    action.wheel_method = rule.method
    return action


# The pointer counts as arrived within 40 screen pixels of a press.
ARRIVED_PX = 40.0
# If the pointer arrived more than 1000 ms before the press, it was waiting, and the press has no
# approach.
ARRIVED_MS = 1000


def pauses_between(
    actions: Sequence[Action],
    inputs: Sequence[Input],
    settings: ActionSettings,
    breaks: Collection[int] = (),
) -> Iterator[Action]:
    """Yields the pauses of at least `pause_ms` between two actions.

    A pause lasts from an input to the next input. If the pointer approaches the place of the next
    input, the pause ends when the approach begins. Other moves of the pointer neither begin nor end
    a pause.

    Args:
        actions: actions in time order.
        inputs: all inputs of the log, in time order.
        breaks: line numbers directly after a change of the clock, and line numbers at which the
            recorder withheld input. A pause never contains one of these lines.
    """
    if not actions:
        return
    presses = [action.press_ms for action in actions]
    action_ends = [action.end_ms for action in actions]
    ends = list(accumulate(action_ends, max))
    first_end = min(action_ends)
    moves: list[Input] = []
    others: list[Input] = []
    for item in inputs:
        if item.kind == EventType.MOUSEMOVE:
            moves.append(item)
        else:
            others.append(item)
    times = [move.time for move in moves]
    for before, after in pairwise(others):
        started = bisect_right(presses, before.time)
        is_in_action = started > 0 and ends[started - 1] >= after.time
        is_in_typing = started < len(actions) and CONTINUED in actions[started].flags
        has_break = any(before.index < line <= after.index for line in breaks)
        is_outside = before.time < first_end or after.time > presses[-1]
        if is_in_action or is_in_typing or has_break or is_outside:
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
    """Returns the start of the pointer's approach directly before a press, epoch milliseconds.

    Returns the time of the press if there is no such approach.
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
        distance_px = distance(moves[position], press)
        if distance_px < farthest - ARRIVED_PX:
            break
        if distance_px > farthest:
            start = position
            farthest = distance_px
        position -= 1
    return moves[start].time


STRAY_SHIFT_MS = 1000  # a tap of Shift within 1 s of a typed character is ignored


@dataclass
class Segmentation:
    """The actions of a log.

    Attributes:
        actions: actions and pauses, in time order.
        reasons: maps line numbers of inputs to the reason why the input belongs to no action.
        unknown_keys: logged key names that recording/key_names.py does not know.
        wheel_remainder: sum of all logged wheel deltas in notches, minus the signed notches of the
            scrolls.
        switch_lines: line numbers at which the person may have switched the keyboard layout or the
            input method.
        layout_lines: line numbers of key presses whose characters were derived from the keyboard
            layout.
        altgr_lines: line numbers of key presses with AltGr, on Windows only. These presses rule out
            the US layout, which has no AltGr.
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
    """Turns repaired inputs into actions.

    Args:
        inputs: inputs in time order.
        keyboards: gives the keyboard layout at each line.
        clock_steps: numbers of the lines that follow a change of the recorder's clock.
        withheld: line number and time (epoch ms) of each place where the recorder withheld input.
        input_method: whether the person types with an input method.
    """
    wheel_inputs = [item for item in inputs if item.kind == EventType.MOUSEWHEEL]
    wheel = read_wheel(wheel_inputs, platform, settings)
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
    in_time_order = sorted(unsorted, key=attrgetter("start", "index"))
    in_time_order = without_held_keys(in_time_order, keyboard.holds, reasons)
    gestures = _without_stray_taps(in_time_order, reasons)
    doubt_beside_unknown_keys(gestures)
    joined, remainder = join_scrolls(gestures, settings, reasons, wheel)
    grouper = _Grouper(settings, reasons, wheel)
    for gesture in joined:
        grouper.add(gesture)
    actions = grouper.finish()
    _drop_stop_shortcut(actions, reasons, settings)
    breaks = [*clock_steps, *(gap.index for gap in gaps)]
    pressed = [*keyboard.gestures, *modifiers.gestures]
    return Segmentation(
        _with_pauses(actions, inputs, settings, breaks),
        reasons,
        keyboard.unknown_keys,
        remainder,
        switch_lines(pressed, inputs, platform, input_method=input_method),
        layout_lines=frozenset(gesture.index for gesture in pressed if gesture.by_layout),
        altgr_lines=_altgr_lines(pressed) if platform == "windows" else frozenset(),
    )


def _altgr_lines(gestures: Sequence[Gesture]) -> frozenset[int]:
    """Returns the lines of key presses with AltGr."""
    return frozenset(gesture.index for gesture in gestures if "altgr" in gesture.modifiers)


def _drop_stop_shortcut(
    actions: list[Action], reasons: dict[int, str], settings: ActionSettings
) -> None:
    """Removes the last action if it is the recorder's stop shortcut, and records the reason."""
    if not actions or not settings.stop_shortcut:
        return
    last = actions[-1]
    if last.action_type == "hotkey" and set(last.keys) == set(settings.stop_shortcut):
        reasons.update(dict.fromkeys(last.events, "stop_shortcut"))
        actions.pop()


def _with_pauses(
    actions: Sequence[Action],
    inputs: Sequence[Input],
    settings: ActionSettings,
    breaks: Collection[int],
) -> list[Action]:
    """Returns the actions and the pauses between them, sorted and numbered.

    Also sets `pre_move_ms`.
    """
    in_order = sorted(actions, key=_order)
    _add_pre_moves(in_order, inputs, settings)
    pauses = pauses_between(in_order, inputs, settings, breaks)
    with_pauses = sorted([*in_order, *pauses], key=_order)
    for number, action in enumerate(with_pauses):
        action.action_index = number
    return with_pauses


def _order(action: Action) -> tuple[int, int]:
    """Returns the key by which actions are sorted."""
    return action.press_ms, action.first_event


def _without_stray_taps(gestures: list[Gesture], reasons: dict[int, str]) -> list[Gesture]:
    """Merges taps of modifiers during a drag into the drag, and drops taps of Shift near typing.

    Args:
        reasons: maps line numbers of events to the reason why the event belongs to no action. The
            events of dropped taps are added.
    """
    typed_ms = [gesture.start for gesture in gestures if gesture.kind is GestureKind.CHAR]
    remaining: list[Gesture] = []
    drag: Gesture | None = None
    for gesture in gestures:
        if "modifier_tap" in gesture.flags:
            if drag is not None and gesture.start <= drag.end:
                drag.events.extend(gesture.events)
                drag.flags.add("modified_midway")
                continue
            typed_before = bisect_right(typed_ms, gesture.start - STRAY_SHIFT_MS)
            is_near_typing = bisect_right(typed_ms, gesture.end + STRAY_SHIFT_MS) > typed_before
            if is_near_typing and gesture.keys == ("shift",):
                reasons.update(dict.fromkeys(gesture.events, "modifier_without_effect"))
                continue
        if gesture.kind is GestureKind.DRAG:
            drag = gesture
        remaining.append(gesture)
    return remaining


def _add_pre_moves(
    actions: list[Action], inputs: Sequence[Input], settings: ActionSettings
) -> None:
    """Sets `pre_move_ms` of pointer actions to the time of the first move towards the press.

    A movement begins after a rest of `pointer_rest_ms`, or after the previous pointer action.
    """
    times = [item.time for item in inputs if item.kind == EventType.MOUSEMOVE]
    run_starts: list[int] = []
    for position, time in enumerate(times):
        if not position or time - times[position - 1] >= settings.pointer_rest_ms:
            run_starts.append(position)
        else:
            run_starts.append(run_starts[-1])
    previous_end = -1
    for action in actions:
        if action.x is None:
            continue
        last = bisect_right(times, action.press_ms) - 1
        if last >= 0 and action.press_ms - times[last] < settings.pointer_rest_ms:
            first = max(run_starts[last], bisect_right(times, previous_end))
            action.pre_move_ms = times[first] if first <= last else None
        previous_end = max(previous_end, action.end_ms)
