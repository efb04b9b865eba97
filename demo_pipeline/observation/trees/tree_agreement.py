"""Decides whether the tree of a step agrees with its screenshot.

The screen may change between scan and screenshot. A change contradicts the tree if trees describe
the changed content, such as a label or a menu. Trees do not describe check marks, the positions
of sliders, or the content of text fields.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress

import numpy as np

from demo_pipeline.observation.clock.canvas import Boxes
from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges
from demo_pipeline.observation.frames.evidence import SinceScanEvidence
from demo_pipeline.observation.trees.hit_test import is_desktop
from demo_pipeline.observation.trees.scans import Bools
from demo_pipeline.observation.trees.step_tree import StepTree

# Roles of elements whose content may change without contradicting the tree.
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
# Roles of elements whose name is not visible on the screen.
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
# All sizes are in video pixels.
FOCUS_RIM_PX = 8  # width of a focus ring around a field
# A text input that covers more than this share of the screen is large. A menu may open inside it.
LARGE_INPUT_SHARE = 0.05
POPUP_PX = 48  # minimum width and height of a menu; text cursors and a few letters are smaller
# A change covers a label only if the height of their overlap is at least half the smaller of their
# two heights. Neighbouring lines overlap less.
COVERED_SHARE = 0.5
# A change covers a label only if the overlap is at least this wide. Neighbours overlap less.
COVERED_PX = 6
NEAR_PX = 24  # a change within 24 pixels of a press may be at the pressed element


class Agreement(StrEnum):
    """Whether the tree of a step agrees with its screenshot, as in the column `tree_agreement`."""

    AGREES = "agrees"
    PARTIAL = "partial"  # the tree agrees only in part, see `step_targets.agreement_at`
    DIFFERS = "differs"
    UNKNOWN = "unknown"  # tree and screenshot were not compared


@dataclass(frozen=True)
class Contradiction:
    """A place where the screenshot contradicts a tree.

    Attributes:
        place: left, top, width, height in video pixels.
        is_popup: whether the place is so large that a menu or a dialog may have opened there.
        is_news: whether the tree already has the new content of the place. This is assumed if the
            screen changed there while the scan ran, and the previous tree differs at the place.
    """

    place: ChangedBox
    is_popup: bool
    is_news: bool = False

    def is_near(self, x: float, y: float) -> bool:
        """Returns whether a point (video pixels) is within `NEAR_PX` of the place."""
        left, top, width, height = self.place
        is_near_across = left - NEAR_PX <= x <= left + width + NEAR_PX
        return is_near_across and top - NEAR_PX <= y <= top + height + NEAR_PX


def _elements_at(tree: StepTree, place: ChangedBox) -> set[tuple[object, ...]]:
    """Returns the role, name and box of each visible element that overlaps a place."""
    boxes = _video_boxes(tree)
    width, height = _shared_sizes(boxes, [place])
    touched = ((width > 0) & (height > 0)).any(axis=0)
    elements: set[tuple[object, ...]] = set()
    for node in np.flatnonzero(touched).tolist():
        if "hidden" not in tree.states_at(node):
            box = boxes[node].round().tolist()
            elements.add((tree.roles[node], tree.raws[node].name, *box))
    return elements


@dataclass(frozen=True)
class _TreeBoxes:
    """The boxes of a tree's visible elements, in groups with different rules for changes.

    All boxes are in video pixels.

    Attributes:
        own: elements whose content may change without contradicting the tree, except large text
            inputs.
        large_inputs: text inputs in which a menu may open.
        named: elements whose name is visible on the screen.
        windows: windows and dialogs.
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
    """Returns the places where the screenshot contradicts a tree.

    Returns None if screenshot and tree were not compared.

    If the screen changed at a place while the scan ran, the scan may have read the place before or
    after the change. It read the new content if the tree differs there from the previous tree.

    Args:
        since: the changes from the scan to the screenshot; None if the two were not compared.
        previous: reads the tree of the previous scan, or returns None if that scan is not usable.
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
    """Returns the share of a tree's named elements that overlap a contradicted place, from 0 to 1.

    Returns 1 if the tree has no named elements.
    """
    places = [contradiction.place for contradiction in contradictions]
    width, height = _shared_sizes(_TreeBoxes.of(tree).named, places)
    touched = ((width > 0) & (height > 0)).any(axis=0)
    return float(touched.mean()) if touched.size else 1.0


def _differences(changes: ContentChanges, boxes: _TreeBoxes) -> Iterator[Contradiction]:
    """Yields the changes that contradict a tree.

    A change in a large text input contradicts the tree only if it has the edges of a menu or
    covers the name of an element.
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
    outside = ~_are_inside_any(places, boxes)
    return list(compress(places, outside.tolist()))


def _cover_name(regions: Sequence[ChangedBox], named: Boxes) -> Bools:
    """Returns whether each region covers a name (touching is not enough), as an array (regions,).

    `named` are the boxes of the named elements.
    """
    width, height = _shared_sizes(named, regions)
    heights = np.array(regions, float).reshape(-1, 4)[:, 3]
    least = COVERED_SHARE * np.minimum(named[:, 3], heights[:, None])
    covers: Bools = ((height >= least) & (width >= COVERED_PX)).any(axis=1)
    return covers


def _video_boxes(tree: StepTree) -> Boxes:
    """Returns the boxes (nodes, 4) in video pixels, with zeros for nodes without a usable box."""
    boxes: Boxes = np.nan_to_num(tree.canvas.boxes_to_video(tree.boxes))
    return boxes


def _shared_sizes(boxes: Boxes, places: Sequence[ChangedBox]) -> tuple[Boxes, Boxes]:
    """Returns the width and the height of the overlap of each place with each box.

    Both arrays are (places, boxes). Without an overlap, at least one of the two is negative or 0.
    """
    corners = np.array(places, float).reshape(-1, 1, 4)
    first = np.maximum(boxes[:, :2], corners[..., :2])
    last = np.minimum(boxes[:, :2] + boxes[:, 2:], corners[..., :2] + corners[..., 2:])
    size = last - first
    return size[..., 0], size[..., 1]


def _are_inside_any(places: Sequence[ChangedBox], boxes: Boxes) -> Bools:
    """Returns whether each place is inside a box or its focus ring, as an array (places,)."""
    x, y, width, height = np.array(places, float).reshape(-1, 4).T[..., None]
    left, top, across, down = boxes.T
    within = (left - FOCUS_RIM_PX <= x) & (x + width <= left + across + FOCUS_RIM_PX)
    within &= (top - FOCUS_RIM_PX <= y) & (y + height <= top + down + FOCUS_RIM_PX)
    inside: Bools = within.any(axis=1)
    return inside


def _lines_of_popup(regions: Sequence[ChangedBox]) -> Sequence[ChangedBox]:
    """Returns the first group of successive lines of text that is as large as a menu.

    Returns an empty sequence if there is no such group.
    """
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
    """Returns whether the line of text `below` may be the next line of the same menu."""
    gap = below[1] - above[1] - above[3]
    overlap_across = below[0] < above[0] + above[2] and above[0] < below[0] + below[2]
    return gap <= POPUP_PX and overlap_across
