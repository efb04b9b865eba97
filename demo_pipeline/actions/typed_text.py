"""Typed text: what remains of characters, dead keys and Backspaces.

Belongs here: which text a group of typing gestures produced, and where a key with an unknown
character parts it. When typing begins and ends is in grouping.py.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from demo_pipeline.actions.gestures import Gesture, GestureKind

UNKNOWN_CHARACTER = "unknown_character"  # flag of a gesture that typed something unknown


@dataclass(frozen=True)
class TypedPart:
    """Typing between two keys whose characters are unknown.

    Attributes:
        gestures: in time order.
        text: that remains; empty if everything was erased.
        reason: why the events are part of no action when there is no text.
    """

    gestures: list[Gesture]
    text: str
    reason: str = "typed_and_erased"


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

    @property
    def is_empty(self) -> bool:
        """Whether a Backspace would erase something that was there before."""
        return not self._typed

    def add(self, gesture: Gesture) -> None:
        """Add a character, a dead key, or a Backspace that erases the last of them."""
        position = len(self._gestures)
        self._gestures.append(gesture)
        if gesture.kind is GestureKind.BACKSPACE:
            self._typed.pop()
            return
        if self._typed and self._typed[-1].dead:
            self._typed.pop()  # the logged character of this key includes it
        if gesture.char:
            self._typed += [_Typed(text, position) for text in _erasable(gesture.char)]
        else:
            self._typed.append(_Typed("", position, dead=gesture.dead))

    def parts(self) -> Iterator[TypedPart]:
        """Yield the typing in order, parted at unknown characters that were not erased."""
        unknown = [one.position for one in self._typed if not one.text and not one.dead]
        start = 0
        for position in unknown:
            yield from self._part(start, position, parted=True)
            yield TypedPart([self._gestures[position]], "", UNKNOWN_CHARACTER)
            start = position + 1
        yield from self._part(start, len(self._gestures), parted=bool(unknown))

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
