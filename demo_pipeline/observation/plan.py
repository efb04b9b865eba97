"""What the video is asked: one `Wanted` for each action, from the actions, the clock and targets.

Belongs here: guards, approaches and the stretches of video to look at.
"""

from collections.abc import Mapping, Sequence

from demo_pipeline.actions.tables import Action
from demo_pipeline.observation.approach import Box, PointerPath, Vicinity
from demo_pipeline.observation.canvas import Canvas
from demo_pipeline.observation.choose import Wanted
from demo_pipeline.observation.clock import Clock
from demo_pipeline.observation.evidence import Settled
from demo_pipeline.observation.pictures import Span
from demo_pipeline.settings import ObservationSettings

LOOK_BACK_S = 1.5  # before the approach, to know whether the screen was still
MAX_GUARD_S = 1.0  # an unsure clock must not push the picture into the previous scene


def guard_seconds(clock: Clock, frame_s: float, settings: ObservationSettings) -> float:
    """How long before its press a frame lies at the latest: 50 ms, the clock's doubt, a frame."""
    guard = max(settings.guard_ms / 1000, clock.uncertainty_ms / 1000, frame_s)
    return min(guard, MAX_GUARD_S)


def plan(
    actions: Sequence[Action],
    targets: Mapping[int, Box],
    path: PointerPath,
    *,
    settled: Settled,
    frame_s: float,
    settings: ObservationSettings,
) -> list[Wanted]:
    """One `Wanted` an action, in order. `targets`: action index → box in event space."""
    clock = settled.clock
    guard = guard_seconds(clock, frame_s, settings)
    wanted: list[Wanted] = []
    since_ms = float("-inf")
    after_pause = False
    for action in actions:
        press = clock.video_time(action.press_ms)
        limit = press - (0.0 if action.action_type == "pause" else guard)
        vicinity = _vicinity(action, targets.get(action.action_index), settings)
        set_out = None
        if vicinity is not None:
            set_out = path.set_out(action.press_ms, since_ms, vicinity)
        approach = limit if set_out is None else min(limit, clock.video_time(set_out))
        since = clock.video_time(since_ms)
        start = approach - LOOK_BACK_S
        if after_pause or action.action_type == "pause":
            start = since
        start = max(since, min(start, limit - frame_s))
        end = clock.video_time(action.end_ms) if action.action_type == "pause" else limit
        wanted.append(
            Wanted(
                action.action_index,
                press,
                since,
                limit,
                approach,
                vicinity,
                _video_box(targets.get(action.action_index), settled.canvas),
                Span(start, max(start, end)),
                pause=action.action_type == "pause",
            )
        )
        after_pause = action.action_type == "pause"
        if not after_pause:
            since_ms = max(since_ms, float(action.end_ms))
    return wanted


def _vicinity(action: Action, box: Box | None, settings: ObservationSettings) -> Vicinity | None:
    if action.x is None or action.y is None or action.action_type in {"type", "hotkey"}:
        return None
    return Vicinity(action.x, action.y, settings.pointer_radius_px, box)


def _video_box(box: Box | None, canvas: Canvas) -> Box | None:
    if box is None:
        return None
    x, y = canvas.to_video(box.x, box.y)
    scale = canvas.event_scale
    return Box(x, y, box.width * scale, box.height * scale)


def joined(spans: Sequence[Span], frame_s: float) -> list[Span]:
    """Ascending, disjoint spans that cover all of `spans`, each a frame wider at its start."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        start = span.start - 1.5 * frame_s
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(start, span.end))
    return merged
