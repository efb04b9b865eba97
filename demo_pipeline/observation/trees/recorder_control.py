"""Actions on the recorder's own window: how a person starts and stops a recording.

Belongs here: recognising the window by the names in the scan. The names are the setting
`observation.recorder_windows`.
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
    """Indexes of the first and of the last action, each when it is on a window of that name.

    A click is on the window under it, a hotkey on the window with the focus. `fronts`: the window
    that the picture shows in front at an action, by action index.
    """
    wanted = [name_pattern(name) for name in names if name.strip()]
    ends = {
        id(action): action for action in (first_action(actions), last_action(actions)) if action
    }
    found: set[int] = set()
    for action in ends.values():
        if wanted and action.action_type in {"click", "double_click", "hotkey"}:
            on = _names(action, scans, reader, canvas, fronts.get(action.action_index))
            if any(phrase.search(name) for phrase in wanted for name in on):
                found.add(action.action_index)
    return found


def unmentioned(names: Iterable[str], meta: Meta) -> list[str]:
    """The names that the task does not mention: who works on a recorder does not stop ours."""
    quest = meta.quest
    told = [meta.title, meta.description]
    if quest is not None:
        told += [quest.title, quest.app, quest.content, *quest.objectives]
    text = "\n".join(told)
    return [name for name in names if name.strip() and not name_pattern(name).search(text)]


def _names(
    action: Action,
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    canvas: Canvas,
    front: int | None,
) -> list[str]:
    """Names of the window, and of the element, that an action is on."""
    scan = current_scan(scans, action.press_ms, float("-inf")).scan
    tree = reader.tree(scan, action.press_ms, canvas)
    on: list[int | None] = []
    if action.action_type == "hotkey":
        on = [None if tree.focused is None else tree.windows_around[tree.focused]]
    elif action.x is not None and action.y is not None:
        hit = node_at(tree, action.x, action.y, front)
        window = front_window(tree, action.x, action.y) if front is None else front
        on = [window, hit.position if hit else None]
    return [tree.raws[position].name or "" for position in on if position is not None]


def name_pattern(name: str) -> re.Pattern[str]:
    """Matches a name as whole words, in any case."""
    words = r"\s+".join(re.escape(word) for word in name.split())
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
