"""Maps a scan to the UI tree of a step, with OSWorld-Desktopd's roles and canvas coordinates.

roles.json translates the role names of UI Automation, macOS AX and AT-SPI. Other names become
`unknown`.
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
    """Returns the OSWorld-Desktopd role for a logged role name; None if the name is unknown.

    The platform's table is searched first, then the others, because recorders mix the names of
    several platforms.
    """
    key = normalised(raw)
    tables = _tables()
    own_table = tables[_TABLE_OF_PLATFORM.get(platform, "uia")]
    for table in (own_table, *tables.values()):
        if key in table:
            return table[key]
    return None


@cache
def _tables() -> MappingProxyType[str, dict[str, str]]:
    """Returns the named tables of roles.json. Each table maps normalised role names to roles."""
    text = files("demo_pipeline.observation.trees").joinpath("roles.json").read_text("utf-8")
    raw_tables: dict[str, dict[str, str]] = json.loads(text)
    tables: dict[str, dict[str, str]] = {}
    for table, roles in raw_tables.items():
        tables[table] = {normalised(name): role for name, role in roles.items()}
    return MappingProxyType(tables)


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


def _json_between_nodes(depths: Sequence[int]) -> list[bytes]:
    """Returns the JSON text to insert after each node, starting with the root.

    The text opens the list of the node's children or closes nodes. `depths` are the depths of the
    nodes below the root, in document order.
    """
    levels = np.array((0, *depths))
    ended_nodes = (levels[:-1] - levels[1:] + 1).tolist()
    texts: dict[int, bytes] = {}
    for count in set(ended_nodes):
        separator = b"," if count > 0 else b""
        texts[count] = _CHILDREN + b"]}" * count + separator
    last_text = _CHILDREN + b"]}" * int(levels[-1] + 1)
    return [*map(texts.__getitem__, ended_nodes), last_text]


def iso_utc(time_ms: float) -> str:
    """Formats epoch milliseconds as ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Maps each logged state to its name in OSWorld-Desktopd, if the value of the state is true.
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
# OSWorld-Desktopd's name for each logged state whose value is false.
_STATES_WHEN_FALSE = {"enabled": "disabled", "visible": "hidden"}
_IGNORED_STATES = frozenset({"enabled"})  # true for most elements, and not part of the format

_WINDOWS = frozenset({"window", "dialog"})
# Roles of elements whose value may serve as their name.
_NAMED_BY_VALUE = frozenset({"button", "icon", "image", "link", "menuitem", "tab", "label"})
# A tree is sparse if fewer than five nodes have an area. Such a tree does not really show an
# application.
SPARSE_NODES = 5

States = tuple[str, ...]


@dataclass(frozen=True)
class Element:
    """A node of a `StepTree` as it is written to ui_tree.json.

    Attributes:
        position: index of the node in document order, see `StepTree`.
        id: `node_<position + 1>`.
        role: OSWorld-Desktopd role.
        name: the name, description or value of the node, see `StepTree.name_at`.
        bounds: x, y, width, height in canvas pixels.
        box: x, y, width, height in event space; None if the node has no usable box.
    """

    position: int
    id: str
    role: str
    name: str
    bounds: dict[str, int]
    box: PixelBox | None


