"""Writes the UI tree and the target of each action, and checks them (stage `ui_trees`).

The output is trees.parquet with a row for each action, and a file NNN.json with each action's tree.
NNN is the `action_index`.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.actions.action_tables import Action, read_actions
from demo_pipeline.desktopd.models import FRESHNESS, NODE_ID_PATTERN, Role
from demo_pipeline.desktopd.target_box import TARGET_BOX_COLUMNS
from demo_pipeline.desktopd.validator import NodeBounds, TreeNode, check_tree_bytes
from demo_pipeline.files.atomic_write import FileId, file_id, link_or_copy
from demo_pipeline.files.json_files import JsonFileError, dump_json, load_json, read_bytes
from demo_pipeline.files.parquet import (
    ANY,
    COUNT,
    between,
    described_schema,
    fitting,
    one_of,
    read_rows,
    schema_problems,
    write_rows,
)
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.files.shown_text import counted
from demo_pipeline.observation.frames.evidence import Evidence
from demo_pipeline.observation.trees.hit_test import agrees_with_cursor
from demo_pipeline.observation.trees.scans import (
    CurrentScan,
    current_scan,
    scans_of_part,
)
from demo_pipeline.observation.trees.secret_fields import (
    hide_passwords,
    types_a_secret,
    without_texts,
)
from demo_pipeline.observation.trees.step_targets import METHODS, StepTargets
from demo_pipeline.observation.trees.step_tree import Element, StepTree, TreeReader
from demo_pipeline.observation.trees.tree_agreement import Agreement
from demo_pipeline.problems import Problem, warning
from demo_pipeline.recording.logged_scans import LoggedScan, read_logged_scans

UI_TREES_FILE = "trees.parquet"
UNREADABLE = "unreadable"  # `freshness` of a scan that is empty or malformed
_LOG = logging.getLogger(__package__)

_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "index of the action in actions.parquet"),
    ("file", pa.string(), False, "name of the JSON file with the accessibility tree"),
    (
        "scan_event",
        pa.int64(),
        True,
        "line number of the accessibility scan in input_log.jsonl; null if no scan had finished",
    ),
    (
        "scan_ms",
        pa.int64(),
        True,
        "time at which the scan began, epoch milliseconds; null without a scan",
    ),
    ("duration_ms", pa.int64(), True, "duration of the scan, milliseconds; null if unknown"),
    (
        "tree_age_ms",
        pa.int64(),
        True,
        "time from the end of the scan to the press, milliseconds; null without a scan",
    ),
    (
        "freshness",
        pa.string(),
        False,
        "how current the scan is: fresh, stale, changed, running, sparse, unreadable or none",
    ),
    (
        "tree_agreement",
        pa.string(),
        False,
        "whether the tree agrees with the screenshot: agrees, partial, differs or unknown",
    ),
    ("nodes", pa.int32(), False, "number of nodes in the tree, without the root"),
    ("unknown_roles", pa.int32(), False, "number of nodes whose role is not in roles.json"),
    (
        "dropped_states",
        pa.int32(),
        False,
        "number of states that were left out because OSWorld-Desktopd does not have them",
    ),
    (
        "target_id",
        pa.string(),
        True,
        "id of the target element in the tree; null if the target is unknown",
    ),
    (
        "target_role",
        pa.string(),
        True,
        "role of the target element in OSWorld-Desktopd; null if the target is unknown",
    ),
    (
        "target_name",
        pa.string(),
        True,
        "name of the target element in the tree; null if the target is unknown",
    ),
    (
        "window_title",
        pa.string(),
        True,
        "title of the window in which the action took place; null if it is uncertain",
    ),
    *TARGET_BOX_COLUMNS,
    ("target_method", pa.string(), False, f"how the target was found: {', '.join(METHODS)}"),
    (
        "cursor_agrees",
        pa.bool_(),
        True,
        (
            "whether the pipeline's hit test at the pointer agrees with the "
            "recorder's; null if not compared"
        ),
    ),
    (
        "samples_agree",
        pa.bool_(),
        True,
        (
            "whether the tree agrees with the recorder's hit tests at random "
            "points; null if not compared"
        ),
    ),
    (
        "damaged_elements",
        pa.int32(),
        False,
        "number of elements of the scan that could not be read",
    ),
    (
        "secret_field",
        pa.bool_(),
        False,
        "whether the action types a password, or any text on a dark or locked screen",
    ),
    (
        "hover_id",
        pa.string(),
        True,
        "id of the element whose hovering opened the pressed one; null if there is none",
    ),
    (
        "hover_role",
        pa.string(),
        True,
        "role of the element whose hovering opened the pressed one; null if there is none",
    ),
    (
        "hover_name",
        pa.string(),
        True,
        "name of the element whose hovering opened the pressed one; null if there is none",
    ),
)

UI_TREES_SCHEMA = described_schema(
    _COLUMNS,
    {
        "action_index nodes unknown_roles dropped_states damaged_elements": COUNT,
        "file": fitting(r"[0-9]{3,}\.json"),
        "scan_event": between(1),
        "scan_ms": COUNT.where("scan_event"),
        "duration_ms": COUNT.only_where("scan_event"),
        "tree_age_ms": ANY.where("scan_event"),
        "freshness": one_of(*FRESHNESS),
        "tree_agreement": one_of(*Agreement),
        "target_id": fitting(NODE_ID_PATTERN),
        "target_role": one_of(*Role).where("target_id"),
        "target_name target_x target_y": ANY.where("target_id"),
        "target_width target_height": COUNT.where("target_id"),
        "target_method": one_of(*METHODS),
        "hover_id": fitting(NODE_ID_PATTERN),
        "hover_role": one_of(*Role).where("hover_id"),
        "hover_name": ANY.where("hover_id"),
    },
)


TreeRow = dict[str, Any]
"""A row of trees.parquet."""


def build_ui_trees(  # noqa: PLR0917 - inputs, in the order of the stages that write them
    log: Path,
    platform: str,
    events_folder: Path,
    actions_folder: Path,
    evidence: Evidence,
    out: Path,
    shots: Sequence[Path] = (),
) -> dict[str, Any]:
    """Writes trees.parquet, and NNN.json for each action, without typed passwords.

    Returns the summary of the stage.

    Args:
        shots: the screenshot of each action. Without screenshots, no focus rings or highlighted
            choices can be found.
    """
    scans = [scan for scan in read_logged_scans(events_folder) if not _is_private(scan, evidence)]
    scales = {scale.scan_event: scale.scale for scale in evidence.tree_scales}
    changes_ms = list(map(evidence.clock.event_time, evidence.screen_changes_s))
    actions = read_actions(actions_folder)
    reader = TreeReader(log, platform, scales)
    targets = StepTargets(reader, evidence, changes_ms, actions, shots)
    writer = _TreeWriter(out)
    screen = evidence.screen()
    unknown_roles: Counter[str] = Counter()
    rows: list[TreeRow] = []
    since_ms = float("-inf")
    for number, action in enumerate(actions):
        is_private = action.action_index in evidence.private_actions
        canvas = screen.at(action.press_ms).canvas or evidence.canvas
        usable_scans = () if is_private else scans_of_part(scans, screen, action.press_ms)
        current = current_scan(usable_scans, action.press_ms, since_ms, changes_ms)
        tree = reader.tree(current.scan, action.press_ms, canvas)
        name = f"{action.action_index:03d}.json"
        writer.write(tree, name)
        agreement, target, method = targets.step(number, tree, current, usable_scans)
        if is_private:
            target = None
            method = "none"
        row = _row(action, name, current, tree, target=target, method=method)
        row["tree_agreement"] = str(agreement)
        row["window_title"] = _window_title(targets, number, action, tree, target)
        row["secret_field"] = _is_secret(action, tree, target, evidence)
        rows.append(row | _hover_columns(targets.hovered(number, tree)))
        unknown_roles.update(tree.unknown_roles)
        if action.action_type != "pause":
            since_ms = max(since_ms, action.end_ms)
    rows = _without_passwords(rows, actions, out)
    _log_decisions(rows)
    write_rows(out / UI_TREES_FILE, rows, UI_TREES_SCHEMA)
    return _summary(rows, unknown_roles)


class _TreeWriter:
    """Writes the trees of actions. Successive actions with the same tree share one linked file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last_tree: StepTree | None = None
        self._last_path = folder

    def write(self, tree: StepTree, name: str) -> None:
        path = self._folder / name
        if tree is self._last_tree:
            link_or_copy(self._last_path, path)
        else:
            path.write_bytes(tree.to_bytes())
        self._last_tree = tree
        self._last_path = path


