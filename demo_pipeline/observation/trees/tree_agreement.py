"""Whether the tree of a step agrees with its screenshot: what changed since the scan, and where.

What matters is what was acted on: a tree that differs elsewhere only is partly right.
The content of a text field, a tick or a slider's place is not in a tree: their change is not a
difference. A new label, a menu, a dialog and a list scrolled otherwise are one.
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
        *("textfield", "textarea", "combobox", "checkbox", "radiobutton"),
        *("slider", "scrollbar", "progressbar", "image", "icon"),
    }
)
TEXT_INPUTS = frozenset({"textfield", "textarea"})
_SHOWS_NO_NAME = OWN_CONTENT | {
    *("desktop", "window", "dialog", "panel", "unknown", "toolbar", "menubar", "separator"),
    *("listbox", "treeview", "table", "tabpanel", "statusbar", "taskbar"),
}
FOCUS_RIM_PX = 8  # pixels around a field that its focus ring covers
LARGE_INPUT_SHARE = 0.05  # of the picture; in a larger text area a menu has room
POPUP_PX = 48  # pixels to a side; a menu is larger, a text cursor or a few letters smaller
COVERED_SHARE = 0.5  # of the lower one's height; neighbouring lines overlap less
COVERED_PX = 6  # pixels across; a changed neighbour reaches less far into a label

NEAR_PX = 24  # pixels from a press to what changed: the letters of what was pressed


class Agreement(StrEnum):
    """`tree_agreement` of a step: its tree says what its screenshot shows; `unknown`: unchecked.

    `partial`: what was acted on, or most of what a wait shows, is as the tree says, not all else.
    """

    AGREES = "agrees"
    PARTIAL = "partial"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Contradiction:
    """A place of the screenshot, video pixels, that is not as a tree says.

    `is_popup`: a menu or a dialog has room in it. `is_news`: it came while the scan ran, and the
    tree has something else there than the one before; what was pressed there it may still lack.
    """

    place: ChangedBox
    is_popup: bool
    is_news: bool = False

    def is_near(self, x: float, y: float) -> bool:
        """Whether a point is in it or beside it, video pixels."""
        left, top, width, height = self.place
        across = left - NEAR_PX <= x <= left + width + NEAR_PX
        return across and top - NEAR_PX <= y <= top + height + NEAR_PX


def _elements_in(tree: StepTree, places: Sequence[ChangedBox]) -> set[tuple[object, ...]]:
    boxes = _video_boxes(tree)
    width, height = _shared(boxes, places)
    touched = ((width > 0) & (height > 0)).any(axis=0)
    return {
        (tree.roles[node], tree.raws[node].name, *boxes[node].round().tolist())
        for node in np.flatnonzero(touched).tolist()
        if "hidden" not in tree.states_at(node)
    }


@dataclass(frozen=True)
class _TreeBoxes:
    """The boxes of a tree's visible elements on the video, by what a change there means.

    Attributes:
        own: of elements whose own content changes, without the large text inputs.
        large_inputs: of text areas in which a menu has room.
        named: of elements whose name is on the screen.
        windows: of windows and dialogs.
    """

    own: Boxes
    large_inputs: Boxes
    named: Boxes
    windows: Boxes

    @classmethod
    def of(cls, tree: StepTree) -> "_TreeBoxes":
        """The boxes of a tree."""
        boxes = _video_boxes(tree)
        roles = tree.roles
        states = tree.states
        area = boxes[:, 2] * boxes[:, 3]
        shown = [node for node in np.flatnonzero(area > 0).tolist() if "hidden" not in states[node]]
        limit = LARGE_INPUT_SHARE * tree.canvas.video_width * tree.canvas.video_height
        own = [node for node in shown if roles[node] in OWN_CONTENT]
        large = {node for node in own if roles[node] in TEXT_INPUTS and area[node] > limit}
        raws = tree.raws
        named = [node for node in shown if raws[node].name and roles[node] not in _SHOWS_NO_NAME]
        return cls(
            boxes[[node for node in own if node not in large]],
            boxes[sorted(large)],
            boxes[named],
            boxes[[node for node in shown if tree.is_window(node) and not is_desktop(tree, node)]],
        )


def contradictions_of(
    tree: StepTree,
    since: SinceScanEvidence | None,
    previous: Callable[[], StepTree | None],
) -> Sequence[Contradiction] | None:
    """What the screenshot shows otherwise than a tree; None: not compared.

    A scan takes time. When the screen was that of the screenshot only as it began, or only as it
    ended, the tree itself tells of each place what it saw: whether it has anything there that the
    scan before does not have.

    Args:
        tree: of the step.
        since: what changed between its scan and the screenshot; None: not compared.
        previous: gives the tree of the scan before; None without one.
    """
    if not tree.says_something or since is None or since.began is None:
        return None
    began = since.began
    ended = since.began if since.ended is None else since.ended
    if not (began or ended):
        return []
    boxes = _TreeBoxes.of(tree)
    at_begin, at_end = (list(_differences(one, boxes)) for one in (began, ended))
    if bool(at_begin) == bool(at_end):
        return at_begin
    before = previous()

    def has_news(place: ChangedBox) -> bool:
        return before is not None and _elements_in(tree, [place]) != _elements_in(before, [place])

    if not at_begin:
        return [one for one in at_end if has_news(one.place)]
    return [replace(one, is_news=has_news(one.place)) for one in at_begin]


def touched_share(tree: StepTree, against: Sequence[Contradiction]) -> float:
    """The share of what a tree names, 0 to 1, that something changed at."""
    width, height = _shared(_TreeBoxes.of(tree).named, [one.place for one in against])
    touched = ((width > 0) & (height > 0)).any(axis=0)
    return float(touched.mean()) if touched.size else 1.0


def _differences(changes: ContentChanges, boxes: _TreeBoxes) -> Iterator[Contradiction]:
    """Yield the changes that contradict a tree.

    What changes in a large text area says nothing, unless it has a menu's edges or covers a name.
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
    for region in _popup(unknown):
        yield Contradiction(region, is_popup=True)


