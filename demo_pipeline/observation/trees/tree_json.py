"""ui_tree.json as bytes: the nodes of a tree written one by one, then put into each other.

Belongs here: the form of the file. What its values are is tree.py's subject.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from demo_pipeline.formats.desktopd.tree_fast import numbered_ids

_CHILDREN = b',"children":['


class NodeColumns(NamedTuple):
    """The nodes below the root, in document order.

    Attributes:
        depths: 1 below the root.
        names: without lone surrogates.
        bounds: the columns x, y, width and height, canvas pixels.
    """

    depths: Sequence[int]
    roles: Sequence[str]
    names: Sequence[str]
    bounds: Sequence[Sequence[int]]
    states: Sequence[tuple[str, ...]]


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


def tree_bytes(time_ms: int, size: tuple[int, int], columns: NodeColumns) -> bytes:
    """The file on one line with a final newline; no depth is too deep.

    Args:
        time_ms: of the scan, epoch milliseconds.
        size: width and height of the canvas, pixels.
        columns: the nodes.
    """
    width, height = size
    root = _Node("node_0", "desktop", "", _Bounds(0, 0, width, height), ())
    depths, roles, names, bounds, states = columns
    ids = numbered_ids(len(depths) + 1)[1:]
    nodes = map(_Node, ids, roles, names, map(_Bounds, *bounds), states)
    # A line break within a text is written as an escape: this one ends a node.
    pieces = _ENCODER.encode_lines([root, *nodes]).split(b"}\n")[:-1]
    head = f'{{"timestamp":"{iso_utc(time_ms)}","screen":{{"width":{width},"height":{height}}},'
    joined = chain.from_iterable(zip(pieces, _between(depths), strict=True))
    return b"".join((head.encode(), b'"root":', *joined, b"}\n"))


def _between(depths: Sequence[int]) -> list[bytes]:
    """What follows each node, the root first: children that begin, nodes that are complete."""
    levels = np.array((0, *depths))
    ends = levels[:-1] - levels[1:] + 1
    counts = ends.tolist()
    words = {count: _CHILDREN + b"]}" * count + b"," * (count > 0) for count in set(counts)}
    return [*(words[count] for count in counts), _CHILDREN + b"]}" * int(levels[-1] + 1)]


def iso_utc(time_ms: float) -> str:
    """Epoch milliseconds as ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