def _is_private(scan: LoggedScan, evidence: Evidence) -> bool:
    """Returns whether a scan ran while keys were pressed on a dark or locked screen."""
    began = evidence.clock.video_time(scan.begin_ms)
    ended = evidence.clock.video_time(scan.end_ms)
    return any(start < ended and began < end for start, end in evidence.private_s)


def _is_secret(action: Action, tree: StepTree, target: Element | None, evidence: Evidence) -> bool:
    """Returns whether an action types a password, or any text on a dark or locked screen."""
    index = action.action_index
    is_private_typing = action.action_type == "type" and index in evidence.private_actions
    if is_private_typing or index in evidence.dotted:
        return True
    return types_a_secret(action, tree, target.position if target else None)


def _window_title(
    targets: StepTargets, number: int, action: Action, tree: StepTree, target: Element | None
) -> str | None:
    """Returns the title of the window in which an action took place; None if it is uncertain."""
    if action.action_type == "pause":
        return None
    window = targets.window(action, tree, target)
    if window is None or not targets.is_window_certain(number, tree, window, target):
        return None
    return tree.name_at(window) or None


def _hover_columns(element: Element | None) -> TreeRow:
    """Returns the hover columns of an action. They are null if no hovered element is known."""
    if element is None:
        return {"hover_id": None, "hover_role": None, "hover_name": None}
    return {"hover_id": element.id, "hover_role": element.role, "hover_name": element.name}


