"""Tests that the validator of AgentNetBench files names file, line and field of each problem."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.evaluation.agentnetbench_files import validate_agentnetbench
from demo_pipeline.problems import Severity
from demo_pipeline_tests.datasets.builders import picture

TYPED = "hunter2"
Document = dict[str, Any]


def action(kind: str, boxes: list[list[float]] | None = None, **params: Any) -> Document:
    targets = [{"category_id": 1, "rel_bbox": box} for box in boxes or ()]
    return {"type": kind, "params": params, "metadata": {"bboxes": targets}}


def good() -> Document:
    at = {"x": 0.5, "y": 0}
    steps = [
        [action("click", [[-0.1, 0.2, 0.3, 0.0]], position=dict(at))],
        [action("moveTo", position=dict(at)), action("scroll", amount=-3)],
        [action("write", text=TYPED), action("press", keys=["enter"])],
        [action("terminate", status="success")],
    ]
    return {
        "task_id": "demo",
        "high_level_task_description": TYPED,
        "steps": [
            {"step_num": 2 * n, "image": f"{n}.png", "ground_truth_actions": actions}
            for n, actions in enumerate(steps)
        ],
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tasks", "images"):
        (tmp_path / name).mkdir()
    for number in range(4):
        (tmp_path / "images" / f"{number}.png").write_bytes(picture(number, 64, 36))
    (tmp_path / "tasks/demo.json").write_text(json.dumps(good(), indent=2))
    return tmp_path


def test_a_folder_with_the_files_that_the_script_reads_is_valid(root):
    assert validate_agentnetbench(root) == []


def test_an_empty_split_is_valid_and_no_folder_is_not(tmp_path):
    for name in ("tasks", "images"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    assert validate_agentnetbench(tmp_path / "empty") == []
    (problem,) = validate_agentnetbench(tmp_path / "empty/tasks")[:1]
    assert (problem.code, problem.file) == ("missing_file", "tasks")


def first(task: Document) -> Document:
    first_action: Document = task["steps"][0]["ground_truth_actions"][0]
    return first_action


def step(number: int, **values: Any) -> Callable[[Document], object]:
    return lambda task: task["steps"][number].update(values)


def box(*sides: float) -> Callable[[Document], object]:
    return lambda task: first(task)["metadata"]["bboxes"][0].update(rel_bbox=list(sides))


def place(x: Any) -> Callable[[Document], object]:
    return lambda task: first(task)["params"]["position"].update(x=x)


CHANGES: list[tuple[Callable[[Document], object], str]] = [
    (lambda task: task.pop("steps"), "steps: Field required"),
    (lambda task: task.pop("task_id"), "task_id: Field required"),
    (lambda task: task.update(steps=[]), "steps: "),
    (lambda task: task.update(high_level_task_description=None), "high_level_task_description: "),
    (step(0, image="none.png"), "steps[0].image: is missing"),
    (step(0, image="../demo.png"), "steps[0].image: "),
    (step(1, ground_truth_actions=[]), "steps[1].ground_truth_actions: "),
    (step(1, alternative_options=[[{"type": "click"}]]), "steps[1].alternative_options[0][0]."),
    (step(1, step_num=0), "steps: step_num does not increase from step to step"),
    (place(1), "steps[0].ground_truth_actions[0].params.position.x: "),
    (place(-0.01), "steps[0].ground_truth_actions[0].params.position.x: "),
    (place("0.5"), "steps[0].ground_truth_actions[0].params.position.x: "),
    (place(True), "steps[0].ground_truth_actions[0].params.position.x: "),
    (box(0.1), "steps[0].ground_truth_actions[0].metadata.bboxes[0].rel_bbox: "),
    (box(0, 0, -1, 0), "metadata.bboxes[0]: rel_bbox is not [x, y, width, height]"),
    (lambda task: first(task)["params"].clear(), "params has no position"),
    (lambda task: first(task).update(type=TYPED), "type is unknown to AgentNetBench's script"),
    (lambda task: first(task).update(type="write"), "params has no text"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=range(len(CHANGES)))
def test_a_wrong_field_of_a_task_is_named(root, change, message):
    task = good()
    change(task)
    (root / "tasks/demo.json").write_text(json.dumps(task, indent=2))
    problems = [p for p in validate_agentnetbench(root) if p.code != "unused_image"]
    assert [problem.file for problem in problems] == ["tasks/demo.json"]
    assert message in problems[0].message
    assert problems[0].severity is Severity.ERROR
    assert TYPED not in str(problems[0])


def test_a_rejected_field_has_its_line(root):
    task = good()
    place(7)(task)
    text = json.dumps(task, indent=2)
    (root / "tasks/demo.json").write_text(text)
    (problem,) = validate_agentnetbench(root)
    assert problem.line == text[: text.index('"x": 7')].count("\n") + 1


@pytest.mark.parametrize("text", ["{", "[]", '{"task_id": NaN}', "\xff"])
def test_a_file_that_is_not_a_task_is_named(root, text):
    (root / "tasks/demo.json").write_bytes(text.encode("latin-1"))
    (problem,) = validate_agentnetbench(root)
    assert problem.file == "tasks/demo.json"


def test_an_image_that_is_damaged_is_named(root):
    (root / "images/3.png").write_bytes(b"x")
    assert [problem.code for problem in validate_agentnetbench(root)] == ["image"]
