"""When the video shows no desktop while keys are pressed: it is black, or the screen is locked.

The keys pressed then may be a password, which no output after the actions has. A screen is locked
from the platform's chord on, when a black picture or another picture than the desktop follows it,
until the desktop is back: what it showed before the chord is there again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.inputs import Input
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.frame_requests import merge_spans
from demo_pipeline.observation.frames.video_reader import (
    TIME_TOLERANCE_S,
    Frame,
    Luma,
    Span,
    number_at,
)
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.key_names import lookup
from demo_pipeline.recording.video_probe import VideoPackets

BLACK_S = 1.0  # seconds; chosen: shorter ones are flashes, as when a display changes its mode
LOCKED_S = 5.0  # seconds from the chord to the lock screen; chosen: lockers may fade the desktop
BEFORE_S = 0.05  # seconds before the chord of which the picture is the desktop's
MARK_BLOCK = 8  # samples of `Frame.quartered`, both ways: 32 pixels, which hold a word
_INK_LEVELS = 24  # of 255, in a block that shows something; chosen, above an encoder's noise
SAME_LEVELS = 24  # of 255, for the mean of 16 pixels; chosen, above an encoder's noise
# Of the blocks that show something; chosen: a lock screen keeps them only by chance, and on the
# desktop that comes back a clock or a message may have changed.
LOCKED_SHARE = 0.3
BACK_SHARE = 0.6

SURE_S = 0.25  # seconds; a clock that is less sure does not tell which packets are of the typing
# Measured in 16 recordings of real desktops: while letters were typed that showed, the largest
# packet had 2.6 to 1,018 times the size of the smallest ones; in three black screens 1.0 times.
STILL_PERCENT = 5
STILL_FACTOR = 1.5
ANSWER_S = 0.3  # seconds from a key to what it shows; 97 % of their 2,175 keys had it by then

_CHORDS: Mapping[str, Sequence[frozenset[str]]] = {
    "windows": [frozenset({"win", "l"})],
    "macos": [frozenset({"ctrl", "command", "q"})],
    "linux": [frozenset({"win", "l"}), frozenset({"ctrl", "alt", "l"})],
}
_SURE_PLATFORMS = frozenset({"windows", "macos"})  # elsewhere programs may have taken the chord
_ALL_CHORDS = [chord for chords in _CHORDS.values() for chord in chords]


@dataclass(frozen=True)
class PrivateStretch:
    """A stretch of the video, seconds; the end is infinite when it shows none."""

    start: float
    end: float

    def overlaps(self, start: float, end: float) -> bool:
        """Whether it has a time between two, both included."""
        return self.start <= end and start < self.end


@dataclass
class _Lock:
    """A lock chord and what the video shows of the screen since then; times in video seconds.

    Attributes:
        chord: when the last of its keys was released.
        before: up to when the video shows the desktop for certain.
        until: by when the lock screen must be there.
        desktop: the blocks of the picture before the chord; None until it was seen.
        is_locked: whether the lock screen was seen.
        end: when the desktop was back.
        frame: the picture before the chord; None when the screen was not locked.
    """

    chord: float
    before: float
    until: float
    desktop: Luma | None = None
    is_locked: bool = False
    end: float = float("inf")
    frame: Frame | None = field(default=None, repr=False)

    def see(self, frame: Frame) -> None:
        """Take the next frame."""
        if frame.time <= self.before + TIME_TOLERANCE_S:
            if not frame.is_black:
                self.desktop = frame.quartered
                self.frame = frame
            return
        if self.desktop is None or frame.time <= self.chord or self.end < float("inf"):
            return
        if not self.is_locked:
            early = frame.time <= self.until
            is_gone = frame.is_black or _kept_share(self.desktop, frame.quartered) <= LOCKED_SHARE
            self.is_locked = early and is_gone
            if not early:
                self.end = self.chord
                self.frame = None
        elif not frame.is_black and _kept_share(self.desktop, frame.quartered) >= BACK_SHARE:
            self.end = frame.time


def _kept_share(before: Luma, after: Luma) -> float:
    """The share of the blocks that show something before and look the same after."""
    if before.shape != after.shape:
        return 0.0
    ink = _blocks_ptp(before) >= _INK_LEVELS
    if not ink.any():
        ink = np.ones_like(ink)
    same = _blocks_max(cv2.absdiff(before, after)) <= SAME_LEVELS
    return float(np.count_nonzero(ink & same) / np.count_nonzero(ink))


def _blocks_max(values: Luma) -> Luma:
    rows = values.shape[0] // MARK_BLOCK
    columns = values.shape[1] // MARK_BLOCK
    whole = values[: rows * MARK_BLOCK, : columns * MARK_BLOCK].reshape(
        rows, MARK_BLOCK, columns, MARK_BLOCK
    )
    return np.asarray(whole.max(axis=(1, 3)), np.uint8)


def _blocks_ptp(values: Luma) -> Luma:
    return _blocks_max(values) - (255 - _blocks_max(255 - values))


class PrivateScreen:
    """Looks at the frames at which keys were pressed, and at those after a lock chord.

    Args:
        actions: of the demonstration, in time order.
        inputs: its presses, in time order.
        platform: windows, macos, linux or empty.
        clock: of the recording; a key that may have been pressed in the dark was.
        packets: of the video. Frames are looked at only where its packets are small while keys are
            pressed: on a black screen nothing moves, and most typing shows.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        inputs: Sequence[Input],
        platform: str,
        clock: Clock,
        packets: VideoPackets,
    ) -> None:
        self._actions = actions
        self._clock = clock
        self._times = packets.times
        self._change_bytes = packets.change_bytes
        self._doubt_s = clock.uncertainty_ms / 1000
        presses = [item for item in inputs if item.kind == EventType.KEYDOWN]
        self._keys = {item.index: clock.video_time(item.time) for item in presses}
        chords = _CHORDS.get(platform, _ALL_CHORDS)
        self._is_sure = platform in _SURE_PLATFORMS
        self._chords = [action for action in actions if frozenset(action.keys) in chords]
        self._locks = list(map(self._lock, self._chords))
        self._black_from: float | None = None
        self._blacks: list[PrivateStretch] = []
        self.spans = merge_spans(list(self._wanted(presses)), 0.0)

    def _lock(self, chord: Action) -> _Lock:
        """A chord, and by when a lock screen must be there.

        Where a program may have taken the chord, what the next action does to the screen is not the
        chord's doing.
        """
        pressed, released = map(self._clock.video_time, (chord.press_ms, chord.end_ms))
        following = (action for action in self._actions if action.press_ms > chord.end_ms)
        after = next((one for one in following if one.action_type != "pause"), None)
        until = released + LOCKED_S
        if after is not None and not self._is_sure:
            until = min(until, self._clock.video_time(after.press_ms))
        until += self._doubt_s
        return _Lock(released, pressed - BEFORE_S - self._doubt_s, until)

    def _wanted(self, presses: Sequence[Input]) -> Iterator[Span]:
        """Yield the spans around the presses of keys, and of all actions after a lock chord."""
        margin = BLACK_S + self._doubt_s
        typed = [self._keys[i.index] for i in presses if not lookup(i.name).modifier]
        moments = self._unanswered(typed)
        for lock in self._locks:
            yield self._shown(lock.before, lock.until)
        if self._chords:
            first = self._chords[0].press_ms
            later = (action for action in self._actions if action.press_ms > first)
            moments += [self._clock.video_time(action.press_ms) for action in later]
        for moment in moments:
            yield self._shown(moment - margin, moment + margin)

    def _unanswered(self, moments: Sequence[float]) -> list[float]:
        """The times of key presses after which the video's packets do not show a change.

        On a black screen nothing moves, while most typing shows. With an unsure clock they are all
        of them: what changes may be of another time.
        """
        sizes = self._change_bytes
        if sizes is None or self._doubt_s > SURE_S or not (sizes > 0).any():
            return list(moments)
        still = STILL_FACTOR * float(np.percentile(sizes[sizes > 0], STILL_PERCENT))
        moving = self._times[sizes > still]
        following = np.searchsorted(moving, moments)
        after = np.append(moving, np.inf)[following]
        return [moment for moment, at in zip(moments, after, strict=True) if at > moment + ANSWER_S]

    def _shown(self, start: float, end: float) -> Span:
        """The span of the frames that are shown between two times."""
        number = max(0, number_at(self._times, start))
        return Span(min(start, float(self._times[number])), end)

    def see(self, frame: Frame) -> None:
        """Take the next frame in presentation order."""
        if frame.is_black:
            if self._black_from is None:
                self._black_from = frame.time
                self._blacks.append(PrivateStretch(frame.time, frame.time))
            number = number_at(self._times, frame.time) + 1
            end = float(self._times[number]) if number < len(self._times) else float("inf")
            self._blacks[-1] = PrivateStretch(self._black_from, end)
        else:
            self._black_from = None
        for lock in self._locks:
            lock.see(frame)

    def was_dark(self, start: float, end: float) -> bool:
        """Whether the screen was black for long between two times, as far as frames were seen."""
        return any(black.overlaps(start, end) for black in self._dark())

    def _dark(self) -> list[PrivateStretch]:
        return [black for black in self._blacks if black.end - black.start >= BLACK_S]

    def _locked(self) -> list[PrivateStretch]:
        return [PrivateStretch(lock.chord, lock.end) for lock in self._locks if lock.is_locked]

    def desktop_before(self, time: float) -> Frame | None:
        """The frame before a lock chord, for a time at which the screen is locked; else None."""
        for lock in self._locks:
            if lock.is_locked and lock.chord < time < lock.end:
                return lock.frame
        return None

    def result(self) -> tuple[tuple[int, ...], list[PrivateStretch]]:
        """The indexes of the private actions, and the stretches in which they are."""
        dark = self._dark()
        locked = self._locked()
        private: list[int] = []
        stretches: set[PrivateStretch] = set()
        for action in self._actions:
            hidden = [one for one in locked if self._is_in(action, one)]
            for line in action.events if action.action_type in {"type", "hotkey"} else ():
                if line in self._keys:
                    at = self._keys[line]
                    around = (at - self._doubt_s, at + self._doubt_s)
                    hidden += [one for one in dark if one.overlaps(*around)]
            if hidden:
                private.append(action.action_index)
                stretches |= set(hidden)
        return tuple(private), sorted(stretches, key=lambda one: one.start)

    def _is_in(self, action: Action, locked: PrivateStretch) -> bool:
        """Whether an action, or a pause in part, is in a stretch in which the screen is locked."""
        began = self._clock.video_time(action.press_ms)
        if action.action_type == "pause":
            ended = self._clock.video_time(action.end_ms)
            return locked.start < ended and began < locked.end
        return locked.start < began + self._doubt_s and began - self._doubt_s < locked.end
