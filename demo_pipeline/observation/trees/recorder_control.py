"""Finds the actions with which a person starts and stops the recorder.

The setting `observation.recorder_windows` lists the window names of recorders.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.actions.build_actions import first_action, last_action
from demo_pipeline.observation.clock.canvas import Canvas
from demo_pipeline.observation.trees.hit_test import front_window, node_at
from demo_pipeline.observation.trees.scans import current_scan
from demo_pipeline.observation.trees.step_tree import TreeReader
from demo_pipeline.recording.logged_scans import LoggedScan
from demo_pipeline.recording.meta import Meta


def actions_on_recorder(
    actions: Sequence[Action],
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    canvas: Canvas,
    names: Iterable[str],
    *,
    fronts: Mapping[int, int | None],
) -> set[int]:
    """Returns the indexes of the first and the last action, each only if it controls the recorder.

    A click controls the recorder if the window or the element under the pointer has the name of a
    recorder's window. A hotkey controls the recorder if the focused window has such a name.

    Args:
        names: the window names of recorders.
        fronts: maps an action index to the tree position of the front window in the video. If the
            position is None or missing, the front window is taken from the tree.
    """
    patterns = [name_pattern(name) for name in names if name.strip()]
    if not patterns:
        return set()
    indexes: set[int] = set()
    for action in (first_action(actions), last_action(actions)):
        if action is None or action.action_type not in {"click", "double_click", "hotkey"}:
            continue
        for name in _names(action, scans, reader, canvas, fronts.get(action.action_index)):
            if any(pattern.search(name) for pattern in patterns):
                indexes.add(action.action_index)
    return indexes


def unmentioned(names: Iterable[str], meta: Meta) -> list[str]:
    """Returns the names of recorder windows that the task does not mention.

    If the task mentions a recorder, clicks on it are part of the demonstration.
    """
    quest = meta.quest
    texts = [meta.title, meta.description]
    if quest is not None:
        texts += [quest.title, quest.app, quest.content, *quest.objectives]
    text = "\n".join(texts)
    return [name for name in names if name.strip() and not name_pattern(name).search(text)]


def _names(
    action: Action,
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    canvas: Canvas,
    front: int | None,
) -> list[str]:
    """Returns the names of the window and the element on which an action acts."""
    scan = current_scan(scans, action.press_ms, float("-inf")).scan
    tree = reader.tree(scan, action.press_ms, canvas)
    window: int | None = None
    element: int | None = None
    if action.action_type == "hotkey":
        if tree.focused is not None:
            window = tree.windows_around[tree.focused]
    elif action.x is not None and action.y is not None:
        hit = node_at(tree, action.x, action.y, front)
        element = None if hit is None else hit.position
        window = front_window(tree, action.x, action.y) if front is None else front
    positions = [position for position in (window, element) if position is not None]
    return [tree.raws[position].name or "" for position in positions]


def name_pattern(name: str) -> re.Pattern[str]:
    """Returns a pattern that matches a name as whole words, ignoring case."""
    words = r"\s+".join(re.escape(word) for word in name.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
