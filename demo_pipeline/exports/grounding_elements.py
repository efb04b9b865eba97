"""Which elements of a screen may be asked for: those that can be seen, named and told apart.

Belongs here: reading a tree, what is inside what and what covers what; the rules, in doubt against
an element; the choice among many; and whether the words of a step's prompt (`prompt_style =
"grounding"`) name one element. Where a tree does not say which of two windows is in front, both
cover each other. Which names are words is decided in trajectories/step_sentences.py.
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
"""Left, top, right and bottom in canvas pixels; right and bottom are outside."""

_WINDOWS = frozenset({"window", "dialog"})
_CONTAINERS = frozenset(
    {
        *("desktop", "panel", "unknown", "toolbar", "menubar", "statusbar", "taskbar"),
        *("tabpanel", "listbox", "treeview", "table", "separator"),
    }
)
_MENUS = frozenset({"menu", "menuitem", "menubar", "combobox"})
_FRONT_TO_BACK = frozenset({"windows", "macos"})  # platforms that list windows in order
_COVERED_SHARE = 0.25  # of an element's box; neighbours overlap by less
_ROUNDING_PX = 1


@dataclass(frozen=True, slots=True)
class _ScreenNode:
    """One node; `parent` is a position, -1 for the root; `end`: after its last descendant."""

    id: str
    role: str
    name: str
    states: frozenset[str]
    box: EdgeBox
    parent: int
    end: int


def _screen_nodes(path: Path) -> list[_ScreenNode]:
    """The nodes of a ui_tree.json in document order, the root first."""
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
    bounds = value["bounds"]
    x = int(bounds["x"])
    y = int(bounds["y"])
    box = (x, y, x + int(bounds["width"]), y + int(bounds["height"]))
    states = frozenset(map(str, value.get("states") or ()))
    return _ScreenNode(
        str(value["id"]), str(value["role"]), str(value["name"]), states, box, parent, end
    )


class _ShownScreen:
    """What is where on a screen.

    Args:
        nodes: of its tree.
        platform: windows, macos or linux; decides what the order of windows means.
    """

    def __init__(self, nodes: list[_ScreenNode], platform: str) -> None:
        self.nodes = nodes
        self._platform = platform
        self._boxes = np.array([node.box for node in nodes], np.int64).reshape(-1, 4)
        self._order = np.arange(len(nodes))
        self._end = np.array([node.end for node in nodes], np.int64)
        size = self._boxes[:, 2:] - self._boxes[:, :2]
        hidden = np.array(["hidden" in node.states for node in nodes], bool)
        for position, node in enumerate(nodes):  # what is in a hidden node is hidden
            hidden[position] |= node.parent >= 0 and hidden[node.parent]
        self.shown: NDArray[np.bool_] = (size > 0).all(axis=1) & ~hidden
        self._layers = np.array(_layers(nodes))
        self._containers = np.array([node.role in _CONTAINERS for node in nodes], bool)
        self._is_window = np.array([node.role in _WINDOWS for node in nodes], bool)

    def ancestors(self, position: int) -> Iterator[int]:
        """Positions of the nodes around a node, the nearest first."""
        position = self.nodes[position].parent
        while position >= 0:
            yield position
            position = self.nodes[position].parent

    def descendants(self, position: int) -> range:
        """Positions of all nodes inside a node."""
        return range(position + 1, self.nodes[position].end)

    def is_clipped(self, position: int) -> bool:
        """Whether a node sticks out of a node around it that has an area."""
        left, top, right, bottom = self.nodes[position].box
        for around in self.ancestors(position):
            x0, y0, x1, y1 = self.nodes[around].box
            if x1 <= x0 or y1 <= y0:
                continue
            inside = x0 - _ROUNDING_PX <= left and right <= x1 + _ROUNDING_PX
            if not (inside and y0 - _ROUNDING_PX <= top and bottom <= y1 + _ROUNDING_PX):
                return True
        return False

    def is_covered(self, position: int) -> bool:
        """Whether another node may be on top of a node.

        Of the same window: a node over a quarter of it or over its centre, unless it is a container
        that the tree lists before; and an open menu that touches it. Of another: a window over any
        part of it, or a node without a window, unless it is known to be behind.
        """
        here = self.nodes[position].box
        for owner, box in self._popups:
            if not owner <= position < self.nodes[owner].end and _touch(here, box):
                return True
        related = (self._order <= position) & (self._end > position)
        related |= (self._order >= position) & (self._order < self._end[position])
        others = self.shown & ~related
        first = np.maximum(self._boxes[:, :2], here[:2])
        size = np.maximum(np.minimum(self._boxes[:, 2:], here[2:]) - first, 0)
        shared = size[:, 0] * size[:, 1]  # pixels that each node has in common with this one
        own = self._layers == self._layers[position]
        on_top = others & own & self._over(position, shared)
        if (on_top & ((self._order > position) | ~self._containers)).any():
            return True
        touching = others & ~own & (shared > 0)
        over = touching & (self._is_window | (~self._containers & ~self._is_window[self._layers]))
        return any(
            not self._is_behind(layer, self._layers[position])
            for layer in np.unique(self._layers[over]).tolist()
        )

    @cached_property
    def _popups(self) -> list[tuple[int, EdgeBox]]:
        """The open menus: what each belongs to, and the area that it may cover.

        The items tell of a menu, where they are outside of what they belong to. The menu is as wide
        as that or wider.
        """
        areas: dict[int, EdgeBox] = {}
        for position, node in enumerate(self.nodes):
            owner = self._owner(position) if self.shown[position] else -1
            if owner >= 0 and self.is_clipped(position):
                x0, y0, x1, y1 = areas.get(owner, node.box)
                left, top, right, bottom = node.box
                areas[owner] = (min(x0, left), min(y0, top), max(x1, right), max(y1, bottom))
        for owner, box in areas.items():
            left, _, right, _ = self.nodes[owner].box
            if self.shown[owner] and self.nodes[owner].role != "menubar":
                areas[owner] = (min(box[0], left), box[1], max(box[2], right), box[3])
        return list(areas.items())

    def _owner(self, position: int) -> int:
        """The menu or combo box that an item belongs to; -1 for any other node."""
        if self.nodes[position].role not in {"menuitem", "menu", "listitem"}:
            return -1
        owners = {"combobox"} if self.nodes[position].role == "listitem" else _MENUS
        around = self.ancestors(position)
        found = [other for other in around if self.nodes[other].role in owners]
        return found[-1] if found else -1

    def _over(self, position: int, shared: NDArray[np.int64]) -> NDArray[np.bool_]:
        left, top, right, bottom = self.nodes[position].box
        x = (left + right - 1) // 2
        y = (top + bottom - 1) // 2
        x0, y0, x1, y1 = self._boxes.T
        centre = (x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)
        over: NDArray[np.bool_] = centre | (
            shared >= _COVERED_SHARE * (right - left) * (bottom - top)
        )
        return over

    def _is_behind(self, layer: int, other: int) -> bool:
        """Whether a layer is known to be behind another one.

        At the top of a Windows tree the order has no meaning: windows are listed as their scans
        ended.
        """
        layers = (self.nodes[layer], self.nodes[other])
        is_top = self._platform == "windows" and any(one.parent <= 0 for one in layers)
        has_dialog = any(one.role == "dialog" for one in layers)
        if self._platform in _FRONT_TO_BACK and not (is_top or has_dialog):
            return other < layer
        return self._has_focus(other) and not self._has_focus(layer)

    def _has_focus(self, layer: int) -> bool:
        return any(
            self.shown[node] and self.nodes[node].states & {"focused", "active"}
            for node in (layer, *self.descendants(layer))
        )


def _layers(nodes: list[_ScreenNode]) -> list[int]:
    """Of each node the outermost window around it, or without one its outermost node.

    Desktops do not count: they hold everything.
    """
    windows = [-1] * len(nodes)
    tops = [-1] * len(nodes)
    for position, node in enumerate(nodes):
        parent = node.parent
        above = (windows[parent], tops[parent]) if parent >= 0 else (-1, -1)
        is_window = node.role in _WINDOWS
        is_desktop = node.role == "desktop"
        windows[position] = above[0] if above[0] >= 0 or not is_window else position
        tops[position] = above[1] if above[1] >= 0 or is_desktop else position
    return [
        max(window if window >= 0 else top, 0) for window, top in zip(windows, tops, strict=True)
    ]


def read_screen(path: Path, platform: str) -> _ShownScreen | None:
    """What a ui_tree.json says is where; None: it is not a tree."""
    try:
        return _ShownScreen(_screen_nodes(path), platform)
    except (JsonFileError, LookupError, TypeError, ValueError, AttributeError):
        return None


# Why an element is not asked for; each has the first reason that holds.
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
_ROLES = _CONTROLS | {"label", "icon", "image", "slider"}  # a text field is named by its content
_PARTS = frozenset({"label", "image", "icon", "panel", "unknown"})  # of which controls are made
_VAGUE = frozenset({"unknown", "panel"})  # may look like an element of any role
_LARGEST_SHARE = 0.1  # of the screen; a larger element is an area, not a target


NamedElement = tuple[_ScreenNode, str]
"""An element that is asked for, and the words that name it."""


def _digest(element: NamedElement) -> bytes:
    """The same for the same words at the same place."""
    node, text = element
    return hashlib.sha256(f"{text}\n{node.box}".encode(errors="replace")).digest()


def choose_elements(
    screen: _ShownScreen, area: EdgeBox, typed: TypedTexts, min_side: float, most: int
) -> tuple[list[NamedElement], Counter[str]]:
    """The elements of a screen that are asked for, in document order, and the others by reason.

    Args:
        screen: with its tree.
        area: of the canvas that shows the recorded screen, pixels.
        typed: what was typed in the demonstration.
        min_side: pixels; narrower and lower elements are left out.
        most: elements; of more those with the smallest hash of name, role and place are taken, so
            that pictures of the same screen give the same ones.
    """
    chooser = _Chooser(screen, area, typed, min_side)
    left_out = Counter[str]()
    found: list[NamedElement] = []
    for position, node in enumerate(screen.nodes):
        if not screen.shown[position] or not node.name.strip():
            continue
        if reason := chooser.exclusion(position):
            left_out[reason] += 1
        else:
            found.append((node, element_text(node.name, node.role)))
    taken = {node.id for node, _ in sorted(found, key=_digest)[:most]}
    left_out["too_many"] += len(found) - len(taken)
    return [(node, text) for node, text in found if node.id in taken], left_out


class _Chooser:
    """The rules for one screen."""

    def __init__(
        self, screen: _ShownScreen, area: EdgeBox, typed: TypedTexts, min_side: float
    ) -> None:
        self._screen = screen
        self._area = area
        self._typed = typed
        self._min_side = min_side
        self._keys = [name_key(node.name) for node in screen.nodes]
        self._parts = {position for position in range(len(screen.nodes)) if self._is_part(position)}
        self._counted = [
            position
            for position, node in enumerate(screen.nodes)
            if screen.shown[position]
            and self._keys[position]
            and position not in self._parts
            and _touch(node.box, area)
        ]
        counted = [(screen.nodes[position], self._keys[position]) for position in self._counted]
        self._names = Counter((key, node.role) for node, key in counted)
        self._texts = Counter(text for node, _ in counted for text in _possible_texts(node))

    def exclusion(self, position: int) -> str:
        """Why an element is not asked for; empty when it is."""
        node = self._screen.nodes[position]
        if node.role not in _ROLES:
            return "other_role"
        if not is_readable(node.name):
            return "unreadable_name"
        if self._typed.may_be(node.name):
            return "typed_name"
        return self._shape(position) or self._place(position)

    def _is_part(self, position: int) -> bool:
        """Whether a node is only how a control around it looks: nameless, or named like it."""
        node = self._screen.nodes[position]
        key = self._keys[position]
        return node.role in _PARTS and any(
            self._screen.nodes[other].role in _CONTROLS and key in {"", self._keys[other]}
            for other in self._screen.ancestors(position)
        )

    def _shape(self, position: int) -> str:
        if position in self._parts:
            return "part_of_control"
        below = [one for one in self._screen.descendants(position) if self._screen.shown[one]]
        is_control = self._screen.nodes[position].role in _CONTROLS
        parts = is_control and self._parts.issuperset(below)
        keys = {self._keys[one] for one in below}
        return "" if not below or (parts and keys <= {"", self._keys[position]}) else "not_a_leaf"

    def _place(self, position: int) -> str:
        node = self._screen.nodes[position]
        (left, top, right, bottom), (x0, y0, x1, y1) = node.box, self._area
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
        return "covered" if self._screen.is_covered(position) else ""

    def is_told_apart(self, position: int) -> bool:
        """Whether no element elsewhere has an element's name and role, or its text.

        What is around an element or inside it is at the same place.
        """
        node = self._screen.nodes[position]
        key = self._keys[position]
        same = {position, *self._screen.ancestors(position), *self._screen.descendants(position)}
        roles = {node.role, *_VAGUE}
        text = _text_key(node.name, node.role)
        others = [(self._screen.nodes[n], self._keys[n]) for n in self._counted if n not in same]
        return not any(
            (other_key == key and other.role in roles) or text in _possible_texts(other)
            for other, other_key in others
        )


def _possible_texts(node: _ScreenNode) -> set[str]:
    """The texts that may name a node, as keys; a vague one may be an element of any role.

    Both the buttons `Search` and `Search button` are `the Search button`.
    """
    roles = _ROLES if node.role in _VAGUE else (node.role,)
    return {_text_key(node.name, role) for role in roles}


def _text_key(name: str, role: str) -> str:
    return name_key(element_text(name, role))


def _touch(box: EdgeBox, area: EdgeBox) -> bool:
    return box[0] < area[2] and area[0] < box[2] and box[1] < area[3] and area[1] < box[3]


_CANVAS = (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT)


def names_one_element(step: StepFiles) -> bool:
    """Whether a step has a grounding prompt, and its words fit no other element of its tree.

    What is around the target or inside it, named in the same way, is not another element. A target
    that its tree does not have is compared with nothing; a tree that cannot be read does not tell
    it apart.
    """
    target = step.action.target_element
    if target is None or not grounding_prompt(step.action):
        return False
    screen = read_screen(step.ui_tree, "")  # any platform: what is in front does not matter
    if screen is None:
        return False
    position = next((n for n, node in enumerate(screen.nodes) if node.id == target.id), None)
    chooser = _Chooser(screen, _CANVAS, TypedTexts(()), 0)
    return position is None or chooser.is_told_apart(position)
