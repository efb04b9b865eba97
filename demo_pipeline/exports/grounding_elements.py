"""Selects the elements of a screen for grounding rows: visible, named and unambiguous elements.

In case of doubt an element is left out. trajectories/step_sentences.py decides which names are
readable words.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo_pipeline.desktopd.models import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.exports.prompts import grounding_prompt
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.trajectories.step_sentences import (
    TypedTexts,
    element_text,
    is_readable,
    name_key,
)

EdgeBox = tuple[int, int, int, int]
"""Left, top, right and bottom in canvas pixels; right and bottom are exclusive."""

_WINDOWS = frozenset({"window", "dialog"})
_CONTAINERS = frozenset(
    {
        *("desktop", "panel", "unknown", "toolbar", "menubar", "statusbar", "taskbar"),
        *("tabpanel", "listbox", "treeview", "table", "separator"),
    }
)
_MENUS = frozenset({"menu", "menuitem", "menubar", "combobox"})
_FRONT_TO_BACK = frozenset({"windows", "macos"})  # platforms whose trees list front windows first
# Minimum share of an element's box that another element must cover for the element to count as
# covered. Neighbouring elements overlap less.
_COVERED_SHARE = 0.25
_ROUNDING_PX = 1  # pixels by which a child may extend beyond its parent


@dataclass(frozen=True, slots=True)
class _ScreenNode:
    """A node of a UI tree. Positions are indexes in the list of all nodes in document order.

    Attributes:
        id, role, name, states: as in ui_tree.json.
        box: the bounds, canvas pixels.
        parent: position of the parent; -1 for the root.
        end: position after the last descendant.
    """

    id: str
    role: str
    name: str
    states: frozenset[str]
    box: EdgeBox
    parent: int
    end: int


def _screen_nodes(path: Path) -> list[_ScreenNode]:
    """Reads the nodes of a ui_tree.json in document order, the root first."""
    values: list[tuple[Mapping[str, Any], int]] = []
    pending = [(load_json(path)["root"], -1)]
    while pending:
        value, parent = pending.pop()
        here = len(values)
        values.append((value, parent))
        pending += ((child, here) for child in reversed(value.get("children") or ()))
    ends = list(range(1, len(values) + 1))
    for position in range(len(values) - 1, 0, -1):
        parent = values[position][1]
        ends[parent] = max(ends[parent], ends[position])
    return [_node(value, parent, end) for (value, parent), end in zip(values, ends, strict=True)]


def _node(value: Mapping[str, Any], parent: int, end: int) -> _ScreenNode:
    """Converts a node of ui_tree.json."""
    bounds = value["bounds"]
    x = int(bounds["x"])
    y = int(bounds["y"])
    box = (x, y, x + int(bounds["width"]), y + int(bounds["height"]))
    states = frozenset(map(str, value.get("states") or ()))
    return _ScreenNode(
        str(value["id"]), str(value["role"]), str(value["name"]), states, box, parent, end
    )


class _Screen:
    """Determines which nodes of a screen are visible, clipped or covered.

    Args:
        nodes: all nodes of the UI tree in document order.
        platform: windows, macos or linux; it decides what the order of windows means.
    """

    def __init__(self, nodes: list[_ScreenNode], platform: str) -> None:
        self.nodes = nodes
        self._platform = platform
        self._boxes = np.array([node.box for node in nodes], np.int64).reshape(-1, 4)
        self._order = np.arange(len(nodes))
        self._end = np.array([node.end for node in nodes], np.int64)
        size = self._boxes[:, 2:] - self._boxes[:, :2]
        hidden = np.array(["hidden" in node.states for node in nodes], bool)
        for position, node in enumerate(nodes):  # descendants of a hidden node are hidden
            hidden[position] |= node.parent >= 0 and hidden[node.parent]
        self.visible: NDArray[np.bool_] = (size > 0).all(axis=1) & ~hidden
        self._layers = np.array(_layers(nodes))
        self._containers = np.array([node.role in _CONTAINERS for node in nodes], bool)
        self._is_window = np.array([node.role in _WINDOWS for node in nodes], bool)

    def ancestors(self, position: int) -> Iterator[int]:
        """Yields the positions of all ancestors of a node, the parent first."""
        position = self.nodes[position].parent
        while position >= 0:
            yield position
            position = self.nodes[position].parent

    def descendants(self, position: int) -> range:
        """Returns the positions of all descendants of a node."""
        return range(position + 1, self.nodes[position].end)

    def is_clipped(self, position: int) -> bool:
        """Returns whether a node extends beyond an ancestor; ancestors without area are ignored."""
        left, top, right, bottom = self.nodes[position].box
        for ancestor in self.ancestors(position):
            x0, y0, x1, y1 = self.nodes[ancestor].box
            if x1 <= x0 or y1 <= y0:
                continue
            fits_across = x0 - _ROUNDING_PX <= left and right <= x1 + _ROUNDING_PX
            fits_down = y0 - _ROUNDING_PX <= top and bottom <= y1 + _ROUNDING_PX
            if not fits_across or not fits_down:
                return True
        return False

    def is_covered(self, position: int) -> bool:
        """Returns whether another node may be on top of the node at `position`.

        Ancestors and descendants do not cover the node. Other nodes cover it in these cases:

        - A node of the same layer (see `_layers`) overlaps the node's centre or a quarter of its
          box. Containers that precede the node in the tree are ignored.
        - An open menu touches the node.
        - A window of another layer touches the node, unless that layer is known to be behind.
        - A node outside all windows touches the node, unless it is a container, or its layer is
          known to be behind.
        """
        box = self.nodes[position].box
        for owner, menu_box in self._popups:
            if not owner <= position < self.nodes[owner].end and _touch(box, menu_box):
                return True
        is_ancestor = (self._order <= position) & (self._end > position)
        is_descendant = (self._order >= position) & (self._order < self._end[position])
        others = self.visible & ~is_ancestor & ~is_descendant
        top_left = np.maximum(self._boxes[:, :2], box[:2])
        size = np.maximum(np.minimum(self._boxes[:, 2:], box[2:]) - top_left, 0)
        shared_pixels = size[:, 0] * size[:, 1]
        is_same_layer = self._layers == self._layers[position]
        overlapping = others & is_same_layer & self._overlaps(position, shared_pixels)
        if (overlapping & ((self._order > position) | ~self._containers)).any():
            return True
        touching = others & ~is_same_layer & (shared_pixels > 0)
        is_without_window = ~self._containers & ~self._is_window[self._layers]
        covering = touching & (self._is_window | is_without_window)
        for layer in np.unique(self._layers[covering]).tolist():
            if not self._is_behind(layer, self._layers[position]):
                return True
        return False

    @cached_property
    def _popups(self) -> list[tuple[int, EdgeBox]]:
        """Returns the owner of each open menu, and the area that the menu covers.

        The owner is the position of a menu or a combo box. A menu counts as open if some of its
        visible items extend beyond an ancestor. The area is the bounding box of these items. It
        is widened to the owner's sides if the owner is visible and not a menu bar.
        """
        areas: dict[int, EdgeBox] = {}
        for position, node in enumerate(self.nodes):
            if not self.visible[position]:
                continue
            owner = self._owner(position)
            if owner >= 0 and self.is_clipped(position):
                x0, y0, x1, y1 = areas.get(owner, node.box)
                left, top, right, bottom = node.box
                areas[owner] = (min(x0, left), min(y0, top), max(x1, right), max(y1, bottom))
        for owner, box in areas.items():
            left, _, right, _ = self.nodes[owner].box
            if self.visible[owner] and self.nodes[owner].role != "menubar":
                areas[owner] = (min(box[0], left), box[1], max(box[2], right), box[3])
        return list(areas.items())

    def _owner(self, position: int) -> int:
        """Returns the position of the outermost menu or combo box that contains a node.

        Returns -1 if the node is not a menu, a menu item or a list item, or has no such ancestor.
        """
        role = self.nodes[position].role
        if role not in {"menuitem", "menu", "listitem"}:
            return -1
        owner_roles = {"combobox"} if role == "listitem" else _MENUS
        outermost = -1
        for ancestor in self.ancestors(position):
            if self.nodes[ancestor].role in owner_roles:
                outermost = ancestor
        return outermost

    def _overlaps(self, position: int, shared_pixels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns, for each node, whether it overlaps the centre or a quarter of a given node.

        Args:
            position: the given node.
            shared_pixels: for each node, the number of pixels that it shares with the given node.
        """
        left, top, right, bottom = self.nodes[position].box
        x = (left + right - 1) // 2
        y = (top + bottom - 1) // 2
        x0, y0, x1, y1 = self._boxes.T
        on_centre: NDArray[np.bool_] = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
        least_pixels = _COVERED_SHARE * (right - left) * (bottom - top)
        return on_centre | (shared_pixels >= least_pixels)

    def _is_behind(self, layer: int, other: int) -> bool:
        """Returns whether a layer is known to be behind another layer.

        On Windows and macOS, the tree lists windows from front to back. This order is not used if
        one of the layers is a dialog, or is at the top level of a Windows tree, where windows are
        in the order in which their scans ended. If the tree does not tell the order, a layer
        without focus is behind a layer with the focus.
        """
        nodes = (self.nodes[layer], self.nodes[other])
        has_top_node = any(node.parent <= 0 for node in nodes)
        has_dialog = any(node.role == "dialog" for node in nodes)
        is_unordered = has_dialog or (self._platform == "windows" and has_top_node)
        if self._platform in _FRONT_TO_BACK and not is_unordered:
            return other < layer
        return self._has_focus(other) and not self._has_focus(layer)

    def _has_focus(self, layer: int) -> bool:
        for position in (layer, *self.descendants(layer)):
            if self.visible[position] and self.nodes[position].states & {"focused", "active"}:
                return True
        return False


