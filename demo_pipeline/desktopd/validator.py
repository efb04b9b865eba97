"""Validates an OSWorld-Desktopd dataset: its index.json, its trajectories, steps and UI trees.

Problems are returned and never raised. Messages identify nodes by id or number instead of text,
because the text may be private. Symbolic links are followed. exports/sft.py validates SFT files.

Trees are decoded with msgspec, which takes a fifth of the time of pydantic models. Only trees that
msgspec cannot decode, or that are invalid, are parsed again with the models, to find the faults.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import Field, ValidationError, field_validator

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    NODE_ID_PATTERN,
    ClickParameters,
    ElementState,
    HotkeyParameters,
    Index,
    Metadata,
    NodeId,
    Result,
    Role,
    RoleName,
    StepAction,
    Task,
    TypeParameters,
    is_canonical_key,
    points,
)
from demo_pipeline.desktopd.trajectory_reader import (
    json_problem,
    read_document,
    step_folders,
    trajectory_folders,
)
from demo_pipeline.files.base_model import Document, check, explain, field_name, limited
from demo_pipeline.files.image_files import probe_image_file
from demo_pipeline.files.json_files import (
    JsonFileError,
    Location,
    decode_text,
    parse_json,
    places_in,
    read_bytes,
)
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, warning

_ID = re.compile(NODE_ID_PATTERN)
_Length = Annotated[int, msgspec.Meta(ge=0)]
_ScreenLength = Annotated[int, msgspec.Meta(gt=0)]


def numbered_ids(count: int) -> list[str]:
    """Returns node_0, node_1 and so on: the ids of `count` nodes in document order."""
    return [f"node_{number}" for number in range(count)]


class NodeBounds(msgspec.Struct, gc=False):
    """A rectangle in canvas pixels."""

    x: int
    y: int
    width: _Length
    height: _Length


class TreeNode(msgspec.Struct, gc=False):
    """A node of a UI tree without its children. The pydantic `_NodeModel` has the same rules."""

    id: str
    role: Role
    name: str
    bounds: NodeBounds
    states: list[ElementState] = []


class _NestedNode(TreeNode, gc=False):
    children: list["_NestedNode"] = []


class _Screen(msgspec.Struct, forbid_unknown_fields=True):
    width: _ScreenLength
    height: _ScreenLength


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: str
    screen: _Screen
    root: _NestedNode


class _BoundsModel(Document):
    """A rectangle in canvas pixels; it may lie outside the canvas."""

    x: int
    y: int
    width: int = Field(ge=0)
    height: int = Field(ge=0)


class _ScreenModel(Document):
    """Width and height of the coordinate space, in pixels."""

    width: int = Field(gt=0)
    height: int = Field(gt=0)


class _NodeModel(Document):
    """A node of a UI tree. `children` stay unparsed values, because trees can be very deep."""

    id: NodeId
    role: RoleName
    name: str
    bounds: _BoundsModel
    states: list[Annotated[ElementState, Field(strict=False)]] = Field(default_factory=list)
    children: list[Any] = Field(default_factory=list)


class _TreeModel(Document):
    """The content of ui_tree.json. `timestamp` is ISO 8601; `root` stays an unparsed value."""

    timestamp: str
    screen: _ScreenModel
    root: Any

    @field_validator("timestamp")
    @classmethod
    def _iso(cls, value: str) -> str:
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("Input should be an ISO 8601 time stamp") from None
        return value


Nodes = Mapping[str, TreeNode]
"""Valid nodes by id, in document order."""

_DECODER = msgspec.json.Decoder(_Document)
_Faults = Sequence[tuple[str, str]]  # (code, message)


class _DecodedTree(NamedTuple):
    """A decoded UI tree.

    Attributes:
        screen: declared width and height, pixels.
        nodes: the valid nodes by id.
        timestamp: ISO 8601.
    """

    screen: tuple[int, int]
    nodes: Nodes
    timestamp: str


def decode_tree(data: bytes) -> _DecodedTree | None:
    """Decodes a valid ui_tree.json.

    Returns:
        The tree, or None if a key or value breaks the format, an id occurs twice, or the tree is
        too deep for the decoder. `check_tree` then finds the problems, if any.
    """
    try:
        data.decode()  # msgspec does not check the encoding of unknown keys
        document = _DECODER.decode(data)
        datetime.fromisoformat(document.timestamp)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    nodes = dict[str, TreeNode]()
    count = 0
    pending = [document.root]
    while pending:
        node = pending.pop()
        nodes[node.id] = node
        count += 1
        if node.children:
            pending += node.children[::-1]
    if len(nodes) != count or not all(map(_ID.fullmatch, nodes)):
        return None
    return _DecodedTree((document.screen.width, document.screen.height), nodes, document.timestamp)


def check_tree_bytes(data: bytes, file: str) -> tuple[Nodes, list[Problem]]:
    """Checks the bytes of a ui_tree.json like `check_tree`, but faster if all nodes are valid.

    Raises:
        JsonFileError: the bytes are not UTF-8 or not JSON.
    """
    checked = _checked_fast(data)
    if checked is not None:
        return checked[0], [replace(problem, file=file) for problem in checked[1]]
    text = decode_text(data, file)
    return check_tree(parse_json(text, file), file, text)


@lru_cache(maxsize=2)  # consecutive steps often have the same tree
def _checked_fast(data: bytes) -> tuple[Nodes, Sequence[Problem]] | None:
    """Returns the nodes and the problems (without file names), or None for an invalid tree."""
    tree = decode_tree(data)
    return None if tree is None else (tree.nodes, list(_problems(tree, (), "")))


def check_tree(value: Any, file: str, text: str = "") -> tuple[Nodes, list[Problem]]:
    """Checks a parsed ui_tree.json.

    Args:
        file: the name of the file in the returned problems.
        text: the JSON text, for line numbers.

    Returns:
        The valid nodes by id, and the problems: at most `MAX_PROBLEMS`.
    """
    document, problems = check(_TreeModel, value, file, text)
    if document is None:
        return {}, problems
    nodes, faults = _read_nodes(document.root)
    screen = (document.screen.width, document.screen.height)
    problems += _problems(_DecodedTree(screen, nodes, document.timestamp), faults, file)
    return nodes, limited(problems)


def _read_nodes(root: Any) -> tuple[Nodes, _Faults]:
    """Returns the valid nodes, and the faults of all other nodes. The tree may have any depth."""
    nodes = dict[str, TreeNode]()
    faults = list[tuple[str, str]]()
    pending = [root]
    number = 0
    while pending:
        value = pending.pop()
        try:
            node = _plain(_NodeModel.model_validate(value))
        except ValidationError as error:
            name = f"node number {number} in document order"
            for place, explanation in explain(error):
                faults.append(
                    ("invalid_node", f"{name}: {field_name(place) or 'node'}: {explanation}")
                )
        else:
            if nodes.setdefault(node.id, node) is not node:
                faults.append(("duplicate_node", f"id {node.id} occurs twice"))
        number += 1
        children = value.get("children") if isinstance(value, dict) else None
        if isinstance(children, list):
            pending.extend(reversed(children))
    return nodes, faults


def _plain(node: _NodeModel) -> TreeNode:
    bounds = NodeBounds(node.bounds.x, node.bounds.y, node.bounds.width, node.bounds.height)
    return TreeNode(node.id, node.role, node.name, bounds, node.states)


def _problems(tree: _DecodedTree, faults: _Faults, file: str) -> Iterator[Problem]:
    """Yields the problems of a tree, given the faults of its nodes."""
    if datetime.fromisoformat(tree.timestamp).tzinfo is None:
        message = "timestamp: has no time zone; write Z or an offset"
        yield warning("time_zone", file, message)
    if tree.screen != (CANVAS_WIDTH, CANVAS_HEIGHT):
        size = f"{tree.screen[0]}x{tree.screen[1]}, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
        yield Problem("screen_size", file, f"screen is {size}", remedy="map the tree to the canvas")
    for code, message in faults:
        yield Problem(code, file, message, remedy="correct the node")
    # Nodes of other displays, scrolled lists and minimised windows may lie outside the screen, but
    # should not have the state `visible`.
    if outside := [node.id for node in tree.nodes.values() if _is_off_canvas(node)]:
        count = f"{len(outside)} visible nodes are" if len(outside) > 1 else "1 visible node is"
        yield warning("node_outside", file, f"{count} outside the screen, first {outside[0]}")
    if not faults:
        yield from _root_warnings(next(iter(tree.nodes.values())), file)


def _is_off_canvas(node: TreeNode) -> bool:
    """Returns whether a node has the state `visible` and an area, but lies outside the canvas."""
    box = node.bounds
    is_outside = (
        box.x >= CANVAS_WIDTH
        or box.y >= CANVAS_HEIGHT
        or box.x + box.width <= 0
        or box.y + box.height <= 0
    )
    has_area = bool(box.width and box.height)
    return is_outside and has_area and ElementState.VISIBLE in node.states


def _root_warnings(root: TreeNode, file: str) -> Iterator[Problem]:
    bounds = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    if root.role is not Role.DESKTOP:
        yield warning("root_role", file, f"root: role is {root.role}, expected desktop")
    if bounds != (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT):
        yield warning("root_bounds", file, "root: bounds are not the whole screen")


def check_action(action: StepAction, nodes: Nodes | None, file: str) -> list[Problem]:
    """Returns the problems of an action.

    Args:
        nodes: the nodes of the step's tree; None if the tree could not be read.
        file: the name of the file in the returned problems.
    """
    problems = list(_point_problems(action, file))
    if isinstance(action.parameters, TypeParameters) and not action.parameters.text:
        problems.append(warning("empty_text", file, "parameters.text: is empty"))
    problems += _form_warnings(action, file)
    if nodes is not None:
        problems += _target_problems(action, nodes, file)
    return problems


def _form_warnings(action: StepAction, file: str) -> Iterator[Problem]:
    """Yields warnings for a click without a button, and for key names that are not canonical."""
    parameters = action.parameters
    if isinstance(parameters, ClickParameters) and "button" not in parameters.model_fields_set:
        message = "parameters.button: is missing; the left one is assumed"
        yield warning("missing_field", file, message)
    keys = parameters.keys if isinstance(parameters, HotkeyParameters) else ()
    for field, names in (("keys", keys), ("modifiers", getattr(parameters, "modifiers", None))):
        count = sum(not is_canonical_key(name) for name in names or ())
        if count:
            message = f"parameters.{field}: {count} not in pyautogui's lower-case names"
            yield warning("key_name", file, message)


def _point_problems(action: StepAction, file: str) -> Iterator[Problem]:
    for x, y in points(action):
        if not (0 <= x < CANVAS_WIDTH and 0 <= y < CANVAS_HEIGHT):
            message = f"parameters: point ({x}, {y}) is outside {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
            yield Problem("point_outside", file, message, remedy="map the point to the canvas")


def _target_problems(action: StepAction, nodes: Nodes, file: str) -> Iterator[Problem]:
    """Yields problems if the target's node is missing in the tree or contradicts the action."""
    target = action.target_element
    if target is None:
        return
    node = nodes.get(target.id)
    if node is None:
        message = f"target_element.id: {target.id} is not in this step's tree"
        yield Problem("target_missing", file, message, remedy="take the id from ui_tree.json")
        return
    for key in ("role", "name"):
        if getattr(target, key) != getattr(node, key):
            message = f"target_element.{key}: differs from the {key} of {target.id} in ui_tree.json"
            yield Problem("target_differs", file, message, remedy=f"copy the node's {key}")
    touched = points(action)
    if touched and not _contains(node.bounds, *touched[0]):
        message = f"target_element: the point is outside the bounds of {target.id}"
        yield warning("point_off_target", file, message)


