"""Typed text: what remains of characters, dead keys and Backspaces, and checks of the input.

Belongs here: which text a group of typing gestures produced, where a key with an unknown character
parts it, and problems for people (keys in no table, a layout that may not fit) without what was
typed. When typing begins and ends is in grouping.py.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from demo_pipeline.actions.action_tables import (
    ACCOUNTING_FILE,
    ACCOUNTING_SCHEMA,
    DOUBTFUL_TEXT,
    read_actions,
)
from demo_pipeline.actions.inputs import Gesture, GestureKind
from demo_pipeline.actions.scrolls import UNCLEAR_UNIT
from demo_pipeline.files.parquet import read_table
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.events import read_events
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import (
    lookup,
    public_name,
    read_typed_character,
)

UNKNOWN_CHARACTER = "unknown_character"  # flag of a gesture that typed something unknown
SEEN_MS = 300  # milliseconds; nobody sees another screen and types on sooner
# milliseconds; a person needs as long to see that the screen is dark and to think of a password
# (2.5 s in the recordings of locked screens)
LONG_REST_MS = 1000
COMMAND_LENGTH = 4  # characters; more of them are text, not commands such as a pager's q


@dataclass(frozen=True)
class TypedPart:
    """Typing between two keys whose characters are unknown.

    Attributes:
        gestures: in time order.
        text: that remains; empty if everything was erased.
        reason: why the events are part of no action when there is no text.
        continued: it follows the part before it after a rest; the screen may have changed.
        after_long_rest: the same in a longer text, which only a dark screen parts.
    """

    gestures: list[Gesture]
    text: str
    reason: str = "typed_and_erased"
    continued: bool = False
    after_long_rest: bool = False


@dataclass
class _Typed:
    """One character that one Backspace erases; `text` is empty for a dead or an unknown key."""

    text: str
    position: int
    dead: bool = False


class TypedText:
    """Takes the gestures of one group in time order."""

    def __init__(self) -> None:
        self._gestures: list[Gesture] = []
        self._typed: list[_Typed] = []
        self._rests: list[int] = []
        self._long_rests: set[int] = set()  # of `_rests`, those in a text that is no command

    @property
    def is_empty(self) -> bool:
        """Whether a Backspace would erase something that was there before."""
        return not self._typed

    def add(self, gesture: Gesture) -> None:
        """Add a character, a dead key, or a Backspace that erases the last of them."""
        position = len(self._gestures)
        if self._typed and not gesture.repeat:
            few = len(self._typed) <= COMMAND_LENGTH
            rest_ms = gesture.start - self._gestures[-1].start
            if rest_ms >= (SEEN_MS if few else LONG_REST_MS):
                self._rests.append(position)
                self._long_rests |= set() if few else {position}
        self._gestures.append(gesture)
        if gesture.kind is GestureKind.BACKSPACE:
            self._erase()
            return
        if self._typed and self._typed[-1].dead:
            self._erase()  # the logged character of this key includes it
        if gesture.char:
            self._typed += [_Typed(text, position) for text in _erasable(gesture.char)]
        else:
            self._typed.append(_Typed("", position, dead=gesture.dead))

    def _erase(self) -> None:
        """Erase the last character; a rest after it parts no text."""
        erased = self._typed.pop()
        self._gestures[erased.position].flags.discard(DOUBTFUL_TEXT)
        self._rests = [rest for rest in self._rests if rest <= erased.position]

    def parts(self) -> Iterator[TypedPart]:
        """Yield the typing in order, parted at unknown characters that were not erased.

        Known characters are parted where the person may have seen another screen before typing on.
        """
        unknown = [one.position for one in self._typed if not one.text and not one.dead]
        if not unknown:
            yield from self._parted_at_rests()
            return
        # Exports leave out text that lacks an emoji of which one half was recorded.
        flags = (self._gestures[position].flags for position in unknown)
        doubt = frozenset({DOUBTFUL_TEXT}) & set().union(*flags)
        start = 0
        for position in unknown:
            yield from self._part(start, position, parted=True, doubt=doubt)
            yield TypedPart([self._gestures[position]], "", UNKNOWN_CHARACTER)
            start = position + 1
        yield from self._part(start, len(self._gestures), parted=True, doubt=doubt)

    def _parted_at_rests(self) -> Iterator[TypedPart]:
        """Yield the typing in order; each part has text, if any is left."""
        starts = [0]
        remaining = [one.position for one in self._typed]
        for rest in self._rests:
            if any(starts[-1] <= position < rest <= remaining[-1] for position in remaining):
                starts.append(rest)
        for start, end in pairwise([*starts, len(self._gestures)]):
            for part in self._part(start, end, parted=False):
                is_long = start in self._long_rests
                yield replace(part, continued=start > 0, after_long_rest=is_long)

    def _part(
        self, start: int, end: int, *, parted: bool, doubt: frozenset[str] = frozenset()
    ) -> Iterator[TypedPart]:
        gestures = self._gestures[start:end]
        if not gestures:
            return
        text = "".join(one.text for one in self._typed if start <= one.position < end)
        if parted:
            gestures[0].flags |= {UNKNOWN_CHARACTER, "unknown_input"} | doubt
        only_dead = all(gesture.dead for gesture in gestures)
        yield TypedPart(gestures, text, "dead_key" if only_dead else "typed_and_erased")


def _erasable(text: str) -> Iterator[str]:
    """Yield what one Backspace erases: a code point with the combining marks after it."""
    unit = ""
    for char in text:
        if unit and not unicodedata.combining(char):
            yield unit
            unit = ""
        unit += char
    yield unit


_UNKNOWN: Mapping[str, str] = {  # reason in the event accounting → kind of the name
    "unknown_key": "key",
    "other_button": "button",
}
_REMEDY = "a recorder that logs `actual_char`, or the name of the key, makes the typing whole"


def check_known_input(folder: Path, events_folder: Path) -> list[Problem]:
    """A problem for each unknown key or button, and one for characters that no table has.

    Each names its first line in the log and counts its presses. One more is for scrolls whose unit
    the log does not tell.
    """
    events = read_events(events_folder)
    accounting = read_table(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    reasons = dict(
        zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    )
    lines: dict[tuple[str, str], list[int]] = {}
    names = ("event_index", "event", "key", "button", "actual_char")
    columns = (events[name].to_pylist() for name in names)
    for index, event, key, button, char in zip(*columns, strict=True):
        reason = reasons[index]
        if event not in {EventType.KEYDOWN, EventType.MOUSEDOWN}:
            continue
        if reason in _UNKNOWN:
            name = public_name(key or button or "", _UNKNOWN[reason])
            lines.setdefault((reason, name), []).append(index)
        elif reason == UNKNOWN_CHARACTER and not lookup(key or "").modifier:
            half = read_typed_character(char).half
            what = "half of an emoji" if half else "a key with an unknown character"
            lines.setdefault((reason, what), []).append(index)
    problems = []
    for (reason, name), at in sorted(lines.items(), key=lambda item: item[1][0]):
        times = "once" if len(at) == 1 else f"{len(at)} times"
        message = f"{name}, pressed {times}: what it did is not known; typing is split there"
        problems.append(Problem(reason, LOG_FILE, message, line=at[0], remedy=_REMEDY))
    unclear = [action for action in read_actions(folder) if UNCLEAR_UNIT in action.flags]
    if unclear:
        message = (
            f"{len(unclear)} scroll{'s' if len(unclear) > 1 else ''}: the wheel's deltas may be "
            "notches or 120ths of one; where the video does not show which, they are hidden actions"
        )
        remedy = "a recorder that logs 120 a notch, or 1, makes them steps"
        first = unclear[0].first_event
        problems.append(Problem(UNCLEAR_UNIT, LOG_FILE, message, line=first, remedy=remedy))
    return problems


def check_keyboard_layout(folder: Path) -> list[Problem]:
    """A problem if it is not sure what was typed.

    `folder`: output of the `actions` stage.
    """
    doubtful = [action for action in read_actions(folder) if DOUBTFUL_TEXT in action.flags]
    if not doubtful:
        return []
    several = len(doubtful) > 1
    message = (
        f"{len(doubtful)} typing step{'s' if several else ''}: it is not known what was typed: no "
        "accessibility scan shows it and another keyboard layout or an input method would make it "
        "another text, a scan contradicts it, or a key is unknown; exports leave them out"
    )
    remedy = "set actions.keyboard_layout, or record with `actual_char` or more scans"
    line = doubtful[0].first_event
    return [Problem("keyboard_layout", LOG_FILE, message, line=line, remedy=remedy)]
