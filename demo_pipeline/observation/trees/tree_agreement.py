"""Decides whether the tree of a step agrees with its screenshot.

The screen may change between a scan and the screenshot. A change contradicts the tree if the tree
would show it: a new label, a menu, a dialog, or a list that was scrolled. The content of a text
field, a tick and the position of a slider are not in a tree, so their changes are harmless.

The place of the action matters most. A tree that is wrong elsewhere only is `partial`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from demo_pipeline.observation.clock.canvas import Boxes
from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges
from demo_pipeline.observation.frames.evidence import SinceScanEvidence
from demo_pipeline.observation.trees.hit_test import is_desktop
from demo_pipeline.observation.trees.scans import Bools
from demo_pipeline.observation.trees.step_tree import StepTree

OWN_CONTENT = frozenset(
    {
        "textfield",
        "textarea",
        "combobox",
        "checkbox",
        "radiobutton",
        "slider",
        "scrollbar",
        "progressbar",
        "image",
        "icon",
    }
)
TEXT_INPUTS = frozenset({"textfield", "textarea"})
_SHOWS_NO_NAME = OWN_CONTENT | {
    "desktop",
    "window",
    "dialog",
    "panel",
    "unknown",
    "toolbar",
    "menubar",
    "separator",
    "listbox",
    "treeview",
    "table",
    "tabpanel",
    "statusbar",
    "taskbar",
}
FOCUS_RIM_PX = 8  # pixels around a field that its focus ring covers
LARGE_INPUT_SHARE = 0.05  # of the screen; a menu fits into a larger text area
POPUP_PX = 48  # pixels of each side; menus are larger, a text cursor or a few letters smaller
COVERED_SHARE = 0.5  # of the smaller height; neighbouring lines overlap less
COVERED_PX = 6  # pixels across; a changed neighbour reaches less far into a label
NEAR_PX = 24  # pixels from a press to a change: the letters of the pressed element


class Agreement(StrEnum):
    """Whether the tree of a step agrees with its screenshot: the column `tree_agreement`."""

    AGREES = "agrees"
    PARTIAL = "partial"  # the place of the action agrees, or most of the screen during a wait
    DIFFERS = "differs"
    UNKNOWN = "unknown"  # they were not compared


@dataclass(frozen=True)
class Contradiction:
    """A place where the screenshot contradicts a tree.

    Attributes:
        place: video pixels.
        is_popup: whether a menu or a dialog fits into the place.
        is_news: whether the screen changed there while the scan ran, and the tree already differs
            there from the previous tree. The tree may still lack the element that was pressed.
    """

    place: ChangedBox
    is_popup: bool
    is_news: bool = False

    def is_near(self, x: float, y: float) -> bool:
        """Returns whether a point is in the place or close to it, video pixels."""
        left, top, width, height = self.place
        is_near_across = left - NEAR_PX <= x <= left + width + NEAR_PX
        return is_near_across and top - NEAR_PX <= y <= top + height + NEAR_PX


def _elements_at(tree: StepTree, place: ChangedBox) -> set[tuple[object, ...]]:
    """Returns role, name and box of each visible element at a place."""
    boxes = _video_boxes(tree)
    width, height = _shared_sizes(boxes, [place])
    touched = ((width > 0) & (height > 0)).any(axis=0)
    return {
        (tree.roles[node], tree.raws[node].name, *boxes[node].round().tolist())
        for node in np.flatnonzero(touched).tolist()
        if "hidden" not in tree.states_at(node)
    }


@dataclass(frozen=True)
class _TreeBoxes:
    """The boxes of a tree's visible elements in the video, grouped by the meaning of a change.

    Attributes:
        own: of elements whose content may change without contradicting the tree, except the large
            text inputs.
        large_inputs: of text areas into which a menu fits.
        named: of elements that show their name.
        windows: of windows and dialogs.
    """

    own: Boxes
    large_inputs: Boxes
    named: Boxes
    windows: Boxes

    @classmethod
    def of(cls, tree: StepTree) -> "_TreeBoxes":
        """Groups the boxes of a tree."""
        boxes = _video_boxes(tree)
        roles = tree.roles
        states = tree.states
        areas = boxes[:, 2] * boxes[:, 3]
        largest = LARGE_INPUT_SHARE * tree.canvas.video_width * tree.canvas.video_height
        own: list[int] = []
        large_inputs: list[int] = []
        named: list[int] = []
        windows: list[int] = []
        for node in np.flatnonzero(areas > 0).tolist():
            if "hidden" in states[node]:
                continue
            if roles[node] in TEXT_INPUTS and areas[node] > largest:
                large_inputs.append(node)
            elif roles[node] in OWN_CONTENT:
                own.append(node)
            if tree.raws[node].name and roles[node] not in _SHOWS_NO_NAME:
                named.append(node)
            if tree.is_window(node) and not is_desktop(tree, node):
                windows.append(node)
        return cls(boxes[own], boxes[large_inputs], boxes[named], boxes[windows])


def contradictions_of(
    tree: StepTree,
    since: SinceScanEvidence | None,
    previous: Callable[[], StepTree | None],
) -> Sequence[Contradiction] | None:
    """Returns the places where the screenshot contradicts a tree; None: they were not compared.

    A scan takes time, and the screen may change meanwhile. If the screen agreed with the screenshot
    only when the scan began, or only when it ended, the tree itself shows for each place which of
    the two it read: the scan read the later screen if the tree differs there from the previous one.

    Args:
        tree: of the step.
        since: the changes from its scan to the screenshot; None: they were not compared.
        previous: reads the tree of the previous scan; None: there is none.
    """
    if not tree.has_visible_element or since is None or since.began is None:
        return None
    began = since.began
    ended = since.began if since.ended is None else since.ended
    if not (began or ended):
        return []
    boxes = _TreeBoxes.of(tree)
    at_begin = list(_differences(began, boxes))
    at_end = list(_differences(ended, boxes))
    if bool(at_begin) == bool(at_end):
        return at_begin
    before = previous()

    def has_news(place: ChangedBox) -> bool:
        return before is not None and _elements_at(tree, place) != _elements_at(before, place)

    if not at_begin:
        return [change for change in at_end if has_news(change.place)]
    return [replace(change, is_news=has_news(change.place)) for change in at_begin]


def touched_share(tree: StepTree, contradictions: Sequence[Contradiction]) -> float:
    """Returns the share of a tree's named elements, 0 to 1, at which something changed."""
    places = [contradiction.place for contradiction in contradictions]
    width, height = _shared_sizes(_TreeBoxes.of(tree).named, places)
    touched = ((width > 0) & (height > 0)).any(axis=0)
    return float(touched.mean()) if touched.size else 1.0


