"""The UI tree of a step: a scan mapped to OSWorld-Desktopd roles and states, on the canvas.

Belongs here: roles (the names of UI Automation, macOS AX and AT-SPI, looked up in roles.json; a
name in no table becomes `unknown`), states, boxes, the bytes of ui_tree.json, and reading each scan
once, as long as steps are near it. Which scan is current is in scans.py, which node is the target
in hit_test.py.
"""

import json
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from demo_pipeline.desktopd.validator import numbered_ids
from demo_pipeline.observation.clock.canvas import Boxes, Canvas
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.scans import boxes_of, samples_agree
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.logged_scans import (
    LenientScan,
    LoggedScan,
    RawNode,
    RawScan,
    RecordersHitTest,
    normalised,
    read_scan,
)

UNKNOWN = "unknown"
_TABLE_OF_PLATFORM = {"windows": "uia", "macos": "ax", "linux": "atspi"}


@lru_cache(maxsize=4096)
def canonical_role(raw: str, platform: str) -> str | None:
    """The OSWorld-Desktopd role for a recorder's role name; None when no table has it.

    The table of the platform comes first, then the others, since recorders mix them.
    """
    key = normalised(raw)
    own = _TABLE_OF_PLATFORM.get(platform, "uia")
    for name in (own, *(other for other in _tables() if other != own)):
        role = _tables()[name].get(key)
        if role is not None:
            return role
    return None


@cache
def _tables() -> MappingProxyType[str, dict[str, str]]:
    text = files("demo_pipeline.observation.trees").joinpath("roles.json").read_text("utf-8")
    raw: dict[str, dict[str, str]] = json.loads(text)
    return MappingProxyType(
        {
            table: {normalised(name): role for name, role in names.items()}
            for table, names in raw.items()
        }
    )


_CHILDREN = b',"children":['


class _Bounds(msgspec.Struct, gc=False):
    x: int
    y: int
    width: int
    height: int


class _Node(msgspec.Struct, gc=False):
    id: str
    role: str
    name: str
    bounds: _Bounds
    states: tuple[str, ...]


_ENCODER = msgspec.json.Encoder()


def _between(depths: Sequence[int]) -> list[bytes]:
    """The text after each node, the root first: it opens children, or closes finished nodes."""
    levels = np.array((0, *depths))
    ends = levels[:-1] - levels[1:] + 1
    counts = ends.tolist()
    closing = {count: _CHILDREN + b"]}" * count + b"," * (count > 0) for count in set(counts)}
    return [*(closing[count] for count in counts), _CHILDREN + b"]}" * int(levels[-1] + 1)]


