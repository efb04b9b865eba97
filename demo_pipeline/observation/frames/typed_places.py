"""Where on the screen typed text appeared: what changed from before the typing to the next action.

Belongs here: keeping the picture before the typing. Whether the place is that of the element with
the focus is decided in trees/step_targets.py.
"""

from collections.abc import Mapping, Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.change_detection import ChangeDetector
from demo_pipeline.observation.frames.picture_changes import picture_changes
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.screen_picture import ScreenPicture, screen_picture
from demo_pipeline.observation.frames.video_frames import Frame
from demo_pipeline.observation.frames.video_pointer import VideoPointer


class TypedPlaces:
    """Compares the screenshots of typing actions with those of the actions after them.

    Args:
        actions: those that type something to see are followed.
        detector: knows the cells that flicker.
        pointer: whose own picture does not count where it moved.
    """

    def __init__(
        self, actions: Sequence[Action], detector: ChangeDetector, pointer: VideoPointer
    ) -> None:
        self._typing = {one.action_index for one in actions if (one.text or "").strip()}
        self._detector = detector
        self._pointer = pointer
        self._before: tuple[int, ScreenPicture] | None = None
        self._found: dict[int, Sequence[PixelBox]] = {}

    def see(self, action_index: int, frame: Frame | None) -> None:
        """Take the frame of an action's screenshot; actions come in order."""
        if frame is None:
            return
        if self._before is not None:
            typed, before = self._before
            self._found[typed] = self._changed(before, screen_picture(frame))
        is_typing = action_index in self._typing
        self._before = (action_index, screen_picture(frame)) if is_typing else None

    def _changed(self, before: ScreenPicture, after: ScreenPicture) -> Sequence[PixelBox]:
        if before.detail.shape != after.detail.shape:
            return ()
        paths = [self._pointer.path_near(picture.time) for picture in (before, after)]
        pointers = [*paths[0], *paths[1]] if set(paths[0]) != set(paths[1]) else []
        flickering = self._detector.flickering
        return picture_changes(before.detail, after.detail, pointers, flickering).regions

    def result(self) -> Mapping[int, Sequence[PixelBox]]:
        """Boxes of what changed, by action index, video pixels; empty: nothing was seen."""
        return self._found
