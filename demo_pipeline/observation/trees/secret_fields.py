"""Recognises typed passwords and replaces them with `<password>`.

A text counts as a password in two cases:

- The accessibility tree marks the field as a password field: the role `password text` in AT-SPI,
  IsPassword in UI Automation, a secure text field in macOS, or the input type `password` in HTML.
- The screenshots show that a row of equal dots appeared in place of letters.

The package `privacy` removes other private texts.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.video_reader import Luma
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline.recording.logged_scans import is_secret_field

PASSWORD = "<password>"  # noqa: S105 - the replacement, not a password
# Minimum length of a password that is also removed from all other texts. Shorter passwords would
# match parts of ordinary words.
_SHORTEST_SOUGHT = 4
_FEWEST_DOTS = 4  # minimum number of equal shapes in a row of dots; an ellipsis has three
# Minimum number of different characters in a text that is taken for a password because of its dots.
# The screen shows a text like "oooo" as a row of equal shapes even in an ordinary field.
_FEWEST_LETTERS = 3
_LARGEST_DOT_PX = 24  # largest width and height of a dot, video pixels
_SMALLEST_DOT_PX = 2  # smallest width and height of a dot, video pixels
# Largest distance between the left edges of two neighbouring dots, video pixels.
_LARGEST_STEP_PX = 30
_TEXT_CURSOR_PX = 3  # largest width of the text cursor, video pixels
# Number of changed shapes after which the search for dots ends. The dots of a password would be
# among the first.
_MOST_SHAPES = 2000
# Largest difference between the grey levels of an unchanged pixel in two frames. The measured noise
# of x264 is smaller.
_CHANGED = 24


class _Shape(NamedTuple):
    """A connected group of changed pixels with the size of a character, in video pixels."""

    left: int
    top: int
    width: int
    height: int
    pixels: int

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def bottom(self) -> int:
        return self.top + self.height


def types_a_secret(action: Action, tree: StepTree, target: int | None) -> bool:
    """Returns whether an action types into a password field.

    Args:
        tree: tree of the current scan. Its focused element is examined too.
        target: position of the node that receives the text; None if the node is unknown.
    """
    if action.action_type != "type":
        return False
    for node in (target, tree.focused):
        if node is not None and is_secret_field(tree.raws[node]):
            return True
    return False


def dots_for(text: str, before: Luma, after: Luma) -> bool:
    """Returns whether the screen shows a row of dots in place of a typed text.

    The row must be new, have a dot for each character of the text, and stand alone.

    Args:
        text: the typed text. With fewer than three different characters, the result is False.
    """
    typed = text.strip()
    if len(typed) < _FEWEST_DOTS or len(set(typed)) < _FEWEST_LETTERS:
        return False
    changed = cv2.threshold(cv2.absdiff(before, after), _CHANGED, 1, cv2.THRESH_BINARY)[1]
    if not cv2.countNonZero(changed):
        return False
    shapes = _changed_shapes(changed)
    return any(_are_dots(row, shapes, len(typed)) for row in _even_rows(shapes))


def _changed_shapes(changed: Any) -> list[_Shape]:
    """Returns the changed shapes that have the size of a character.

    Each group of adjacent rows with changes is searched separately, because a search of the whole
    screen takes 8 MB and 15 ms.

    Args:
        changed: map (rows, columns), 1 where the screen changed and 0 elsewhere.
    """
    lines = np.flatnonzero(np.diff(changed.max(axis=1), prepend=0, append=0))
    character_shapes: list[_Shape] = []
    for top, bottom in lines.reshape(-1, 2).tolist():
        left, _, width, _ = cv2.boundingRect(changed[top:bottom])
        line = changed[top:bottom, left : left + width]
        shapes = cv2.connectedComponentsWithStats(line, connectivity=8)[2][1:]
        sides = shapes[:, 2:4]
        fits = ((sides >= _SMALLEST_DOT_PX) & (sides <= _LARGEST_DOT_PX)).all(axis=1)
        on_screen = shapes[fits] + np.array([left, top, 0, 0, 0])
        character_shapes += [_Shape(*shape) for shape in on_screen.tolist()]
        if len(character_shapes) > _MOST_SHAPES:
            break
    return character_shapes


def _even_rows(shapes: Sequence[_Shape]) -> Iterator[list[_Shape]]:
    """Yields each row of at least `_FEWEST_DOTS` shapes of equal size at equal distances."""
    ordered = sorted(shapes, key=lambda shape: (shape.top // 3, shape.left))
    row = ordered[:1]
    step = 0
    for shape, following in pairwise(ordered):
        distance = following.left - shape.left
        continues = _look_alike(shape, following) and 0 < distance <= _LARGEST_STEP_PX
        if continues and (len(row) == 1 or abs(distance - step) <= 1):
            row.append(following)
            step = distance
            continue
        if len(row) >= _FEWEST_DOTS:
            yield row
        row = [following]
    if len(row) >= _FEWEST_DOTS:
        yield row


def _look_alike(shape: _Shape, other: _Shape) -> bool:
    """Returns whether two shapes have about the same top edge, size and number of pixels."""
    is_same_size = (
        abs(shape.top - other.top) <= 1
        and abs(shape.width - other.width) <= 1
        and abs(shape.height - other.height) <= 1
    )
    more = max(shape.pixels, other.pixels)
    return is_same_size and abs(shape.pixels - other.pixels) <= 0.2 * more


def _are_dots(row: Sequence[_Shape], shapes: Sequence[_Shape], characters: int) -> bool:
    """Returns whether a row of equal shapes consists of the dots of a password.

    The row must stand alone and have a dot for each character, or one dot more or fewer. One dot
    may be missing, at the left or the right end, because it touches the text cursor or still shows
    the last character. An icon may follow.

    Args:
        row: equal shapes at equal distances, from left to right.
        shapes: all changed shapes.
    """
    if abs(len(row) - characters) > 1:
        return False
    first = row[0]
    last = row[-1]
    step = last.left - row[-2].left
    gap = 3 * step  # wider than the gap between two words
    before: list[_Shape] = []
    after: list[_Shape] = []
    for shape in shapes:
        is_in_line = shape.top < last.bottom and first.top < shape.bottom
        is_text_cursor = shape.width <= _TEXT_CURSOR_PX and shape.height > first.height
        if not is_in_line or is_text_cursor or shape in row:
            continue
        if first.left - gap < shape.right <= first.right:
            before.append(shape)
        if last.left <= shape.left < last.right + gap:
            after.append(shape)
    if not before:
        return len(after) <= 1  # one shape may be a missing dot, or an icon at the field's end
    is_missing_dot = before[0].right >= first.left - step + first.width - 1
    return len(row) < characters and len(before) == 1 and is_missing_dot and not after


def hide_passwords(
    actions: Sequence[Action], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[Action], frozenset[str]]:
    """Replaces typed passwords in actions, and returns the texts to remove everywhere else.

    If a pause splits a password into several typing actions, the joined password is returned, too.

    Args:
        actions: the actions of the demonstration, in order.
        rows: the row of trees.parquet for each action; `secret_field` marks typed passwords.

    Returns:
        - The actions with `<password>` in place of passwords.
        - The passwords and their parts, except texts shorter than `_SHORTEST_SOUGHT`.
    """
    changed_actions: list[Action] = []
    passwords: set[str] = set()
    joined = ""
    for action, row in zip(actions, rows, strict=True):
        if not row["secret_field"]:
            changed_actions.append(action)
            if action.action_type in {"type", "click"}:
                joined = ""
            continue
        text = action.text or ""
        password = text.strip("\n\t")
        joined += password
        passwords |= {password, joined}
        if password:
            text = text.replace(password, PASSWORD)
        changed_actions.append(replace(action, text=text))
    long_enough = (password for password in passwords if len(password) >= _SHORTEST_SOUGHT)
    return changed_actions, frozenset(long_enough)


def without_texts(value: Any, secrets: Collection[str]) -> Any:
    """Replaces secret texts in a JSON value or a table row with `<password>`.

    If one secret begins with another, the longer secret is replaced.
    """
    if not secrets:
        return value
    longest_first = sorted(secrets, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return mapped_texts(value, partial(pattern.sub, PASSWORD))


def mapped_texts(
    value: Any, change: Callable[[str], str], kept: Collection[str] = (), key: str = ""
) -> Any:
    """Applies a function to every text of a JSON value or a table row.

    Args:
        kept: keys whose texts stay unchanged.
        key: the key of `value` in the object around it; empty if there is no such object.
    """
    if isinstance(value, str):
        return value if key in kept else change(value)
    if isinstance(value, Mapping):
        return {name: mapped_texts(inner, change, kept, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mapped_texts(inner, change, kept, key) for inner in value]
    return value
