"""Where the screen changed while text was typed."""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import (
    ChangedBox,
    ScreenDetail,
    content_changes,
    screen_detail,
)
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma
from demo_pipeline.observation.trees.secret_fields import dots_for


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
        self._detector = detector
        self._pointer = pointer
        self._before: tuple[int, ScreenDetail, Luma] | None = None
        self.found: dict[int, Sequence[ChangedBox]] = {}
        self.dotted: list[int] = []

    def see(self, action_index: int, frame: Frame | None) -> None:
        """Take the frame of an action's screenshot; actions come in order."""
        if frame is None:
            return
        if self._before is not None:
            typed, before, whole = self._before
            self.found[typed] = self._changed(before, screen_detail(frame))
            if dots_for(self._texts[typed], whole, frame.whole):
                self.dotted.append(typed)
        is_typing = bool(self._texts[action_index].strip())
        self._before = (action_index, screen_detail(frame), frame.whole) if is_typing else None

    def _changed(self, before: ScreenDetail, after: ScreenDetail) -> Sequence[ChangedBox]:
        paths = [self._pointer.path_near(picture.time) for picture in (before, after)]
        pointers = [*paths[0], *paths[1]] if set(paths[0]) != set(paths[1]) else []
        flickering = self._detector.flickering
        return content_changes(before.detail, after.detail, pointers, flickering).regions
