"""Tests imports of annotations from JSON Lines and from the output of OpenCUA's generator."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.annotations.annotate import AnnotateCounts, annotate_all
from demo_pipeline.annotations.annotation_sources import (
    FileProvider,
    import_lines,
    import_opencua,
    rule_provider,
)
from demo_pipeline.annotations.annotation_store import open_judged
from demo_pipeline.exports.agentnet_code import step_code
from demo_pipeline.exports.assemble import build_form
from demo_pipeline.review.review_store import Reviews
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, PrivacySettings
from demo_pipeline_tests.annotations.made import ACTIONS, TYPED, made_store
from demo_pipeline_tests.datasets.builders import make_trajectory
from demo_pipeline_tests.exports.forms import AGENTNET_FORM

LINE = {
    "demonstration": "demo",
    "step": 1,
    "kind": "thought",
    "value": "I type.",
    "source": "model",
    "author": "m-1",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return made_store(tmp_path)


def notes(workspace: Workspace) -> Any:
    return open_judged(
        workspace.store, "demo", Reviews(workspace.store), PrivacySettings()
    ).trajectory.notes


def imported(
    workspace: Workspace, path: Path, lines: list[Any]
) -> tuple[AnnotateCounts, FileProvider]:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    provider = import_lines(path)
    return annotate_all(workspace.store, ["demo"], [provider]), provider


def test_lines_are_imported_once_and_humans_override_models(workspace, tmp_path):
    lines = [
        LINE,
        LINE | {"kind": "step_correct", "value": False},
        LINE | {"kind": "step_correct", "value": True, "source": "human", "author": "ann"},
        LINE | {"step": None, "kind": "instruction_variant", "variant": "brief", "value": "Go"},
        LINE | {"step": 3, "value": "Done."},  # about the end, after three steps
    ]
    counts, provider = imported(workspace, tmp_path / "in.jsonl", lines)
    assert (counts.written, provider.problems) == (5, [])
    assert imported(workspace, tmp_path / "in.jsonl", lines)[0].written == 0
    stored_notes = notes(workspace)
    assert stored_notes[1] == {"thought": ("I type.", "model"), "step_correct": (True, "human")}
    assert stored_notes[None]["brief"].value == "Go"
    assert stored_notes[3]["thought"].value == "Done."


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ({"step": 9}, "wrong_step"),
        ({"kind": "alignment"}, "wrong_kind"),
        ({"kind": "step_correct"}, "wrong_schema"),
        ({"value": ""}, "empty"),
        ({"value": TYPED * 1000}, "too_long"),
        ({"source": "somebody"}, "wrong_schema"),
        ({"author": ""}, "wrong_schema"),
        ({"judged": "x"}, "wrong_schema"),
        ({"time": "now"}, "wrong_schema"),
        ({"step": "1"}, "wrong_step"),
        ({"step": True}, "wrong_schema"),
        ({"step": [1]}, "wrong_step"),
        ({"prompt": ["x"]}, "wrong_schema"),
        ({"demonstration": 4}, "not_json"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_imported(workspace, tmp_path, line, code):
    counts, provider = imported(workspace, tmp_path / "in.jsonl", [LINE | line, LINE])
    assert counts.written == 1
    (problem,) = provider.problems
    assert (problem.code, problem.line, problem.file) == (code, 1, "in.jsonl")
    assert TYPED not in str(problem)


def test_rules_write_the_template_as_thought_and_mark_undone_steps(workspace):
    rules = rule_provider(lambda _: [1, 77])
    assert annotate_all(workspace.store, ["demo"], [rules]).written == 4
    assert annotate_all(workspace.store, ["demo"], [rules]).written == 0
    stored_notes = notes(workspace)
    assert stored_notes[1]["step_redundant"] == (True, "rule")
    assert stored_notes[2] == {"thought": ("Step 2 of the work", "rule")}


def generated(tmp_path: Path) -> dict[str, Any]:
    """Returns the line that OpenCUA's generator would write for the export `agentnet`."""
    trajectory = make_trajectory(
        tmp_path / "again", "demo", ACTIONS, instruction="Open Chrome 0", shade=0
    )
    build_form(
        AGENTNET_FORM,
        [trajectory],
        tmp_path / "export",
        DatasetSettings(train_ratio=1, val_ratio=0),
    )
    (line,) = (tmp_path / "export/code_only/train.jsonl").read_text(encoding="utf-8").splitlines()
    task: dict[str, Any] = json.loads(line)
    last = len(task["traj"]) - 1
    for index, step in enumerate(task["traj"]):
        step["index"] = index
        step["value"] |= {
            "observation": f"I see {index}.",
            "thought": f"I think {index}.",
            "action": f"Do {index}.",
            "last_step_correct": index != 1,
            "last_step_redundant": index == 2,
            "reflection": "" if index == last else f"It did {index}.",
        }
    return task | {
        "task_completed": True,
        "alignment_score": 8,
        "efficiency_score": 7,
        "task_difficulty": 2,
        "reason": "All was done.",
        "actual_task": "Open Chrome and search",
        "natural_language_task": "Could you open Chrome and search?",
    }


def opencua(workspace: Workspace, tmp_path: Path, task: dict[str, Any]) -> FileProvider:
    (tmp_path / "cot.jsonl").write_text(json.dumps(task) + "\n", encoding="utf-8")
    provider = import_opencua(tmp_path / "cot.jsonl", "stub-1", step_code)
    annotate_all(workspace.store, ["demo"], [provider])
    return provider


def test_the_output_of_opencuas_generator_is_imported_without_loss(workspace, tmp_path):
    task = generated(tmp_path)
    assert opencua(workspace, tmp_path, task).problems == []
    stored_notes = notes(workspace)
    whole = {name: note.value for name, note in stored_notes[None].items()}
    assert whole == {
        "task_completed": True,
        "alignment": 8,
        "efficiency": 7,
        "difficulty": 2,
        "reflection": "All was done.",
        "actual": "Open Chrome and search",
        "natural": "Could you open Chrome and search?",
    }
    assert len(task["traj"]) == 4  # three steps and the end
    for index, step in enumerate(task["traj"]):
        names = {"action": "caption", "last_step_correct": "step_correct"}
        names["last_step_redundant"] = "step_redundant"
        expected = {names.get(key, key): value for key, value in step["value"].items()}
        del expected["code"]
        assert {name: note.value for name, note in stored_notes[index].items()} == {
            key: value for key, value in expected.items() if value != ""
        }


@pytest.mark.parametrize("what", ["code", "image", "instruction", "steps"])
def test_a_task_with_other_steps_is_refused(workspace, tmp_path, what):
    task = generated(tmp_path)
    if what == "code":
        task["traj"][1]["value"]["code"] = "pyautogui.write(message='other')"
    elif what == "image":
        task["traj"][1]["image"] = "demo_7.png"
    elif what == "instruction":
        task["instruction"] = "Another task"
    else:
        task["traj"] = [{"image": "demo_0.png"}]
    (problem,) = opencua(workspace, tmp_path, task).problems
    assert problem.line == 1
    assert TYPED not in str(problem)
    assert notes(workspace) == {}
