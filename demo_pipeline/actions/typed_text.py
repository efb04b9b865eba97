"""Joins typed characters into texts, and reports unknown input.

A Backspace removes a character. A dead key is combined with the next character. A key with an
unknown character splits a text. Problems never quote a typed text, because it may be private.
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

UNKNOWN_CHARACTER = "unknown_character"  # flag for a gesture that typed an unknown character
SEEN_MS = 300  # shortest break between two keys in which a person can react to a new screen
# Shortest break in milliseconds in which a person can notice a dark screen and recall a password.
# The limit is below the 2.5 s that people needed in recordings of locked screens.
LONG_REST_MS = 1000
# Typing of at most four characters may be a command, such as q in a pager.
COMMAND_LENGTH = 4


@dataclass(frozen=True)
class TypedPart:
    """A part of typing that may become an action.

    Attributes:
        gestures: gestures in time order.
        text: the text after all Backspaces. Empty if everything was erased, or if the characters
            are unknown.
        reason: reason why the events belong to no action, used if the text is empty.
        continued: whether the part follows another part of the same typing after a break in which
            the screen may have changed.
        after_long_rest: whether the break was long and the text before it is too long to be a
            command.
    """

    gestures: list[Gesture]
    text: str
    reason: str = "typed_and_erased"
    continued: bool = False
    after_long_rest: bool = False


@dataclass
class _Typed:
    """A part of a text that a single Backspace erases.

    Attributes:
        text: a character with its combining marks; empty for a dead key or an unknown character.
        position: index of the gesture that typed the text.
        dead: whether the part comes from a dead key.
    """

    text: str
    position: int
    dead: bool = False


class TypedText:
    """Collects the gestures of a group in time order, and returns the text that they typed."""

    def __init__(self) -> None:
        self._gestures: list[Gesture] = []
        self._typed: list[_Typed] = []
        self._rests: list[int] = []  # indexes of the gestures that follow a break
        # The breaks in `_rests` that follow a text of more than `COMMAND_LENGTH` characters.
        self._long_rests: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether a Backspace would erase older text, because this group has no text left."""
        return not self._typed

    def add(self, gesture: Gesture) -> None:
        """Adds a character, a dead key or a Backspace, which erases the last character."""
        position = len(self._gestures)
        if self._typed and not gesture.repeat:
            may_be_command = len(self._typed) <= COMMAND_LENGTH
            rest_ms = gesture.start - self._gestures[-1].start
            if rest_ms >= (SEEN_MS if may_be_command else LONG_REST_MS):
                self._rests.append(position)
                if not may_be_command:
                    self._long_rests.add(position)
        self._gestures.append(gesture)
        if gesture.kind is GestureKind.BACKSPACE:
            self._erase()
            return
        if self._typed and self._typed[-1].dead:
            self._erase()  # the character of this key already includes the accent
        if gesture.char:
            self._typed += [_Typed(text, position) for text in _erasable(gesture.char)]
        else:
            self._typed.append(_Typed("", position, dead=gesture.dead))

    def _erase(self) -> None:
        """Erases the last character, and forgets the breaks after it."""
        erased = self._typed.pop()
        self._gestures[erased.position].flags.discard(DOUBTFUL_TEXT)
        self._rests = [rest for rest in self._rests if rest <= erased.position]

    def parts(self) -> Iterator[TypedPart]:
        """Yields the parts of the typing in order, split at unknown characters.

        If there is no unknown character, the typing is split at breaks in which the person may have
        seen another screen.
        """
        unknown = [char.position for char in self._typed if not char.text and not char.dead]
        if not unknown:
            yield from self._split_at_rests()
            return
        # If an unknown character is doubtful, such as half of an emoji, all parts are doubtful.
        doubt: frozenset[str] = frozenset()
        if any(DOUBTFUL_TEXT in self._gestures[position].flags for position in unknown):
            doubt = frozenset({DOUBTFUL_TEXT})
        start = 0
        for position in unknown:
            yield from self._part(start, position, is_split=True, doubt=doubt)
            yield TypedPart([self._gestures[position]], "", UNKNOWN_CHARACTER)
            start = position + 1
        yield from self._part(start, len(self._gestures), is_split=True, doubt=doubt)

    def _split_at_rests(self) -> Iterator[TypedPart]:
        """Yields the parts of the typing in order, split at breaks between remaining characters."""
        starts = [0]
        remaining = [char.position for char in self._typed]
        for rest in self._rests:
            has_text_before = any(starts[-1] <= position < rest for position in remaining)
            if has_text_before and rest <= remaining[-1]:
                starts.append(rest)
        for start, end in pairwise([*starts, len(self._gestures)]):
            for part in self._part(start, end, is_split=False):
                is_long = start in self._long_rests
                yield replace(part, continued=start > 0, after_long_rest=is_long)

    def _part(
        self, start: int, end: int, *, is_split: bool, doubt: frozenset[str] = frozenset()
    ) -> Iterator[TypedPart]:
        """Yields the part with the gestures from `start` up to `end`, if there are any gestures.

        Args:
            is_split: whether an unknown character is next to the part. If so, the part is flagged.
            doubt: additional flags for a part next to an unknown character.
        """
        gestures = self._gestures[start:end]
        if not gestures:
            return
        text = ""
        for char in self._typed:
            if start <= char.position < end:
                text += char.text
        if is_split:
            gestures[0].flags |= {UNKNOWN_CHARACTER, "unknown_input"} | doubt
        only_dead = all(gesture.dead for gesture in gestures)
        yield TypedPart(gestures, text, "dead_key" if only_dead else "typed_and_erased")


