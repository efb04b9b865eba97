"""Frame requests: one for each action, from the actions, the clock and the targets.

Belongs here: guards, approaches and the stretches of video to look at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.calibration.calibrate import Calibration
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.clock import Clock
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath, TargetArea
from demo_pipeline.observation.frames.video_frames import Span
from demo_pipeline.settings import ObservationSettings

LOOK_BACK_S = 0.3  # before the approach, to know whether the screen was still
MAX_GUARD_S = 1.0  # with a clock that nothing confirms, earlier still is another screen
ANSWER_PX = 60  # around a click without a known target


@dataclass(frozen=True)
class ScannedTarget:
    """What a scan says lies under an action: its box in event space, and when the scan began."""

    box: PixelBox
    scan_ms: int


@dataclass(frozen=True)
class FrameRequest:
    """One action's question to the video. Times are video seconds.

    Attributes:
        action_index: row of actions.parquet.
        press: when the action began.
        since: when the previous action had ended; minus infinity for the first.
        limit: no frame later than this shows the screen before the press.
        approach: when the hand set out for the target; `limit` when nothing moved.
        vicinity: what counts as being at the target, event space; None for keys.
        target: the target's box in video pixels.
        span: the stretch of video to look at.
        answer: where the previous action's effect may show, however small, video pixels.
        scan: when the scan began that the target was found in; None without a target.
        pause: this row is a pause: the screen matters, the picture only when it is a wait.
    """

    action_index: int
    press: float
    since: float
    limit: float
    approach: float
    vicinity: TargetArea | None
    target: PixelBox | None
    span: Span
    answer: PixelBox | None = None
    scan: float | None = None
    pause: bool = False


def lead_seconds(clock: Clock, frame_s: float, settings: ObservationSettings) -> float:
    """How long before its press a frame lies at the latest: 50 ms, the clock's doubt, a frame."""
    guard = max(settings.min_lead_ms / 1000, clock.uncertainty_ms / 1000, frame_s)
    return min(guard, MAX_GUARD_S)


def request_frames(
    actions: Sequence[Action],
    targets: Mapping[int, ScannedTarget],
    path: PointerPath,
    *,
    settled: Calibration,
    frame_s: float,
    settings: ObservationSettings,
) -> list[FrameRequest]:
    """One request an action, in order. `targets`: action index → what the scan says it hit."""
    clock = settled.clock
    guard = lead_seconds(clock, frame_s, settings)
    wanted: list[FrameRequest] = []
    since_ms = float("-inf")
    after_pause = False
    answer: PixelBox | None = None
    for action in actions:
        is_pause = action.action_type == "pause"
        press = clock.video_time(action.press_ms)
        limit = press - (0.0 if is_pause else guard)
        target = targets.get(action.action_index)
        vicinity = _vicinity(action, target.box if target else None, settings)
        approach_start = None
        if vicinity is not None:
            approach_start = path.approach_start(action.press_ms, since_ms, vicinity)
        approach = limit if approach_start is None else min(limit, clock.video_time(approach_start))
        since = clock.video_time(since_ms)
        start = since if after_pause or is_pause else approach - LOOK_BACK_S
        start = max(since, min(start, limit - frame_s))
        end = clock.video_time(action.end_ms) if is_pause else limit
        one = FrameRequest(
            action.action_index,
            press,
            since,
            limit,
            approach,
            vicinity,
            _video_box(target.box if target else None, settled.canvas),
            Span(start, max(start, end)),
            answer=None if is_pause else answer,
            scan=clock.video_time(target.scan_ms) if target else None,
            pause=is_pause,
        )
        wanted.append(one)
        after_pause = is_pause
        if not is_pause:
            since_ms = max(since_ms, float(action.end_ms))
            answer = _answer(action, one.target, settled.canvas)
    return wanted


def _answer(action: Action, target: PixelBox | None, canvas: Canvas) -> PixelBox | None:
    """Where a click shows first: what was clicked, and close around the point. Video pixels."""
    if target is not None or action.x is None or action.y is None:
        return target
    x, y = canvas.to_video(action.x, action.y)
    return PixelBox(x - ANSWER_PX, y - ANSWER_PX, 2 * ANSWER_PX, 2 * ANSWER_PX)


def _vicinity(
    action: Action, box: PixelBox | None, settings: ObservationSettings
) -> TargetArea | None:
    if action.x is None or action.y is None or action.action_type in {"type", "hotkey"}:
        return None
    return TargetArea(action.x, action.y, settings.pointer_radius_px, box)


def _video_box(box: PixelBox | None, canvas: Canvas) -> PixelBox | None:
    if box is None:
        return None
    x, y = canvas.to_video(box.x, box.y)
    scale = canvas.event_scale
    return PixelBox(x, y, box.width * scale, box.height * scale)


def merge_spans(spans: Sequence[Span], frame_s: float) -> list[Span]:
    """Ascending, disjoint spans that cover all of `spans`, each a frame wider at its start."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        start = span.start - 1.5 * frame_s
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(start, span.end))
    return merged
