"""Tests that the examples of the OSWorld-Desktopd document are read without a problem.

The `...` that stands for more content in the examples of the document is left out here.
"""

import json
from typing import Any

import pytest

from demo_pipeline.desktopd.models import Index, Result, StepAction, Task
from demo_pipeline.desktopd.validator import check_tree, validate_trajectory
from demo_pipeline.files.base_model import Document, check
from demo_pipeline.files.json_files import dump_json, json_bytes, parse_json
from demo_pipeline.problems import Severity
from demo_pipeline_tests.desktopd import good_dataset as good

TASK = """\
{
  "task_id": "chrome_open_google",
  "instruction": "Open Chrome and navigate to google.com",
  "osworld_task_id": "chrome_001",
  "application": "chrome",
  "difficulty": "easy",
  "expected_steps": 3
}
"""

UI_TREE = """\
{
  "timestamp": "2025-01-29T10:30:00Z",
  "screen": {
    "width": 1920,
    "height": 1080
  },
  "root": {
    "id": "node_0",
    "role": "desktop",
    "name": "",
    "bounds": {"x": 0, "y": 0, "width": 1920, "height": 1080},
    "children": [
      {
        "id": "node_1",
        "role": "window",
        "name": "Google Chrome",
        "bounds": {"x": 100, "y": 50, "width": 1200, "height": 800},
        "states": ["focused", "active"],
        "children": []
      }
    ]
  }
}
"""

ACTION = """\
{
  "step_index": 0,
  "action_type": "click",
  "parameters": {
    "x": 500,
    "y": 300,
    "button": "left"
  },
  "target_element": {
    "id": "node_15",
    "role": "button",
    "name": "Search"
  },
  "reasoning": "Click the search button to submit query"
}
"""

RESULT = """\
{
  "trajectory_id": "traj_001",
  "success": true,
  "total_steps": 5,
  "completion_time_ms": 12500,
  "error_message": null,
  "model_info": {
    "name": "qwen-vl-7b",
    "version": "1.0"
  }
}
"""

INDEX = """\
{
  "version": "1.0",
  "total_trajectories": 100,
  "successful": 85,
  "failed": 15,
  "trajectories": [
    {
      "id": "traj_chrome_001",
      "task_id": "chrome_open_google",
      "success": true,
      "steps": 4,
      "application": "chrome"
    }
  ]
}
"""

# The actions of the complete example, in the order of its step folders.
WORK: list[tuple[str, dict[str, Any]]] = [
    ("click", {"x": 40, "y": 1060, "button": "left"}),
    ("click", {"x": 500, "y": 60, "button": "left"}),
    ("type", {"text": "google.com"}),
    ("hotkey", {"keys": ["enter"]}),
]


@pytest.mark.parametrize(
    ("model", "example"), [(Task, TASK), (StepAction, ACTION), (Result, RESULT), (Index, INDEX)]
)
def test_an_example_is_read_without_a_problem_and_written_unchanged(
    model: type[Document], example: str
) -> None:
    document, problems = check(model, json.loads(example), "example.json", example)
    assert document is not None
    assert problems == []
    assert parse_json(json_bytes(document), "example.json") == json.loads(example)


def test_the_example_of_a_tree_has_no_problem() -> None:
    nodes, problems = check_tree(json.loads(UI_TREE), "ui_tree.json", UI_TREE)
    assert problems == []
    assert {name: node.role.value for name, node in nodes.items()} == {
        "node_0": "desktop",
        "node_1": "window",
    }


def test_the_complete_example_is_valid(tmp_path):
    """The only warning is that the example has 4 steps, although its task expects 3."""
    folder = tmp_path / "traj_chrome_001"
    dump_json(folder / "task.json", json.loads(TASK))
    values = json.loads(RESULT) | {"trajectory_id": folder.name, "total_steps": len(WORK)}
    dump_json(folder / "result.json", values)
    for number, (kind, parameters) in enumerate(WORK):
        step = folder / "steps" / f"{number:03d}"
        action = {
            "step_index": number,
            "action_type": kind,
            "parameters": parameters,
            "target_element": None,
            "reasoning": "",
        }
        dump_json(step / "action.json", action)
        dump_json(step / "ui_tree.json", json.loads(UI_TREE))
        (step / "screenshot.png").write_bytes(good.png())
    (folder / "final_screenshot.png").write_bytes(good.png())
    [problem] = validate_trajectory(folder)
    assert (problem.code, problem.severity) == ("expected_steps", Severity.WARNING)
