import base64
import json
from typing import Any

import pytest

from demo_pipeline.desktopd.models import StepAction
from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.exports.sft import SftSample, validate_sft
from demo_pipeline.files.json_files import json_bytes, load_json, parse_json
from demo_pipeline.problems import Severity
from demo_pipeline_tests.desktopd import good_dataset as good
from demo_pipeline_tests.places import file_and_line


def samples(root):
    """Returns a sample for each step, in the documented form."""
    trajectory = read_trajectory(root / "trajectories" / good.NAME)
    sft_samples = []
    for step in trajectory.steps:
        history = [s.action.model_dump(mode="json") for s in trajectory.steps[: step.index]]
        seen = {
            "instruction": trajectory.task.instruction,
            "screenshot": step.screenshot.relative_to(root).as_posix(),
            "ui_tree": load_json(step.ui_tree),
            "history": history,
        }
        answer = {"action": step.action, "reasoning": step.action.reasoning}
        sft_samples.append(SftSample.model_validate({"input": seen, "output": answer}))
    return sft_samples


@pytest.fixture
def root(tmp_path):
    return good.write_dataset(tmp_path / "dataset")


def write(root, values):
    path = root.parent / "sft" / "train.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(json_bytes(value, compact=True) for value in values))
    return path


def test_samples_of_a_good_dataset_have_no_problem(root):
    assert validate_sft(write(root, samples(root))) == []


def test_a_sample_is_read_back_as_it_was_written(root):
    for sample in samples(root):
        value = parse_json(json_bytes(sample), "x")
        assert SftSample.model_validate(value) == sample
        assert list(value) == ["input", "output"]


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_pictures_may_be_inline_and_trees_referred_to(root, prefix):
    value = parse_json(json_bytes(samples(root)[0]), "x")
    value["input"]["screenshot"] = prefix + base64.b64encode(good.png()).decode()
    value["input"]["ui_tree"] = f"trajectories/{good.NAME}/steps/000/ui_tree.json"
    assert validate_sft(write(root, [value])) == []


def test_without_a_dataset_paths_are_not_followed(tmp_path, root):
    path = write(root, samples(root))
    alone = tmp_path / "far" / "away" / "train.jsonl"
    alone.parent.mkdir(parents=True)
    alone.write_bytes(path.read_bytes())
    problems = validate_sft(alone)
    assert [(p.code, p.severity) for p in problems] == [("no_dataset", Severity.WARNING)]
    assert validate_sft(alone, root) == []


ACTION = StepAction.model_validate(good.actions()[0]).model_dump(mode="json")

WRONG: list[tuple[Any, ...]] = [
    (("input", "instruction"), "", "invalid_field", "input.instruction"),
    (("input", "screenshot"), "../../etc/passwd", "screenshot", "not a path inside"),
    (("input", "screenshot"), "/etc/passwd", "screenshot", "not a path inside"),
    (("input", "screenshot"), "trajectories/none.png", "screenshot", "missing"),
    (("input", "screenshot"), "iVBORw0KGgo!", "screenshot", "base64"),
    (("input", "screenshot"), "iVBORw0KGgoA", "screenshot", "cut off"),
    (("input", "ui_tree"), "../x.json", "ui_tree", "not a path inside"),
    (("input", "ui_tree"), "trajectories/none.json", "missing_file", "input.ui_tree"),
    (("input", "ui_tree"), None, "invalid_field", "input.ui_tree"),
    (("input", "ui_tree", "root"), {}, "invalid_node", "input.ui_tree: node number 0"),
    (("input", "history"), None, "invalid_field", "input.history"),
    (("input", "history"), [{}], "invalid_field", "input.history[0]"),
    (("input", "history"), [ACTION, ACTION], "history_order", "input.history[1]"),
    (("input", "history"), [ACTION | {"step_index": 5}], "history_order", "input.history[0]"),
    (("output", "action", "action_type"), "tap", "invalid_field", "output.action.action_type"),
    (("output", "action", "parameters", "x"), 5000, "point_outside", "output.action"),
    (("output", "action", "target_element", "id"), "node_77", "target_missing", "node_77"),
    (("output", "reasoning"), "because", "reasoning_differs", "output.reasoning"),
    (("output",), [], "invalid_field", "output"),
]


