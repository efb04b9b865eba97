"""What must hold for the UI trees of a demonstration: the checks of the `ui_trees` stage."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.common.hardlinks import FileId, file_id
from demo_pipeline.common.json_files import JsonFileError, read_bytes
from demo_pipeline.common.parquet import schema_problems
from demo_pipeline.common.python_gc import reduced_python_gc
from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.formats.desktopd.tree_validator import check_tree_bytes
from demo_pipeline.observation.trees.ui_trees import (
    UI_TREES_FILE,
    UI_TREES_SCHEMA,
    UNREADABLE,
    TreeRow,
    read_tree_rows,
)
from demo_pipeline.problems import Problem

MAX_UNKNOWN_SHARE = 0.01  # of the nodes may have a role that is in no table
MAX_NAMED_SCANS = 20  # problems that are listed; a log may have thousands of bad scans
MIN_CURSOR_SHARE = 0.5  # of the scans must agree; recorders' own hit tests are sometimes wrong
MIN_CURSOR_SCANS = 4  # scans with the recorder's own hit test; fewer prove nothing


@reduced_python_gc()
def check_trees(folder: Path, actions_folder: Path) -> list[Problem]:
    """Every action has a tree that is valid OSWorld-Desktopd without warnings, with its target."""
    problems = schema_problems(folder / UI_TREES_FILE, UI_TREES_SCHEMA)
    if problems:
        return problems
    rows = read_tree_rows(folder)
    expected = [action.action_index for action in read_actions(actions_folder)]
    if [row["action_index"] for row in rows] != expected:
        message = f"{len(rows)} rows for {len(expected)} actions, or not in their order"
        problems.append(Problem("trees_rows", UI_TREES_FILE, message))
    for same in _by_file(folder, rows).values():
        problems += _tree_problems(folder / same[0]["file"], same)
    return problems


def read_checked_targets(folder: Path) -> dict[FileId, dict[str, dict[str, Any]]]:
    """The targets of a folder that passed `check_trees`: file of a tree → id → target."""
    by_file: dict[FileId, dict[str, dict[str, Any]]] = {}
    for row in read_tree_rows(folder):
        tree = file_id(folder / row["file"])
        if tree is not None:
            targets = by_file.setdefault(tree, {})
            if row["target_id"] is not None:
                targets[row["target_id"]] = _target(row)
    return by_file


def _by_file(folder: Path, rows: Sequence[TreeRow]) -> dict[FileId | str, list[TreeRow]]:
    """Rows by the file of their tree, since linked trees are read only once."""
    by_file: dict[FileId | str, list[TreeRow]] = {}
    for row in rows:
        by_file.setdefault(file_id(folder / row["file"]) or row["file"], []).append(row)
    return by_file


def _tree_problems(path: Path, rows: Sequence[TreeRow]) -> Iterator[Problem]:
    """Yield what is wrong with a tree, and each target of its `rows` that is not in it."""
    try:
        nodes, problems = check_tree_bytes(read_bytes(path, path.name), path.name)
    except JsonFileError as error:
        yield Problem("bad_tree", path.name, str(error))
        return
    yield from problems
    for row in rows:
        target = row["target_id"] and _target(row)
        node = nodes.get(row["target_id"]) if target else None
        if target and (node is None or any(node[key] != target[key] for key in target)):
            message = f"{UI_TREES_FILE} names {row['target_id']}, which differs in the tree"
            yield Problem("target_differs", row["file"], message, remedy="build the UI trees again")


def _target(row: TreeRow) -> dict[str, Any]:
    """The target of a row, in the form of a node of its tree."""
    bounds = {side: row[f"target_{side}"] for side in ("x", "y", "width", "height")}
    return {
        "id": row["target_id"],
        "role": row["target_role"],
        "name": row["target_name"],
        "bounds": bounds,
    }


def check_scans_usable(folder: Path) -> list[Problem]:
    """Every current scan could be read, and something in it has an area."""
    lines = {row["scan_event"] for row in read_tree_rows(folder) if row["freshness"] == UNREADABLE}
    message = "the accessibility scan is empty or malformed; it counts as none"
    remedy = "the steps at it have no tree and no target; tell the recorder's makers"
    return [
        Problem("unusable_scan", LOG_FILE, message, line=line, remedy=remedy)
        for line in sorted(lines)[:MAX_NAMED_SCANS]
    ]


def check_known_roles(folder: Path) -> list[Problem]:
    """At most 1 % of the nodes have a role that is in no table."""
    rows = read_tree_rows(folder)
    nodes = sum(row["nodes"] for row in rows)
    unknown = sum(row["unknown_roles"] for row in rows)
    if unknown <= MAX_UNKNOWN_SHARE * nodes:
        return []
    message = f"{unknown} of {nodes} nodes have an unknown role"
    remedy = "add the recorder's role names to observation/trees/roles.json"
    return [Problem("unknown_roles", UI_TREES_FILE, message, remedy=remedy)]


def check_cursor(folder: Path) -> list[Problem]:
    """Our hit test agrees with the recorder's own (`queries.cursor`) in most scans."""
    rows = read_tree_rows(folder)
    compared = {row["scan_event"]: row for row in rows if row["cursor_agrees"] is not None}
    agreed = sum(row["cursor_agrees"] for row in compared.values())
    if len(compared) < MIN_CURSOR_SCANS or agreed >= MIN_CURSOR_SHARE * len(compared):
        return []
    message = (
        f"in {len(compared) - agreed} of {len(compared)} scans the recorder found another element"
    )
    remedy = "compare the targets on the contact sheet: coordinates and trees may not match"
    return [Problem("cursor_differs", UI_TREES_FILE, message, remedy=remedy)]
