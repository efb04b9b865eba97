"""The screen as each scan found it: its boxes in the picture, and what differs before the action.

Belongs here: what changed from the frames shown when a scan began and ended to the screenshot, at
the target and anywhere, and from before typed text to the next action; and the border test. What a
tree says of the order of windows is in trees/hit_test.py, whether a place is that of the element
with the focus in trees/keyboard_focus.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import (
    DETAIL_STEP,
    ChangedBox,
    PictureChanges,
    ScreenPicture,
    picture_changes,
    screen_picture,
    shaded_areas,
)
from demo_pipeline.observation.frames.evidence import SinceScanEvidence, TargetEvidence
from demo_pipeline.observation.frames.frame_choice import KeptFrames
from demo_pipeline.observation.frames.frame_requests import Aim, FrameRequest, ScannedTarget
from demo_pipeline.observation.frames.pointer_path import Floats, PixelBox, Point
from demo_pipeline.observation.frames.tree_scales import LEAST_MARKS, TreeScales, fitting_scale
from demo_pipeline.observation.frames.video_pointer import FrameDiff, VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma, Span, number_at
from demo_pipeline.observation.trees.secret_fields import dots_for

BORDER_STEP = 12  # of 255 across a border; right in all pairs of windows of two recordings
BORDER_REACH = 2  # samples to either side of the logged border; trees leave out the frame
CORNER_SAMPLES = 3  # samples at either end of a border that its round corners cover
FRONT_SHARE = 0.8  # of a border inside another window; in front it was 0.83 to 1.00
FRONT_LEAD = 0.25  # by which it is more than that of the window behind, which was up to 0.71
GHOST_SHARE = 0.5  # of the whole border of a window that is not on the screen: up to 0.48


def front_of(detail: Luma, windows: Sequence[PixelBox]) -> int | None:
    """Number of the window in front of all others; None when the picture does not tell.

    Args:
        detail: (rows, columns), as `ScreenPicture.detail`.
        windows: those that overlap at a point, video pixels.
    """
    numbers = range(len(windows))
    front = (
        one
        for one in numbers
        if all(one == other or _covers(detail, windows[one], windows[other]) for other in numbers)
    )
    return next(front, None)


def _covers(detail: Luma, upper: PixelBox, lower: PixelBox) -> bool:
    """Whether a window is certainly in front of another one."""
    own, others = _border_share(detail, upper, lower), _border_share(detail, lower, upper)
    if own is None:
        return others is not None and others <= GHOST_SHARE
    return own >= FRONT_SHARE and own - (others or 0.0) >= FRONT_LEAD


def _border_share(detail: Luma, window: PixelBox, other: PixelBox) -> float | None:
    """The share of a window's border inside another one that is seen; None: there is none."""
    seen = [*_borders(detail, window, other), *_borders(detail.T, _turned(window), _turned(other))]
    return float(np.concatenate(seen).mean()) if seen else None


def _borders(detail: Luma, window: PixelBox, other: PixelBox) -> Iterator[np.ndarray]:
    """Yield for the upper and the lower border inside another window which samples are a step."""
    rows, columns = detail.shape
    first = max(window.x, other.x, 0) / DETAIL_STEP + CORNER_SAMPLES
    last = min(window.right, other.right) / DETAIL_STEP - CORNER_SAMPLES
    across = slice(int(first), max(int(first), min(int(last), columns)))
    inside = range(
        int(other.y / DETAIL_STEP) + CORNER_SAMPLES,
        int(other.bottom / DETAIL_STEP) - CORNER_SAMPLES,
    )
    for side in (window.y, window.bottom):
        row = round(side / DETAIL_STEP)
        near = slice(row - BORDER_REACH - 1, row + BORDER_REACH + 2)
        if row in inside and near.start >= 0 and near.stop <= rows and across.start < across.stop:
            strip = detail[near, across].astype(np.int16)
            yield np.abs(np.diff(strip, axis=0)).max(axis=0) > BORDER_STEP


def _turned(box: PixelBox) -> PixelBox:
    return PixelBox(box.y, box.x, box.height, box.width)


USUAL_HEIGHT = 1080  # pixels; on a higher screen the pointer is drawn larger
ROOMY_ELEMENT_SHARE = 0.01  # of the picture; a menu may open inside a larger element
HIGHLIGHT_PARTS = 4  # an area so many times smaller is not a highlight of it; not measured
BEYOND_PX = 8  # pixels that a highlight may reach beyond its element; not measured
NEAR_POINTER_PX = 64  # pixels; the pointer's mask of 48 parts a menu item that lights up
LARGE_ELEMENT_SHARE = 0.05  # of the picture; a larger element is compared around the press only