@dataclass(frozen=True)
class StepTree:
    """The UI tree of a step, mapped from a scan.

    Each list has an entry for every node below the root, in document order. The index in these
    lists is called the position of a node.

    Attributes:
        time_ms: logged time of the scan, or time of the press if there is no scan, in epoch
            milliseconds.
        platform: the platform in meta.json, whose table of role names is searched first.
        raws: the nodes as logged.
        parents: position of each node's parent; -1 if the parent is the root.
        depths: depth of each node; 1 if the parent is the root.
        boxes: (nodes, 4) x, y, width, height in event space; NaN for a node without a usable box.
        focused: position of the scan's `focused_element`; None if this element is not in the tree.
        cursor: the recorder's own hit test at the pointer; None if the recorder made none.
        samples_agree: whether the recorder's hit tests at random points agree with the tree; None
            if no hit test can be compared.
        damaged_elements: number of elements of the scan that could not be read.
        readable: False if the scan is unusable. The tree then has only a root.
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
        """Returns the number of nodes below the root."""
        return len(self.raws)

    @property
    def screen(self) -> tuple[float, float]:
        """Width and height of the recorded screen in event space."""
        return self.canvas.event_size

    @property
    def desktop_size(self) -> tuple[float, float] | None:
        """Width and height of the desktop in event space; None if the tree has no desktop node.

        A desktop node is the only node directly below the root, lies at (0, 0), and is not a
        window.
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
        """Positions of the panes that are windows, such as those of Chrome and the taskbar.

        Such a pane is a child of the root or of the desktop's pane. The desktop's pane covers the
        whole screen and has windows among its children.
        """
        panes: set[int] = set()
        screens: set[int] = set()
        for position in self._tops:
            if self._is_pane(position):
                panes.add(position)
                if self._is_whole_screen(position):
                    screens.add(position)
        if not screens:
            return frozenset(panes)
        in_screens = [node for node, parent in enumerate(self.parents) if parent in screens]
        desktops = {self.parents[node] for node in in_screens if self.roles[node] == "window"}
        for node in in_screens:
            if self.parents[node] in desktops and self._is_pane(node):
                panes.add(node)
        return frozenset(panes - desktops)

    @property
    def _tops(self) -> Sequence[int]:
        """Positions of the nodes directly below the root."""
        return [position for position, depth in enumerate(self.depths) if depth == 1]

    def _is_pane(self, position: int) -> bool:
        return (self.raws[position].role or "").lower() == "pane"

    def _is_whole_screen(self, position: int) -> bool:
        x, y, width, height = self.boxes[position].tolist()
        right, bottom = self.screen
        return bool(x <= 0 and y <= 0 and x + width >= right and y + height >= bottom)

    @cached_property
    def cursor_node(self) -> int | None:
        """Position of the element that the recorder's hit test found at the pointer, or None."""
        if self.cursor is None:
            return None
        return _position_of(self.cursor.element, self.raws, self.boxes)

    @property
    def has_visible_element(self) -> bool:
        """Whether any element has an area."""
        return bool((self.boxes[:, 2] * self.boxes[:, 3] > 0).any())

    @property
    def is_sparse(self) -> bool:
        """Whether fewer than `SPARSE_NODES` nodes have an area."""
        return int((self.boxes[:, 2] * self.boxes[:, 3] > 0).sum()) < SPARSE_NODES

    @cached_property
    def roles(self) -> Sequence[str]:
        """OSWorld-Desktopd role of each node."""
        names = [raw.role or "" for raw in self.raws]
        roles = {name: canonical_role(name, self.platform) or UNKNOWN for name in set(names)}
        return [roles[name] for name in names]

    @cached_property
    def _mapped_states(self) -> Sequence[tuple[States, States]]:
        """OSWorld-Desktopd states of each node, and the names of its unmapped logged states."""
        return [_map_states(bytes(raw.states)) for raw in self.raws]

    @cached_property
    def states(self) -> Sequence[States]:
        """OSWorld-Desktopd states of each node."""
        states = [mapped for mapped, _ in self._mapped_states]
        if self.focused is not None:
            states[self.focused] = self.states_at(self.focused)
        return states

    @cached_property
    def unknown_roles(self) -> Counter[str]:
        """Number of nodes for each logged role name that is not in roles.json."""
        names = Counter(raw.role or "" for raw in self.raws)
        unknown: Counter[str] = Counter()
        for name, count in names.items():
            if canonical_role(name, self.platform) is None:
                unknown[name] = count
        return unknown

    @cached_property
    def dropped_states(self) -> Counter[str]:
        """Number of nodes for each logged state that OSWorld-Desktopd does not have."""
        names: Counter[str] = Counter()
        for _, dropped in self._mapped_states:
            names.update(dropped)
        return names

    def is_window(self, position: int) -> bool:
        """Returns whether a node is a window, a dialog, or a pane that is a window."""
        return self.roles[position] in _WINDOWS or position in self.top_panes

    @cached_property
    def windows_around(self) -> Sequence[int | None]:
        """Position of the outermost window at or around each node; None outside windows."""
        outermost: list[int | None] = []
        for position, parent in enumerate(self.parents):
            window = outermost[parent] if parent >= 0 else None
            if window is None and self.is_window(position):
                window = position
            outermost.append(window)
        return outermost

    @cached_property
    def windows(self) -> Sequence[int]:
        """Positions of the outermost windows."""
        return [position for position, own in enumerate(self.windows_around) if own == position]

    def states_at(self, position: int) -> States:
        """Returns the states of a node."""
        states, _ = _map_states(bytes(self.raws[position].states))
        if position == self.focused and "focused" not in states:
            return ("focused", *states)
        return states

    def box(self, position: int) -> PixelBox | None:
        """Returns the box of a node in event space; None if the node has no usable box."""
        box = PixelBox(*self.boxes[position].tolist())
        return None if math.isnan(box.x) else box

    def element(self, position: int) -> Element:
        """Returns a node, given its position in the tree."""
        [x], [y], [width], [height] = _bounds(self.boxes[position : position + 1], self.canvas)
        return Element(
            position,
            f"node_{position + 1}",
            self.roles[position],
            self.name_at(position),
            {"x": x, "y": y, "width": width, "height": height},
            self.box(position),
        )

    def name_at(self, position: int) -> str:
        """Returns the first of a node's name, description and value that is not blank.

        The value is used only for the roles in `_NAMED_BY_VALUE`, because other values may be
        secret. The value of a label with children is not used, because the children have the same
        text.
        """
        raw = self.raws[position]
        name = _text(raw.name)
        if name.strip():
            return name
        description = _json_text(raw.description)
        if description.strip():
            return description
        role = self.roles[position]
        if role in _NAMED_BY_VALUE and not (role == "label" and raw.children):
            value = _json_text(raw.value)
            if value.strip():
                return value
        return name

    def to_bytes(self) -> bytes:
        """Returns the content of ui_tree.json as a single line. Trees of any depth are allowed."""
        width = self.canvas.width
        height = self.canvas.height
        root = _Node("node_0", "desktop", "", _Bounds(0, 0, width, height), ())
        ids = numbered_ids(len(self) + 1)[1:]
        names = map(self.name_at, range(len(self)))
        bounds = map(_Bounds, *_bounds(self.boxes, self.canvas))
        nodes = map(_Node, ids, self.roles, names, bounds, self.states)
        # Each line break ends a node, because line breaks in texts are escaped.
        pieces = _ENCODER.encode_lines([root, *nodes]).split(b"}\n")[:-1]
        screen = f'"screen":{{"width":{width},"height":{height}}}'
        head = f'{{"timestamp":"{iso_utc(self.time_ms)}",{screen},"root":'
        between = _json_between_nodes(self.depths)
        body = chain.from_iterable(zip(pieces, between, strict=True))
        return b"".join((head.encode(), *body, b"}\n"))