def _without_passwords(
    rows: Sequence[TreeRow], actions: Sequence[Action], out: Path
) -> list[TreeRow]:
    """Removes typed passwords from the rows, and from the trees that are already written."""
    _, passwords = hide_passwords(actions, rows)
    if not passwords:
        return list(rows)
    for same_tree in _by_file(out, rows).values():
        first = out / same_tree[0]["file"]
        tree = load_json(first)
        clean_tree = without_texts(tree, passwords)
        if clean_tree != tree:
            first.unlink()
            dump_json(first, clean_tree, compact=True)
            for row in same_tree[1:]:
                (out / row["file"]).unlink()
                link_or_copy(first, out / row["file"])
    clean_rows: list[TreeRow] = []
    for row in rows:
        clean_row = dict(row)
        for column in ("target_name", "window_title", "hover_name"):
            clean_row[column] = without_texts(row[column], passwords)
        clean_rows.append(clean_row)
    return clean_rows


def _log_decisions(rows: Sequence[TreeRow]) -> None:
    for row in rows:
        _LOG.debug(
            "action %d: scan of line %s, %s ms old, %s, %s",
            row["action_index"],
            row["scan_event"],
            row["tree_age_ms"],
            row["freshness"],
            row["tree_agreement"],
        )
        _LOG.debug(
            "action %d: target %s by %s",
            row["action_index"],
            row["target_id"],
            row["target_method"],
        )


