"""The UI tree of a step: a scan in seed 001's words, on the canvas.

Belongs here: roles, states, bounds. Not here: which scan (scans.py), which node is the target
(target.py), the form of the file (tree_json.py).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.trees.raw_tree import (
    Boxes,
    CursorHitTest,
    RawNode,
    RawScan,
    boxes_of,
)
from demo_pipeline.observation.trees.roles import UNKNOWN, canonical_role
from demo_pipeline.observation.trees.tree_json import NodeColumns, tree_bytes

_STATES_WHEN_TRUE = {
    "focused": "focused",
    "selected": "selected",
    "checked": "checked",
    "expanded": "expanded",
    "collapsed": "collapsed",
    "visible": "visible",
    "hidden": "hidden",
    "disabled": "disabled",
    "editable": "editable",
    "readonly": "readonly",
    "read_only": "readonly",
    "pressed": "pressed",
    "active": "active",
}
_STATES_WHEN_FALSE = {"enabled": "disabled", "visible": "hidden"}
_USUAL = frozenset({"enabled"})  # what is enabled is not worth a word

_SIDES = ("x", "y", "width", "height")

SPARSE_NODES = 5  # with an area; a window with nothing in it has fewer

States = tuple[str, ...]
BoxTuple = tuple[float, float, float, float]


@dataclass(frozen=True)
class Element:
    """One node of a `StepTree`, as ui_tree.json has it.

    Attributes:
        position: index in the tree's lists; `id` is `node_<position + 1>`.
        bounds: canvas pixels.
        box: x, y, width, height in event space.
    """

    position: int
    id: str
    role: str
    name: str
    states: States
    bounds: dict[str, int]
    box: BoxTuple | None


@dataclass(frozen=True)
class StepTree:
    """A mapped scan: one entry a node below the root in each list, in document order.

    What a single node is can be asked (`role_at`, `states_at`, `element`) without mapping them all.

    Attributes:
        time_ms: the scan's time, or the press where there is no scan; epoch milliseconds.
        platform: meta.platform, whose names of roles are asked first.
        raws: the recorder's nodes.
        parents: positions; -1 below the root.
        depths: 1 below the root.
        places: (nodes, 4) x, y, width, height in event space; NaN where a node is nowhere.
        focused: position of what the recorder calls `focused_element`; None: not to be seen.
        cursor: what the recorder itself found under the pointer, where it asked.
        readable: False where the scan could not be read and the tree is a root only.
    """

    time_ms: int
    canvas: Canvas
    platform: str
    raws: Sequence[RawNode] = ()
    parents: Sequence[int] = ()
    depths: Sequence[int] = ()
    places: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    focused: int | None = None
    cursor: CursorHitTest | None = None
    readable: bool = True

    def __len__(self) -> int:
        """Nodes below the root."""
        return len(self.raws)

    @property
    def screen(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        return self.canvas.event_size

    @property
    def is_sparse(self) -> bool:
        """So few nodes can be seen that the application told the recorder next to nothing."""
        return int((self.places[:, 2] * self.places[:, 3] > 0).sum()) < SPARSE_NODES

    @cached_property
    def roles(self) -> Sequence[str]:
        """Seed 001's."""
        known = self._known_roles
        return [known[name] or UNKNOWN for name in self._raw_roles]

    @cached_property
    def states(self) -> Sequence[States]:
        """Seed 001's."""
        words = {text: _words(text)[0] for text in set(self._raw_states)}
        found = [words[text] for text in self._raw_states]
        if self.focused is not None:
            found[self.focused] = self.states_at(self.focused)
        return found

    @cached_property
    def unknown_roles(self) -> Counter[str]:
        """Raw role names in no table, with counts."""
        names = {name for name, role in self._known_roles.items() if role is None}
        return Counter(name for name in self._raw_roles if name in names) if names else Counter()

    @cached_property
    def dropped_states(self) -> Counter[str]:
        """Raw state names seed 001 has no word for, with counts."""
        dropped: Counter[str] = Counter()
        for text, count in Counter(self._raw_states).items():
            dropped.update(dict.fromkeys(_words(text)[1], count))
        return dropped

    @cached_property
    def _raw_roles(self) -> Sequence[str]:
        return [raw.role or "" for raw in self.raws]

    @cached_property
    def _known_roles(self) -> Mapping[str, str | None]:
        return {name: canonical_role(name, self.platform) for name in set(self._raw_roles)}

    @cached_property
    def _raw_states(self) -> Sequence[bytes]:
        return [bytes(raw.states) for raw in self.raws]

    def role_at(self, position: int) -> str:
        """One of `roles`."""
        return canonical_role(self.raws[position].role or "", self.platform) or UNKNOWN

    def states_at(self, position: int) -> States:
        """One of `states`."""
        words = _words(bytes(self.raws[position].states))[0]
        return words if position != self.focused or "focused" in words else ("focused", *words)

    def box(self, position: int) -> BoxTuple | None:
        """x, y, width, height in event space; None where the node is nowhere."""
        x, y, width, height = self.places[position].tolist()
        return None if x != x else (x, y, width, height)  # noqa: PLR0124 - NaN alone differs

    def element(self, position: int) -> Element:
        """The node at a position."""
        bounds = _bounds(self.places[position : position + 1], self.canvas)
        return Element(
            position,
            f"node_{position + 1}",
            self.role_at(position),
            _text(self.raws[position].name),
            self.states_at(position),
            {side: value for side, (value,) in zip(_SIDES, bounds, strict=True)},
            self.box(position),
        )

    def to_bytes(self) -> bytes:
        """ui_tree.json on one line with a final newline."""
        names = [
            name if (name := raw.name or "").isascii() else _text(name)  # spares most names a call
            for raw in self.raws
        ]
        bounds = _bounds(self.places, self.canvas)
        columns = NodeColumns(self.depths, self.roles, names, bounds, self.states)
        return tree_bytes(self.time_ms, (self.canvas.width, self.canvas.height), columns)


