"""Tests that `datasets` loads all configurations of the exports, with any mix of action types."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.datasets.index import build_index
from demo_pipeline.evaluation.agentnetbench_files import build_agentnetbench
from demo_pipeline.exports.cards import describe_index
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, read_lines
from demo_pipeline_tests.exports.forms import build_described

CONFIGS = {
    "dataset": ("trajectories", "steps", "hidden_actions"),
    "sft": ("default",),
    "messages": ("default", "prompt_completion"),
    "cudag": ("default", "test"),
}


def build_all(root: Path, demos: list[DatasetTrajectory]) -> None:
    """Builds all exports with their cards."""
    build_index(demos, root / "dataset", DatasetSettings(), ("demo_pipeline", "0"))
    describe_index(root / "dataset", DatasetSettings())
    for name in ("sft", "messages", "cudag"):
        build_described(name, demos, root / name, DatasetSettings())
    (root / "dataset" / "trajectories").symlink_to(root / "trajectories")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds all exports of demonstrations with one action each.

    No split contains all action types.
    """
    root = tmp_path_factory.mktemp("exports")
    demos = [
        make_trajectory(root, f"demo_{number}", [step], instruction=f"Task {number}", shade=number)
        for number, step in enumerate(TABLE)
    ]
    build_all(root, demos)
    return root


@pytest.mark.parametrize("name", ["sft", "messages"])
def test_the_folder_alone_is_enough_to_load_its_splits(exports, hub, name):
    loaded = hub.load_dataset(str(exports / name), cache_dir=str(exports / "cache"))
    assert set(loaded) == {"train", "val", "test"}
    for split, rows in loaded.items():
        assert len(rows) == len(read_lines(exports / name / f"{split}.jsonl")) > 0


def test_a_sample_read_back_is_the_line_that_was_written(exports, hub):
    loaded = hub.load_dataset(str(exports / "sft"), cache_dir=str(exports / "cache"))
    for split, rows in loaded.items():
        for row, line in zip(rows, read_lines(exports / "sft" / f"{split}.jsonl"), strict=True):
            assert json.loads(row["action"]) == line["output"]["action"]
            assert json.loads(row["history"]) == line["input"]["history"]
            assert {key: row[key] for key in ("instruction", "screenshot", "ui_tree")} == {
                key: line["input"][key] for key in ("instruction", "screenshot", "ui_tree")
            }


def test_the_tables_of_the_trajectories_load_beside_their_trees(exports, hub):
    cache = str(exports / "cache")
    tables = {
        name: hub.load_dataset(str(exports / "dataset"), name, cache_dir=cache)["train"]
        for name in ("trajectories", "steps")
    }
    assert sorted(tables["trajectories"]["trajectory_id"]) == sorted(
        f"demo_{number}" for number in range(len(TABLE))
    )
    assert len(tables["steps"]) == len(TABLE)
    with pytest.raises(
        ValueError, match="hidden_actions"
    ):  # without hidden actions, there is no table of them
        hub.load_dataset(str(exports / "dataset"), "hidden_actions", cache_dir=cache)
    first = hub.load_dataset(str(exports / "dataset"), cache_dir=cache)
    assert first["train"]["trajectory_id"] == tables["trajectories"]["trajectory_id"]


@pytest.mark.parametrize(
    ("name", "config"),
    [(name, config) for name, configs in CONFIGS.items() for config in configs],
)
def test_after_a_rebuild_in_place_removed_rows_are_not_loaded_from_the_cache(
    rebuilt, hub, name, config, tmp_path
):
    place = tmp_path / name
    cache = str(tmp_path / "cache")
    counts = []
    for root in rebuilt:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(root / name, place, symlinks=True)
        loaded = hub.load_dataset(str(place), config, cache_dir=cache)
        counts.append(sum(len(rows) for rows in loaded.values()))
    assert 0 < counts[1] < counts[0]


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Builds exports twice: of eight demonstrations, and of seven of them with fewer actions."""
    roots = []
    for count, steps in ((8, 4), (7, 3)):
        root = tmp_path_factory.mktemp("rebuilt")
        demos = [
            make_trajectory(
                root,
                f"demo_{n}",
                [CLICK] * steps,
                instruction=f"Task {n}",
                shade=10 * n,
                hidden=[(3, "click", "off_screen")],
            )
            for n in range(count)
        ]
        build_all(root, demos)
        roots.append(root)
    return roots


def test_the_lines_on_the_card_load_pictures_from_any_working_directory(
    exports, hub, tmp_path, monkeypatch
):
    import datasets

    name = "messages"

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    card = (exports / name / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("the path of this folder", str(exports / name)), names)  # noqa: S102
    row = names["data"]["train"][0]
    assert row["images"][0].size == (1920, 1080)
    assert [turn["role"] for turn in row["prompt"] + row["completion"]] == [
        *("system", "user"),
        "assistant",
    ]
    streamed = hub.load_dataset(str(exports / name), "prompt_completion", streaming=True)
    assert next(iter(streamed["train"]))["id"] == row["id"]


def test_cudag_train_and_val_load_together_and_the_tests_apart(exports, hub):
    loaded = hub.load_dataset(str(exports / "cudag"), cache_dir=str(exports / "cache"))
    assert set(loaded) == {"train", "val"}
    kinds: set[str] = set()
    for rows in loaded.values():
        kinds.update(row["metadata"]["task_type"] for row in rows)
    assert len(kinds) > 8
    tests = hub.load_dataset(str(exports / "cudag"), "test", cache_dir=str(exports / "cache"))
    written = json.loads((exports / "cudag" / "test" / "test.json").read_text())
    assert [row["test_id"] for row in tests["test"]] == [test["test_id"] for test in written]


def test_agentnetbench_loads_as_a_test_split(tmp_path, hub):
    settings = DatasetSettings(train_ratio=0, val_ratio=0)
    build_agentnetbench([make_trajectory(tmp_path, "demo", TABLE)], tmp_path / "bench", settings)
    loaded = hub.load_dataset(str(tmp_path / "bench"), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"test": 1}
    written = json.loads((tmp_path / "bench" / "tasks" / "demo.json").read_text("utf-8"))
    assert json.loads(loaded["test"][0]["steps"]) == written["steps"]


@pytest.mark.parametrize("differing", [{1}, {0, 1, 2}])
def test_samples_without_a_tree_load_as_text(tmp_path, monkeypatch, hub, differing):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    demo = make_trajectory(
        tmp_path,
        "demo",
        [CLICK] * 3,
        rows={index: {"tree_agreement": "differs"} for index in differing},
        hidden=[(2, "click", "off_screen")],
    )
    settings = DatasetSettings(train_ratio=1, val_ratio=0)
    build_described("sft", [demo], tmp_path / "sft", settings)
    rows = hub.load_dataset(str(tmp_path / "sft"), cache_dir=str(tmp_path / "cache"))["train"]
    assert rows.features["ui_tree"].dtype == "string"
    assert {row["step_index"] for row in rows if row["ui_tree"] is None} == differing
    assert [len(json.loads(row["history"])) for row in rows] == [0, 1, 3]