def _contains(box: NodeBounds, x: float, y: float) -> bool:
    """Returns whether a point is in a box or on its edge.

    The edge is included because rounding may move a point there.
    """
    return box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height


IndexFault = tuple[str, Location, str]
_STEP_FILES = {"screenshot.png", "screenshot_native.png", "ui_tree.json", "action.json"}
_TRAJECTORY_FILES = {"task.json", "result.json", "final_screenshot.png", "steps"}
# Files that this pipeline adds to the format.
_OUR_FILES = {
    "final_screenshot_native.png",
    "manifest.json",
    "source.json",
    "provenance.parquet",
    "hidden_actions.parquet",
    "differing_trees.json",
    "redactions.json",
    "redactions.parquet",
}


@dataclass(frozen=True, slots=True)
class _IndexCounts:
    """The values of a trajectory folder that must equal those in its index.json entry.

    Attributes:
        steps: number of step folders.
        task_id, application: the values in task.json; None if the file could not be read.
        success: the value in result.json; None if the file could not be read.
    """

    steps: int
    task_id: str | None = None
    application: str | None = None
    success: bool | None = None


def validate_dataset(path: Path) -> list[Problem]:
    """Returns the problems of a dataset; their files are relative to `path`.

    Args:
        path: the folder that contains index.json and trajectories/.
    """
    if not path.is_dir():
        message = "the folder does not exist"
        remedy = "check the path"
        return [Problem("missing_folder", ".", message, remedy=remedy)]
    problems = list[Problem]()
    summaries = dict[str, _IndexCounts]()
    for folder in trajectory_folders(path):
        summaries[folder.name], trajectory_problems = _trajectory(folder, folder.name)
        prefix = f"trajectories/{folder.name}/"
        problems += [
            replace(problem, file=prefix + problem.file) for problem in trajectory_problems
        ]
    return [*_metadata(path), *check_index(path / "index.json", summaries), *problems]


