"""Compares the screen before each action with the screen at the action's accessibility scan.

The comparison decides whether the target was redrawn since the scan, and whether the boxes of the
scan have the units of the pointer.
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

USUAL_HEIGHT = 1080  # video pixels; on a higher screen the pointer is drawn larger
# A menu may open inside an element that covers more than 1 % of the screen.
ROOMY_ELEMENT_SHARE = 0.01
# If an element is so large that a menu may open inside it, its highlight covers more than
# 1 / HIGHLIGHT_PARTS of the element. This is an estimate.
HIGHLIGHT_PARTS = 4
BEYOND_PX = 8  # video pixels by which a highlight may extend beyond its element; an estimate
# Maximum distance to the left or right of a press at which a changed area may be the highlight of
# the pressed menu item, video pixels. The area can end before the press, because changes under the
# drawn pointer (48 x 48 pixels) are ignored.
NEAR_POINTER_PX = 64
# In a target that covers more than 5 % of the screen, only changes at the press count as a redraw.
LARGE_ELEMENT_SHARE = 0.05


class ActionScreens(NamedTuple):
    """The screens of an action and of its scan.

    Attributes:
        first, last: the screens when the scan began and ended. None if the frame did not decode.
        shot: the screen in the action's screenshot.
        at_press: the screen in the last frame before the press.
    """

    first: ScreenDetail | None
    last: ScreenDetail | None
    shot: ScreenDetail
    at_press: ScreenDetail


class ScanComparison:
    """The observer that compares the screen before each action with the screen at its scan.

    Changes in flickering cells and around the pointer are ignored.

    Args:
        requests: the requests of the actions to compare, in order.
        times: (frames,) times of all frames of the video, ascending seconds.

    Attributes:
        spans: times of the frames in which scans began and ended.
        targets: maps the index of each pointing action with a scan to whether its target was
            redrawn.
        since_scan: maps the index of each action with a screenshot and a scan to the changes since
            the scan.
        scales: the scale of the boxes of each scan.
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
        numbers: list[int] = []
        for request in requests:
            if request.scan is not None:
                numbers += [number for number in self._needed(request.scan) if number >= 0]
        self._frames = KeptFrames(times, numbers, screen_detail)
        self.spans: Sequence[Span] = self._frames.spans
        self.targets: dict[int, TargetEvidence] = {}
        self.since_scan: dict[int, SinceScanEvidence] = {}
        self.scales = TreeScales()

    def _numbers(self, scan: ScannedTarget) -> tuple[int, int]:
        """Returns the indexes of the frames in which a scan began and ended."""
        return self._shown_at(scan.begin_ms), self._shown_at(scan.end_ms)

    def _needed(self, scan: ScannedTarget) -> list[int]:
        """Returns the indexes of the frames of the previous scan, if any, and of this scan."""
        return [*map(self._shown_at, scan.before_ms or ()), *self._numbers(scan)]

    def _shown_at(self, time_ms: float) -> int:
        return number_at(self._times, self._pointer.clock.video_time(time_ms))

    def see(self, diff: FrameDiff) -> None:
        """Stores the next frame if it is needed."""
        self._frames.see(diff.frame)

    def screens(
        self, request: FrameRequest, frame: Frame | None, latest: Frame | None
    ) -> ActionScreens | None:
        """Returns the screens of an action and of its scan.

        Returns None if the action has no scan or no screenshot, or if no frame of the scan was
        decoded. Requests must come in order.

        Args:
            frame: the frame of the action's screenshot, or None if there is no screenshot.
            latest: the last frame before the press.
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
        """Tests how the boxes of a request's scan fit the screen, and stores the result.

        Returns whether the scan was tested, now or before.

        Args:
            is_last: whether to test with the frame at the scan's start if there is no frame at the
                scan's end.
        """
        scan = request.scan
        canvas = request.canvas
        if scan is None or scan.marks is None or canvas is None or len(scan.marks) < LEAST_MARKS:
            return False
        if scan.event_index not in self.scales.fits:
            begin, end = (self._frames.get(number) for number in self._numbers(scan))
            at_scan = end
            if at_scan is None and is_last:
                at_scan = begin
            if at_scan is None:
                return False
            fit = fitting_scale(at_scan.detail, canvas.boxes_to_video(scan.marks))
            self.scales.add(scan.event_index, fit, scan.window_boxes)
        return True

    def compare(self, request: FrameRequest, screens: ActionScreens | None) -> bool:
        """Adds the changes between an action and its scan to `since_scan` and `targets`.

        Returns:
            True if the target was certainly redrawn since the scan began.
        """
        scan = request.scan
        if scan is None or screens is None:
            return False
        first, last, shot, _ = screens
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
            redrawn = self._is_redrawn(aim, point, began, screens)
            later = redrawn
            if redrawn and ended is not None and last is not None and last is not first:
                later = self._is_redrawn(aim, point, ended, screens._replace(first=last))
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
        self, scan: ScannedTarget, aim: ElementUnderAction, point: Point, later: ScreenDetail
    ) -> bool | None:
        """Whether the target was redrawn between the previous scan and the screen `later`.

        Returns None if there is no previous scan, or if its frames did not decode.
        """
        earlier = [self._frames.get(self._shown_at(time_ms)) for time_ms in scan.before_ms or ()]
        changes = [self._changes(screen, later) for screen in earlier]
        if not changes or None in changes:
            return None
        return any(
            self._is_redrawn(aim, point, change, ActionScreens(screen, None, later, later))
            for change, screen in zip(changes, earlier, strict=True)
            if change is not None
        )

    def _is_redrawn(
        self,
        aim: ElementUnderAction,
        point: Point,
        changes: ContentChanges,
        screens: ActionScreens,
    ) -> bool:
        """Whether the target was redrawn, or content appeared over it, since `screens.first`.

        An area at the press that changed its brightness counts as a redraw, unless it is the
        highlight of the target or of an element around the target. A highlight covers much of its
        element and nothing else.

        Args:
            point: place of the press, video pixels.
            changes: changes of content between `screens.first` and `screens.shot`.
        """
        first, _, shot, at_press = screens
        x, y = point
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

    def _changes(self, scanned: ScreenDetail | None, later: ScreenDetail) -> ContentChanges | None:
        if scanned is None:
            return None
        if scanned.time == later.time:
            return ContentChanges()
        pointer = self._pointer
        flickering = self._detector.flickering
        pointers = [*pointer.path_near(scanned.time), *pointer.path_near(later.time)]
        scale = self._scale(scanned)
        return content_changes(scanned.detail, later.detail, pointers, flickering, scale)

    def _scale(self, screen: ScreenDetail) -> float:
        """Returns the size of the drawn pointer relative to its usual size in pixels."""
        canvas = self._pointer.screen.at(self._pointer.clock.event_time(screen.time)).canvas
        height = float(screen.detail.shape[0] * DETAIL_STEP)
        return max(1.0, height / USUAL_HEIGHT, canvas.event_scale if canvas else 1.0)

    def leave_out(self, request: FrameRequest) -> None:
        """Drops the results and the scale of an action that was compared with a wrong canvas."""
        self.targets.pop(request.action_index, None)
        self.since_scan.pop(request.action_index, None)
        if request.scan is not None and request.scan.event_index in self.scales.fits:
            self.scales.fits[request.scan.event_index] = None


def _at_target(
    changes: ContentChanges, element: PixelBox | None, point: Point, screen: ScreenDetail
) -> bool:
    """Whether content was replaced at the press, or anywhere in a target that is not large."""
    if element is None:
        return False
    if changes.cover(*point):
        return True
    return _share(element, screen) <= LARGE_ELEMENT_SHARE and changes.touch(element)


def _are_highlight(areas: Sequence[PixelBox], element: PixelBox, screen: ScreenDetail) -> bool:
    """Whether changed areas may be the highlight of an element.

    The areas may extend beyond the element by at most `BEYOND_PX`. If the element is so large that
    a menu may open inside it, the areas must also cover more than 1 / `HIGHLIGHT_PARTS` of it.
    """
    for area in areas:
        beyond = max(
            element.x - area.x,
            element.y - area.y,
            area.right - element.right,
            area.bottom - element.bottom,
        )
        if beyond > BEYOND_PX:
            return False
    is_large = sum(area.area for area in areas) * HIGHLIGHT_PARTS > element.area
    return is_large or _share(element, screen) <= ROOMY_ELEMENT_SHARE


def _share(element: PixelBox, screen: ScreenDetail) -> float:
    """Returns the share of the screen that an element covers."""
    return element.area / (screen.detail.size * DETAIL_STEP**2)
