"""Finds the times in which the screen is black or locked, because keys may be a password then.

Actions in these times are private: no output after the actions holds their text or their frames. A
screen is locked from the platform's lock chord on, if a black frame or another screen than the
desktop follows the chord. It is unlocked when the desktop of before the chord is back.
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

BLACK_S = 1.0  # seconds; chosen; shorter ones are flashes, such as a change of display mode
LOCKED_S = 5.0  # seconds from the chord to the lock screen; chosen; lockers may fade the desktop
BEFORE_S = 0.05  # seconds before the chord, at which a frame certainly shows the desktop
MARK_BLOCK = 8  # samples of `Frame.quartered` per side of a block: 32 pixels, which hold a word
_INK_LEVELS = 24  # of 255, within a block with content; chosen, above an encoder's noise
SAME_LEVELS = 24  # of 255, for means of 16 pixels; chosen, above an encoder's noise
# Shares of the blocks with content; chosen. A lock screen keeps such blocks by chance only. On the
# desktop that comes back, a clock or a message may have changed.
LOCKED_SHARE = 0.3
BACK_SHARE = 0.6

SURE_S = 0.25  # seconds; a clock that is less certain does not say which packets belong to a key
# A packet shows a change if it is larger than `STILL_FACTOR` times the `STILL_PERCENT` percentile.
# Measured in 16 recordings of real desktops: while visible letters were typed, the largest packet
# had 2.6 to 1,018 times that percentile; in three black screens it had 1.0 times.
STILL_PERCENT = 5
STILL_FACTOR = 1.5
ANSWER_S = 0.3  # seconds from a key to its effect; 97 % of the 2,175 keys above showed it by then

_CHORDS: Mapping[str, Sequence[frozenset[str]]] = {
    "windows": [frozenset({"win", "l"})],
    "macos": [frozenset({"ctrl", "command", "q"})],
    "linux": [frozenset({"win", "l"}), frozenset({"ctrl", "alt", "l"})],
}
_SURE_PLATFORMS = frozenset({"windows", "macos"})  # elsewhere a program may use the chord itself
_ALL_CHORDS = [chord for chords in _CHORDS.values() for chord in chords]


@dataclass(frozen=True)
class PrivateStretch:
    """A stretch of video time in seconds. The end is infinite if the video does not show it."""

    start: float
    end: float

    def overlaps(self, start: float, end: float) -> bool:
        """Whether the stretch has a time in common with the range, both ends included."""
        return self.start <= end and start < self.end


@dataclass
class _Lock:
    """A lock chord, and the state of the screen since then. Times are video seconds.

    Attributes:
        chord: when the last of its keys was released.
        before: up to this time the video certainly shows the desktop.
        until: by this time the lock screen must have come.
        desktop: the desktop before the chord; None until it was seen.
        is_locked: whether the lock screen was seen.
        end: when the desktop was back.
        frame: the last frame before the chord; None if the screen was not locked.
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
            if frame.time > self.until:  # too late for a lock screen
                self.end = self.chord
                self.frame = None
            elif frame.is_black or _kept_share(self.desktop, frame.quartered) <= LOCKED_SHARE:
                self.is_locked = True
        elif not frame.is_black and _kept_share(self.desktop, frame.quartered) >= BACK_SHARE:
            self.end = frame.time


def _kept_share(before: Luma, after: Luma) -> float:
    """Returns the share of the blocks with content before that look the same after."""
    if before.shape != after.shape:
        return 0.0
    has_content = _blocks_range(before) >= _INK_LEVELS
    if not has_content.any():
        has_content = np.ones_like(has_content)
    is_same = _blocks_max(cv2.absdiff(before, after)) <= SAME_LEVELS
    return float(np.count_nonzero(has_content & is_same) / np.count_nonzero(has_content))


def _blocks_max(values: Luma) -> Luma:
    """(blocks down, blocks across): the largest sample of each block."""
    rows = values.shape[0] // MARK_BLOCK
    columns = values.shape[1] // MARK_BLOCK
    whole = values[: rows * MARK_BLOCK, : columns * MARK_BLOCK].reshape(
        rows, MARK_BLOCK, columns, MARK_BLOCK
    )
    return np.asarray(whole.max(axis=(1, 3)), np.uint8)


def _blocks_range(values: Luma) -> Luma:
    """(blocks down, blocks across): the largest sample of each block minus the smallest."""
    return _blocks_max(values) - (255 - _blocks_max(255 - values))