def _differences(changes: ContentChanges, boxes: _TreeBoxes) -> Iterator[Contradiction]:
    """Yields the changes that contradict a tree.

    Changes in a large text area do so only if they have the edges of a menu or cover a name.
    """
    for panel in _outside(changes.panels, boxes.own):
        yield Contradiction(panel, is_popup=min(panel[2:]) >= POPUP_PX)
    unknown = []
    regions = _outside(changes.regions, boxes.own)
    for region, is_name, is_text, is_unknown in zip(
        regions,
        _cover_name(regions, boxes.named),
        _are_inside_any(regions, boxes.large_inputs),
        _are_inside_any(regions, boxes.windows),
        strict=True,
    ):
        if is_name:
            yield Contradiction(region, is_popup=False)
        elif is_unknown and not is_text:
            unknown.append(region)
    for region in _lines_of_popup(unknown):
        yield Contradiction(region, is_popup=True)


def _outside(places: Sequence[ChangedBox], boxes: Boxes) -> list[ChangedBox]:
    """Returns the places that are inside none of the boxes."""
    inside = _are_inside_any(places, boxes).tolist()
    return [place for place, is_inside in zip(places, inside, strict=True) if not is_inside]


def _cover_name(regions: Sequence[ChangedBox], named: Boxes) -> Bools:
    """Returns (regions,) whether a region covers the text of a named element.

    A region that only touches the box of an element does not cover its text.
    """
    width, height = _shared_sizes(named, regions)
    heights = np.array(regions, float).reshape(-1, 4)[:, 3]
    least = COVERED_SHARE * np.minimum(named[:, 3], heights[:, None])
    covers: Bools = ((height >= least) & (width >= COVERED_PX)).any(axis=1)
    return covers


def _video_boxes(tree: StepTree) -> Boxes:
    """Returns (nodes, 4) x, y, width, height in video pixels; zeros without a usable box."""
    boxes: Boxes = np.nan_to_num(tree.canvas.boxes_to_video(tree.boxes))
    return boxes


def _shared_sizes(boxes: Boxes, places: Sequence[ChangedBox]) -> tuple[Boxes, Boxes]:
    """Returns (places, boxes) the width and the height that each place shares with each box.

    They overlap only if both are positive.
    """
    corners = np.array(places, float).reshape(-1, 1, 4)
    first = np.maximum(boxes[:, :2], corners[..., :2])
    last = np.minimum(boxes[:, :2] + boxes[:, 2:], corners[..., :2] + corners[..., 2:])
    size = last - first
    return size[..., 0], size[..., 1]


def _are_inside_any(places: Sequence[ChangedBox], boxes: Boxes) -> Bools:
    """Returns (places,) whether a place is inside one of the boxes or on its rim."""
    x, y, width, height = np.array(places, float).reshape(-1, 4).T[..., None]
    left, top, across, down = boxes.T
    within = (left - FOCUS_RIM_PX <= x) & (x + width <= left + across + FOCUS_RIM_PX)
    within &= (top - FOCUS_RIM_PX <= y) & (y + height <= top + down + FOCUS_RIM_PX)
    inside: Bools = within.any(axis=1)
    return inside


def _lines_of_popup(regions: Sequence[ChangedBox]) -> Sequence[ChangedBox]:
    """Returns the first lines below each other that cover as much as a menu; empty: none do."""
    stack: list[ChangedBox] = []
    for region in sorted(regions, key=lambda region: region[1]):
        if stack and not _follows(stack[-1], region):
            stack = []
        stack.append(region)
        boxes = np.array(stack, float)
        extent = (boxes[:, :2] + boxes[:, 2:]).max(axis=0) - boxes[:, :2].min(axis=0)
        if len(stack) > 1 and (extent >= POPUP_PX).all():
            return stack
    return ()


def _follows(above: ChangedBox, below: ChangedBox) -> bool:
    """Returns whether a line of text may be the next line of the same menu."""
    gap = below[1] - above[1] - above[3]
    overlap_across = below[0] < above[0] + above[2] and above[0] < below[0] + below[2]
    return gap <= POPUP_PX and overlap_across