def _layers(nodes: list[_ScreenNode]) -> list[int]:
    """Returns the layer of each node: the position of the outermost window that contains it.

    For a node outside all windows, the layer is the position of the outermost ancestor that is not
    the desktop.
    """
    windows = [-1] * len(nodes)
    outermost = [-1] * len(nodes)
    for position, node in enumerate(nodes):
        if node.parent >= 0:
            windows[position] = windows[node.parent]
            outermost[position] = outermost[node.parent]
        if windows[position] < 0 and node.role in _WINDOWS:
            windows[position] = position
        if outermost[position] < 0 and node.role != "desktop":
            outermost[position] = position
    layers = list[int]()
    for window, top in zip(windows, outermost, strict=True):
        layer = window if window >= 0 else top
        layers.append(max(layer, 0))
    return layers


def read_screen(path: Path, platform: str) -> _Screen | None:
    """Reads a ui_tree.json; returns None if the file has no valid tree."""
    try:
        return _Screen(_screen_nodes(path), platform)
    except (JsonFileError, LookupError, TypeError, ValueError, AttributeError):
        return None


# The reasons to leave out an element, in the order in which they are checked.
ELEMENT_EXCLUSIONS = (
    *("other_role", "unreadable_name", "typed_name", "not_a_leaf", "part_of_control"),
    *("outside", "clipped", "small", "large", "ambiguous", "covered", "too_many"),
)
_CONTROLS = frozenset(
    {
        *("button", "menuitem", "menu", "tab", "checkbox", "radiobutton", "link"),
        *("listitem", "treeitem", "tablecell"),
    }
)
# Roles of elements that can be selected. Text fields are missing, because the name of a text field
# may be its content.
_ROLES = _CONTROLS | {"label", "icon", "image", "slider"}
_PARTS = frozenset({"label", "image", "icon", "panel", "unknown"})  # roles of parts of controls
_VAGUE = frozenset({"unknown", "panel"})  # nodes with these roles may look like any control
# Maximum area of a selected element, as a share of the screen's area. Larger elements are left out.
_LARGEST_SHARE = 0.1


