"""Tests the problems of a valid dataset in which a single thing is made wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.desktopd.models import is_canonical_key
from demo_pipeline.desktopd.validator import validate_dataset, validate_trajectory
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.problems import Severity, errors
from demo_pipeline.recording.key_names import output_key_names
from demo_pipeline_tests.desktopd import good_dataset as good
from demo_pipeline_tests.places import file_and_line

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return good.write_dataset(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def dataset(pristine, tmp_path):
    return Path(shutil.copytree(pristine, tmp_path / "dataset"))


def put(file: str, path: tuple[str | int, ...], value: Any) -> Change:
    """Sets a value of a JSON file, or deletes it (with `...`)."""

    def change(root: Path) -> None:
        document = load_json(root / file)
        place = document
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        elif isinstance(place, list) and path[-1] == len(place):
            place.append(value)
        else:
            place[path[-1]] = value
        dump_json(root / file, document)

    return change


def write(file: str, data: bytes) -> Change:
    return lambda root: (root / file).write_bytes(data)


def remove(file: str) -> Change:
    def change(root: Path) -> None:
        path = root / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def rename(old: str, new: str) -> Change:
    return lambda root: (root / old).rename(root / new)


T = f"trajectories/{good.NAME}/"
ACTION = T + "steps/000/action.json"
TREE = T + "steps/000/ui_tree.json"
SCREEN = T + "steps/001/screenshot.png"
WINDOW = ("root", "children", 0)
BUTTON = (*WINDOW, "children", 0)
TASK = T + "task.json"
RESULT = T + "result.json"
PNG = good.png()

Wrong = tuple[Change, str, str, str]

# A change of the dataset, and the code, the place and a part of the message of the problem.
WRONG: list[Wrong] = [
    (remove(TASK), "missing_file", TASK, "missing"),
    (remove(RESULT), "missing_file", RESULT, "missing"),
    (remove(T + "final_screenshot.png"), "missing_file", T + "final_screenshot.png", "missing"),
    (remove(T + "steps"), "no_steps", T + "steps", "no step"),
    (remove(T + "steps/003"), "step_order", T + "steps/004", "expected step 003"),
    (rename(T + "steps/003", T + "steps/0004"), "step_order", T + "steps/0004", "step 003"),
    (remove(SCREEN), "missing_file", SCREEN, "missing"),
    (remove(TREE), "missing_file", TREE, "missing"),
    (remove(ACTION), "missing_file", ACTION, "missing"),
    (write(SCREEN, b""), "invalid_png", SCREEN, "empty"),
    (write(SCREEN, b"hello"), "invalid_png", SCREEN, "neither"),
    (write(SCREEN, PNG[:200]), "invalid_png", SCREEN, "cut off"),
    (write(SCREEN, PNG[:60] + b"?" + PNG[61:]), "invalid_png", SCREEN, "damaged"),
    (write(SCREEN, good.png(1280, 720)), "screenshot_size", SCREEN, "1280x720"),
    (write(ACTION, b'{\n"step_index": 0,\n}'), "invalid_json", ACTION + ":3", "JSON"),
    (write(ACTION, b"[]"), "invalid_field", ACTION + ":1", "document"),
    (put(ACTION, ("step_index",), 1), "step_index", ACTION + ":2", "folder is 000"),
    (put(ACTION, ("step_index",), "0"), "invalid_field", ACTION + ":2", "step_index"),
    (put(ACTION, ("action_type",), "tap"), "invalid_field", ACTION + ":3", "action_type"),
    (put(ACTION, ("action_type",), "scroll"), "invalid_field", ACTION + ":4", "direction"),
    (put(ACTION, ("parameters", "x"), ...), "invalid_field", ACTION + ":4", "x: Field required"),
    (put(ACTION, ("parameters", "button"), "side"), "invalid_field", ACTION + ":4", "button"),
    (put(ACTION, ("parameters", "x"), 1920), "point_outside", ACTION + ":4", "(1920, 300)"),
    (put(ACTION, ("parameters", "y"), -1), "point_outside", ACTION + ":4", "(500, -1)"),
    (put(ACTION, ("reasoning",), None), "invalid_field", ACTION + ":14", "reasoning"),
    (put(ACTION, ("target_element", "id"), "15"), "invalid_field", ACTION + ":10", "id"),
    (put(ACTION, ("target_element", "id"), "node_9"), "target_missing", ACTION + ":10", "node_9"),
    (put(ACTION, ("target_element", "role"), "link"), "target_differs", ACTION + ":11", "role"),
    (put(ACTION, ("target_element", "name"), "Find"), "target_differs", ACTION + ":12", "name"),
    (put(TREE, ("timestamp",), "noon"), "invalid_field", TREE + ":2", "ISO 8601"),
    (put(TREE, ("screen", "width"), 3440), "screen_size", TREE, "3440x1080"),
    (put(TREE, ("root",), None), "invalid_node", TREE, "node number 0"),
    (put(TREE, (*BUTTON, "id"), "node_1"), "duplicate_node", TREE, "node_1"),
    (put(TREE, (*BUTTON, "id"), "button_2"), "invalid_node", TREE, "number 2 in"),
    (put(TREE, (*BUTTON, "role"), "Button"), "invalid_node", TREE, "role"),
    (put(TREE, (*BUTTON, "name"), ...), "invalid_node", TREE, "name: Field required"),
    (put(TREE, (*BUTTON, "states"), ["enabled"]), "invalid_node", TREE, "states[0]"),
    (put(TREE, (*BUTTON, "bounds", "width"), -60), "invalid_node", TREE, "bounds.width"),
    (put(TREE, (*BUTTON, "bounds", "x"), 1.5), "invalid_node", TREE, "bounds.x"),
    (put(TREE, (*WINDOW, "children"), {}), "invalid_node", TREE, "children"),
    (put(TREE, (*WINDOW, "children"), ["x"]), "invalid_node", TREE, "node number 2"),
    (put(TASK, ("task_id",), ""), "invalid_field", TASK + ":2", "task_id"),
    (put(TASK, ("instruction",), ...), "invalid_field", TASK + ":1", "instruction"),
    (put(TASK, ("difficulty",), "Easy"), "invalid_field", TASK + ":6", "difficulty"),
    (put(RESULT, ("trajectory_id",), "t2"), "id_differs", RESULT + ":2", "folder"),
    (put(RESULT, ("total_steps",), 9), "total_steps", RESULT + ":4", "8 step"),
    (put(RESULT, ("success",), "yes"), "invalid_field", RESULT + ":3", "success"),
    (put(RESULT, ("model_info",), {}), "invalid_field", RESULT + ":7", "name"),
    (put(RESULT, ("success",), False), "index_differs", "index.json:10", "success"),
    (put(TASK, ("application",), "gimp"), "index_differs", "index.json:12", "'gimp'"),
    (put("index.json", ("total_trajectories",), 2), "index_count", "index.json:3", "give 1"),
    (put("index.json", ("successful",), 0), "index_count", "index.json:4", "successful"),
    (put("index.json", ("failed",), 1), "index_count", "index.json:5", "failed"),
    (put("index.json", ("trajectories", 0, "steps"), 4), "index_differs", "index.json:11", "8"),
    (
        put("index.json", ("trajectories", 0, "task_id"), "x"),
        "index_differs",
        "index.json:9",
        "task",
    ),
    (
        put("index.json", ("trajectories", 0, "id"), "../x"),
        "index_folder",
        "index.json:8",
        "no folder",
    ),
    (put("index.json", ("trajectories",), []), "index_missing", "index.json:6", good.NAME),
    (remove("index.json"), "missing_file", "index.json", "missing"),
    (write("metadata.json", b"{"), "invalid_json", "metadata.json:1", "JSON"),
    (put("metadata.json", ("counts",), []), "invalid_field", "metadata.json:7", "counts"),
]

OFF = {
    "id": "node_3",
    "role": "button",
    "name": "",
    "bounds": {"x": -60, "y": 10, "width": 60, "height": 20},
    "states": ["visible"],
}

ODD: list[Wrong] = [
    (remove("metadata.json"), "missing_file", "metadata.json", "is unknown"),
    (put(TASK, ("expected_steps",), 3), "expected_steps", TASK, "8 step"),
    (put(TASK, ("extra",), 1), "unknown_field", TASK, "extra"),
    (put(ACTION, ("parameters", "zz"), 1), "unknown_field", ACTION, "zz"),
    (put(ACTION, ("parameters", "x"), 1700), "point_off_target", ACTION, "node_2"),
    (put(TREE, (*WINDOW, "children", 1), OFF), "node_outside", TREE, "first node_3"),
    (put(TREE, ("root", "role"), "window"), "root_role", TREE, "window"),
    (put(TREE, ("root", "bounds", "width"), 10), "root_bounds", TREE, "whole screen"),
    (put(RESULT, ("error_message",), "x"), "error_message", RESULT, "success"),
    (write(T + "notes.txt", b"x"), "unknown_file", T + "notes.txt", "format"),
    (write(T + "steps/000/old.png", b"x"), "unknown_file", T + "steps/000/old.png", "format"),
    (rename(T + "steps/007", T + "steps/7"), "step_name", T + "steps/7", "007"),
    (put("index.json", ("version",), "2.0"), "version", "index.json", "1.0"),
    (put("index.json", ("version",), ...), "missing_field", "index.json", "version: is missing"),
    (put(ACTION, ("parameters", "button"), ...), "missing_field", ACTION, "parameters.button"),
    (put(ACTION, ("parameters", "modifiers"), ["Control"]), "key_name", ACTION, "modifiers: 1 not"),
    (put(TREE, ("timestamp",), "2025-01-29T10:30:00"), "time_zone", TREE, "no time zone"),
]


def test_the_good_dataset_has_no_problem(dataset):
    assert validate_dataset(dataset) == []
    assert validate_trajectory(dataset / "trajectories" / good.NAME) == []


@pytest.mark.parametrize(("change", "code", "location", "message"), WRONG)
def test_one_fault_is_one_error_with_its_location(dataset, change, code, location, message):
    change(dataset)
    problems = errors(validate_dataset(dataset))
    matching = [p for p in problems if p.code == code and location in (file_and_line(p), p.file)]
    assert any(message in p.message for p in matching), problems
    assert all(str(dataset) not in str(p) for p in problems)


def test_keys_of_other_names_are_a_warning_that_does_not_quote_them(dataset):
    file = T + "steps/004/action.json"
    put(file, ("parameters", "keys"), ["Control", "Return", "c", "f5", "C"])(dataset)
    [problem] = validate_dataset(dataset)
    assert (problem.code, problem.severity) == ("key_name", Severity.WARNING)
    assert "parameters.keys: 3 not in" in problem.message
    assert "Control" not in problem.message


def test_every_name_that_the_pipeline_gives_a_key_is_canonical():
    assert all(map(is_canonical_key, output_key_names()))


def test_a_failure_without_a_reason_is_a_warning(dataset):
    put(T + "result.json", ("success",), False)(dataset)
    problems = [p for p in validate_dataset(dataset) if p.file.endswith("result.json")]
    assert [(p.code, p.severity) for p in problems] == [("error_message", Severity.WARNING)]
    put(T + "result.json", ("error_message",), "gave up")(dataset)
    assert not any(p.file.endswith("result.json") for p in validate_dataset(dataset))


def test_a_document_on_one_line_has_columns(dataset):
    path = dataset / "index.json"
    index = json.loads(path.read_text())
    index["trajectories"][0]["steps"] = 3
    text = json.dumps(index)
    path.write_text(text)
    [problem] = validate_dataset(dataset)
    column = text.index('"steps"') + 1
    assert problem.location == f"index.json:1:{column}"
    path.write_text(text.replace('"steps": 3', '"steps": "3"'))
    assert f"index.json:1:{column}" in {p.location for p in validate_dataset(dataset)}
    path.write_text(text.replace('"steps": 3', '"steps": }'))
    [problem] = [p for p in validate_dataset(dataset) if p.code == "invalid_json"]
    assert problem.location == f"index.json:1:{text.index('3', column) + 1}"


@pytest.mark.parametrize(("change", "code", "location", "message"), ODD)
def test_one_deviation_is_one_warning_with_its_location(dataset, change, code, location, message):
    change(dataset)
    problems = validate_dataset(dataset)
    assert [(p.code, p.severity) for p in problems] == [(code, Severity.WARNING)]
    assert location in (problems[0].location, problems[0].file)
    assert message in problems[0].message


def test_links_to_trajectories_are_followed(pristine, tmp_path):
    root = tmp_path / "linked"
    (root / "trajectories").mkdir(parents=True)
    link = root / "trajectories" / good.NAME
    link.symlink_to(pristine / "trajectories" / good.NAME)
    for name in ("index.json", "metadata.json"):
        shutil.copy(pristine / name, root / name)
    assert validate_dataset(root) == []


def test_a_trajectory_listed_twice_is_reported_with_its_line(dataset):
    index = good.index()
    index["trajectories"] *= 2
    dump_json(dataset / "index.json", index | {"total_trajectories": 2, "successful": 2})
    problems = validate_dataset(dataset)
    assert [(p.code, p.line) for p in problems] == [("index_duplicate", 8), ("index_duplicate", 15)]


def test_what_was_typed_is_in_no_message(dataset):
    path = dataset / T / "steps/003/action.json"
    action = load_json(path)
    dump_json(path, action | {"parameters": {"text": ["hunter2"]}})
    assert "hunter2" not in "\n".join(map(str, validate_dataset(dataset)))
    dump_json(path, action | {"parameters": {"text": "hunter2"}, "target_element": 5})
    problems = validate_dataset(dataset)
    assert problems
    assert "hunter2" not in "\n".join(map(str, problems))


@pytest.mark.parametrize(
    "data", [b"", b"null", b"3", b'"x"', b"[[]]", b"\xff", b"[" * 99_999, b"{}"]
)
def test_no_file_content_crashes_the_validator(dataset, data):
    for file in ("index.json", "metadata.json", T + "task.json", T + "result.json", ACTION, TREE):
        original = (dataset / file).read_bytes()
        (dataset / file).write_bytes(data)
        problems = errors(validate_dataset(dataset))
        assert any(p.file == file for p in problems) or (file, data) == ("metadata.json", b"{}")
        (dataset / file).write_bytes(original)


def test_a_tree_of_any_depth_is_checked(dataset):
    tree = good.deep_tree(2000)
    dump_json(dataset / TREE, tree, compact=True)
    dump_json(dataset / ACTION, good.actions()[0] | {"target_element": None})
    assert validate_dataset(dataset) == []


def test_the_problems_of_a_tree_with_many_faults_are_limited(dataset):
    tree = good.ui_tree()
    tree["root"]["children"] = [None] * 500
    dump_json(dataset / TREE, tree)
    problems = [p for p in validate_dataset(dataset) if p.file == TREE]
    assert len(problems) == 20
    assert "481 more" in problems[-1].message


def test_a_missing_dataset_or_trajectory_is_a_problem(tmp_path):
    assert [p.code for p in validate_dataset(tmp_path / "none")] == ["missing_folder"]
    assert {p.code for p in validate_trajectory(tmp_path / "none")} == {"missing_file", "no_steps"}