def _metadata(path: Path) -> list[Problem]:
    if (path / "metadata.json").exists():
        return read_document(Metadata, path / "metadata.json", "metadata.json")[1]
    message = "the file is missing: the program that made the dataset is unknown"
    return [warning("missing_file", "metadata.json", message)]


def check_index(path: Path, summaries: Mapping[str, _IndexCounts]) -> list[Problem]:
    """Returns the problems of index.json, each with the line of its entry.

    Args:
        summaries: the values of each trajectory folder, by folder name.
    """
    index, problems = read_document(Index, path, "index.json")
    if index is None:
        return problems
    faults = [*_counts(index), *_against_folders(index, summaries)]
    # Locating lines takes a lot of memory, so it is done only if there are faults.
    text = decode_text(read_bytes(path, "index.json"), "index.json") if faults else "{}"
    place_of = places_in(text)
    for code, where, message in faults:
        problem = Problem(code, "index.json", message, remedy="build the index again")
        line, column = place_of(where)
        problems.append(replace(problem, line=line, column=column))
    if "version" not in index.model_fields_set:
        message = 'version: is missing; "1.0" is assumed'
        problems.append(warning("missing_field", "index.json", message))
    if index.version != "1.0":
        problems.append(warning("version", "index.json", "version: only 1.0 is supported"))
    return problems


