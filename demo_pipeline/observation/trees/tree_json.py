"""ui_tree.json as bytes: each node is encoded once, then the texts are nested.

Not here: the values (step_tree.py).
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
    """The nodes below the root, in document order, as columns.

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
    """The file on one line with a final newline; any depth works.

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
    # A line break inside a text is escaped, so this one ends a node.
    pieces = _ENCODER.encode_lines([root, *nodes]).split(b"}\n")[:-1]
    head = f'{{"timestamp":"{iso_utc(time_ms)}","screen":{{"width":{width},"height":{height}}},'
    joined = chain.from_iterable(zip(pieces, _between(depths), strict=True))
    return b"".join((head.encode(), b'"root":', *joined, b"}\n"))


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
