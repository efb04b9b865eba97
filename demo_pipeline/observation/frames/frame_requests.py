"""Frame requests: for each action, the stretch of video to decode and the frames that are allowed.

The life of a frame begins here. A request is made from the action, the clock and the target that a
scan has. decode_pass.py decodes its stretch, frame_choice.py chooses a frame, and frame_fallback.py
replaces a choice that the video does not support. screenshot_writer.py writes the screenshot and
measures the leak. action_frames.py takes each request through these stations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

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

EARLY_S = 1.0  # seconds after an action in which its own effect shows: a pressed button, a menu
LOOK_BACK_S = 0.3  # seconds before the approach that show whether the screen was still
POINTER_RADIUS_PX = 40  # screen pixels; a pointer nearer than this is at the target
# Seconds. If the clock is less certain than this, a frame may show the screen before an earlier
# action, unless the two actions are further apart than the clock may be off.
MAX_LEAD_S = 1.0
RESPONSE_PX = 60  # video pixels around a click without a known target in which its effect may show
SPAN_MARGIN_FRAMES = 1.5  # frame distances before a span, to compare its first frame with another


@dataclass(frozen=True)
class ElementUnderAction:
    """The element that a scan has under an action, in one of the windows there.

    Attributes:
        element: its box, of any size; None without an element.
        around: boxes of all nodes under the action, which may be highlighted together with it.
        window: box of the window; None if only one window is there.
        position: of the window in the tree; None if only one window is there.
    """

    element: PixelBox | None = None
    around: Sequence[PixelBox] = ()
    window: PixelBox | None = None
    position: int | None = None


@dataclass(frozen=True)
class ScannedTarget:
    """The current scan of an action, and the element that it has under the action.

    Boxes are in event space. In a `FrameRequest` they are in video pixels, except `marks` and
    `window_boxes`.

    Attributes:
        event_index: line of the scan.
        begin_ms, end_ms: when the scan ran, epoch milliseconds.
        aim: the element under the action.
        windows: the elements under the action in each window, if several windows overlap there; the
            frame shows which one is in front.
        box: of the element, if it is small enough to tell that the pointer is at the target.
        marks: (elements, 4) boxes of the scan, to test the units of the tree.
        before_ms: when the previous scan ran; None without a previous scan, and for keys.
        window_boxes: of the windows of the scan.
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
        """Returns the target with its boxes in video pixels."""

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
    """The frame that one action asks for. Times are video seconds.

    Attributes:
        action_index: row of actions.parquet.
        press: when the action began.
        since: when the previous action ended; minus infinity for the first action.
        limit: the latest time of a frame that certainly shows the screen before the press. For a
            pause: a time when the previous action's own effect is over, and before an awaited
            answer comes.
        approach: when the pointer started towards the target; `limit` if it did not move.
        target_area: where the pointer counts as being at the target, event space; None for keys.
        span: the stretch of video to decode.
        response_box: where the previous action's effect may show, however small, video pixels.
        scan: the current scan at the action and the target that it has; None without a scan.
        point: where a pointing action began, video pixels.
        pause: the action is a pause. It gets a screenshot only if it was a wait.
        continued: the action is typing after a short rest. It gets a screenshot only if the screen
            was replaced in the rest.
        after_long_rest: the typing follows a long rest. It is a step of its own only if the screen
            was dark in the rest.
        press_ms: when the action began, epoch milliseconds.
        canvas: of the action; None if the screen's resolution is unknown then.
        proven_until: the latest time of a frame that certainly shows the screen before the press,
            even if the clock is off by its whole uncertainty; minus infinity if there is no such
            frame.
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
        """The target's box if it is small, video pixels."""
        return self.scan.box if self.scan else None


def lead_seconds(clock: Clock, grab_s: float) -> float:
    """Returns the least time from a frame to its press, seconds.

    It is the longest of `MIN_LEAD_MS`, the clock's uncertainty and the distance of two frames, but
    at most `MAX_LEAD_S`. `grab_s` is that of `RecordedVideo`: frames that a variable rate leaves
    out would show nothing new.
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
    """Returns a request for each action, in order.

    Args:
        actions: in time order.
        targets: the scan and the target of an action, by action index.
        path: the pointer's positions in the log.
        calibration: of the recording.
        frame_s, grab_s: distances of two frames, as `RecordedVideo` has them.
    """
    clock = calibration.clock
    screen = calibration.screen
    lead_s = lead_seconds(clock, grab_s)
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
        since = clock.video_time(since_ms)
        proven_until = inf
        if pause:
            limit = max(press, since + EARLY_S)
        elif clock.uncertainty_ms / 1000 > MAX_LEAD_S:
            since, limit, proven_until = _limits_of_unsure_clock(clock, since, press)
        else:
            limit = press - lead_s
        target = targets.get(action.action_index)
        box = target.box if target else None
        area = _target_area(action, box)
        approach_ms = path.approach_start(action.press_ms, since_ms, area) if area else None
        approach = limit if approach_ms is None else min(limit, clock.video_time(approach_ms))
        start = since if after_rest else approach - LOOK_BACK_S
        start = max(since, min(start, limit - frame_s))
        request = FrameRequest(
            action.action_index,
            press,
            since,
            limit,
            approach,
            area,
            Span(start, max(start, limit)),
            response_box=None if pause else response_box,
            scan=target.in_video(canvas) if target else None,
            point=canvas.to_video(area.x, area.y) if area else None,
            pause=pause,
            continued=CONTINUED in action.flags,
            after_long_rest=AFTER_LONG_REST in action.flags,
            press_ms=action.press_ms,
            canvas=screen.canvas_of(action),
            proven_until=proven_until,
        )
        requests.append(request)
        after_rest = pause and POINTER_MOVED not in action.flags
        if not pause:
            since_ms = max(since_ms, float(action.end_ms))
            response_box = _response_box(action, request.target, canvas)
    return requests


def _limits_of_unsure_clock(clock: Clock, since: float, press: float) -> tuple[float, float, float]:
    """Returns `since`, `limit` and `proven_until` of a press, if the clock is very uncertain."""
    uncertainty_s = clock.uncertainty_ms / 1000
    effect_over = since + uncertainty_s + EFFECT_S  # of the previous action, for certain
    not_begun = press - uncertainty_s  # until then this action has certainly not begun
    if effect_over <= not_begun:
        return effect_over, not_begun, not_begun
    return since, press - MAX_LEAD_S, -inf


def without_box(request: FrameRequest) -> FrameRequest:
    """Returns the request with the surroundings of the press as its target, not a box."""
    area = request.target_area
    return request if area is None else replace(request, target_area=replace(area, box=None))


def _response_box(action: Action, target: PixelBox | None, canvas: Canvas) -> PixelBox | None:
    """Returns where the effect of a click shows first: its target or a square around the click."""
    if target is not None or action.x is None or action.y is None:
        return target
    return PixelBox.around(canvas.to_video(action.x, action.y), RESPONSE_PX)


def _target_area(action: Action, box: PixelBox | None) -> TargetArea | None:
    if action.x is None or action.y is None or action.action_type in {"type", "hotkey"}:
        return None
    return TargetArea(action.x, action.y, POINTER_RADIUS_PX, box)


def merge_spans(spans: Sequence[Span], frame_s: float) -> list[Span]:
    """Returns ascending, disjoint spans that cover `spans`, each widened at its start.

    The margin lets the first frame of a span be compared with the frame before it.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        start = span.start - SPAN_MARGIN_FRAMES * frame_s
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(start, span.end))
    return merged
