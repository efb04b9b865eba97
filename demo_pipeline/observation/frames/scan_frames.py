"""The screen as each accessibility scan found it, compared with the screen before the action.

Belongs here: what changed from the frames shown when a scan began and ended to the screenshot: at
the target, and anywhere. Those frames are kept in scan_pictures.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from demo_pipeline.observation.frames.change_detection import ChangeDetector
from demo_pipeline.observation.frames.frame_diff import FrameDiff
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.picture_changes import (
    PictureChanges,
    picture_changes,
    shaded_areas,
)
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox
from demo_pipeline.observation.frames.scan_pictures import ActionPictures, ScanFrames
from demo_pipeline.observation.frames.screen_picture import (
    DETAIL_STEP,
    ScreenPicture,
    screen_picture,
)
from demo_pipeline.observation.frames.video_frames import (
    Frame,
    Span,
)
from demo_pipeline.observation.frames.video_pointer import VideoPointer

USUAL_HEIGHT = 1080  # pixels; on a higher screen the pointer is drawn larger
ROOMY_ELEMENT_SHARE = 0.01  # of the picture; a menu may open inside a larger element
HIGHLIGHT_PARTS = 4  # an area this many times smaller than an element is no highlight of it
BEYOND_PX = 8  # pixels that a highlight or its shadow may reach beyond its element
NEAR_POINTER_PX = 64  # pixels; what lights up around the pointer is partly behind its picture
LARGE_ELEMENT_SHARE = 0.05  # of the picture; a larger element is compared around the press only


@dataclass(frozen=True)
class SinceScan:
    """What changed between an action's scan and its screenshot.

    Attributes:
        event_index: the line of the scan.
        began: from the frame shown when the scan began; None: there was none to compare.
        ended: the same from when it ended.
    """

    event_index: int
    began: PictureChanges | None
    ended: PictureChanges | None


@dataclass
class ScanComparisons:
    """What the comparisons of all actions found, by action index.

    Attributes:
        redrawn: whether the target was redrawn since its scan began; compared targets only.
        since_scan: what changed, of every action with a screenshot and a scan.
    """

    redrawn: dict[int, bool] = field(default_factory=dict)
    since_scan: dict[int, SinceScan] = field(default_factory=dict)


class ScanComparison:
    """Observer that compares the screen before each action with the screen at its scan.

    Args:
        requests: those compared, in order.
        times: (frames,) times of all frames of the video, ascending seconds.
        detector: knows the cells that flicker.
        pointer: whose own picture does not count.
        enabled: False with a clock too uncertain to say which frame belongs to a scan.
    """

    def __init__(
        self,
        requests: Sequence[FrameRequest],
        times: Floats,
        detector: ChangeDetector,
        pointer: VideoPointer,
        *,
        enabled: bool,
    ) -> None:
        self._frames = ScanFrames(requests if enabled else [], times)
        self._detector = detector
        self._pointer = pointer
        self._found = ScanComparisons()

    @property
    def spans(self) -> Sequence[Span]:
        """The frames shown when scans began and ended."""
        return self._frames.spans

    def see(self, diff: FrameDiff) -> None:
        """Take the next frame."""
        self._frames.see(diff.frame)

    def pictures(
        self, request: FrameRequest, frame: Frame | None, latest: Frame | None
    ) -> ActionPictures | None:
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
        self._frames.forget(scan.began)
        first, last = self._frames.frame_at(scan.began), self._frames.frame_at(scan.ended)
        if first is None and last is None:
            return None
        shot = screen_picture(frame)
        at_press = shot
        if request.element is not None and latest is not None and latest.time > frame.time:
            at_press = screen_picture(latest)
        return ActionPictures(first, last, shot, at_press)

    def compare(self, request: FrameRequest, pictures: ActionPictures | None) -> bool:
        """Compare the screen before an action with its scan's.

        Returns whether the target was certainly redrawn.
        """
        scan = request.scan
        if scan is None or pictures is None:
            return False
        first, last, shot, at_press = pictures
        began = self._changes(first, shot)
        ended = began if last is first else self._changes(last, shot)
        index = request.action_index
        self._found.since_scan[index] = SinceScan(
            scan.event_index, began and began.places(), ended and ended.places()
        )
        if request.element is None or request.point is None or first is None or began is None:
            return False
        redrawn = _at_target(began, request, shot) or self._opened(request, first, shot, at_press)
        self._found.redrawn[index] = redrawn
        return redrawn

    def _opened(
        self,
        request: FrameRequest,
        first: ScreenPicture,
        shot: ScreenPicture,
        at_press: ScreenPicture,
    ) -> bool:
        """Whether something appeared over the target by the press, or was never plain to see."""
        if at_press is not shot:
            later = self._changes(first, at_press)
            if later is None or _at_target(later, request, at_press):
                return True
        return self._has_item_in_front(request, first, shot, at_press)

    def _has_item_in_front(
        self,
        request: FrameRequest,
        first: ScreenPicture,
        shot: ScreenPicture,
        at_press: ScreenPicture,
    ) -> bool:
        """Whether an area in a roomy element was shaded since the scan, or lit up at the press.

        A menu without a visible edge shades its area, and its items light up under the pointer. A
        highlight of the element itself covers much of the element and nothing else; the pointer's
        picture may part it.
        """
        element, point = request.element, request.point
        if element is None or point is None or _share(element, shot) <= ROOMY_ELEMENT_SHARE:
            return False
        for before, after, reach in ((first, shot, 0.0), (shot, at_press, NEAR_POINTER_PX)):
            shaded = self._shaded(before, after)
            near = [area for area in shaded if _distance(area, *point) <= reach]
            if near and not _are_highlight(near, element):
                return True
        return False

    def _shaded(self, before: ScreenPicture, after: ScreenPicture) -> list[PixelBox]:
        if before.detail.shape != after.detail.shape or before.time == after.time:
            return []
        pointers = [*self._pointer.path_near(before.time), *self._pointer.path_near(after.time)]
        return shaded_areas(before.detail, after.detail, pointers, self._scale(after))

    def _changes(
        self, scanned: ScreenPicture | None, shown: ScreenPicture
    ) -> PictureChanges | None:
        if scanned is None or shown.detail.shape != scanned.detail.shape:
            return None
        if scanned.time == shown.time:
            return PictureChanges()
        pointer, flickering = self._pointer, self._detector.flickering
        pointers = [*pointer.path_near(scanned.time), *pointer.path_near(shown.time)]
        scale = self._scale(scanned)
        return picture_changes(scanned.detail, shown.detail, pointers, flickering, scale)

    def _scale(self, shown: ScreenPicture) -> float:
        """Video pixels for one pixel of a pointer's usual picture."""
        canvas = self._pointer.screen.at(self._pointer.clock.event_time(shown.time)).canvas
        height = float(shown.detail.shape[0] * DETAIL_STEP)
        return max(1.0, height / USUAL_HEIGHT, canvas.event_scale if canvas else 1.0)

    def leave_out(self, action_index: int) -> None:
        """Forget the comparison of a pause that was no wait."""
        self._found.since_scan.pop(action_index, None)

    def result(self) -> ScanComparisons:
        """What was found."""
        return self._found


