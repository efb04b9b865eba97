"""Fields for passwords: what is typed into one leaves its stage as `<password>`.

Belongs here: which node, and which picture, shows such a field, and replacing its text. Recorders
mark the field as AT-SPI's `password text`, UI Automation's IsPassword, AX's secure text field, or
HTML's input type; where no tree says it, the picture does, by a row of equal dots instead of
letters. Patterns and people's own lists are looked for in `privacy/`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.video_reader import Luma
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline.recording.logged_scans import is_secret_field

PASSWORD = "<password>"  # noqa: S105 - what stands for one
_SHORTEST_SOUGHT = 4  # characters; shorter ones stand in ordinary words
_FEWEST_DOTS = 4  # equal shapes in a row; three are also an ellipsis
_MOST_SHAPES = 2000  # a page of letters, whose dots would be among the first
_CHANGED = 24  # of 255; noise of x264 stays below (measured for the changes between frames)


def types_a_secret(action: Action, tree: StepTree, target: int | None) -> bool:
    """Whether the keyboard is in a field for passwords while `action` types.

    `target`: position of the node that it types into; None: not known.
    """
    if action.action_type != "type":
        return False
    nodes = [tree.focused] if target is None else [target, tree.focused]
    return any(is_secret_field(tree.raws[node]) for node in nodes if node is not None)


def dots_for(text: str, before: Luma, after: Luma) -> bool:
    """Whether `after` shows dots where `before` does not, as many as `text` has characters.

    Letters of different shape would differ, so a text of fewer than three letters says nothing.
    """
    typed = text.strip()
    if len(typed) < _FEWEST_DOTS or len(set(typed)) < 3:
        return False
    changed = cv2.threshold(cv2.absdiff(before, after), _CHANGED, 1, cv2.THRESH_BINARY)[1]
    if not cv2.countNonZero(changed):
        return False
    row = _longest_row(_shapes(changed))
    return row >= _FEWEST_DOTS and abs(row - len(typed)) <= 1


def _shapes(changed: Any) -> list[Sequence[int]]:
    """Left, top, width, height and pixels of each changed shape of a character's size.

    Line by line: numbering the shapes of the whole picture at once takes 8 MB, and 15 ms.
    """
    lines = np.flatnonzero(np.diff(changed.max(axis=1), prepend=0, append=0))
    found: list[Sequence[int]] = []
    for top, bottom in lines.reshape(-1, 2).tolist():
        left, _, width, _ = cv2.boundingRect(changed[top:bottom])
        line = changed[top:bottom, left : left + width]
        shapes = cv2.connectedComponentsWithStats(line, connectivity=8)[2][1:]
        sides = shapes[:, 2:4]
        fitting = shapes[((sides >= 2) & (sides <= 24)).all(axis=1)]
        found += (fitting + np.array([left, top, 0, 0, 0])).tolist()
        if len(found) > _MOST_SHAPES:
            break
    return found


def _longest_row(shapes: Sequence[Sequence[int]]) -> int:
    """The most shapes in a line with the same size, height and distance."""
    best = 0
    run = 1
    step = 0
    ordered = sorted(shapes, key=lambda one: (one[1] // 3, one[0]))
    for one, other in pairwise(ordered):
        distance = other[0] - one[0]
        same = all(abs(one[side] - other[side]) <= 1 for side in (1, 2, 3))
        even = abs(one[4] - other[4]) <= 0.2 * max(one[4], other[4]) and 0 < distance <= 30
        if same and even and (run == 1 or abs(distance - step) <= 1):
            run = run + 1
            step = distance
        else:
            run = 1
        best = max(best, run)
    return best


def hide_passwords(
    actions: Sequence[Action], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Action], frozenset[str]]:
    """The actions with `<password>` for what was typed into secret fields, and those texts.

    Args:
        actions: of the demonstration, in time order.
        rows: the row of trees.parquet of each, whose `secret_field` says where it was typed.

    Returns:
        The actions, and each text that must not be seen elsewhere: pieces of one field are joined,
        as a rest of the hand parts them.
    """
    hidden = list[Action]()
    secrets = set[str]()
    piece = ""
    for action, row in zip(actions, rows, strict=True):
        if not row["secret_field"]:
            hidden.append(action)
            if action.action_type in {"type", "click"}:
                piece = ""
            continue
        text = action.text or ""
        core = text.strip("\n\t")
        piece += core
        secrets |= {core, piece}
        hidden.append(replace(action, text=text.replace(core, PASSWORD) if core else text))
    return hidden, frozenset(text for text in secrets if len(text) >= _SHORTEST_SOUGHT)


def without_texts(value: Any, secrets: Collection[str]) -> Any:
    """A value of JSON or of a table with `<password>` for each of the texts, longer ones first."""
    if not secrets:
        return value
    longest_first = sorted(secrets, key=len, reverse=True)
    sought = re.compile("|".join(map(re.escape, longest_first)))
    return mapped_texts(value, partial(sought.sub, PASSWORD))


def mapped_texts(
    value: Any, change: Callable[[str], str], kept: Collection[str] = (), key: str = ""
) -> Any:
    """A value of JSON or of a table with its texts changed, but those under the keys `kept`."""
    if isinstance(value, str):
        return value if key in kept else change(value)
    if isinstance(value, Mapping):
        return {name: mapped_texts(inner, change, kept, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mapped_texts(inner, change, kept, key) for inner in value]
    return value
