"""Converts the accessibility trees of AgentNet Tool to scans, which are lines of input_log.jsonl.

`a11y.jsonl` contains trees of windows. `element.jsonl` contains the element under the pointer at
each press. Both files have the structure of Windows' UI Automation.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from demo_pipeline.importers.source_recording import SourceLine
from demo_pipeline.importers.source_values import as_list, number, numbers, plain_text

_SIDES = ("left", "top", "right", "bottom")
_MOST_LEVELS = 400  # maximum depth; deeper nodes are left out. Recorded trees have 30 levels
_TREE = "axtree"  # key of the tree in a line of a11y.jsonl
_ELEMENT = "a11y_tree"  # key of the element in a line of element.jsonl
# Maximum difference between the time of a press and the time of its element in element.jsonl. The
# times differ because two listeners log them. AgentNet Tool itself accepts 0.3 s.
_SAME_PRESS_S = 0.1


def tree_scans(
    trees: Iterable[dict[str, Any]],
    elements: Iterable[dict[str, Any]],
    epoch_ms: Callable[[float], float],
    presses: Mapping[float, float],
    left_out: Counter[str],
) -> Iterator[SourceLine]:
    """Yields a scan for each tree of a window, and for some of the elements under the pointer.

    A scan replaces all earlier ones. Therefore an element becomes a scan, with the time of its
    press, only if the scan before it does not contain the element.

    Args:
        presses: maps the times of presses, in seconds of the source, to epoch milliseconds.
        left_out: counts elements without the structure of UI Automation, and elements without a
            press.
    """
    seconds_of_presses = sorted(presses)
    newest: set[tuple[Any, ...]] = set()
    in_order = heapq.merge(_timed(trees, _TREE), _timed(elements, _ELEMENT), key=itemgetter(0))
    for seconds, kind, tree in in_order:
        node = _node(tree, _MOST_LEVELS)
        if node is None:
            left_out["elements in another form than that of UI Automation"] += kind == _ELEMENT
            continue
        time = epoch_ms(seconds)
        own = set(_identities(node))
        if kind == _ELEMENT:
            press = _nearest(seconds_of_presses, seconds)
            if press is None:
                left_out["elements without a press"] += 1
                continue
            if own <= newest:
                continue
            time = presses[press]
        newest = own
        scan: dict[str, Any] = {
            "duration": 0,
            "focused_element": None,
            "queries": {},
            "tree": [node],
        }
        yield SourceLine("axtree", scan, time)


def _timed(
    values: Iterable[dict[str, Any]], kind: str
) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Yields (seconds, kind, tree) of each line that has a time and a tree under the key `kind`."""
    for value in values:
        seconds = number(value.get("time_stamp"))
        tree = value.get(kind)
        if seconds is not None and isinstance(tree, dict):
            yield seconds, kind, tree


def _identities(node: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yields role, name and box of a node and of all nodes below it."""
    box = node["bbox"] or {}
    yield node["role"], node["name"], *box.values()
    for child in node["children"]:
        yield from _identities(child)


def _nearest(ascending: Sequence[float], seconds: float) -> float | None:
    """Returns the press time nearest to `seconds`, or None if none is within `_SAME_PRESS_S`."""
    at = bisect_left(ascending, seconds)
    near = ascending[max(0, at - 1) : at + 1]
    nearest = min(near, key=lambda press: abs(press - seconds), default=None)
    if nearest is None or abs(nearest - seconds) > _SAME_PRESS_S:
        return None
    return nearest


def _node(value: dict[str, Any], levels: int) -> dict[str, Any] | None:
    """Converts a node and all nodes below it to the structure of input_log.jsonl.

    Args:
        levels: maximum number of levels of nodes; deeper nodes are left out.

    Returns:
        The converted node; None if the node has no role, or `levels` is 0.
    """
    role = plain_text(value.get("ControlType"))
    box = value.get("BoundingRectangle")
    if not role or not levels:
        return None
    bbox = None
    if isinstance(box, dict) and (sides := numbers(box.get(side) for side in _SIDES)):
        left, top, right, bottom = sides
        bbox = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    children = list[dict[str, Any]]()
    for child in as_list(value.get("Children")):
        node = _node(child, levels - 1) if isinstance(child, dict) else None
        if node is not None:
            children.append(node)
    return {
        "bbox": bbox,
        "children": children,
        "description": "",
        "name": plain_text(value.get("Name")),
        "role": role,
        "states": {},
        "value": "",
    }