class PrivateScreen:
    """Observer that finds private actions by the frames around keys and after lock chords.

    Args:
        actions: of the demonstration, in time order.
        inputs: its presses, in time order.
        platform: windows, macos, linux or empty.
        clock: of the recording. A key that may have been pressed on a black screen counts as such.
        packets: of the video. Frames around keys are decoded only where its packets are small,
            because most typing is visible, and on a black screen nothing changes.
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
        self._uncertainty_s = clock.uncertainty_ms / 1000
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
        """Returns the lock of a chord.

        If a program may use the chord itself, the lock screen must come before the next action,
        because a later change of the screen may be the effect of that action.
        """
        pressed_s = self._clock.video_time(chord.press_ms)
        released_s = self._clock.video_time(chord.end_ms)
        until = released_s + LOCKED_S
        if not self._is_sure:
            for action in self._actions:
                if action.press_ms > chord.end_ms and action.action_type != "pause":
                    until = min(until, self._clock.video_time(action.press_ms))
                    break
        return _Lock(
            chord=released_s,
            before=pressed_s - BEFORE_S - self._uncertainty_s,
            until=until + self._uncertainty_s,
        )

    def _wanted(self, presses: Sequence[Input]) -> Iterator[Span]:
        """Yields the spans around the presses of keys, and around actions after a lock chord."""
        margin = BLACK_S + self._uncertainty_s
        typed = [self._keys[key.index] for key in presses if not lookup(key.name).modifier]
        moments = self._unanswered(typed)
        for lock in self._locks:
            yield self._span_of_frames(lock.before, lock.until)
        if self._chords:
            first = self._chords[0].press_ms
            later = (action for action in self._actions if action.press_ms > first)
            moments += [self._clock.video_time(action.press_ms) for action in later]
        for moment in moments:
            yield self._span_of_frames(moment - margin, moment + margin)

    def _unanswered(self, moments: Sequence[float]) -> list[float]:
        """Returns the times of key presses after which the video's packets do not show a change.

        These are all of them if the clock is uncertain, because a change may belong to another
        time.
        """
        sizes = self._change_bytes
        if sizes is None or self._uncertainty_s > SURE_S or not (sizes > 0).any():
            return list(moments)
        still_bytes = STILL_FACTOR * float(np.percentile(sizes[sizes > 0], STILL_PERCENT))
        change_times = self._times[sizes > still_bytes]
        following = np.searchsorted(change_times, moments)
        next_changes = np.append(change_times, np.inf)[following]
        return [
            moment
            for moment, next_change in zip(moments, next_changes, strict=True)
            if next_change > moment + ANSWER_S
        ]

    def _span_of_frames(self, start: float, end: float) -> Span:
        """Returns the span of the frames that are shown between two times."""
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
        """Whether a black stretch of at least a second overlaps a range; by the frames so far."""
        return any(black.overlaps(start, end) for black in self._dark())

    def _dark(self) -> list[PrivateStretch]:
        return [black for black in self._blacks if black.end - black.start >= BLACK_S]

    def _locked(self) -> list[PrivateStretch]:
        return [PrivateStretch(lock.chord, lock.end) for lock in self._locks if lock.is_locked]

    def desktop_before(self, time: float) -> Frame | None:
        """Returns the frame before the lock chord, if the screen is locked at `time`; else None."""
        for lock in self._locks:
            if lock.is_locked and lock.chord < time < lock.end:
                return lock.frame
        return None

    def result(self) -> tuple[tuple[int, ...], list[PrivateStretch]]:
        """Returns the indexes of the private actions, and the stretches in which they lie."""
        dark = self._dark()
        locked = self._locked()
        private_actions: list[int] = []
        private_stretches: set[PrivateStretch] = set()
        for action in self._actions:
            stretches = [lock for lock in locked if self._is_in(action, lock)]
            if action.action_type in {"type", "hotkey"}:
                stretches += self._dark_keys(action, dark)
            if stretches:
                private_actions.append(action.action_index)
                private_stretches |= set(stretches)
        return tuple(private_actions), sorted(private_stretches, key=lambda stretch: stretch.start)

    def _dark_keys(self, action: Action, dark: Sequence[PrivateStretch]) -> list[PrivateStretch]:
        """Returns the black stretches in which keys of an action may have been pressed."""
        stretches: list[PrivateStretch] = []
        for line in action.events:
            if line in self._keys:
                earliest = self._keys[line] - self._uncertainty_s
                latest = self._keys[line] + self._uncertainty_s
                stretches += [black for black in dark if black.overlaps(earliest, latest)]
        return stretches

    def _is_in(self, action: Action, locked: PrivateStretch) -> bool:
        """Whether an action, or a part of a pause, lies in a stretch of the locked screen."""
        began = self._clock.video_time(action.press_ms)
        if action.action_type == "pause":
            ended = self._clock.video_time(action.end_ms)
            return locked.start < ended and began < locked.end
        earliest = began - self._uncertainty_s
        latest = began + self._uncertainty_s
        return locked.start < latest and earliest < locked.end