def map_tree(scan: RawScan | None, time_ms: int, platform: str, canvas: Canvas) -> StepTree:
    """Map a scan (None: a root-only tree) to seed 001; arguments as in `StepTree`."""
    if scan is None:
        return StepTree(time_ms, canvas, platform)
    raws, depths, parents = scan.walk()
    places = boxes_of(raws)
    focused = _focused(scan.focused_element, raws, places)
    return StepTree(time_ms, canvas, platform, raws, parents, depths, places, focused, scan.cursor)


def _focused(wanted: RawNode | None, raws: Sequence[RawNode], places: Boxes) -> int | None:
    """The last node with the role, the name and the box of what has the focus."""
    if wanted is None:
        return None
    place = boxes_of([wanted])
    if not place[0, 2] * place[0, 3] > 0:  # nowhere, or without an area
        return None
    there = np.flatnonzero((places == place).all(axis=1)).tolist()
    key = (wanted.role, wanted.name)
    same = [position for position in there if (raws[position].role, raws[position].name) == key]
    return same[-1] if same else None


def _bounds(places: Boxes, canvas: Canvas) -> list[list[int]]:
    """Columns x, y, width, height on the canvas: edges to the nearest pixel; zeros for nowhere."""
    pad = np.array((canvas.pad_x, canvas.pad_y))
    factor = canvas.event_to_canvas
    first = np.rint(places[:, :2] * factor + pad)
    last = np.rint((places[:, :2] + places[:, 2:]) * factor + pad)
    found = np.nan_to_num(np.hstack([first, np.maximum(0, last - first)]))
    columns: list[list[int]] = found.astype(np.int64).T.tolist()
    return columns


@lru_cache(maxsize=4096)
def _words(states: bytes) -> tuple[States, States]:
    """Seed 001's words for a node's states (JSON text), and the names it has no word for."""
    try:
        values: Any = json.loads(states) if states else None
    except ValueError:
        values = None
    words, dropped = [], []
    for name, value in values.items() if isinstance(values, dict) else ():
        key = name.lower().replace("-", "_").replace(" ", "_")
        word = _STATES_WHEN_TRUE.get(key) if value else _STATES_WHEN_FALSE.get(key)
        if word is not None:
            words.append(word)
        elif value and key not in _USUAL:
            dropped.append(name)
    return tuple(dict.fromkeys(words)), tuple(dropped)


def _text(value: str | None) -> str:
    """A name as valid text: recorders write null, and lone surrogates exist."""
    if value is None or value.isascii():
        return value or ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