def _counts(index: Index) -> Iterator[IndexFault]:
    successful = sum(entry.success for entry in index.trajectories)
    entries = len(index.trajectories)
    actual = {
        "total_trajectories": entries,
        "successful": successful,
        "failed": entries - successful,
    }
    for key, count in actual.items():
        if (stated := getattr(index, key)) != count:
            yield "index_count", (key,), f"{key}: {stated}, but the entries give {count}"


def _against_folders(index: Index, summaries: Mapping[str, _IndexCounts]) -> Iterator[IndexFault]:
    times = Counter(entry.id for entry in index.trajectories)
    for number, entry in enumerate(index.trajectories):
        where: Location = ("trajectories", number)
        if times[entry.id] > 1:
            message = f"{entry.id!r} is listed {times[entry.id]} times"
            yield "index_duplicate", (*where, "id"), message
        if entry.id not in summaries:
            message = f"{entry.id!r} has no folder in trajectories/"
            yield "index_folder", (*where, "id"), message
            continue
        for key in ("steps", "success", "task_id", "application"):
            stated = getattr(entry, key)
            actual = getattr(summaries[entry.id], key)
            if actual not in {None, stated}:
                difference = f"{stated!r}, but the files of the trajectory have {actual!r}"
                yield "index_differs", (*where, key), f"trajectories[{number}].{key}: {difference}"
    for name in sorted(summaries.keys() - times.keys()):
        yield "index_missing", ("trajectories",), f"trajectories/{name} is not listed"


def validate_trajectory(path: Path, trajectory_id: str | None = None) -> list[Problem]:
    """Returns the problems of a trajectory.

    Args:
        path: the folder of the trajectory, or a link to the folder.
        trajectory_id: the id that result.json must contain; None means the folder's name.

    Returns:
        The problems. Their files are relative to `path`, and their `demonstration` is the
        trajectory's id.
    """
    return _trajectory(path, path.name if trajectory_id is None else trajectory_id)[1]


def _trajectory(path: Path, name: str) -> tuple[_IndexCounts, list[Problem]]:
    task, problems = read_document(Task, path / "task.json", "task.json")
    result, result_problems = read_document(Result, path / "result.json", "result.json")
    folders = step_folders(path)
    problems += result_problems
    problems += _unknown_files(path, _TRAJECTORY_FILES | _OUR_FILES, "")
    problems += _numbering(path, folders)
    problems += _with_lines(_totals(name, task, result, len(folders)), path, "")
    for number, folder in folders:
        problems += _step(number, folder, f"steps/{folder.name}")
    problems += check_png(path / "final_screenshot.png", "final_screenshot.png")
    summary = _IndexCounts(
        len(folders),
        task.task_id if task else None,
        task.application if task else None,
        result.success if result else None,
    )
    return summary, [replace(problem, demonstration=name) for problem in problems]


def _unknown_files(folder: Path, expected: set[str], name: str) -> Iterator[Problem]:
    """Yields a warning for each file or folder that is not part of the format."""
    entries = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only
    for entry in sorted(set(entries) - expected):
        printable = entry.encode("utf-8", "backslashreplace").decode()
        file = f"{name}/{printable}" if name else printable
        yield warning("unknown_file", file, "not part of the format")