def map_tree(scan: RawScan | None, time_ms: int, platform: str, canvas: Canvas) -> StepTree:
    """Maps a scan to the UI tree of a step. If the scan is None, the tree has only a root.

    `time_ms` becomes `StepTree.time_ms`.
    """
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
        focused=_position_of(scan.focused_element, raws, boxes),
        cursor=scan.cursor,
        samples_agree=samples_agree(scan, raws, boxes),
        damaged_elements=scan.damaged_elements if isinstance(scan, LenientScan) else 0,
    )


def _position_of(element: RawNode | None, raws: Sequence[RawNode], boxes: Boxes) -> int | None:
    """Returns the position of the last node with the role, name and box of an element.

    Returns None if the element is None or has no area, or if there is no such node.
    """
    if element is None:
        return None
    box = boxes_of([element])
    # Also true for an unusable box, which is NaN.
    if not box[0, 2] * box[0, 3] > 0:
        return None
    with_same_box: list[int] = np.flatnonzero((boxes == box).all(axis=1)).tolist()
    for position in reversed(with_same_box):
        raw = raws[position]
        if (raw.role, raw.name) == (element.role, element.name):
            return position
    return None


def _bounds(boxes: Boxes, canvas: Canvas) -> list[list[int]]:
    """Returns x, y, width, height of each box in whole canvas pixels; zeros for unusable boxes."""
    pad = np.array((canvas.pad_x, canvas.pad_y))
    factor = canvas.event_to_canvas
    first = np.rint(boxes[:, :2] * factor + pad)
    last = np.rint((boxes[:, :2] + boxes[:, 2:]) * factor + pad)
    bounds = np.nan_to_num(np.hstack([first, np.maximum(0, last - first)]))
    columns: list[list[int]] = bounds.astype(np.int64).T.tolist()
    return columns