def _at_target(changes: PictureChanges, request: FrameRequest, shown: ScreenPicture) -> bool:
    """Whether the target, or what is around the press in a large one, was replaced or covered."""
    element, point = request.element, request.point
    if element is None or point is None:
        return False
    share = _share(element, shown)
    if changes.cover(*point, between_columns=share > ROOMY_ELEMENT_SHARE):
        return True
    return share <= LARGE_ELEMENT_SHARE and changes.touch(element)


def _are_highlight(areas: Sequence[PixelBox], element: PixelBox) -> bool:
    """Whether areas may be a highlight of an element: about as large, and not beyond it."""
    beyond = max(
        max(element.x - area.x, area.x + area.width - element.x - element.width) for area in areas
    )
    above = max(
        max(element.y - area.y, area.y + area.height - element.y - element.height) for area in areas
    )
    covered = sum(area.width * area.height for area in areas)
    large = covered * HIGHLIGHT_PARTS > element.width * element.height
    return large and max(beyond, above) <= BEYOND_PX


def _share(element: PixelBox, shown: ScreenPicture) -> float:
    """The share of the picture that an element covers."""
    rows, columns = shown.detail.shape
    height, width = int(rows) * DETAIL_STEP, int(columns) * DETAIL_STEP
    return element.width * element.height / (height * width)


def _distance(box: PixelBox, x: float, y: float) -> float:
    """From a point to a box, along the axis on which it is farther; 0 inside."""
    beyond: float = max(box.x - x, x - box.x - box.width, box.y - y, y - box.y - box.height)
    return max(0.0, beyond)
