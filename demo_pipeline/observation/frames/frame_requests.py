"""Creates a frame request for each action: the span to decode, and the times that limit the choice.

action_frames.py takes each request through these steps:

1. This module creates the request from the action, the clock, and the target that a scan shows.
2. decode_pass.py decodes the span.
3. frame_choice.py chooses a frame.
4. frame_fallback.py replaces the chosen frame if it is too old or if frames did not decode.
5. screenshot_writer.py writes the screenshot, and notes whether it shows the pointer at its target.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from demo_pipeline.actions.action_tables import (
    AFTER_LONG_REST,
    CONTINUED,
    POINTER_MOVED,
    Action,
)
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import Boxes, Canvas
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_search import MIN_LEAD_MS
from demo_pipeline.observation.frames.change_detector import EFFECT_S
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point, PointerPath, TargetArea
from demo_pipeline.observation.frames.video_reader import Span

# Maximum time from an action to its direct effect, such as a menu, in seconds.
EARLY_S = 1.0
LOOK_BACK_S = 0.3  # seconds decoded before the pointer starts to move, to find changes
POINTER_RADIUS_PX = 40  # units of event space; a pointer nearer to the press is at the target
# Upper limit of `lead_seconds`. With a longer lead, the frame of an action could show the screen
# before the previous action.
MAX_LEAD_S = 1.0
# Maximum distance from a click on an unknown target to a change that may be its effect, in video
# pixels.
RESPONSE_PX = 60
# Margin decoded before a span, in frame intervals. The first frame of the span is compared with a
# frame in the margin.
SPAN_MARGIN_FRAMES = 1.5


@dataclass(frozen=True)
class ElementUnderAction:
    """The element at the place of an action, in one of the windows that overlap at this place.

    Attributes:
        element: box of the element, of any size. None if the window has no element at the place.
        around: boxes of all nodes at the place; any of them may be highlighted.
        window: box of the window. None if no other window overlaps it at the place.
        position: index of the window in the tree. None if no other window overlaps it at the place.
    """

    element: PixelBox | None = None
    around: Sequence[PixelBox] = ()
    window: PixelBox | None = None
    position: int | None = None


@dataclass(frozen=True)
class ScannedTarget:
    """The latest scan before an action, and the element of the scan at the place of the action.

    Boxes are in event space. In a `FrameRequest` they are in video pixels, except `marks` and
    `window_boxes`.

    Attributes:
        event_index: line of the scan in the log.
        begin_ms, end_ms: times at which the scan began and ended, epoch milliseconds.
        aim: the element at the place of the action.
        windows: the element in each of the windows that overlap at this place. Empty if at most one
            window is there.
        box: the element's box. None if the element is too large to show where the press will be.
        marks: (elements, 4), boxes of small named elements, to check the units of the tree.
        before_ms: times at which the previous scan began and ended, epoch milliseconds. None if
            there is no previous scan, and for keys.
        window_boxes: boxes of all windows of the scan.
    """

    event_index: int
    begin_ms: int
    end_ms: int
    aim: ElementUnderAction = ElementUnderAction()
    windows: Sequence[ElementUnderAction] = ()
    box: PixelBox | None = None
    marks: Boxes | None = None
    before_ms: tuple[int, int] | None = None
    window_boxes: frozenset[PixelBox] = frozenset()

    def in_video(self, canvas: Canvas) -> "ScannedTarget":
        """Returns the target with its boxes converted to video pixels."""

        def in_video(aim: ElementUnderAction) -> ElementUnderAction:
            return ElementUnderAction(
                element=aim.element and canvas.box_to_video(aim.element),
                around=[canvas.box_to_video(box) for box in aim.around],
                window=aim.window and canvas.box_to_video(aim.window),
                position=aim.position,
            )

        return replace(
            self,
            aim=in_video(self.aim),
            windows=[in_video(aim) for aim in self.windows],
            box=self.box and canvas.box_to_video(self.box),
        )


@dataclass(frozen=True)
class FrameRequest:
    """Describes the frame that an action needs.

    Times are video seconds, except for `press_ms`.

    Attributes:
        action_index: row of actions.parquet.
        press: time at which the action began.
        since: time at which the previous action ended; minus infinity for the first action.
        limit: frames up to this time show the screen before the press. For a pause, a frame at this
            time shows the direct effect of the previous action, but not yet the content for which
            the person may have waited.
        approach: time at which the pointer started towards the target, or `limit` if it rested.
        target_area: area in which the pointer counts as being at the target, event space. None for
            keys.
        response_box: area in which even a small change may be the effect of the previous action,
            video pixels. None if the place of the previous action is unknown.
        scan: the latest scan before the action, and its target. None if there is no scan.
        point: place at which a pointing action began, video pixels. None for keys.
        pause: whether the action is a pause. A pause gets a screenshot only if the person waited
            for the screen.
        continued: whether the action continues typing after a break. It gets a screenshot only if
            the screen was replaced or dark during the break.
        after_long_rest: whether the action continues typing after a long break, and the text before
            the break is longer than a command. The action then gets a screenshot only if the screen
            was dark during the break.
        press_ms: time at which the action began, epoch milliseconds.
        canvas: the canvas of the action. None if the screen's resolution is unknown at that time.
        proven_until: frames up to this time show the screen before the press, even if the clock is
            off by its whole uncertainty. Minus infinity if there are no such frames.
    """

    action_index: int
    press: float
    since: float
    limit: float
    approach: float
    target_area: TargetArea | None
    span: Span
    response_box: PixelBox | None = None
    scan: ScannedTarget | None = None
    point: Point | None = None
    pause: bool = False
    continued: bool = False
    after_long_rest: bool = False
    press_ms: int = 0
    canvas: Canvas | None = None
    proven_until: float = inf

    @property
    def target(self) -> PixelBox | None:
        """The target's box, video pixels. None if the target is unknown or large."""
        return self.scan.box if self.scan else None


