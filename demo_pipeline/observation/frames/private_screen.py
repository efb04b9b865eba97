"""Finds the times at which the screen is black or locked, because keys may then type a password.

Actions at these times are private: no stage after `actions` writes their text or frames. A *lock
chord* is the platform's keyboard shortcut for locking the screen. The screen counts as locked after
a lock chord if the video then shows a black frame or no longer shows the desktop. It counts as
unlocked when the desktop from before the chord is back.
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

# Minimum length of a black stretch, seconds; an estimate. A change of the display mode is shorter.
BLACK_S = 1.0
# Maximum time in which the desktop may fade to the lock screen, seconds; an estimate.
LOCKED_S = 5.0
BEFORE_S = 0.05  # seconds; a frame 0.05 s before the lock chord certainly shows the desktop
# Width and height of a block, in samples of `Frame.quartered`. A block covers 32 x 32 pixels, about
# a word.
MARK_BLOCK = 8
# Levels of brightness (0 to 255). Both values are estimates, and are larger than codec noise.
_INK_LEVELS = 24  # minimum difference of the brightest and darkest sample of a block with content
SAME_LEVELS = 24  # maximum difference of two samples that count as equal
# After a lock chord, the blocks of the desktop with content are compared with the new screen.
# On a lock screen, blocks look the same only by chance. After unlocking, a clock or a message may
# have changed. Both limits for the share of equal blocks are estimates.
LOCKED_SHARE = 0.3  # maximum share on a lock screen
BACK_SHARE = 0.6  # minimum share when the desktop is back

# Seconds. If the clock's uncertainty is larger, packets of the video cannot be assigned to keys.
SURE_S = 0.25
# A packet shows a change if it is more than 1.5 times as large as the 5th percentile of all packet
# sizes. In 16 recordings of real desktops, the largest packet while visible letters were typed was
# 2.6 to 1,018 times as large as this percentile. In three black screens, it was 1.0 times as large.
STILL_PERCENT = 5
STILL_FACTOR = 1.5
# Maximum time from a key to its effect, seconds. In the same 16 recordings, 97 % of 2,175 keys had
# an effect within 0.3 s.
ANSWER_S = 0.3

_CHORDS: Mapping[str, Sequence[frozenset[str]]] = {
    "windows": [frozenset({"win", "l"})],
    "macos": [frozenset({"ctrl", "command", "q"})],
    "linux": [frozenset({"win", "l"}), frozenset({"ctrl", "alt", "l"})],
}
# On these platforms, programs cannot use the lock chord for anything else.
_SURE_PLATFORMS = frozenset({"windows", "macos"})
_ALL_CHORDS = [chord for chords in _CHORDS.values() for chord in chords]


@dataclass(frozen=True)
class PrivateStretch:
    """A stretch of the video in which the screen is black or locked.

    `start` and `end` are video seconds. `end` is infinite if the video does not show the end.
    """

    start: float
    end: float

    def overlaps(self, start: float, end: float) -> bool:
        """Whether the stretch overlaps the range from `start` to `end`, video seconds."""
        return self.start <= end and start < self.end


@dataclass
class _Lock:
    """A lock chord, and the state of the screen after it. Times are video seconds.

    Attributes:
        chord: time at which the last key of the lock chord was released.
        before: up to this time, the video certainly shows the desktop.
        until: a change of the screen after this time does not count as the lock screen.
        desktop: `Frame.quartered` of the desktop before the chord. None before it was decoded.
        is_locked: whether the lock screen was seen.
        end: time at which the desktop was back; infinite until then.
        frame: the last frame before the chord that is not black. None before it was decoded, and if
            no lock screen came.
    """

    chord: float
    before: float
    until: float
    desktop: Luma | None = None
    is_locked: bool = False
    end: float = float("inf")
    frame: Frame | None = field(default=None, repr=False)

    def see(self, frame: Frame) -> None:
        """Updates the state with the next frame in presentation order."""
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
    """Returns the share of the blocks with content in `before` that are the same in `after`."""
    if before.shape != after.shape:
        return 0.0
    has_content = _blocks_range(before) >= _INK_LEVELS
    if not has_content.any():
        has_content = np.ones_like(has_content)
    is_same = _blocks_max(cv2.absdiff(before, after)) <= SAME_LEVELS
    return float(np.count_nonzero(has_content & is_same) / np.count_nonzero(has_content))


def _blocks_max(values: Luma) -> Luma:
    """Returns the largest sample of each block. The result is (block rows, block columns)."""
    rows = values.shape[0] // MARK_BLOCK
    columns = values.shape[1] // MARK_BLOCK
    whole = values[: rows * MARK_BLOCK, : columns * MARK_BLOCK].reshape(
        rows, MARK_BLOCK, columns, MARK_BLOCK
    )
    return np.asarray(whole.max(axis=(1, 3)), np.uint8)


def _blocks_range(values: Luma) -> Luma:
    """Returns the difference of the largest and smallest sample of each block.

    The result is (block rows, block columns).
    """
    return _blocks_max(values) - (255 - _blocks_max(255 - values))


class PrivateScreen:
    """The observer that finds private actions in the frames around keys and after lock chords.

    Args:
        actions, inputs: in time order.
        platform: windows, macos, linux or empty.
        clock: the clock of the recording. An action is private if, within the clock's uncertainty,
            one of its keys may have been pressed on a black screen.
        packets: the packets of the video. Where they are large, the screen is not black.
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
        """Returns the initial state of a lock chord, before its frames are decoded.

        If programs may use the chord for something else on this platform, a change of the screen
        after the next action other than a pause does not count as the lock screen.
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
        """Yields the spans to decode.

        These are the spans around lock chords, around all actions after the first lock chord, and
        around keys without an effect in the packets of the video.
        """
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
        """Returns the times of key presses after which the packets do not show a change.

        If the clock is too uncertain, or if no packet can show a change, all times are returned.
        `moments` are times of key presses, video seconds.
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
        """Returns a span that contains all frames that a player shows between two times."""
        number = max(0, number_at(self._times, start))
        return Span(min(start, float(self._times[number])), end)

    def see(self, frame: Frame) -> None:
        """Updates black stretches and locks with the next frame in presentation order."""
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
        """Whether a black stretch of at least a second overlaps the time from `start` to `end`.

        Both times are video seconds. Only the frames seen so far are considered.
        """
        return any(black.overlaps(start, end) for black in self._dark())

    def _dark(self) -> list[PrivateStretch]:
        return [black for black in self._blacks if black.end - black.start >= BLACK_S]

    def _locked(self) -> list[PrivateStretch]:
        return [PrivateStretch(lock.chord, lock.end) for lock in self._locks if lock.is_locked]

    def desktop_before(self, time: float) -> Frame | None:
        """Returns the last frame before the lock chord if the screen is locked, otherwise None.

        `time` is in video seconds.
        """
        for lock in self._locks:
            if lock.is_locked and lock.chord < time < lock.end:
                return lock.frame
        return None

    def result(self) -> tuple[tuple[int, ...], list[PrivateStretch]]:
        """Returns the indexes of the private actions, and the stretches that make them private.

        Call it after the last frame.
        """
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
        """Returns the black stretches in which a key of the action may have been pressed."""
        stretches: list[PrivateStretch] = []
        for line in action.events:
            if line in self._keys:
                earliest = self._keys[line] - self._uncertainty_s
                latest = self._keys[line] + self._uncertainty_s
                stretches += [black for black in dark if black.overlaps(earliest, latest)]
        return stretches

    def _is_in(self, action: Action, locked: PrivateStretch) -> bool:
        """Whether an action may have begun in a locked stretch, or is a pause that overlaps it."""
        began = self._clock.video_time(action.press_ms)
        if action.action_type == "pause":
            ended = self._clock.video_time(action.end_ms)
            return locked.start < ended and began < locked.end
        earliest = began - self._uncertainty_s
        latest = began + self._uncertainty_s
        return locked.start < latest and earliest < locked.end