NamedElement = tuple[_ScreenNode, str]
"""A selected element, and the words that name it."""


def _digest(element: NamedElement) -> bytes:
    """Returns a hash of an element's words and box."""
    node, text = element
    return hashlib.sha256(f"{text}\n{node.box}".encode(errors="replace")).digest()


def choose_elements(
    screen: _Screen, area: EdgeBox, typed: TypedTexts, min_side: float, most: int
) -> tuple[list[NamedElement], Counter[str]]:
    """Selects elements of a screen for grounding rows.

    Args:
        area: the part of the canvas that shows the recorded screen, canvas pixels.
        typed: all texts that were typed in the demonstration.
        min_side: minimum width and height of a selected element, canvas pixels.
        most: maximum number of elements. If there are more, those with the smallest hash of words
            and box are selected.

    Returns:
        The selected elements in document order, and the number of left-out elements by reason.
    """
    chooser = _Chooser(screen, area, typed, min_side)
    left_out = Counter[str]()
    candidates: list[NamedElement] = []
    for position, node in enumerate(screen.nodes):
        if not screen.visible[position] or not node.name.strip():
            continue
        if reason := chooser.exclusion(position):
            left_out[reason] += 1
        else:
            candidates.append((node, element_text(node.name, node.role)))
    selected_ids = {node.id for node, _ in sorted(candidates, key=_digest)[:most]}
    left_out["too_many"] += len(candidates) - len(selected_ids)
    return [element for element in candidates if element[0].id in selected_ids], left_out