def _outside(places: Sequence[ChangedBox], boxes: Boxes) -> list[ChangedBox]:
    """The places that are inside none of the boxes."""
    inside = _are_inside_any(places, boxes).tolist()
    return [place for place, is_inside in zip(places, inside, strict=True) if not is_inside]


def _cover_name(regions: Sequence[ChangedBox], named: Boxes) -> Bools:
    """(regions,) whether it covers the text of a named element, not just touches its box."""
    width, height = _shared(named, regions)
    heights = np.array(regions, float).reshape(-1, 4)[:, 3]
    least = COVERED_SHARE * np.minimum(named[:, 3], heights[:, None])
    covers: Bools = ((height >= least) & (width >= COVERED_PX)).any(axis=1)
    return covers


def _video_boxes(tree: StepTree) -> Boxes:
    """(nodes, 4) x, y, width, height in video pixels; zeros without a usable box."""
    boxes: Boxes = np.nan_to_num(tree.canvas.boxes_to_video(tree.boxes))
    return boxes


def _shared(boxes: Boxes, places: Sequence[ChangedBox]) -> tuple[Boxes, Boxes]:
    """(places, boxes) width and height that a place shares with a box; not positive: nothing."""
    corners = np.array(places, float).reshape(-1, 1, 4)
    first = np.maximum(boxes[:, :2], corners[..., :2])
    last = np.minimum(boxes[:, :2] + boxes[:, 2:], corners[..., :2] + corners[..., 2:])
    size = last - first
    return size[..., 0], size[..., 1]


def _are_inside_any(places: Sequence[ChangedBox], boxes: Boxes) -> Bools:
    """(places,) whether it is inside one of the boxes or on its rim."""
    x, y, width, height = np.array(places, float).reshape(-1, 4).T[..., None]
    left, top, across, down = boxes.T
    within = (left - FOCUS_RIM_PX <= x) & (x + width <= left + across + FOCUS_RIM_PX)
    within &= (top - FOCUS_RIM_PX <= y) & (y + height <= top + down + FOCUS_RIM_PX)
    inside: Bools = within.any(axis=1)
    return inside


def _popup(regions: Sequence[ChangedBox]) -> Sequence[ChangedBox]:
    """The lines of text below each other that cover as much as a menu does; else nothing."""
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
    """Whether a line of text is the next one of the same menu: below it, and near."""
    gap = below[1] - above[1] - above[3]
    return gap <= POPUP_PX and below[0] < above[0] + above[2] and above[0] < below[0] + below[2]
