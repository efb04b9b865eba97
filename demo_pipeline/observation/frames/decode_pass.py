"""The decode pass: frames of the wanted stretches, once, in order, each answer written as it falls.

Belongs here: feeding choosers, writing PNGs, noting waits and the final picture. Memory holds the
frames of the actions in question, whatever the length of the video.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.common.png import PngWriter
from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.frames.change_detection import SMALL_CELLS, ChangeDetector
from demo_pipeline.observation.frames.evidence import WaitEvidence
from demo_pipeline.observation.frames.final_frame import FINAL_FILE, FINAL_LOOK_S, FinalChooser
from demo_pipeline.observation.frames.frame_choice import EFFECT_S, BeforeFrameChooser, Reason
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest, merge_spans
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.scan_frames import ScanFrames
from demo_pipeline.observation.frames.scroll_motion import ScrollMotion, WheelVote
from demo_pipeline.observation.frames.video_frames import Frame, Span, decode_spans
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.waits import is_wait, rest_start
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.video_probe import VIDEO_FILE, PacketScan

SURE_MS = 250  # with a clock less sure, scans and scrolls are seen at another moment
SPEAKS_FOR_S = 0.5  # a frame says nothing about a screen this much later, unless one follows it


@dataclass(frozen=True)
class FrameChoice:
    """What the video said about one action; fields as in `screenshots.FRAMES_SCHEMA`."""

    action_index: int
    reason: str
    file: str | None = None
    pts: int | None = None
    time: float | None = None
    lead_ms: float | None = None
    leak: bool = False
    unavoidable: bool = False
    pointer_distance_px: float | None = None
    settle_ms: float | None = None


@dataclass
class _Asked:
    chooser: BeforeFrameChooser
    small: list[float]


class DecodePass:
    """One pass over one video; `run` leaves `evidence.Findings` and the number of frames."""

    def __init__(
        self,
        video: Path,
        scan: PacketScan,
        *,
        settled: Calibration,
        path: PointerPath,
        actions: Sequence[Action],
        out: Path,
        frame_s: float,
    ) -> None:
        self._video = video
        self._scan = scan
        self._times = scan.times
        self._settled = settled
        self._pointer = VideoPointer(path, settled.clock, settled.canvas, frame_s)
        self._actions = {action.action_index: action for action in actions}
        self._out = out
        self._frame_s = frame_s
        self._change = ChangeDetector(settled.flickering)
        self._png = PngWriter()
        self._last: Frame | None = None
        self._pending_pause: _Asked | None = None
        self.wheel = WheelVote(None, 0, 0, {})
        self.waits: list[WaitEvidence] = []
        self.large_changes: list[float] = []
        self.redrawn: dict[int, bool] = {}
        self.decoded = 0

    def run(self, wanted: Sequence[FrameRequest]) -> list[FrameChoice]:
        """FrameChoice every `FrameRequest`, write NNN.png and final.png."""
        answers: dict[int, FrameChoice] = {}
        queue = [_Asked(BeforeFrameChooser(one), []) for one in wanted]
        final_from = self._final_start(wanted)
        spans = [one.span for one in wanted]
        spans.append(Span(final_from, final_from + FINAL_LOOK_S))
        scans = ScanFrames(wanted, self._frame_s)
        sure = self._settled.clock.uncertainty_ms <= SURE_MS
        scrolls = list(self._actions.values()) if sure else []
        wheel = ScrollMotion(scrolls, self._settled.clock, self._settled.canvas)
        spans += [*scans.spans, *wheel.spans]
        final = FinalChooser(final_from)
        for frame in decode_spans(self._video, self._scan, merge_spans(spans, self._frame_s)):
            self.decoded += 1
            scans.offer(frame)
            wheel.offer(frame)
            while queue and frame.time > queue[0].chooser.wanted.span.end + 1e-9:
                self._finish(queue.pop(0), answers, scans)
            shown = FrameDiff(self._last, frame, self._times, self._change, self._pointer)
            for asked in queue:
                if frame.time < asked.chooser.wanted.span.start - 1.5 * self._frame_s:
                    break
                self._feed(asked, shown)
            if frame.time >= final_from:
                self._feed_final(final, shown)
            self._last = frame
            del shown  # a frame more that is held makes decoding the next a tenth slower
        for asked in queue:
            self._finish(asked, answers, scans)
        self._drop_pause(answers)
        self._write_final(final)
        self.wheel = wheel.vote()
        return [answers[one.action_index] for one in wanted]

    @staticmethod
    def _feed_final(final: FinalChooser, shown: FrameDiff) -> None:
        difference, pointers = shown.difference, shown.pointers
        changed = difference is None or difference.is_significant(pointers, None)
        small = difference is None or difference.apart_from(pointers) >= SMALL_CELLS
        final.feed(shown.frame, changed=changed, small=small)

    def _final_start(self, wanted: Sequence[FrameRequest]) -> float:
        ends = [self._actions[one.action_index].end_ms for one in wanted]
        last = float(self._times[-1])
        return min(last, self._settled.clock.video_time(max(ends))) if ends else last

    def _feed(self, asked: _Asked, shown: FrameDiff) -> None:
        chooser, wanted, frame = asked.chooser, asked.chooser.wanted, shown.frame
        if chooser.minds_only_large(frame) and not shown.may_be_large:
            chooser.feed(frame, changed=False, large=False)
            return
        difference, pointers = shown.difference, shown.pointers
        changed = difference is None or difference.is_significant(pointers, wanted.target)
        if difference is not None and wanted.answer and frame.time <= wanted.since + EFFECT_S:
            changed |= difference.answers(pointers, wanted.answer)
        large = difference is not None and difference.is_large
        chooser.feed(frame, changed=changed, large=large)
        if large and changed and frame.time not in self.large_changes[-2:]:
            self.large_changes.append(frame.time)
        if wanted.pause and difference is not None and difference.count >= SMALL_CELLS:
            asked.small.append(frame.time)

    def _finish(self, asked: _Asked, answers: dict[int, FrameChoice], scans: ScanFrames) -> None:
        chooser = asked.chooser
        chooser.finish()
        wanted = chooser.wanted
        if wanted.pause:
            self._drop_pause(answers)
            self._pending_pause = asked
            return
        self._decide_pause(wanted, answers)
        answers[wanted.action_index] = self._answer(chooser)
        self._look_at_target(chooser, scans)

    def _look_at_target(self, chooser: BeforeFrameChooser, scans: ScanFrames) -> None:
        """Whether the place of the target still looks as it did when its scan began."""
        wanted, frame = chooser.wanted, chooser.best
        seen = scans.at(wanted.scan)
        if seen is None or frame is None or wanted.target is None:
            return
        if self._settled.clock.uncertainty_ms > SURE_MS:
            return
        if frame.luma.shape == seen.luma.shape:
            pointers = [*self._pointer.near(seen.time), *self._pointer.near(frame.time)]
            difference = self._change.since(seen.luma, frame.luma, pointers)
            self.redrawn[wanted.action_index] = difference.is_redrawn(wanted.target)

    def _drop_pause(self, answers: dict[int, FrameChoice]) -> None:
        if self._pending_pause is not None:
            index = self._pending_pause.chooser.wanted.action_index
            answers[index] = FrameChoice(index, "pause")
            self._pending_pause = None

    def _decide_pause(self, following: FrameRequest, answers: dict[int, FrameChoice]) -> None:
        asked = self._pending_pause
        if asked is None:
            return
        wanted = asked.chooser.wanted
        settled = rest_start(asked.small, asked.chooser.changes)
        if settled is None or not is_wait(settled, wanted.since, following.press, following.limit):
            self._drop_pause(answers)
            return
        self._pending_pause = None
        seconds = self._actions[wanted.action_index].seconds or 0.0
        self.waits.append(
            WaitEvidence(
                action_index=wanted.action_index,
                seconds=round(seconds, 3),
                settled_s=round(settled, 6),
            )
        )
        answers[wanted.action_index] = self._answer(asked.chooser)

    def _answer(self, chooser: BeforeFrameChooser) -> FrameChoice:
        wanted, frame, reason = chooser.wanted, chooser.best, chooser.reason
        if frame is None or self._is_late(wanted.limit, chooser.latest):
            frame, reason = self._fallback(wanted)
        elif self._is_second_best(chooser, frame):
            reason = Reason.BACKOFF
        if frame is None:
            return FrameChoice(wanted.action_index, Reason.MISSING)
        name = f"{wanted.action_index:03d}.png"
        self._png.write(self._out / name, self._settled.canvas.fit(frame.rgb()))
        leak, unavoidable, distance = self._pointer.leak(wanted, frame.time)
        return FrameChoice(
            wanted.action_index,
            reason,
            name,
            frame.pts,
            frame.time,
            (wanted.press - frame.time) * 1000,
            leak,
            unavoidable,
            distance,
            chooser.seconds_still(frame) * 1000,
        )

    def _is_second_best(self, chooser: BeforeFrameChooser, frame: Frame) -> bool:
        """A frame that the rule might rather have named did not decode, or the film ends first."""
        wanted = chooser.wanted
        begin, until = frame.time, wanted.approach
        if chooser.reason is not Reason.PRE_MOVE:
            begin, until = max(wanted.since, wanted.span.start), wanted.limit
        first, last = np.searchsorted(self._times, [begin + 1e-9, until - 1e-9])
        seen = sum(begin + 1e-9 < time < until - 1e-9 for time in chooser.times)
        return bool(last - first > seen or until > self._times[-1] + 1.5 * self._frame_s)

    def _is_late(self, limit: float, latest: Frame | None) -> bool:
        """The decoder gave out, or the video ended, too long before the limit to speak for it."""
        position = int(np.searchsorted(self._times, limit + 1e-9, side="right")) - 1
        due = float(self._times[max(0, position)])
        if position == len(self._times) - 1:
            due = limit
        return latest is not None and due - latest.time > max(SPEAKS_FOR_S, 2 * self._frame_s)

    def _fallback(self, wanted: FrameRequest) -> tuple[Frame | None, Reason]:
        """No frame in the stretch: the nearest earlier one, unless the video does not reach it."""
        if wanted.press > self._times[-1] + max(SPEAKS_FOR_S, 2 * self._frame_s):
            return None, Reason.MISSING
        position = int(np.searchsorted(self._times, wanted.limit + 1e-9, side="right")) - 1
        reason = Reason.BACKOFF if position >= 0 else Reason.FIRST_FRAME
        frame = self._frame_at(max(0, position))
        if frame is None or frame.time >= wanted.press:
            return None, Reason.MISSING
        return frame, reason

    def _frame_at(self, position: int) -> Frame | None:
        """One frame by its number; None when it does not decode."""
        time = float(self._times[position])
        return next(decode_spans(self._video, self._scan, [Span(time, time)]), None)

    def _write_final(self, final: FinalChooser) -> None:
        """The last frame stands in where none follows the last action, then any that decodes."""
        frame = final.best or self._frame_at(len(self._times) - 1)
        frame = frame or self._last or self._frame_at(0)
        if frame is None:
            message = f"none of its {len(self._times)} frames decodes"
            remedy = "upload the recording again"
            raise DemonstrationError(Problem("no_frames", VIDEO_FILE, message, remedy=remedy))
        self._png.write(self._out / FINAL_FILE, self._settled.canvas.fit(frame.rgb()))
