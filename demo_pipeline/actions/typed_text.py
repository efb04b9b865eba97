"""Typed text: what remains of characters, dead keys and Backspaces.

Belongs here: which text a group of typing gestures produced, and where a key with an unknown
character parts it. When typing begins and ends is in grouping.py.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from demo_pipeline.actions.gestures import Gesture, GestureKind

UNKNOWN_CHARACTER = "unknown_character"  # flag of a gesture that typed something unknown
SEEN_MS = 300  # milliseconds; nobody sees another screen and types on sooner
COMMAND_LENGTH = 4  # characters; more of them are text, not commands such as a pager's q


@dataclass(frozen=True)
class TypedPart:
    """Typing between two keys whose characters are unknown.

    Attributes:
        gestures: in time order.
        text: that remains; empty if everything was erased.
        reason: why the events are part of no action when there is no text.
        continued: it follows the part before it after a rest; the screen may have changed.
    """

    gestures: list[Gesture]
    text: str
    reason: str = "typed_and_erased"
    continued: bool = False


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

    @property
    def is_empty(self) -> bool:
        """Whether a Backspace would erase something that was there before."""
        return not self._typed

    def add(self, gesture: Gesture) -> None:
        """Add a character, a dead key, or a Backspace that erases the last of them."""
        position = len(self._gestures)
        few = 0 < len(self._typed) <= COMMAND_LENGTH
        if few and not gesture.repeat and gesture.start - self._gestures[-1].start >= SEEN_MS:
            self._rests.append(position)
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
        self._rests = [rest for rest in self._rests if rest <= erased.position]

    def parts(self) -> Iterator[TypedPart]:
        """Yield the typing in order, parted at unknown characters that were not erased.

        Known characters are parted where the person may have seen another screen before typing on.
        """
        unknown = [one.position for one in self._typed if not one.text and not one.dead]
        if not unknown:
            yield from self._parted_at_rests()
            return
        start = 0
        for position in unknown:
            yield from self._part(start, position, parted=True)
            yield TypedPart([self._gestures[position]], "", UNKNOWN_CHARACTER)
            start = position + 1
        yield from self._part(start, len(self._gestures), parted=True)

    def _parted_at_rests(self) -> Iterator[TypedPart]:
        """Yield the typing in order; each part has text, if any is left."""
        starts, remaining = [0], [one.position for one in self._typed]
        for rest in self._rests:
            if any(starts[-1] <= position < rest <= remaining[-1] for position in remaining):
                starts.append(rest)
        for start, end in pairwise([*starts, len(self._gestures)]):
            for part in self._part(start, end, parted=False):
                yield replace(part, continued=start > 0)

    def _part(self, start: int, end: int, *, parted: bool) -> Iterator[TypedPart]:
        gestures = self._gestures[start:end]
        if not gestures:
            return
        text = "".join(one.text for one in self._typed if start <= one.position < end)
        if parted:
            gestures[0].flags |= {UNKNOWN_CHARACTER, "unknown_input"}
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
