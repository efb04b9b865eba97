"""Finds the places of the screen that changed while text was typed."""

from collections.abc import Sequence
from typing import NamedTuple

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.change_detector import ChangeDetector
from demo_pipeline.observation.frames.changes import (
    ChangedBox,
    ScreenDetail,
    content_changes,
    screen_detail,
)
from demo_pipeline.observation.frames.pointer_path import Point
from demo_pipeline.observation.frames.video_pointer import VideoPointer
from demo_pipeline.observation.frames.video_reader import Frame, Luma
from demo_pipeline.observation.trees.secret_fields import dots_for


class _BeforeTyping(NamedTuple):
    """The screen before a typing action, at half size (`detail`) and in full size (`luma`)."""

    action_index: int
    detail: ScreenDetail
    luma: Luma


class TypedPlaces:
    """Compares the screenshot of each typing action with that of the next action.

    Changes in flickering cells and around a moving pointer are ignored.

    Args:
        actions: all actions; only those that type visible text are compared.

    Attributes:
        places: maps the index of each typing action to the boxes of its changes, in video pixels.
            The sequence is empty for an action that changed nothing.
        dotted: indexes of the typing actions whose text appeared as dots, as in password fields.
    """

    def __init__(
        self, actions: Sequence[Action], detector: ChangeDetector, pointer: VideoPointer
    ) -> None:
        self._texts = {action.action_index: action.text or "" for action in actions}
        self._detector = detector
        self._pointer = pointer
        self._before: _BeforeTyping | None = None
        self.places: dict[int, Sequence[ChangedBox]] = {}
        self.dotted: list[int] = []

    def see(self, action_index: int, frame: Frame | None) -> None:
        """Processes the frame of an action's screenshot, or None if there is no screenshot.

        Call it for all actions, in order.
        """
        if frame is None:
            return
        if self._before is not None:
            typed, before, luma = self._before
            self.places[typed] = self._changed(before, screen_detail(frame))
            if dots_for(self._texts[typed], luma, frame.whole):
                self.dotted.append(typed)
        self._before = None
        if self._texts[action_index].strip():
            self._before = _BeforeTyping(action_index, screen_detail(frame), frame.whole)

    def _changed(self, before: ScreenDetail, after: ScreenDetail) -> Sequence[ChangedBox]:
        path_before = self._pointer.path_near(before.time)
        path_after = self._pointer.path_near(after.time)
        pointers: list[Point] = []
        if set(path_before) != set(path_after):
            pointers = [*path_before, *path_after]
        flickering = self._detector.flickering
        return content_changes(before.detail, after.detail, pointers, flickering).regions
