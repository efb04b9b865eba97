"""Which elements of a screen may be asked for: those that can be seen, named and told apart.

Belongs here: the rules, in doubt against an element, and the choice among many. What is visible is
decided in `screen_nodes`, which names are words in `element_names`.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

from demo_pipeline.datasets.element_names import (
    TypedTexts,
    element_text,
    is_readable,
    name_key,
)
from demo_pipeline.datasets.screen_nodes import EdgeBox, ScreenNode, ShownScreen

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


@dataclass(frozen=True, slots=True)
class GroundingElement:
    """An element that is asked for; `text` names it."""

    node: ScreenNode
    text: str


@dataclass(frozen=True, slots=True)
class ElementLimits:
    """The part of the canvas that shows the recorded screen, and what limits a choice.

    Attributes:
        area: left, top, right and bottom in canvas pixels.
        typed: what was typed in the demonstration.
        min_side: pixels; narrower and lower elements are left out.
        most: elements of a screen.
    """

    area: EdgeBox
    typed: TypedTexts
    min_side: int
    most: int


def choose_elements(
    screen: ShownScreen, limits: ElementLimits
) -> tuple[list[GroundingElement], Counter[str]]:
    """The elements of a screen that are asked for, in document order, and the others by reason.

    Of more than the limit those with the smallest hash of name, role and place are taken, so that
    pictures of the same screen give the same ones.
    """
    chooser, left_out = _Chooser(screen, limits), Counter[str]()
    found: list[GroundingElement] = []
    for position, node in enumerate(screen.nodes):
        if not screen.shown[position] or not node.name.strip():
            continue
        if reason := chooser.exclusion(position):
            left_out[reason] += 1
        else:
            found.append(GroundingElement(node, element_text(node.name, node.role)))
    taken = {element.node.id for element in sorted(found, key=_stable_order)[: limits.most]}
    left_out["too_many"] += len(found) - len(taken)
    return [element for element in found if element.node.id in taken], left_out


def _stable_order(element: GroundingElement) -> bytes:
    key = f"{element.text}\n{element.node.box}"
    return hashlib.sha256(key.encode(errors="replace")).digest()


class _Chooser:
    """The rules for one screen."""

    def __init__(self, screen: ShownScreen, limits: ElementLimits) -> None:
        self._screen, self._limits = screen, limits
        self._keys = [name_key(node.name) for node in screen.nodes]
        self._parts = {position for position in range(len(screen.nodes)) if self._is_part(position)}
        self._counted = [
            position
            for position, node in enumerate(screen.nodes)
            if screen.shown[position]
            and self._keys[position]
            and position not in self._parts
            and _touch(node.box, limits.area)
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
        if self._limits.typed.may_be(node.name):
            return "typed_name"
        return self._shape(position) or self._place(position)

    def _is_part(self, position: int) -> bool:
        """Whether a node is only how a control around it looks: nameless, or named like it."""
        node, key = self._screen.nodes[position], self._keys[position]
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
        (left, top, right, bottom), area = node.box, self._limits.area
        if left < area[0] or top < area[1] or right > area[2] or bottom > area[3]:
            return "outside"
        if self._screen.is_clipped(position):
            return "clipped"
        if min(right - left, bottom - top) < self._limits.min_side:
            return "small"
        if (right - left) * (bottom - top) > _LARGEST_SHARE * _size(area):
            return "large"
        return self._namesake(position) or ("covered" if self._screen.is_covered(position) else "")

    def _namesake(self, position: int) -> str:
        """Whether others have an element's name and role, or the text that it would have."""
        node, key = self._screen.nodes[position], self._keys[position]
        same_name = sum(self._names[key, role] for role in {node.role, *_VAGUE})
        same_text = self._texts[_text_key(node.name, node.role)]
        return "ambiguous" if max(same_name, same_text) > 1 else ""

    def is_told_apart(self, position: int) -> bool:
        """Whether no element elsewhere has an element's name and role, or its text.

        What is around an element or inside it is at the same place.
        """
        node, key = self._screen.nodes[position], self._keys[position]
        same = {position, *self._screen.ancestors(position), *self._screen.descendants(position)}
        roles, text = {node.role, *_VAGUE}, _text_key(node.name, node.role)
        others = [(self._screen.nodes[n], self._keys[n]) for n in self._counted if n not in same]
        return not any(
            (other_key == key and other.role in roles) or text in _possible_texts(other)
            for other, other_key in others
        )


def is_told_apart(screen: ShownScreen, position: int, area: EdgeBox) -> bool:
    """Whether no element elsewhere in an area has an element's name and role, or its text."""
    return _Chooser(screen, ElementLimits(area, TypedTexts(()), 0, 0)).is_told_apart(position)


def _possible_texts(node: ScreenNode) -> set[str]:
    """The texts that may name a node, as keys; a vague one may be an element of any role.

    Both the buttons `Search` and `Search button` are `the Search button`.
    """
    roles = _ROLES if node.role in _VAGUE else (node.role,)
    return {_text_key(node.name, role) for role in roles}


def _text_key(name: str, role: str) -> str:
    return name_key(element_text(name, role))


def _size(box: EdgeBox) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def _touch(box: EdgeBox, area: EdgeBox) -> bool:
    return box[0] < area[2] and area[0] < box[2] and box[1] < area[3] and area[1] < box[3]