class _Chooser:
    """Decides which elements of a screen are left out.

    A name must be unambiguous among the named visible elements, which are called rivals. For the
    arguments, see `choose_elements`.
    """

    def __init__(self, screen: _Screen, area: EdgeBox, typed: TypedTexts, min_side: float) -> None:
        self._screen = screen
        self._area = area
        self._typed = typed
        self._min_side = min_side
        self._keys = [name_key(node.name) for node in screen.nodes]
        self._parts = {position for position in range(len(screen.nodes)) if self._is_part(position)}
        self._rivals = list[int]()  # positions of the visible elements with a name
        # Maps normalised name and role to the number of rivals with both.
        self._names = Counter[tuple[str, str]]()
        # Maps each normalised text to the number of rivals that could be meant by it.
        self._texts = Counter[str]()
        for position, node in enumerate(screen.nodes):
            is_named = self._keys[position] and position not in self._parts
            if is_named and screen.visible[position] and _touch(node.box, area):
                self._rivals.append(position)
                self._names[self._keys[position], node.role] += 1
                self._texts.update(_possible_texts(node))

    def exclusion(self, position: int) -> str:
        """Returns why an element is left out; empty if it can be selected."""
        node = self._screen.nodes[position]
        if node.role not in _ROLES:
            return "other_role"
        if not is_readable(node.name):
            return "unreadable_name"
        if self._typed.may_be(node.name):
            return "typed_name"
        return self._shape(position) or self._place(position)

    def _is_part(self, position: int) -> bool:
        """Returns whether a node is a part of a control, and has no name or the control's name."""
        if self._screen.nodes[position].role not in _PARTS:
            return False
        key = self._keys[position]
        for ancestor in self._screen.ancestors(position):
            is_control = self._screen.nodes[ancestor].role in _CONTROLS
            if is_control and key in {"", self._keys[ancestor]}:
                return True
        return False

    def _shape(self, position: int) -> str:
        """Checks an element's place in the tree; returns why the element is left out, or ""."""
        if position in self._parts:
            return "part_of_control"
        allowed_keys = {"", self._keys[position]}
        is_control = self._screen.nodes[position].role in _CONTROLS
        for descendant in self._screen.descendants(position):
            if not self._screen.visible[descendant]:
                continue
            is_own_part = descendant in self._parts and self._keys[descendant] in allowed_keys
            if not is_control or not is_own_part:
                return "not_a_leaf"
        return ""

    def _place(self, position: int) -> str:
        """Checks an element's box and name against the screen and other elements.

        Returns:
            Why the element is left out, or "".
        """
        node = self._screen.nodes[position]
        left, top, right, bottom = node.box
        x0, y0, x1, y1 = self._area
        if left < x0 or top < y0 or right > x1 or bottom > y1:
            return "outside"
        if self._screen.is_clipped(position):
            return "clipped"
        if min(right - left, bottom - top) < self._min_side:
            return "small"
        if (right - left) * (bottom - top) > _LARGEST_SHARE * (x1 - x0) * (y1 - y0):
            return "large"
        key = self._keys[position]
        same_name = sum(self._names[key, role] for role in {node.role, *_VAGUE})
        same_text = self._texts[_text_key(node.name, node.role)]
        if max(same_name, same_text) > 1:
            return "ambiguous"
        if self._screen.is_covered(position):
            return "covered"
        return ""

    def is_unambiguous(self, position: int) -> bool:
        """Returns whether the name and role of an element describe no other element.

        Ancestors and descendants are ignored.
        """
        node = self._screen.nodes[position]
        key = self._keys[position]
        related = {position, *self._screen.ancestors(position), *self._screen.descendants(position)}
        roles = {node.role, *_VAGUE}
        text = _text_key(node.name, node.role)
        for rival in self._rivals:
            if rival in related:
                continue
            other = self._screen.nodes[rival]
            has_same_name = self._keys[rival] == key and other.role in roles
            if has_same_name or text in _possible_texts(other):
                return False
        return True


def _possible_texts(node: _ScreenNode) -> set[str]:
    """Returns the normalised texts that may name a node; a node with a vague role has several.

    Texts are compared instead of names, because a button `Search` and a button `Search button`
    are both called `the Search button`.
    """
    if node.role in _VAGUE:
        return {_text_key(node.name, role) for role in _ROLES}
    return {_text_key(node.name, node.role)}


def _text_key(name: str, role: str) -> str:
    """Returns the normalised words that name an element, for comparisons."""
    return name_key(element_text(name, role))


def _touch(box: EdgeBox, area: EdgeBox) -> bool:
    """Returns whether two boxes share a pixel."""
    return box[0] < area[2] and area[0] < box[2] and box[1] < area[3] and area[1] < box[3]


_CANVAS = (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT)


def names_one_element(step: StepFiles) -> bool:
    """Returns whether the grounding prompt of a step describes no element except the target.

    The result is True if the tree does not contain the target, and False if there is no grounding
    prompt or the tree cannot be read. Ancestors and descendants of the target are ignored.
    """
    target = step.action.target_element
    if target is None or not grounding_prompt(step.action):
        return False
    screen = read_screen(step.ui_tree, "")  # the platform only matters for covered elements
    if screen is None:
        return False
    ids = [node.id for node in screen.nodes]
    if target.id not in ids:
        return True
    return _Chooser(screen, _CANVAS, TypedTexts(()), 0).is_unambiguous(ids.index(target.id))