def _row(
    action: Action,
    name: str,
    current: CurrentScan,
    tree: StepTree,
    *,
    target: Element | None,
    method: str,
) -> TreeRow:
    """Returns the columns of an action that describe its scan, its tree and its target."""
    scan = current.scan
    bounds = target.bounds if target else {}
    return {
        "action_index": action.action_index,
        "file": name,
        "scan_event": scan.event_index if scan else None,
        "scan_ms": scan.time_ms if scan else None,
        "duration_ms": scan.duration_ms if scan else None,
        "tree_age_ms": current.age_ms,
        "freshness": _freshness(current, tree),
        "nodes": len(tree),
        "unknown_roles": tree.unknown_roles.total(),
        "dropped_states": tree.dropped_states.total(),
        "target_id": target.id if target else None,
        "target_role": target.role if target else None,
        "target_name": target.name if target else None,
        "target_method": method,
        "target_x": bounds.get("x"),
        "target_y": bounds.get("y"),
        "target_width": bounds.get("width"),
        "target_height": bounds.get("height"),
        "cursor_agrees": agrees_with_cursor(tree),
        "samples_agree": tree.samples_agree,
        "damaged_elements": tree.damaged_elements,
    }


def _freshness(current: CurrentScan, tree: StepTree) -> str:
    """Returns `unreadable` or `sparse` if the tree is bad, otherwise the scan's freshness."""
    if current.scan is None:
        return current.freshness
    if not tree.readable:
        return UNREADABLE
    return "sparse" if tree.is_sparse else current.freshness