def lead_seconds(clock: Clock, grab_s: float) -> float:
    """Returns the minimum time from a chosen frame to the press, seconds.

    The time is the largest of `MIN_LEAD_MS`, the clock's uncertainty and `grab_s`, limited to
    `MAX_LEAD_S`. `grab_s` is the interval between frames while the screen changes, seconds.
    """
    lead = max(MIN_LEAD_MS / 1000, clock.uncertainty_ms / 1000, grab_s)
    return min(lead, MAX_LEAD_S)


def request_frames(
    actions: Sequence[Action],
    targets: Mapping[int, ScannedTarget],
    path: PointerPath,
    *,
    calibration: Calibration,
    frame_s: float,
    grab_s: float,
) -> list[FrameRequest]:
    """Returns a frame request for each action, in the order of the actions.

    Args:
        actions: in time order.
        targets: maps the index of an action to its scan and target.
        frame_s: mean interval between frames, seconds.
        grab_s: interval between frames while the screen changes, seconds.
    """
    clock = calibration.clock
    screen = calibration.screen
    requests: list[FrameRequest] = []
    since_ms = float("-inf")
    after_rest = False
    response_box: PixelBox | None = None
    for action in actions:
        pause = action.action_type == "pause"
        part = screen.at(action.press_ms)
        canvas = part.canvas or calibration.canvas
        since_ms = max(since_ms, part.from_ms)
        press = clock.video_time(action.press_ms)
        bounds = _bounds(clock, clock.video_time(since_ms), press, grab_s, is_pause=pause)
        target = targets.get(action.action_index)
        area = _target_area(action, target.box if target else None)
        approach = bounds.limit
        approach_ms = path.approach_start(action.press_ms, since_ms, area) if area else None
        if approach_ms is not None:
            approach = min(approach, clock.video_time(approach_ms))
        earliest = bounds.since if after_rest else approach - LOOK_BACK_S
        request = FrameRequest(
            action.action_index,
            press,
            bounds.since,
            bounds.limit,
            approach,
            area,
            _span(bounds, earliest, frame_s),
            response_box=None if pause else response_box,
            scan=target.in_video(canvas) if target else None,
            point=canvas.to_video(area.x, area.y) if area else None,
            pause=pause,
            continued=CONTINUED in action.flags,
            after_long_rest=AFTER_LONG_REST in action.flags,
            press_ms=action.press_ms,
            canvas=screen.canvas_of(action),
            proven_until=bounds.proven_until,
        )
        requests.append(request)
        after_rest = pause and POINTER_MOVED not in action.flags
        if not pause:
            since_ms = max(since_ms, float(action.end_ms))
            response_box = _response_box(action, request.target, canvas)
    return requests


class _Bounds(NamedTuple):
    """The times that limit the choice of a frame. `FrameRequest` describes the fields."""

    since: float
    limit: float
    proven_until: float = inf


def _bounds(clock: Clock, since: float, press: float, grab_s: float, *, is_pause: bool) -> _Bounds:
    """Returns the times between which the frame of an action is chosen.

    Args:
        since: time at which the previous action ended, video seconds.
        press: time at which the action began, video seconds.
        grab_s: interval between frames while the screen changes, seconds.
    """
    uncertainty_s = clock.uncertainty_ms / 1000
    if is_pause:
        return _Bounds(since, max(press, since + EARLY_S))
    if uncertainty_s <= MAX_LEAD_S:
        return _Bounds(since, press - lead_seconds(clock, grab_s))
    # Frames between these two times come after the previous action's effect and before the press,
    # even if the clock is off by its whole uncertainty.
    previous_effect_over = since + uncertainty_s + EFFECT_S
    press_not_begun = press - uncertainty_s
    if previous_effect_over <= press_not_begun:
        return _Bounds(previous_effect_over, press_not_begun, proven_until=press_not_begun)
    return _Bounds(since, press - MAX_LEAD_S, proven_until=-inf)


def _span(bounds: _Bounds, earliest: float, frame_s: float) -> Span:
    """Returns the span to decode, from `earliest` to the limit.

    The span is at least one frame interval long, but does not start before `since`.
    """
    start = max(bounds.since, min(earliest, bounds.limit - frame_s))
    return Span(start, max(start, bounds.limit))


def without_box(request: FrameRequest) -> FrameRequest:
    """Returns the request with a circle around the press as its target area, instead of a box."""
    area = request.target_area
    return request if area is None else replace(request, target_area=replace(area, box=None))


def _response_box(action: Action, target: PixelBox | None, canvas: Canvas) -> PixelBox | None:
    """Returns the area in which the effect of a click may appear first, video pixels.

    This is the target or, if it is unknown, a square around the click. Returns None for keys.
    """
    if target is not None or action.x is None or action.y is None:
        return target
    return PixelBox.around(canvas.to_video(action.x, action.y), RESPONSE_PX)


def _target_area(action: Action, box: PixelBox | None) -> TargetArea | None:
    if action.x is None or action.y is None or action.action_type in {"type", "hotkey"}:
        return None
    return TargetArea(action.x, action.y, POINTER_RADIUS_PX, box)


def merge_spans(spans: Sequence[Span], frame_s: float) -> list[Span]:
    """Returns ascending, disjoint spans that cover `spans`, each with a margin before it.

    The margin is `SPAN_MARGIN_FRAMES` times `frame_s`.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        start = span.start - SPAN_MARGIN_FRAMES * frame_s
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(start, span.end))
    return merged
