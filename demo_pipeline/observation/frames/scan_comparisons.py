"""The screen as each scan found it: its boxes in the picture, and what differs before the action.

Belongs here: what changed from the frames shown when a scan began and ended to the screenshot, at
the target and anywhere, and from before typed text to the next action; and the border test. What a
tree says of the order of windows is in trees/hit_test.py, whether a place is that of the element
with the focus in trees/keyboard_focus.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import (
    DETAIL_STEP,
    ContentChanges,
    ScreenDetail,
    content_changes,
    screen_detail,
    shaded_areas,
)
from demo_pipeline.observation.frames.evidence import SinceScanEvidence, TargetEvidence
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import (
    ElementUnderAction,
    FrameRequest,
    ScannedTarget,
)
from demo_pipeline.observation.frames.kept_frames import KeptFrames
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox, Point
from demo_pipeline.observation.frames.tree_scales import LEAST_MARKS, TreeScales, fitting_scale
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Span, number_at
from demo_pipeline.observation.frames.window_order import front_of

USUAL_HEIGHT = 1080  # pixels; on a higher screen the pointer is drawn larger
ROOMY_ELEMENT_SHARE = 0.01  # of the picture; a menu may open inside a larger element
HIGHLIGHT_PARTS = 4  # an area so many times smaller is not a highlight of it; not measured
BEYOND_PX = 8  # pixels that a highlight may reach beyond its element; not measured
NEAR_POINTER_PX = 64  # pixels; the pointer's mask of 48 parts a menu item that lights up
LARGE_ELEMENT_SHARE = 0.05  # of the picture; a larger element is compared around the press only


class ActionScreens(NamedTuple):
    """The screen at an action and at its scan.

    Attributes:
        first, last: as the scan began and ended; None: such a frame did not decode.
        shot: the screenshot.
        at_press: the last before the press.
    """

    first: ScreenDetail | None
    last: ScreenDetail | None
    shot: ScreenDetail
    at_press: ScreenDetail


class ScanComparison:
    """Observer that compares the screen before each action with the screen at its scan.

    The frame shown at a moment is the last one no later, however old: a video with a variable
    frame rate has none while nothing changes.

    Args:
        requests: those compared, in order.
        times: (frames,) times of all frames of the video, ascending seconds.
        detector: knows the cells that flicker.
        pointer: whose own picture does not count.

    Attributes:
        spans: the frames shown when scans began and ended.
        targets: what was seen of those of pointing actions with a scan, by action index.
        since_scan: what changed, of every action with a screenshot and a scan, by action index.
        scales: in which units the boxes of scans are.
    """

    def __init__(
        self,
        requests: Sequence[FrameRequest],
        times: Floats,
        detector: ChangeDetector,
        pointer: VideoPointer,
    ) -> None:
        self._times = times
        self._detector = detector
        self._pointer = pointer
        scans = [request.scan for request in requests if request.scan is not None]
        shown = [number for scan in scans for number in self._needed(scan) if number >= 0]
        self._frames = KeptFrames(times, shown, screen_detail)
        self.spans: Sequence[Span] = self._frames.spans
        self.targets: dict[int, TargetEvidence] = {}
        self.since_scan: dict[int, SinceScanEvidence] = {}
        self.scales = TreeScales()

    def _numbers(self, scan: ScannedTarget) -> tuple[int, int]:
        """Of the frames shown when a scan began and ended."""
        return self._shown_at(scan.begin_ms), self._shown_at(scan.end_ms)

    def _needed(self, scan: ScannedTarget) -> list[int]:
        """Of all frames that a request with this scan asks for, those of the scan before first."""
        return [*map(self._shown_at, scan.before_ms or ()), *self._numbers(scan)]

    def _shown_at(self, time_ms: float) -> int:
        return number_at(self._times, self._pointer.clock.video_time(time_ms))

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame."""
        self._frames.see(diff.frame)

    def pictures(
        self, request: FrameRequest, frame: Frame | None, latest: Frame | None
    ) -> ActionScreens | None:
        """The pictures of an action and of its scan; requests come in order.

        None when there is nothing to compare.

        Args:
            request: of the action.
            frame: of its screenshot.
            latest: the last frame before the press; what opened under the pointer is only there.
        """
        scan = request.scan
        if scan is None or frame is None:
            return None
        begin, end = self._numbers(scan)
        self._frames.forget_before(self._needed(scan)[0])
        first = self._frames.get(begin)
        last = self._frames.get(end)
        if first is None and last is None:
            return None
        shot = at_press = screen_detail(frame)
        if request.point is not None and latest is not None and latest.time > frame.time:
            at_press = screen_detail(latest)
        return ActionScreens(first, last, shot, at_press)

    def note_scale(self, request: FrameRequest, *, is_last: bool) -> bool:
        """Note how the boxes of a request's scan fit the picture; False: not known.

        `is_last`: the frame shown when the scan ended was seen, if it decodes.
        """
        scan = request.scan
        canvas = request.canvas
        if scan is None or scan.marks is None or canvas is None or len(scan.marks) < LEAST_MARKS:
            return False
        if scan.event_index not in self.scales.fits:
            begin, end = (self._frames.get(number) for number in self._numbers(scan))
            shown = end or (begin if is_last else None)
            if shown is None:
                return False
            fit = fitting_scale(shown.detail, canvas.boxes_to_video(scan.marks))
            self.scales.add(scan.event_index, fit, scan.window_boxes)
        return True

    def compare(self, request: FrameRequest, pictures: ActionScreens | None) -> bool:
        """Compare the screen before an action with its scan's.

        Returns whether the target was certainly redrawn.
        """
        scan = request.scan
        if scan is None or pictures is None:
            return False
        first, last, shot, _ = pictures
        began = self._changes(first, shot)
        ended = began if last is first else self._changes(last, shot)
        index = request.action_index
        point = request.point
        self.since_scan[index] = SinceScanEvidence(
            action_index=index,
            scan_event=scan.event_index,
            began=began and replace(began, replaced=None),
            ended=ended and replace(ended, replaced=None),
        )
        if point is None:
            return False
        front = front_of(shot.detail, [aim.window for aim in scan.windows if aim.window])
        aim = scan.aim if front is None else scan.windows[front]
        redrawn = later = before_began = before = None
        if aim.element is not None and first is not None and began is not None:
            redrawn = later = self._is_redrawn(aim, point, began, pictures)
            if redrawn and ended is not None and last is not None and last is not first:
                later = self._is_redrawn(aim, point, ended, pictures._replace(first=last))
            if redrawn:
                before_began = self._is_redrawn_since_before(scan, aim, point, first)
                before = self._is_redrawn_since_before(scan, aim, point, shot)
        self.targets[index] = TargetEvidence(
            action_index=index,
            window=aim.position,
            began=redrawn,
            ended=later,
            before_began=before_began,
            before=before,
        )
        return bool(redrawn)

    def _is_redrawn_since_before(
        self, scan: ScannedTarget, aim: ElementUnderAction, point: Point, shown: ScreenDetail
    ) -> bool | None:
        """Whether a picture shows the target otherwise than while the scan before ran.

        None without such a scan, or when its frames did not decode.
        """
        earlier = [self._frames.get(self._shown_at(time_ms)) for time_ms in scan.before_ms or ()]
        changes = [self._changes(picture, shown) for picture in earlier]
        if not changes or None in changes:
            return None
        return any(
            self._is_redrawn(aim, point, change, ActionScreens(picture, None, shown, shown))
            for change, picture in zip(changes, earlier, strict=True)
            if change is not None
        )

    def _is_redrawn(
        self,
        aim: ElementUnderAction,
        point: Point,
        changes: ContentChanges,
        pictures: ActionScreens,
    ) -> bool:
        """Whether the target was redrawn, or something appeared over it, since `pictures.first`.

        A menu without a visible edge shades its area, and its items light up under the pointer. A
        highlight covers much of the element, or of one around it, and nothing else; the pointer's
        picture may part it.
        """
        (first, _, shot, at_press), (x, y) = pictures, point
        if _at_target(changes, aim.element, point, shot):
            return True
        if at_press is not shot:
            later = self._changes(first, at_press)
            if later is None or later.cover(*point):
                return True
        for before, after, reach in ((first, shot, 0.0), (shot, at_press, NEAR_POINTER_PX)):
            shaded = self._shaded(before, after)
            near = [
                area
                for area in shaded
                if area.y <= y < area.bottom and area.x - reach <= x < area.right + reach
            ]
            if near and not any(_are_highlight(near, box, shot) for box in aim.around):
                return True
        return False

    def _shaded(self, before: ScreenDetail | None, after: ScreenDetail) -> list[PixelBox]:
        if before is None or before.time == after.time:
            return []
        pointers = [*self._pointer.path_near(before.time), *self._pointer.path_near(after.time)]
        return shaded_areas(before.detail, after.detail, pointers, self._scale(after))

    def _changes(self, scanned: ScreenDetail | None, shown: ScreenDetail) -> ContentChanges | None:
        if scanned is None:
            return None
        if scanned.time == shown.time:
            return ContentChanges()
        pointer = self._pointer
        flickering = self._detector.flickering
        pointers = [*pointer.path_near(scanned.time), *pointer.path_near(shown.time)]
        scale = self._scale(scanned)
        return content_changes(scanned.detail, shown.detail, pointers, flickering, scale)

    def _scale(self, shown: ScreenDetail) -> float:
        """Video pixels for one pixel of a pointer's usual picture."""
        canvas = self._pointer.screen.at(self._pointer.clock.event_time(shown.time)).canvas
        height = float(shown.detail.shape[0] * DETAIL_STEP)
        return max(1.0, height / USUAL_HEIGHT, canvas.event_scale if canvas else 1.0)

    def leave_out(self, request: FrameRequest) -> None:
        """Forget what was compared at the wrong place; how the scan's boxes fit is in doubt."""
        self.targets.pop(request.action_index, None)
        self.since_scan.pop(request.action_index, None)
        if request.scan is not None and request.scan.event_index in self.scales.fits:
            self.scales.fits[request.scan.event_index] = None


def _at_target(
    changes: ContentChanges, element: PixelBox | None, point: Point, shown: ScreenDetail
) -> bool:
    """Whether the target, or what is around the press in a large one, was replaced or covered."""
    if element is None:
        return False
    if changes.cover(*point):
        return True
    return _share(element, shown) <= LARGE_ELEMENT_SHARE and changes.touch(element)


def _are_highlight(areas: Sequence[PixelBox], element: PixelBox, shown: ScreenDetail) -> bool:
    """Whether areas may be a highlight of an element: not beyond it, and most of a roomy one."""
    beyond = max(
        max(element.x - area.x, area.right - element.right, element.y - area.y) for area in areas
    )
    below = max(area.bottom - element.bottom for area in areas)
    large = sum(area.area for area in areas) * HIGHLIGHT_PARTS > element.area
    is_room = _share(element, shown) > ROOMY_ELEMENT_SHARE
    return (large or not is_room) and max(beyond, below) <= BEYOND_PX


def _share(element: PixelBox, shown: ScreenDetail) -> float:
    """The share of the picture that an element covers."""
    return element.area / (shown.detail.size * DETAIL_STEP**2)