def _summary(rows: Sequence[TreeRow], unknown_roles: Counter[str]) -> dict[str, Any]:
    """Returns the counts for the summary of the stage."""
    ages: list[int] = []
    freshness: Counter[str] = Counter()
    agreements: Counter[str] = Counter()
    methods: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row in rows:
        if row["tree_age_ms"] is not None:
            ages.append(row["tree_age_ms"])
        freshness[row["freshness"]] += 1
        agreements[row["tree_agreement"]] += 1
        methods[row["target_method"]] += 1
        counts["nodes"] += row["nodes"]
        counts["targets"] += row["target_id"] is not None
        counts["cursor_checked"] += row["cursor_agrees"] is not None
        counts["cursor_agreed"] += bool(row["cursor_agrees"])
    ages.sort()
    return {
        "trees": len(rows),
        "freshness": dict(sorted(freshness.items())),
        "tree_agreement": dict(sorted(agreements.items())),
        "median_age_ms": ages[len(ages) // 2] if ages else None,
        "nodes": counts["nodes"],
        "targets": counts["targets"],
        "target_methods": dict(sorted(methods.items())),
        "unknown_roles": dict(sorted(unknown_roles.items())),
        "cursor_checked": counts["cursor_checked"],
        "cursor_agreed": counts["cursor_agreed"],
    }


def read_tree_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the rows of trees.parquet, one for each action."""
    return read_rows(folder / UI_TREES_FILE, UI_TREES_SCHEMA)


MAX_UNKNOWN_SHARE = 0.01  # maximum share of nodes whose role is not in roles.json
# Maximum number of reported problems, because a log may have thousands of bad scans.
MAX_NAMED_SCANS = 20
# Minimum share of scans in which the recorder's hit test at the pointer agrees with ours. This
# minimum is low, because recorders are sometimes wrong.
MIN_CURSOR_SHARE = 0.5
MIN_CURSOR_SCANS = 4  # with fewer scans to compare, `check_cursor` reports nothing


def check_trees(folder: Path, actions_folder: Path) -> list[Problem]:
    """Checks that every action has a valid OSWorld-Desktopd tree that contains the target.

    Args:
        folder: output of the `ui_trees` stage.
    """
    problems = schema_problems(folder / UI_TREES_FILE, UI_TREES_SCHEMA)
    if problems:
        return problems
    rows = read_tree_rows(folder)
    expected = [action.action_index for action in read_actions(actions_folder)]
    if [row["action_index"] for row in rows] != expected:
        message = f"{len(rows)} rows for {len(expected)} actions, or in another order"
        problems.append(Problem("trees_rows", UI_TREES_FILE, message))
    for row in rows:
        age = row["tree_age_ms"]
        if age is not None and age < 0:
            message = f"the scan of action {row['action_index']} ends after it"
            problems.append(Problem("trees_rows", UI_TREES_FILE, message))
    for same_tree in _by_file(folder, rows).values():
        problems += _tree_problems(folder / same_tree[0]["file"], same_tree)
    return problems


def _by_file(folder: Path, rows: Sequence[TreeRow]) -> dict[FileId | str, list[TreeRow]]:
    """Groups rows by the file of their tree, so that linked trees are read only once."""
    by_file: dict[FileId | str, list[TreeRow]] = {}
    for row in rows:
        by_file.setdefault(file_id(folder / row["file"]) or row["file"], []).append(row)
    return by_file


def _tree_problems(path: Path, rows: Sequence[TreeRow]) -> Iterator[Problem]:
    """Yields the problems of a tree file, and of the rows of trees.parquet that refer to it."""
    try:
        nodes, problems = check_tree_bytes(read_bytes(path, path.name), path.name)
    except JsonFileError as error:
        yield Problem("bad_tree", path.name, str(error))
        return
    yield from problems
    for row in rows:
        below_root = len(nodes) - 1
        if row["nodes"] != below_root and not problems:
            message = f"{UI_TREES_FILE} counts {row['nodes']} nodes, not {below_root}"
            remedy = "build the UI trees again"
            yield Problem("nodes_differ", row["file"], message, remedy=remedy)
        if not row["target_id"]:
            continue
        node = nodes.get(row["target_id"])
        if node is None or not _is_target(node, row):
            message = f"{UI_TREES_FILE} names {row['target_id']}, which differs in the tree"
            yield Problem("target_differs", row["file"], message, remedy="build the UI trees again")


def _is_target(node: TreeNode, row: TreeRow) -> bool:
    """Returns whether a node of the tree has the role, the name and the box of a row's target."""
    bounds = NodeBounds(row["target_x"], row["target_y"], row["target_width"], row["target_height"])
    return (node.role, node.name, node.bounds) == (row["target_role"], row["target_name"], bounds)


def check_scans_usable(folder: Path) -> list[Problem]:
    """Reports current scans that are empty, damaged, or contradicted by recorders' hit tests."""
    scans = {row["scan_event"]: row for row in read_tree_rows(folder) if row["scan_event"]}
    problems: list[Problem] = []
    for line, row in sorted(scans.items()):
        if row["freshness"] == UNREADABLE:
            code = "unusable_scan"
            message = "the accessibility scan has no usable element; it is ignored"
            remedy = "the steps at it have no tree and no target; tell the recorder's makers"
            problems.append(Problem(code, LOG_FILE, message, line=line, remedy=remedy))
        if row["damaged_elements"]:
            message = f"{counted(row['damaged_elements'], 'elements')} of the accessibility scan "
            message += "could not be read; all others are used"
            remedy = "`demo-pipeline validate` names the first; tell the recorder's makers"
            problems.append(warning("damaged_elements", LOG_FILE, message, remedy, line))
        if row["samples_agree"] is False:
            message = "the tree lacks an element that the recorder itself found on the screen"
            remedy = "compare the targets on the contact sheet; tell the recorder's makers"
            problems.append(warning("contradicted_scan", LOG_FILE, message, remedy, line))
    return problems[:MAX_NAMED_SCANS]


def check_known_roles(folder: Path) -> list[Problem]:
    """Checks that at most `MAX_UNKNOWN_SHARE` of the nodes have a role outside roles.json."""
    rows = read_tree_rows(folder)
    nodes = sum(row["nodes"] for row in rows)
    unknown = sum(row["unknown_roles"] for row in rows)
    if unknown <= MAX_UNKNOWN_SHARE * nodes:
        return []
    message = f"{unknown} of {nodes} nodes have an unknown role"
    remedy = "add the recorder's role names to observation/trees/roles.json"
    return [Problem("unknown_roles", UI_TREES_FILE, message, remedy=remedy)]


def check_cursor(folder: Path) -> list[Problem]:
    """Checks that the recorder's hit tests at the pointer agree with ours in enough scans."""
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