def iso_utc(time_ms: float) -> str:
    """Epoch milliseconds as ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
_IGNORED_STATES = frozenset({"enabled"})  # the normal case, for which no state is written

_SIDES = ("x", "y", "width", "height")

_WINDOWS = frozenset({"window", "dialog"})
_NAMED_BY_VALUE = frozenset({"button", "icon", "image", "link", "menuitem", "tab", "label"})
SPARSE_NODES = 5  # nodes with an area; an empty window has fewer

States = tuple[str, ...]


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
    bounds: dict[str, int]
    box: PixelBox | None


@dataclass(frozen=True)
class StepTree:
    """A mapped scan. Each list has an entry for every node below the root, in document order.

    `states_at` and `element` map a single node without mapping all of them.

    Attributes:
        time_ms: when the scan began, or the press without a scan; epoch milliseconds.
        platform: meta.platform, whose table of role names comes first.
        raws: the recorder's nodes.
        parents: positions; -1 below the root.
        depths: 1 below the root.
        boxes: (nodes, 4) x, y, width, height in event space; NaN without a usable box.
        focused: position of the recorder's `focused_element`; None: it is not in the tree.
        cursor: the recorder's own hit test at the pointer; None when it made none.
        samples_agree: whether the recorder's hit tests at random points agree with the tree; None:
            none can be compared.
        damaged_elements: those of the scan that could not be read.
        readable: False when the scan could not be read, so that the tree is only a root.
    """

    time_ms: int
    canvas: Canvas
    platform: str
    raws: Sequence[RawNode] = ()
    parents: Sequence[int] = ()
    depths: Sequence[int] = ()
    boxes: Boxes = field(default_factory=lambda: np.empty((0, 4)))
    focused: int | None = None
    cursor: RecordersHitTest | None = None
    samples_agree: bool | None = None
    damaged_elements: int = 0
    readable: bool = True

    def __len__(self) -> int:
        """Nodes below the root."""
        return len(self.raws)

    @property
    def screen(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        return self.canvas.event_size

    @property
    def desktop_size(self) -> tuple[float, float] | None:
        """Width and height of the node that holds everything, when it is the whole desktop's.

        In event space; None when the recorder wrote none, or several trees.
        """
        tops = self._tops
        if len(tops) != 1 or self.roles[tops[0]] in _WINDOWS:
            return None
        box = self.box(tops[0])
        if box is None or box[:2] != (0.0, 0.0) or not box[2] * box[3] > 0:
            return None
        return box[2], box[3]

    @cached_property
    def top_panes(self) -> frozenset[int]:
        """Positions of the panes that are windows of their own, as of Chrome and the taskbar.

        Windows calls some of its windows panes: those at the top, or in the pane of the whole
        screen that holds windows.
        """
        panes = {position for position in self._tops if self._is_pane(position)}
        screens = {position for position in panes if self._is_whole_screen(position)}
        if not screens:
            return frozenset(panes)
        inner = [position for position, parent in enumerate(self.parents) if parent in screens]
        holders = {self.parents[node] for node in inner if self.roles[node] == "window"}
        held = {node for node in inner if self.parents[node] in holders and self._is_pane(node)}
        return frozenset(panes - holders | held)

    @property
    def _tops(self) -> Sequence[int]:
        return [position for position, depth in enumerate(self.depths) if depth == 1]

    def _is_pane(self, position: int) -> bool:
        return (self.raws[position].role or "").lower() == "pane"

    def _is_whole_screen(self, position: int) -> bool:
        x, y, width, height = self.boxes[position].tolist()
        right, bottom = self.screen
        return bool(x <= 0 and y <= 0 and x + width >= right and y + height >= bottom)

    @cached_property
    def cursor_node(self) -> int | None:
        """Position of the element that the recorder hit at the pointer; None: not in the tree."""
        return None if self.cursor is None else _same(self.cursor.element, self.raws, self.boxes)

    @property
    def has_visible_element(self) -> bool:
        """Whether it is of a scan in which an element has an area."""
        return bool((self.boxes[:, 2] * self.boxes[:, 3] > 0).any())

    @property
    def is_sparse(self) -> bool:
        """Whether so few nodes have an area that the application exposes nearly nothing."""
        return int((self.boxes[:, 2] * self.boxes[:, 3] > 0).sum()) < SPARSE_NODES

    @cached_property
    def roles(self) -> Sequence[str]:
        """OSWorld-Desktopd roles."""
        names = [raw.role or "" for raw in self.raws]
        known = {name: canonical_role(name, self.platform) or UNKNOWN for name in set(names)}
        return [known[name] for name in names]

    @cached_property
    def _mapped_states(self) -> Sequence[tuple[States, States]]:
        return [_map_states(bytes(raw.states)) for raw in self.raws]

    @cached_property
    def states(self) -> Sequence[States]:
        """OSWorld-Desktopd states."""
        states = [mapped for mapped, _ in self._mapped_states]
        if self.focused is not None:
            states[self.focused] = self.states_at(self.focused)
        return states

    @cached_property
    def unknown_roles(self) -> Counter[str]:
        """Raw role names that are in no table, with counts."""
        names = Counter(raw.role or "" for raw in self.raws)
        return Counter({n: names[n] for n in names if canonical_role(n, self.platform) is None})

    @cached_property
    def dropped_states(self) -> Counter[str]:
        """Raw state names without an OSWorld-Desktopd state, with counts."""
        return Counter(name for _, dropped in self._mapped_states for name in dropped)

    def is_window(self, position: int) -> bool:
        """Whether a node is a window, a dialog, or a pane that is a window of its own."""
        return self.roles[position] in _WINDOWS or position in self.top_panes

    @cached_property
    def windows_around(self) -> Sequence[int | None]:
        """Position of the outermost window around each node, itself included; None without one."""
        windows = self.top_panes.union(n for n, role in enumerate(self.roles) if role in _WINDOWS)
        found: list[int | None] = []
        for position, parent in enumerate(self.parents):
            outer = found[parent] if parent >= 0 else None
            found.append(position if outer is None and position in windows else outer)
        return found

    @cached_property
    def windows(self) -> Sequence[int]:
        """Positions of the windows that are in no other one."""
        return [position for position, own in enumerate(self.windows_around) if own == position]

    def states_at(self, position: int) -> States:
        """One of `states`."""
        states = _map_states(bytes(self.raws[position].states))[0]
        return states if position != self.focused or "focused" in states else ("focused", *states)

    def box(self, position: int) -> PixelBox | None:
        """x, y, width, height in event space; None without a usable box."""
        box = PixelBox(*self.boxes[position].tolist())
        return None if math.isnan(box.x) else box

    def element(self, position: int) -> Element:
        """The node at a position."""
        bounds = _bounds(self.boxes[position : position + 1], self.canvas)
        return Element(
            position,
            f"node_{position + 1}",
            self.roles[position],
            self.name_at(position),
            {side: value for side, (value,) in zip(_SIDES, bounds, strict=True)},
            self.box(position),
        )

    def name_at(self, position: int) -> str:
        """The name of a node; of a nameless one its description, of one that is pressed its value.

        The value of other nodes is content, or secret; a label with parts has them say it.
        """
        raw = self.raws[position]
        name = _text(raw.name)
        if name.strip():
            return name
        is_pressed = self.roles[position] in _NAMED_BY_VALUE
        is_pressed &= self.roles[position] != "label" or not raw.children
        words = (_json_text(raw.description), _json_text(raw.value) if is_pressed else "")
        return next(filter(str.strip, words), name)

    def to_bytes(self) -> bytes:
        """ui_tree.json on one line with a final newline; any depth works."""
        width = self.canvas.width
        height = self.canvas.height
        root = _Node("node_0", "desktop", "", _Bounds(0, 0, width, height), ())
        ids = numbered_ids(len(self) + 1)[1:]
        names = map(self.name_at, range(len(self)))
        bounds = map(_Bounds, *_bounds(self.boxes, self.canvas))
        nodes = map(_Node, ids, self.roles, names, bounds, self.states)
        # A line break inside a text is escaped, so this one ends a node.
        pieces = _ENCODER.encode_lines([root, *nodes]).split(b"}\n")[:-1]
        screen = f'"screen":{{"width":{width},"height":{height}}}'
        head = f'{{"timestamp":"{iso_utc(self.time_ms)}",{screen},"root":'
        joined = chain.from_iterable(zip(pieces, _between(self.depths), strict=True))
        return b"".join((head.encode(), *joined, b"}\n"))


def map_tree(scan: RawScan | None, time_ms: int, platform: str, canvas: Canvas) -> StepTree:
    """Map a scan; None gives a tree with only a root. Arguments as in `StepTree`."""
    if scan is None:
        return StepTree(time_ms, canvas, platform)
    raws, depths, parents = scan.flatten()
    boxes = boxes_of(raws)
    return StepTree(
        time_ms,
        canvas,
        platform,
        raws,
        parents,
        depths,
        boxes,
        focused=_same(scan.focused_element, raws, boxes),
        cursor=scan.cursor,
        samples_agree=samples_agree(scan, raws, boxes),
        damaged_elements=scan.damaged_elements if isinstance(scan, LenientScan) else 0,
    )


def _same(element: RawNode | None, raws: Sequence[RawNode], boxes: Boxes) -> int | None:
    """Position of the last node with the role, the name and the box of an element."""
    if element is None:
        return None
    box = boxes_of([element])
    if not box[0, 2] * box[0, 3] > 0:  # no usable box, or no area
        return None
    same_box = np.flatnonzero((boxes == box).all(axis=1)).tolist()
    key = (element.role, element.name)
    same = [position for position in same_box if (raws[position].role, raws[position].name) == key]
    return same[-1] if same else None


def _bounds(boxes: Boxes, canvas: Canvas) -> list[list[int]]:
    """Columns x, y, width, height in whole canvas pixels; zeros without a usable box."""
    pad = np.array((canvas.pad_x, canvas.pad_y))
    factor = canvas.event_to_canvas
    first = np.rint(boxes[:, :2] * factor + pad)
    last = np.rint((boxes[:, :2] + boxes[:, 2:]) * factor + pad)
    bounds = np.nan_to_num(np.hstack([first, np.maximum(0, last - first)]))
    columns: list[list[int]] = bounds.astype(np.int64).T.tolist()
    return columns


@lru_cache(maxsize=4096)
def _map_states(states: bytes) -> tuple[States, States]:
    """OSWorld-Desktopd states for a node's states (JSON text), and the names that have none."""
    try:
        values: Any = json.loads(states) if states else None
    except ValueError:
        values = None
    mapped = []
    dropped = []
    for name, value in values.items() if isinstance(values, dict) else ():
        key = name.lower().replace("-", "_").replace(" ", "_")
        state = _STATES_WHEN_TRUE.get(key) if value else _STATES_WHEN_FALSE.get(key)
        if state is not None:
            mapped.append(state)
        elif value and key not in _IGNORED_STATES:
            dropped.append(name)
    return tuple(dict.fromkeys(mapped)), tuple(dropped)