def _numbering(path: Path, folders: list[tuple[int, Path]]) -> Iterator[Problem]:
    """Yields problems if the step folders are not named 000, 001 and so on without a gap."""
    names = {folder.name for _, folder in folders}
    yield from _unknown_files(path / "steps", names, "steps")
    if not folders:
        yield Problem("no_steps", "steps", "has no step folder", remedy="add step folders from 000")
    for expected, (number, folder) in enumerate(folders):
        if number != expected:
            file = f"steps/{folder.name}"
            rule = "numbers start at 000, without gap or duplicate"
            message = f"expected step {expected:03d}: {rule}"
            yield Problem("step_order", file, message, remedy="renumber the steps")
            return
        if folder.name != f"{number:03d}":
            file = f"steps/{folder.name}"
            yield warning("step_name", file, f"expected the folder name {number:03d}")


def _totals(name: str, task: Task | None, result: Result | None, steps: int) -> Iterator[Problem]:
    if result is not None:
        if result.trajectory_id != name:
            message = "trajectory_id: differs from the folder's name"
            yield Problem("id_differs", "result.json", message, remedy="use the folder's name")
        if result.total_steps != steps:
            message = f"total_steps: {result.total_steps}, but there are {steps} step folders"
            remedy = "set it to the number of step folders"
            yield Problem("total_steps", "result.json", message, remedy=remedy)
        if result.success and result.error_message is not None:
            message = "error_message: is set although success is true"
            yield warning("error_message", "result.json", message)
        if not result.success and not result.error_message:
            message = "error_message: says no reason although success is false"
            yield warning("error_message", "result.json", message)
    if task is not None and task.expected_steps != steps:
        # A difference is only a warning, because the example in the format document expects 3 steps
        # and has 4.
        message = f"expected_steps: {task.expected_steps}, but there are {steps} step folders"
        yield warning("expected_steps", "task.json", message)


def _step(number: int, folder: Path, name: str) -> Iterator[Problem]:
    yield from _unknown_files(folder, _STEP_FILES, name)
    yield from check_png(folder / "screenshot.png", f"{name}/screenshot.png")
    nodes, problems = _tree(folder / "ui_tree.json", f"{name}/ui_tree.json")
    yield from problems
    file = f"{name}/action.json"
    action, problems = read_document(StepAction, folder / "action.json", file)
    yield from problems
    if action is not None:
        action_problems = check_action(action, nodes, file)
        if action.step_index != number:
            message = f"step_index: {action.step_index}, but the folder is {folder.name}"
            remedy = "use the folder's number"
            action_problems.insert(0, Problem("step_index", file, message, remedy=remedy))
        yield from _with_lines(action_problems, folder, f"{name}/")


def _with_lines(problems: Iterable[Problem], folder: Path, prefix: str) -> Iterator[Problem]:
    """Adds to each problem the line and column of the field that the problem concerns.

    Args:
        problems: problems of JSON files that could be read. Each message begins with the dotted
            name of a field, and a colon.
        folder: the folder of these files.
        prefix: added to the file names in `problems`.
    """
    for problem in problems:
        name = problem.file.removeprefix(prefix)
        text = decode_text(read_bytes(folder / name, problem.file), problem.file)
        field = tuple(problem.message.partition(":")[0].split("."))
        line, column = places_in(text)(field)
        yield replace(problem, line=line, column=column)


def _tree(path: Path, file: str) -> tuple[Nodes | None, list[Problem]]:
    """Returns the nodes and the problems of a tree; the nodes are None for an unreadable file."""
    try:
        return check_tree_bytes(read_bytes(path, file), file)
    except JsonFileError as error:
        return None, [json_problem(error, exists=path.is_file())]


def check_png(path: Path, file: str) -> list[Problem]:
    """Returns the problems of a screenshot, which has to be a complete PNG of 1920x1080 pixels."""
    try:
        info = probe_image_file(path)
    except OSError as error:
        raise_system_trouble(error)
        unreadable = JsonFileError(file, None, f"cannot be read: {error.strerror}")
        return [json_problem(unreadable, exists=path.is_file())]
    except ValueError as error:
        return [Problem("invalid_png", file, str(error), remedy="write the screenshot again")]
    if info.kind != "png":
        message = f"is a {info.kind.upper()}, not a PNG"
        return [Problem("invalid_png", file, message, remedy="convert it to PNG")]
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return []
    message = f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
    return [Problem("screenshot_size", file, message, remedy="scale the screenshot to the canvas")]