@pytest.mark.parametrize(("path", "value", "code", "message"), WRONG)
def test_one_wrong_thing_is_found_on_its_line(root, path, value, code, message):
    values = [parse_json(json_bytes(sample), "x") for sample in samples(root)[:3]]
    place = values[1]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    problems = validate_sft(write(root, values))
    assert {p.location for p in problems} == {"train.jsonl:2"}
    assert any(p.code == code and message in p.message for p in problems), problems


@pytest.mark.parametrize("line", [b"\n", b"{\n", b"null\n", b"\xff\n", b"[" * 50_000, b"[1e999]"])
def test_a_bad_line_does_not_affect_other_lines(root, line):
    path = write(root, samples(root))
    path.write_bytes(path.read_bytes() + line)
    assert set(map(file_and_line, validate_sft(path))) == {"train.jsonl:9"}


def test_a_missing_file_is_a_finding(tmp_path):
    assert [p.code for p in validate_sft(tmp_path / "none.jsonl")] == ["missing_file"]


def changed(values, number, *keys, value):
    """Replaces a value in sample `number`, and returns all samples."""
    place = values[number]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return values


def plain(root):
    """Returns the samples as plain values, with trees as references to files."""
    values = [parse_json(json_bytes(sample), "x") for sample in samples(root)]
    for number, value in enumerate(values):
        value["input"]["ui_tree"] = f"trajectories/{good.NAME}/steps/{number:03d}/ui_tree.json"
    return values


def codes(root, values):
    return {problem.code for problem in validate_sft(write(root, values))}


@pytest.mark.parametrize("key", ["screenshot", "ui_tree"])
def test_a_file_of_another_step_is_found(root, key):
    values = plain(root)
    other = values[5]["input"][key]
    assert codes(root, changed(values, 2, "input", key, value=other)) == {"wrong_step"}
    [problem] = validate_sft(write(root, values))
    assert problem.location == "train.jsonl:3"
    assert f"input.{key}: is of step 5, but the action is of step 2" in problem.message


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"}", b"", "invalid_json"),
        (b'"root"', b'"roots"', "invalid_field"),
        (b'"name":', b'"names":', "invalid_node"),
        (b'"node_1"', b'"node_2"', "duplicate_node"),
        (b'"', b"\xff", "invalid_json"),
    ],
)
def test_an_error_in_a_referenced_tree_is_reported_on_the_line_of_the_sample(root, old, new, code):
    values = plain(root)
    path = root / values[2]["input"]["ui_tree"]
    tree = json.dumps(load_json(path)).encode()  # on one line, so that errors have a column
    assert old in tree
    path.write_bytes(tree.replace(old, new))
    problems = validate_sft(write(root, values))
    assert code in {problem.code for problem in problems}
    assert {problem.location for problem in problems} == {"train.jsonl:3"}
    assert all("input.ui_tree" in p.message for p in problems if p.code == code), problems


def test_a_gap_in_the_history_is_found_with_the_steps_that_are_absent(root):
    values = plain(root)
    history = values[4]["input"]["history"]
    changed(values, 4, "input", "history", value=[history[0], history[3]])
    [problem] = validate_sft(write(root, values))
    assert (problem.code, problem.location) == ("history_gap", "train.jsonl:5")
    assert "lacks the steps 1, 2 before step 4" in problem.message


def test_an_instruction_that_is_not_the_trajectorys_is_found(root):
    values = changed(plain(root), 3, "input", "instruction", value="Do something else")
    assert codes(root, values) == {"instruction_differs"}


@pytest.mark.parametrize(
    "keys", [("output", "action", "parameters"), ("input", "history", 0, "parameters")]
)
def test_an_action_that_is_not_the_trajectorys_is_found(root, keys):
    values = changed(plain(root), 1, *keys, value={"x": 510, "y": 305, "button": "left"})
    assert "action_differs" in codes(root, values)