def _text(value: str | None) -> str:
    """A name as valid text: recorders write null and lone surrogates."""
    text = value or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _json_text(raw: msgspec.Raw) -> str:
    """A text of the log; empty for anything else."""
    try:
        return _text(msgspec.json.decode(bytes(raw), type=str)) if bytes(raw) else ""
    except msgspec.DecodeError:
        return ""


class TreeReader:
    """Reads and maps scans of one log; keeps the last three, which neighbouring actions share.

    A scan that cannot be read, or in which nothing has an area, counts as none.

    Args:
        log: input_log.jsonl.
        platform: meta.platform.
        scales: units of the log for one of the trees, from these lines on; None: in doubt.
    """

    def __init__(
        self, log: Path, platform: str, scales: Mapping[int, float | None] = MappingProxyType({})
    ) -> None:
        self.log = log
        self._scales = scales
        self.platform = platform
        self._kept: deque[tuple[int, StepTree]] = deque(maxlen=3)

    def tree(self, scan: LoggedScan | None, press_ms: int, canvas: Canvas) -> StepTree:
        """The tree of `scan`; without a usable scan, only a root."""
        if scan is None:
            return map_tree(None, press_ms, self.platform, canvas)
        tree = self._kept_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, press_ms, canvas)
            self._kept.append((scan.event_index, tree))
        return tree

    def readable_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        """The tree of a scan; None when it is of no use."""
        tree = self._kept_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, scan.end_ms, canvas)
            if tree.readable:  # else it has a time, which is that of the press for a step's tree
                self._kept.append((scan.event_index, tree))
        return tree if tree.readable else None

    def scale(self, scan: LoggedScan) -> float | None:
        """Units of the log for one of a scan's boxes; None: in doubt."""
        lines = [line for line in self._scales if line <= scan.event_index]
        return self._scales[max(lines)] if lines else 1.0

    def _kept_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        kept = (tree for line, tree in self._kept if line == scan.event_index)
        return next((tree for tree in kept if tree.canvas == canvas), None)

    def _read(self, scan: LoggedScan, time_ms: int, canvas: Canvas) -> StepTree:
        """Read a scan; `time_ms`: of the root that stands for one that cannot be used."""
        try:
            tree = map_tree(read_scan(self.log, scan), scan.time_ms, self.platform, canvas)
        except DemonstrationError:
            tree = map_tree(None, time_ms, self.platform, canvas)
        scale = self.scale(scan)
        if scale is not None and scale != 1.0:
            tree = replace(tree, boxes=tree.boxes * scale)
        if not tree.has_visible_element:
            tree = replace(map_tree(None, time_ms, self.platform, canvas), readable=False)
        return tree
