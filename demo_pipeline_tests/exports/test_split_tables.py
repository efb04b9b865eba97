"""What the validators of transitions, step labels and grounding rows find."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.exports.grounding import GROUNDING_FORM, validate_grounding
from demo_pipeline.exports.step_labels import STEP_LABELS_FORM, validate_step_labels
from demo_pipeline.exports.transitions import TRANSITIONS_FORM, validate_transitions
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, picture
from demo_pipeline_tests.datasets.seen_screens import element, make_seen
from demo_pipeline_tests.exports.changed_rows import change_row, drop_column

BUILT: dict[str, tuple[Any, Callable[[Path], list[Problem]]]] = {
    "transitions": (TRANSITIONS_FORM, validate_transitions),
    "step_labels": (STEP_LABELS_FORM, validate_step_labels),
    "grounding": (GROUNDING_FORM, validate_grounding),
}
FIRST = "trajectories/demo_0/steps/000/screenshot.png"
TRAIN = DatasetSettings(train_ratio=1, val_ratio=0, test_ratio=0)
NO_ACTION = '{"action_type": "tap", "parameters": {}}'
MUTATIONS = {
    "transitions": [
        ({"id": "a b"}, "invalid_field"),
        ({"id": "demo_0_001"}, "duplicate_id"),
        ({"step_index": -1}, "invalid_field"),
        ({"action": "click"}, "action"),
        ({"action": NO_ACTION}, "action"),
        ({"action_type": "drag"}, "action"),
        ({"before": ""}, "image"),
        ({"before": "/etc/passwd"}, "image"),
        ({"after": "trajectories/../x.png"}, "image"),
        ({"after": "trajectories/demo_0/none.png"}, "image"),
        ({"after": FIRST}, "no_transition"),
        ({"after": "trajectories/demo_1/steps/000/screenshot.png"}, "wrong_step"),
        ({"waited_seconds": -0.5}, "invalid_field"),
        ({"after_is_final": None}, "invalid_field"),
        ({"extra": 1}, "unknown_field"),
    ],
    "step_labels": [
        ({"labels": [True]}, "lengths"),
        ({"outcome": "failed"}, "unknown_label"),
        ({"outcome": "done"}, "invalid_field"),
        ({"completions": ["one", "two"]}, "action"),
        ({"completions": []}, "invalid_field"),
        ({"prompt": ""}, "invalid_field"),
        ({"images": [FIRST]}, "lengths"),
        ({"images": [FIRST, "x.png"]}, "image"),
        ({"id": "demo_1"}, "duplicate_id"),
    ],
    "grounding": [
        ({"text": ""}, "invalid_field"),
        ({"box": [1, 2, 3]}, "invalid_field"),
        ({"box": [-1, 2, 3, 4]}, "invalid_field"),
        ({"box": [9, 2, 3, 4]}, "box"),
        ({"box": [100, 200, 1920, 230]}, "box"),
        ({"point": [1, 1]}, "point"),
        ({"image_size": [800, 600]}, "image_size"),
        ({"role": "knob"}, "role"),
        ({"image": "trajectories/demo_1/steps/000/screenshot.png"}, "wrong_step"),
        ({"image": "none.png"}, "image"),
        ({"text": "the Other button"}, "entries_differ"),
    ],
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exports")
    save = element("button", "Save", (100, 200, 80, 31))
    made = [
        make_seen(root, f"demo_{n}", [CLICK] * 2, save, instruction=f"Task {n}", shade=9 * n)
        for n in range(2)
    ]
    for name, (form, validate) in BUILT.items():
        build_form(form, made, root / name, TRAIN)
        assert validate(root / name) == []
    return root


def copied(exports: Path, name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exports / name, tmp_path / name))


def codes(name: str, folder: Path) -> set[str]:
    return {problem.code for problem in BUILT[name][1](folder)}


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [(name, *mutation) for name, found in MUTATIONS.items() for mutation in found],
)
def test_a_changed_row_is_found(
    exports: Path, tmp_path: Path, name: str, changes: dict[str, Any], code: str
) -> None:
    folder = copied(exports, name, tmp_path)
    change_row(folder / "train.parquet", 0, **changes)
    found = BUILT[name][1](folder)
    assert code in {problem.code for problem in found}
    assert any(problem.line == 1 or problem.code == "duplicate_id" for problem in found)


@pytest.mark.parametrize("name", BUILT)
def test_a_trajectory_in_two_splits_is_found(exports: Path, tmp_path: Path, name: str) -> None:
    folder = copied(exports, name, tmp_path)
    shutil.copyfile(folder / "train.parquet", folder / "val.parquet")
    assert {"split_leak", "duplicate_id"} <= codes(name, folder)


@pytest.mark.parametrize("name", BUILT)
def test_a_missing_column_table_and_picture_and_what_is_no_table_are_found(
    exports: Path, tmp_path: Path, name: str
) -> None:
    folder = copied(exports, name, tmp_path)
    (folder / FIRST).unlink()
    assert "image" in codes(name, folder)
    drop_column(folder / "train.parquet", "trajectory_id")
    assert "invalid_field" in codes(name, folder)
    (folder / "train.parquet").write_bytes(b"no table")
    assert "unreadable_table" in codes(name, folder)
    (folder / "test.parquet").unlink()
    assert "missing_file" in codes(name, folder)


@pytest.mark.parametrize("name", BUILT)
def test_a_picture_that_no_row_names_is_found(exports: Path, tmp_path: Path, name: str) -> None:
    folder = copied(exports, name, tmp_path)
    (folder / "trajectories/demo_0/steps/000/other.png").write_bytes(picture(3))
    assert codes(name, folder) == {"unnamed_file"}


def test_a_wrong_label_of_a_demonstration_is_found(exports: Path, tmp_path: Path) -> None:
    folder = copied(exports, "step_labels", tmp_path)
    change_row(folder / "outcome/train.parquet", 0, labels=[False])
    assert codes("step_labels", folder) == {"wrong_label"}
    change_row(folder / "outcome/train.parquet", 0, labels=[True], completions=["one", "two"])
    assert codes("step_labels", folder) == {"lengths"}
    change_row(folder / "outcome/train.parquet", 0, completions=['{"no": "action"}\n{"one": 1}'])
    assert codes("step_labels", folder) == {"action"}


@pytest.mark.parametrize(
    "change",
    [
        lambda entries: entries[:-1],
        lambda entries: [*entries[:-1], {**entries[-1], "bbox": [1, 2, 3, 4]}],
        lambda entries: [*entries[:-1], {**entries[-1], "instruction": "the Other button"}],
        lambda entries: {"entries": entries},
    ],
)
def test_a_task_file_that_differs_from_its_table_is_found(
    exports: Path, tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    folder = copied(exports, "grounding", tmp_path)
    file = folder / "screenspot/train.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    assert codes("grounding", folder) == {"entries_differ"}
    file.unlink()
    assert codes("grounding", folder) == {"missing_file"}
