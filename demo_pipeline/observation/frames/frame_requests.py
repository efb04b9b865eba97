"""Frame requests: for each action, which stretch of video to look at and which frames are allowed.

Belongs here: the request, made from the actions, the clock and the targets found in scans.
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
POINTER_RADIUS_PX = 40  # screen pixels; a nearer pointer is at a target
# Seconds. With a clock that is less sure than that, an earlier frame may show the screen before an
# earlier action, unless the actions are further apart than the clock may be off.
MAX_LEAD_S = 1.0
RESPONSE_PX = 60  # video pixels around a click without a known target that may show its effect
SPAN_MARGIN_FRAMES = 1.5  # frame distances before a span; the frame before it is compared with


@dataclass(frozen=True)
class ElementUnderAction:
    """What a scan has under an action, or in one of several windows there.

    Attributes:
        element: box of the element, of any size; None without one.
        around: boxes of all nodes under the action, which may be lit together with it.
        window: box of the window; None where there is only one.
        position: of the window in the tree; None where there is only one.
    """

    element: PixelBox | None = None
    around: Sequence[PixelBox] = ()
    window: PixelBox | None = None
    position: int | None = None


@dataclass(frozen=True)
class ScannedTarget:
    """The current scan of an action, and the element that it has under the action.

    Boxes are in event space, those of a request, but for marks and window boxes, in video pixels.

    Attributes:
        event_index: line of the scan.
        begin_ms, end_ms: when the scan ran, epoch milliseconds.
        aim: what the tree has under the action.
        windows: the same for each, where several lie over each other; the picture shows which one
            is in front.
        box: of the element, unless it is too large to tell that the pointer is at the target.
        marks: (elements, 4) boxes of the scan that show in which units it is.
        before_ms: when the scan before it ran; None without one, and of keys.
        window_boxes: of the windows of the scan, in event space.
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
        """The same in video pixels."""

        def filmed(aim: ElementUnderAction) -> ElementUnderAction:
            around = [canvas.box_to_video(box) for box in aim.around]
            element, window = (
                box and canvas.box_to_video(box) for box in (aim.element, aim.window)
            )
            return ElementUnderAction(element, around, window, aim.position)

        return replace(
            self,
            aim=filmed(self.aim),
            windows=[filmed(aim) for aim in self.windows],
            box=self.box and canvas.box_to_video(self.box),
        )


@dataclass(frozen=True)
class FrameRequest:
    """The frame wanted for one action. Times are video seconds.

    Attributes:
        action_index: row of actions.parquet.
        press: when the action began.
        since: when the previous action had ended; minus infinity for the first.
        limit: the latest time of a frame that certainly shows the screen before the press; of a
            pause, when the previous action's own effect is over and nothing awaited has come.
        approach: when the pointer started towards the target; `limit` when it did not move.
        target_area: where the pointer counts as being at the target, event space; None for keys.
        span: the stretch of video to look at.
        response_box: where the previous action's effect may show, however small, video pixels.
        scan: the scan that is current at the action, and what it has there; None without one.
        point: where a pointing action began, video pixels.
        pause: the action is a pause: it gets a screenshot only when it was a wait.
        continued: the action is typing that gets a screenshot only when the screen was replaced.
        after_long_rest: only a dark screen parts the typing from the typing before it.
        press_ms: when the action began, epoch milliseconds.
        canvas: of the action; None when the screen's resolution is not known then.
        proven_until: the latest time of a frame that shows the screen before the press, however far
            the clock is off within its uncertainty; minus infinity when no frame is known to.
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
        """The box of a target that is small, video pixels."""
        return self.scan.box if self.scan else None


def lead_seconds(clock: Clock, grab_s: float) -> float:
    """The least lead: `MIN_LEAD_MS`, the clock's uncertainty or a frame, whichever is longest.

    `grab_s`: `RecordedVideo.grab_s`. The frames that a variable rate leaves out show nothing new.
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
    """One request for each action, in order. `targets`: action index → what its scan has."""
    clock = calibration.clock
    screen = calibration.screen
    lead_s = lead_seconds(clock, grab_s)
    unsure_s = clock.uncertainty_ms / 1000
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
        limit = max(press, since + EARLY_S) if pause else press - lead_s
        proven_until = inf
        if unsure_s > MAX_LEAD_S and not pause:
            # By then the previous action has shown its effect; until the limit this one has not.
            shown = since + unsure_s + EFFECT_S
            proven_until = -inf
            if shown <= press - unsure_s:
                since = shown
                limit = press - unsure_s
                proven_until = limit
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


def without_box(request: FrameRequest) -> FrameRequest:
    """The request with the place of the press, whatever element is there, as its target."""
    area = request.target_area
    return request if area is None else replace(request, target_area=replace(area, box=None))


def _response_box(action: Action, target: PixelBox | None, canvas: Canvas) -> PixelBox | None:
    """Where the effect of a click shows first: its target, else a square around it; video px."""
    if target is not None or action.x is None or action.y is None:
        return target
    return PixelBox.around(canvas.to_video(action.x, action.y), RESPONSE_PX)


def _target_area(action: Action, box: PixelBox | None) -> TargetArea | None:
    if action.x is None or action.y is None or action.action_type in {"type", "hotkey"}:
        return None
    return TargetArea(action.x, action.y, POINTER_RADIUS_PX, box)


def merge_spans(spans: Sequence[Span], frame_s: float) -> list[Span]:
    """Ascending, disjoint spans that cover `spans`, each widened at its start by the margin."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        start = span.start - SPAN_MARGIN_FRAMES * frame_s
        if merged and start <= merged[-1].end:
            merged[-1] = Span(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(Span(start, span.end))
    return merged