class ActionPictures(NamedTuple):
    """The screen at an action and at its scan.

    Attributes:
        first, last: as the scan began and ended; None: such a frame did not decode.
        shot: the screenshot.
        at_press: the last before the press.
    """

    first: ScreenPicture | None
    last: ScreenPicture | None
    shot: ScreenPicture
    at_press: ScreenPicture


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
        self._times, self._detector, self._pointer = times, detector, pointer
        scans = [request.scan for request in requests if request.scan is not None]
        shown = [number for scan in scans for number in self._needed(scan) if number >= 0]
        self._frames = KeptFrames(times, shown, screen_picture)
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
        begin, end = self._numbers(scan)
        self._frames.forget_before(self._needed(scan)[0])
        first, last = self._frames.get(begin), self._frames.get(end)
        if first is None and last is None:
            return None
        shot = at_press = screen_picture(frame)
        if request.point is not None and latest is not None and latest.time > frame.time:
            at_press = screen_picture(latest)
        return ActionPictures(first, last, shot, at_press)

    def note_scale(self, request: FrameRequest, *, is_last: bool) -> bool:
        """Note how the boxes of a request's scan fit the picture; False: not known.

        `is_last`: the frame shown when the scan ended was seen, if it decodes.
        """
        scan, canvas = request.scan, request.canvas
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

    def compare(self, request: FrameRequest, pictures: ActionPictures | None) -> bool:
        """Compare the screen before an action with its scan's.

        Returns whether the target was certainly redrawn.
        """
        scan = request.scan
        if scan is None or pictures is None:
            return False
        first, last, shot, _ = pictures
        began = self._changes(first, shot)
        ended = began if last is first else self._changes(last, shot)
        index, point = request.action_index, request.point
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
        self, scan: ScannedTarget, aim: Aim, point: Point, shown: ScreenPicture
    ) -> bool | None:
        """Whether a picture shows the target otherwise than while the scan before ran.

        None without such a scan, or when its frames did not decode.
        """
        earlier = [self._frames.get(self._shown_at(time_ms)) for time_ms in scan.before_ms or ()]
        changes = [self._changes(picture, shown) for picture in earlier]
        if not changes or None in changes:
            return None
        return any(
            self._is_redrawn(aim, point, change, ActionPictures(picture, None, shown, shown))
            for change, picture in zip(changes, earlier, strict=True)
            if change is not None
        )

    def _is_redrawn(
        self, aim: Aim, point: Point, changes: PictureChanges, pictures: ActionPictures
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

    def _shaded(self, before: ScreenPicture | None, after: ScreenPicture) -> list[PixelBox]:
        if before is None or before.time == after.time:
            return []
        pointers = [*self._pointer.path_near(before.time), *self._pointer.path_near(after.time)]
        return shaded_areas(before.detail, after.detail, pointers, self._scale(after))

    def _changes(
        self, scanned: ScreenPicture | None, shown: ScreenPicture
    ) -> PictureChanges | None:
        if scanned is None:
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

    def leave_out(self, request: FrameRequest) -> None:
        """Forget what was compared at the wrong place; how the scan's boxes fit is in doubt."""
        self.targets.pop(request.action_index, None)
        self.since_scan.pop(request.action_index, None)
        if request.scan is not None and request.scan.event_index in self.scales.fits:
            self.scales.fits[request.scan.event_index] = None


def _at_target(
    changes: PictureChanges, element: PixelBox | None, point: Point, shown: ScreenPicture
) -> bool:
    """Whether the target, or what is around the press in a large one, was replaced or covered."""
    if element is None:
        return False
    if changes.cover(*point):
        return True
    return _share(element, shown) <= LARGE_ELEMENT_SHARE and changes.touch(element)


def _are_highlight(areas: Sequence[PixelBox], element: PixelBox, shown: ScreenPicture) -> bool:
    """Whether areas may be a highlight of an element: not beyond it, and most of a roomy one."""
    beyond = max(
        max(element.x - area.x, area.right - element.right, element.y - area.y) for area in areas
    )
    below = max(area.bottom - element.bottom for area in areas)
    large = sum(area.area for area in areas) * HIGHLIGHT_PARTS > element.area
    is_room = _share(element, shown) > ROOMY_ELEMENT_SHARE
    return (large or not is_room) and max(beyond, below) <= BEYOND_PX


def _share(element: PixelBox, shown: ScreenPicture) -> float:
    """The share of the picture that an element covers."""
    return element.area / (shown.detail.size * DETAIL_STEP**2)


class TypedPlaces:
    """Compares the screenshots of typing actions with those of the actions after them.

    Args:
        actions: those that type something to see are followed.
        detector: knows the cells that flicker.
        pointer: whose own picture does not count where it moved.

    Attributes:
        found: boxes of what changed, by action index, video pixels; empty: nothing was seen.
        dotted: indexes of the actions whose text came as dots.
    """

    def __init__(
        self, actions: Sequence[Action], detector: ChangeDetector, pointer: VideoPointer
    ) -> None:
        self._texts = {one.action_index: one.text or "" for one in actions}
        self._detector, self._pointer = detector, pointer
        self._before: tuple[int, ScreenPicture, Luma] | None = None
        self.found: dict[int, Sequence[ChangedBox]] = {}
        self.dotted: list[int] = []

    def see(self, action_index: int, frame: Frame | None) -> None:
        """Take the frame of an action's screenshot; actions come in order."""
        if frame is None:
            return
        if self._before is not None:
            typed, before, whole = self._before
            self.found[typed] = self._changed(before, screen_picture(frame))
            if dots_for(self._texts[typed], whole, frame.whole):
                self.dotted.append(typed)
        is_typing = bool(self._texts[action_index].strip())
        self._before = (action_index, screen_picture(frame), frame.whole) if is_typing else None

    def _changed(self, before: ScreenPicture, after: ScreenPicture) -> Sequence[ChangedBox]:
        paths = [self._pointer.path_near(picture.time) for picture in (before, after)]
        pointers = [*paths[0], *paths[1]] if set(paths[0]) != set(paths[1]) else []
        flickering = self._detector.flickering
        return picture_changes(before.detail, after.detail, pointers, flickering).regions
