"""The `ui_trees` stage: the tree in force at each action, and the element it was meant for.

Belongs here: reading each needed scan once, NNN.json, trees.parquet, the stage's checks.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.actions.tables import POINTER_TYPES, Action, read_actions
from demo_pipeline.formats.desktopd_tree import check_tree
from demo_pipeline.formats.jsonfile import JsonFileError, dump_json, load_json
from demo_pipeline.observation.canvas import Canvas
from demo_pipeline.observation.evidence import Evidence
from demo_pipeline.observation.focus import Keyboard, ReadTree
from demo_pipeline.observation.scans import InForce, ScanAt, read_scan, scan_in_force
from demo_pipeline.observation.target import node_at
from demo_pipeline.observation.tree import MappedNode, map_tree
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording.events import read_scans, schema_problems
from demo_pipeline.recording.tables import described_schema

CODE_VERSION = "2"
TREES_FILE = "trees.parquet"
UNKNOWN_SHARE = 0.01

_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "row of actions.parquet"),
    ("file", pa.string(), False, "NNN.json"),
    ("scan_event", pa.int64(), True, "line of the scan in input_log.jsonl; null: no scan"),
    ("scan_ms", pa.int64(), True, "when the scan began, epoch milliseconds"),
    ("duration_ms", pa.int64(), True, "how long it took, milliseconds"),
    ("tree_age_ms", pa.int64(), True, "end of the scan to the press; negative: still running"),
    ("freshness", pa.string(), False, "fresh, stale, changed, running, unreadable or none"),
    ("nodes", pa.int32(), False, "below the root"),
    ("unknown_roles", pa.int32(), False, "nodes whose role is in no table"),
    ("dropped_states", pa.int32(), False, "states that seed 001 has no word for"),
    ("target_id", pa.string(), True, "id in NNN.json; null: no element fits"),
    ("target_role", pa.string(), True, "seed 001 role"),
    ("target_name", pa.string(), True, "name of the element"),
    ("target_x", pa.int32(), True, "box on the canvas, pixels"),
    ("target_y", pa.int32(), True, "box on the canvas, pixels"),
    ("target_width", pa.int32(), True, "box on the canvas, pixels"),
    ("target_height", pa.int32(), True, "box on the canvas, pixels"),
    ("target_method", pa.string(), False, "hit_test, focused, last_click or none"),
)

TREES_SCHEMA = described_schema(_COLUMNS)


class TreeReader:
    """Reads and maps scans of one log; keeps the last, since neighbouring steps share it."""

    def __init__(self, log: Path, platform: str) -> None:
        self._log = log
        self._platform = platform
        self._last: tuple[int, ReadTree] | None = None

    def tree(self, scan: ScanAt | None, press_ms: int, canvas: Canvas) -> ReadTree:
        """The mapped tree of `scan`; a root-only tree without one."""
        if scan is None:
            return ReadTree(map_tree(None, press_ms, self._platform, canvas), None)
        if self._last is not None and self._last[0] == scan.event_index:
            return self._last[1]
        try:
            data = read_scan(self._log, scan)
        except DemonstrationError:
            return ReadTree(map_tree(None, press_ms, self._platform, canvas), None, readable=False)
        read = ReadTree(map_tree(data, scan.time_ms, self._platform, canvas), data)
        self._last = (scan.event_index, read)
        return read


def build_ui_trees(  # noqa: PLR0917 - the inputs of the stage, in the order of the chain
    log: Path,
    platform: str,
    events_folder: Path,
    actions_folder: Path,
    evidence: Evidence,
    out: Path,
) -> dict[str, Any]:
    """Write NNN.json for each action and trees.parquet; return a summary."""
    scans = [ScanAt(**row) for row in read_scans(events_folder)]
    reader = TreeReader(log, platform)
    canvas = evidence.as_canvas()
    unknown: Counter[str] = Counter()
    rows = []
    since = float("-inf")
    keyboard = Keyboard()
    clock = evidence.as_clock()
    changes = [clock.event_time(moment) for moment in evidence.screen_changes_s]
    for action in read_actions(actions_folder):
        force = scan_in_force(scans, action.press_ms, since, changes)
        read = reader.tree(force.scan, action.press_ms, canvas)
        name = f"{action.action_index:03d}.json"
        dump_json(out / name, read.tree.document, compact=True)
        if action.action_type in POINTER_TYPES:
            target, method = _hit(action, read, force, evidence)
        else:
            target, method = keyboard.target(action, read, force, changes)
        rows.append(_row(action, name, force, read, target=target, method=method))
        unknown.update(read.tree.unknown_roles)
        if action.action_type in POINTER_TYPES - {"scroll"}:
            keyboard.clicked(action, known=target is not None)
        if action.action_type != "pause":
            since = max(since, action.end_ms)
    table = pa.Table.from_pylist(rows, schema=TREES_SCHEMA)
    pq.write_table(table, out / TREES_FILE, compression="zstd", compression_level=3)
    return _summary(rows, unknown)


def _hit(
    action: Action, read: ReadTree, force: InForce, evidence: Evidence
) -> tuple[MappedNode | None, str]:
    """The node under the point, unless the screen there is no longer what the scan saw."""
    if action.x is None or action.y is None or action.action_index in evidence.redrawn:
        return None, "none"
    if force.freshness == "changed" and action.action_index not in evidence.unmoved:
        return None, "none"
    found = node_at(read.tree, action.x, action.y)
    return found, "hit_test" if found else "none"


def _row(
    action: Action,
    name: str,
    force: InForce,
    read: ReadTree,
    *,
    target: MappedNode | None,
    method: str,
) -> dict[str, Any]:
    scan = force.scan
    bounds = target.node["bounds"] if target else {}
    return {
        "action_index": action.action_index,
        "file": name,
        "scan_event": scan.event_index if scan else None,
        "scan_ms": scan.time_ms if scan else None,
        "duration_ms": scan.duration_ms if scan else None,
        "tree_age_ms": force.age_ms,
        "freshness": force.freshness if read.readable else "unreadable",
        "nodes": len(read.tree.nodes),
        "unknown_roles": read.tree.unknown_roles.total(),
        "dropped_states": read.tree.dropped_states.total(),
        "target_id": target.node["id"] if target else None,
        "target_role": target.node["role"] if target else None,
        "target_name": target.node["name"] if target else None,
        "target_method": method,
        **{f"target_{side}": bounds.get(side) for side in ("x", "y", "width", "height")},
    }


def _summary(rows: Sequence[dict[str, Any]], unknown: Counter[str]) -> dict[str, Any]:
    ages = sorted(row["tree_age_ms"] for row in rows if row["tree_age_ms"] is not None)
    return {
        "trees": len(rows),
        "freshness": dict(sorted(Counter(row["freshness"] for row in rows).items())),
        "median_age_ms": ages[len(ages) // 2] if ages else None,
        "nodes": sum(row["nodes"] for row in rows),
        "targets": sum(row["target_id"] is not None for row in rows),
        "target_methods": dict(sorted(Counter(row["target_method"] for row in rows).items())),
        "unknown_roles": dict(sorted(unknown.items())),
    }


def read_tree_rows(folder: Path) -> list[dict[str, Any]]:
    """Rows of trees.parquet, one an action."""
    rows: list[dict[str, Any]] = pq.read_table(folder / TREES_FILE, schema=TREES_SCHEMA).to_pylist()
    return rows


def check_trees(folder: Path, actions_folder: Path) -> list[Problem]:
    """Every action has a tree that seed 001 accepts, and its target is in it."""
    problems = schema_problems(folder / TREES_FILE, TREES_SCHEMA)
    if problems:
        return problems
    rows = read_tree_rows(folder)
    expected = [action.action_index for action in read_actions(actions_folder)]
    if [row["action_index"] for row in rows] != expected:
        message = f"{len(rows)} rows for {len(expected)} actions, or in another order"
        problems.append(Problem("trees_rows", TREES_FILE, message))
    for row in rows:
        try:
            document = load_json(folder / row["file"])
        except JsonFileError as error:
            problems.append(Problem("bad_tree", row["file"], str(error)))
            continue
        problems.extend(errors(check_tree(document, row["file"])[1]))
    return problems


def check_known_roles(folder: Path) -> list[Problem]:
    """At most 1 % of nodes may have a role that no table knows."""
    rows = read_tree_rows(folder)
    nodes = sum(row["nodes"] for row in rows)
    unknown = sum(row["unknown_roles"] for row in rows)
    if unknown <= UNKNOWN_SHARE * nodes:
        return []
    message = f"{unknown} of {nodes} nodes have a role in no table"
    remedy = "add the recorder's role names to observation/roles.json"
    return [Problem("unknown_roles", TREES_FILE, message, remedy=remedy)]
