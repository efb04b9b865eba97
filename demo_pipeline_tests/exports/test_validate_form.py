"""Tests that `validate` checks the values in datasets of all export forms.

It also checks the files that these values name.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.record_stages import WITHOUT_FORM
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK
from demo_pipeline_tests.datasets.seen_screens import element, make_seen
from demo_pipeline_tests.exports.changed_rows import change_row, drop_column
from demo_pipeline_tests.exports.forms import build_described, validate_as

OWN = {"sft", "cudag"}  # the validators of these forms are tested elsewhere
FORMS = sorted({*BUILT_IN_EXPORTS} - OWN - WITHOUT_FORM)
FIRST = "trajectories/demo_0/steps/000/screenshot.png"
TRAIN = DatasetSettings(train_ratio=1, val_ratio=0)
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exports")
    save = element("button", "Save", (100, 200, 80, 31))
    demos = [
        make_seen(root, f"demo_{n}", [CLICK] * 2, save, instruction=f"Task {n}", shade=9 * n)
        for n in range(2)
    ]
    for name in FORMS:
        build_described(name, demos, root / name, TRAIN)
    return root


def of_line(file: str, change: Callable[[dict[str, Any]], object], number: int = 0) -> Change:
    """Returns a change of the value in a line of a JSON Lines file, or of a JSON document."""

    def apply(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        lines = [text] if path.suffix == ".json" else text.splitlines()
        value = json.loads(lines[number])
        change(value)
        path.write_text("\n".join([*lines[:number], json.dumps(value), *lines[number + 1 :]]))

    return apply


def of_row(**values: Any) -> Change:
    return lambda folder: change_row(folder / "train.parquet", 0, **values)


def of_file(file: str, how: str) -> Change:
    def apply(folder: Path) -> None:
        path = folder / file
        if how == "gone":
            path.unlink()
        else:
            path.write_text(how)

    return apply


LITE = "cua-lite/demonstrations/desktop/use/train/demonstrations.parquet"
CHANGES: list[tuple[str, Change, str]] = [
    ("transitions", of_row(id="a b"), "invalid_field"),
    ("transitions", of_row(id="demo_0_001"), "duplicate_id"),
    ("transitions", of_row(step_index=-1), "invalid_field"),
    ("transitions", of_row(before="/etc/passwd"), "image"),
    ("transitions", of_row(after="trajectories/demo_0/none.png"), "image"),
    ("transitions", of_row(after=f"trajectories/../{FIRST}"), "image"),
    ("transitions", of_row(after=FIRST), "no_transition"),
    ("transitions", of_row(extra=1), "unknown_field"),
    ("step_labels", of_row(labels=[True]), "lengths"),
    ("step_labels", of_row(outcome="failed"), "unknown_label"),
    ("step_labels", of_row(outcome="done"), "invalid_field"),
    ("step_labels", of_row(images=[FIRST, "x.png"]), "image"),
    ("step_labels", of_row(id="demo_1"), "duplicate_id"),
    ("grounding", of_row(text=""), "invalid_field"),
    ("grounding", of_row(box=[9, 2, 3, 4]), "box"),
    ("grounding", of_row(point=[1, 1]), "point"),
    ("grounding", of_row(role="knob"), "role"),
    ("grounding", of_file("screenspot/train.json", "gone"), "missing_file"),
    ("grounding", of_file("screenspot/train.json", "{}"), "not_an_array"),
    ("messages", of_line("train.jsonl", lambda v: v.pop("messages")), "missing_field"),
    ("messages", of_line("train.jsonl", lambda v: v.update(id="demo_0_001")), "duplicate_id"),
    ("messages", of_line("train.jsonl", lambda v: v["messages"].pop()), "roles"),
    (
        "messages",
        of_line("train.jsonl", lambda v: v["messages"][-1].update(content="click")),
        "tool_call",
    ),
    ("messages", of_file("val.jsonl", "not JSON\n"), "invalid_json"),
    ("messages", of_file("prompt_completion/val.parquet", "gone"), "missing_file"),
    ("messages", of_file("train.parquet", "no table"), "unreadable_table"),
    ("agentnet", of_line("train.jsonl", lambda v: v["traj"][0].update(index=5)), "index"),
    (
        "agentnet",
        of_line("train.jsonl", lambda v: v["traj"][0]["value"].update(code="import os")),
        "code",
    ),
    ("agentnet", of_line("train.jsonl", lambda v: v["traj"][0].update(image="no.png")), "image"),
    ("agentnet", of_file("meta_data_merged.jsonl", "gone"), "missing_file"),
    ("agentnet", of_line("meta_data_merged.jsonl", lambda v: v.update(system="x")), "bad_field"),
    ("atif", of_line("train/demo_0/trajectory.json", lambda v: v["steps"].pop(0)), "bad_field"),
    ("atif", of_file("train/demo_0/images/000.png", "gone"), "image"),
    ("atif", of_line("atif_trajectories.jsonl", lambda v: v.update(split="all")), "bad_field"),
    ("cua_lite", lambda folder: change_row(folder / LITE, 0, metadata="{}"), "metadata"),
    ("cua_lite", lambda folder: change_row(folder / LITE, 0, messages="[]"), "messages"),
    ("cua_lite", lambda folder: drop_column(folder / LITE, "images"), "missing_field"),
]


@pytest.mark.parametrize("name", FORMS)
def test_a_built_folder_is_valid_and_a_missing_folder_is_not(exports, tmp_path, name):
    assert validate_as(name, exports / name) == []
    assert validate_as(name, tmp_path) != []


@pytest.mark.parametrize(("name", "change", "code"), CHANGES)
def test_a_change_is_found(exports, tmp_path, name, change, code):
    folder = Path(shutil.copytree(exports / name, tmp_path / name))
    change(folder)
    codes = {problem.code for problem in validate_as(name, folder)}
    alike = {"bad_field": {"invalid_field", "invalid_value"}, "missing_field": {"invalid_field"}}
    assert codes & ({code} | alike.get(code, set())), codes


@pytest.mark.parametrize("name", ["transitions", "step_labels", "grounding"])
def test_a_trajectory_in_two_splits_is_found(exports, tmp_path, name):
    folder = Path(shutil.copytree(exports / name, tmp_path / name))
    shutil.copyfile(folder / "train.parquet", folder / "val.parquet")
    codes = {problem.code for problem in validate_as(name, folder)}
    assert {"split_leak", "duplicate_id"} <= codes


def test_one_file_of_lines_is_validated_alone(exports, tmp_path):
    folder = Path(shutil.copytree(exports / "messages", tmp_path / "messages"))
    assert validate_as("messages", folder / "train.jsonl") == []
    (folder / FIRST).unlink()
    assert "image" in {p.code for p in validate_as("messages", folder / "train.jsonl")}


def test_loading_one_form_loads_no_other():
    ask = (
        "import sys; from demo_pipeline.exports.form import form_of; form_of('transitions');"
        "print(*(m for m in sys.modules if m.startswith('demo_pipeline.exports.')))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stdout.split()}
    # `transitions` imports only the ids from the package `cudag`.
    assert loaded & {*BUILT_IN_EXPORTS} <= {"transitions", "cudag"}
    assert "demo_pipeline.exports.cudag.dataset" not in done.stdout
