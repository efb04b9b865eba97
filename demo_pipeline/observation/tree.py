"""The UI tree of a step: a scan in seed 001's words, on the canvas.

Belongs here: roles, states, bounds, ids in document order. Not here: which scan (scans.py), which
node is the target (target.py).
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import numpy as np

from demo_pipeline.observation.canvas import Canvas
from demo_pipeline.observation.raw_tree import Cursor, Places, RawNode, RawScan, places_of
from demo_pipeline.observation.roles import UNKNOWN, canonical_role

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

SPARSE_NODES = 5  # with an area; a window with nothing in it has fewer

Words = tuple[str, ...]
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
    states: Words
    bounds: dict[str, int]
    box: BoxTuple | None


@dataclass(frozen=True)
class StepTree:
    """A mapped scan: one entry a node below the root in each list, in document order.

    Attributes:
        time_ms: the scan's time, or the press where there is no scan; epoch milliseconds.
        raws: the recorder's nodes.
        parents: positions; -1 below the root.
        depths: 1 below the root.
        places: (nodes, 4) x, y, width, height in event space; NaN where a node is nowhere.
        roles: seed 001's.
        states: seed 001's.
        focused: position of what the recorder calls `focused_element`; None: not to be seen.
        unknown_roles: raw role names in no table, with counts.
        dropped_states: raw state names seed 001 has no word for, with counts.
        cursor: what the recorder itself found under the pointer, where it asked.
        readable: False where the scan could not be read and the tree is a root only.
    """

    time_ms: int
    canvas: Canvas
    raws: Sequence[RawNode] = ()
    parents: Sequence[int] = ()
    depths: Sequence[int] = ()
    places: Places = field(default_factory=lambda: np.empty((0, 4)))
    roles: Sequence[str] = ()
    states: Sequence[Words] = ()
    focused: int | None = None
    unknown_roles: Counter[str] = field(default_factory=Counter)
    dropped_states: Counter[str] = field(default_factory=Counter)
    cursor: Cursor | None = None
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

    def box(self, position: int) -> BoxTuple | None:
        """x, y, width, height in event space; None where the node is nowhere."""
        x, y, width, height = self.places[position].tolist()
        return None if x != x else (x, y, width, height)  # noqa: PLR0124 - NaN alone differs

    def element(self, position: int) -> Element:
        """The node at a position."""
        ((x, y, width, height),) = _bounds(self.places[position : position + 1], self.canvas)
        return Element(
            position,
            f"node_{position + 1}",
            self.roles[position],
            _text(self.raws[position].name),
            self.states[position],
            {"x": x, "y": y, "width": width, "height": height},
            self.box(position),
        )

    def to_bytes(self) -> bytes:
        """ui_tree.json on one line with a final newline; written without recursion."""
        size = f'"width":{self.canvas.width},"height":{self.canvas.height}'
        head = (
            f'{{"timestamp":"{iso_utc(self.time_ms)}","screen":{{{size}}},"root":{{"id":"node_0",'
            f'"role":"desktop","name":"","bounds":{{"x":0,"y":0,{size}}},"states":[],"children":['
        )
        pieces = [head]
        rows = zip(
            self.depths,
            self.roles,
            self.raws,
            _bounds(self.places, self.canvas),
            self.states,
            strict=True,
        )
        open_nodes = 0
        for number, (depth, role, raw, (x, y, width, height), states) in enumerate(rows, 1):
            closed = "" if depth > open_nodes else "]}" * (open_nodes - depth + 1) + ","
            open_nodes = depth
            name = encode_basestring(_text(raw.name)) if raw.name else '""'
            pieces.append(
                f'{closed}{{"id":"node_{number}","role":"{role}","name":{name},"bounds":{{"x":{x},'
                f'"y":{y},"width":{width},"height":{height}}},"states":{_listed(states)},'
                '"children":['
            )
        pieces.append("]}" * (open_nodes + 1) + "}\n")
        return "".join(pieces).encode()


def map_tree(scan: RawScan | None, time_ms: int, platform: str, canvas: Canvas) -> StepTree:
    """Map a scan (None: a root-only tree) to seed 001; arguments as in `StepTree`."""
    if scan is None:
        return StepTree(time_ms, canvas)
    rows = list(scan.walk())
    raws = [raw for raw, _, _ in rows]
    names = [raw.role or "" for raw in raws]
    known = {name: canonical_role(name, platform) for name in set(names)}
    texts = [bytes(raw.states) for raw in raws]
    words = {text: _words(text) for text in set(texts)}
    states = [words[text][0] for text in texts]
    places = places_of(raws)
    focused = _focused(scan.focused_element, raws, places)
    if focused is not None and "focused" not in states[focused]:
        states[focused] = ("focused", *states[focused])
    dropped: Counter[str] = Counter()
    for text, count in Counter(texts).items():
        dropped.update(dict.fromkeys(words[text][1], count))
    return StepTree(
        time_ms,
        canvas,
        raws,
        [parent for _, _, parent in rows],
        [depth for _, depth, _ in rows],
        places,
        [known[name] or UNKNOWN for name in names],
        states,
        focused,
        Counter({n: count for n, count in Counter(names).items() if known[n] is None}),
        dropped,
        scan.cursor,
    )


def _focused(wanted: RawNode | None, raws: Sequence[RawNode], places: Places) -> int | None:
    """The last node with the role, the name and the box of what has the focus."""
    if wanted is None:
        return None
    place = places_of([wanted])
    if not place[0, 2] * place[0, 3] > 0:  # nowhere, or without an area
        return None
    there = np.flatnonzero((places == place).all(axis=1)).tolist()
    key = (wanted.role, wanted.name)
    same = [position for position in there if (raws[position].role, raws[position].name) == key]
    return same[-1] if same else None


def _bounds(places: Places, canvas: Canvas) -> list[list[int]]:
    """x, y, width, height on the canvas: each edge to its nearest pixel; zeros for nowhere."""
    pad = np.array((canvas.pad_x, canvas.pad_y))
    factor = canvas.event_to_canvas
    first = np.rint(places[:, :2] * factor + pad)
    last = np.rint((places[:, :2] + places[:, 2:]) * factor + pad)
    found = np.nan_to_num(np.hstack([first, np.maximum(0, last - first)]))
    rows: list[list[int]] = found.astype(np.int64).tolist()
    return rows


@lru_cache(maxsize=4096)
def _words(states: bytes) -> tuple[Words, Words]:
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


@lru_cache(maxsize=4096)
def _listed(words: Words) -> str:
    return json.dumps(words, separators=(",", ":"))


def _text(value: str | None) -> str:
    """A name as valid text: recorders write null, and lone surrogates exist."""
    if value is None or value.isascii():
        return value or ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def iso_utc(time_ms: float) -> str:
    """Epoch milliseconds as ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