def _erasable(text: str) -> Iterator[str]:
    """Divides a text into parts that a Backspace erases: code points with combining marks."""
    unit = ""
    for char in text:
        if unit and not unicodedata.combining(char):
            yield unit
            unit = ""
        unit += char
    yield unit


# Maps reasons in ledger.parquet to the kind of unknown input.
_UNKNOWN: Mapping[str, str] = {"unknown_key": "key", "other_button": "button"}
_REMEDY = "a recorder that logs `actual_char`, or the name of the key, makes the typing whole"


def check_known_input(folder: Path, events_folder: Path) -> list[Problem]:
    """Reports unknown keys and buttons, unknown characters, and scrolls with an unclear unit.

    Args:
        folder: output of the `actions` stage.
        events_folder: output of the `events` stage.
    """
    events = read_events(events_folder)
    accounting = read_table(folder / ACCOUNTING_FILE, ACCOUNTING_SCHEMA)
    reasons = dict(
        zip(accounting["event_index"].to_pylist(), accounting["reason"].to_pylist(), strict=True)
    )
    lines: dict[tuple[str, str], list[int]] = {}
    for index, event, key, button, char in zip(
        events["event_index"].to_pylist(),
        events["event"].to_pylist(),
        events["key"].to_pylist(),
        events["button"].to_pylist(),
        events["actual_char"].to_pylist(),
        strict=True,
    ):
        reason = reasons[index]
        if event not in {EventType.KEYDOWN, EventType.MOUSEDOWN}:
            continue
        if reason in _UNKNOWN:
            name = public_name(key or button or "", _UNKNOWN[reason])
            lines.setdefault((reason, name), []).append(index)
        elif reason == UNKNOWN_CHARACTER and not lookup(key or "").modifier:
            half = read_typed_character(char).half
            name = "half of an emoji" if half else "a key with an unknown character"
            lines.setdefault((reason, name), []).append(index)
    problems = []
    for (reason, name), presses in sorted(lines.items(), key=lambda item: item[1][0]):
        times = "once" if len(presses) == 1 else f"{len(presses)} times"
        message = f"{name}, pressed {times}: what it did is not known; typing is split there"
        problems.append(Problem(reason, LOG_FILE, message, line=presses[0], remedy=_REMEDY))
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
    """Reports typed texts that may be wrong. `folder` is the output of the `actions` stage."""
    doubtful = [action for action in read_actions(folder) if DOUBTFUL_TEXT in action.flags]
    if not doubtful:
        return []
    plural = "s" if len(doubtful) > 1 else ""
    message = (
        f"{len(doubtful)} typing step{plural}: it is not known what was typed: no "
        "accessibility scan shows it and another keyboard layout or an input method would make it "
        "another text, a scan contradicts it, or a key is unknown; exports leave them out"
    )
    remedy = "set actions.keyboard_layout, or record with `actual_char` or more scans"
    line = doubtful[0].first_event
    return [Problem("keyboard_layout", LOG_FILE, message, line=line, remedy=remedy)]