@lru_cache(maxsize=4096)
def _map_states(states: bytes) -> tuple[States, States]:
    """Maps the logged states of a node, which are a JSON object.

    Returns:
        The OSWorld-Desktopd states, and the logged names of states that the format does not have.
    """
    try:
        values: Any = json.loads(states) if states else None
    except ValueError:
        values = None
    if not isinstance(values, dict):
        values = {}
    mapped = []
    dropped = []
    for name, value in values.items():
        key = name.lower().replace("-", "_").replace(" ", "_")
        state = _STATES_WHEN_TRUE.get(key) if value else _STATES_WHEN_FALSE.get(key)
        if state is not None:
            mapped.append(state)
        elif value and key not in _IGNORED_STATES:
            dropped.append(name)
    return tuple(dict.fromkeys(mapped)), tuple(dropped)


def _text(value: str | None) -> str:
    """Returns a logged name as valid text, without null characters and lone surrogates."""
    text = value or ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _json_text(raw: msgspec.Raw) -> str:
    """Returns the text in a JSON value; empty if the value is not a text."""
    try:
        return _text(msgspec.json.decode(bytes(raw), type=str)) if bytes(raw) else ""
    except msgspec.DecodeError:
        return ""


class TreeReader:
    """Reads the trees of a log's scans, and caches the last three for neighbouring actions.

    A scan is unusable if it cannot be read, or if no element has an area.

    Args:
        scales: maps the log line of a scan to the factor that converts boxes to event space. The
            factor applies until the next scan in `scales`. It is None if it is unknown.
    """

    def __init__(
        self, log: Path, platform: str, scales: Mapping[int, float | None] = MappingProxyType({})
    ) -> None:
        self.log = log
        self._scales = scales
        self.platform = platform
        self._cache: deque[tuple[int, StepTree]] = deque(maxlen=3)

    def tree(self, scan: LoggedScan | None, press_ms: int, canvas: Canvas) -> StepTree:
        """Returns the tree of a scan, or a tree with only a root if the scan is None or unusable.

        `press_ms`, in epoch milliseconds, becomes the time of a tree with only a root.
        """
        if scan is None:
            return map_tree(None, press_ms, self.platform, canvas)
        tree = self._cached_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, press_ms, canvas)
            self._cache_readable(scan, tree)
        return tree

    def readable_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        """Returns the tree of a scan; None if the scan is unusable."""
        tree = self._cached_tree(scan, canvas)
        if tree is None:
            tree = self._read(scan, scan.end_ms, canvas)
            self._cache_readable(scan, tree)
        return tree if tree.readable else None

    def scale(self, scan: LoggedScan) -> float | None:
        """Returns the factor that maps a scan's boxes to event space; None if it is unknown."""
        lines = [line for line in self._scales if line <= scan.event_index]
        return self._scales[max(lines)] if lines else 1.0

    def _cached_tree(self, scan: LoggedScan, canvas: Canvas) -> StepTree | None:
        for line, tree in self._cache:
            if line == scan.event_index and tree.canvas == canvas:
                return tree
        return None

    def _cache_readable(self, scan: LoggedScan, tree: StepTree) -> None:
        """Caches a tree if its scan is usable.

        The tree of an unusable scan has the press time of one action, so it is not cached for other
        actions.
        """
        if tree.readable:
            self._cache.append((scan.event_index, tree))

    def _read(self, scan: LoggedScan, time_ms: int, canvas: Canvas) -> StepTree:
        """Reads a scan; `time_ms` becomes the time of the tree if the scan is unusable."""
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
