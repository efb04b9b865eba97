"""Tests `demo-pipeline export --hub-layout` by reading it with `datasets`, without network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from demo_pipeline.files.parquet import read_rows
from demo_pipeline.runs.export import export_hub_layout
from demo_pipeline.runs.stages import is_built, training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, HubSettings, Settings
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import TABLE
from demo_pipeline_tests.datasets.seen_screens import element, make_seen
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.settings_constants import with_constants

EVERY = ("sft", "messages", "cudag", "grounding", "transitions", "step_labels")
DATASETS = DatasetSettings(exports=EVERY, license="cc-by-4.0")
HUB = with_constants(HubSettings, max_shard_bytes=10**6)(language=("en", "de"))
PICTURES = {
    "sft": ["screenshot"],
    "messages": ["images"],
    "grounding": ["image"],
    "transitions": ["before", "after"],
}
SOURCES = {
    **{name: name for name in (*PICTURES, "step_labels")},
    "outcome_labels": "step_labels/outcome",
}


def open_made(root: Path, store: str) -> Workspace:
    (root / "uploads").mkdir(exist_ok=True)
    given: dict[str, Any] = {name: str(root / name) for name in ("uploads", "cache")}
    given |= {"osworld_tasks": str(root / "tasks"), "datasets": DATASETS, "hub": HUB}
    return Workspace.open(Settings(store=store, **given))


def fill(root: Path, workspace: Workspace, count: int = 8) -> None:
    """Commits demonstrations, of which every fourth failed, and builds every export."""
    window = element(
        "window", "Form", (0, 0, 1000, 800), element("button", "Save", (10, 10, 90, 30))
    )
    trajectories = [
        make_seen(
            root / "made",
            f"demo_{number}",
            [TABLE[number], TABLE[number + 1]],
            window,
            success=number % 4 > 0,
            instruction=f"Task {number}",
            shade=20 * number,
        )
        for number in range(count)
    ]
    commit_trajectories(workspace, trajectories)
    for stage in (export.stage for export in training_exports().values()):
        if is_built(stage, workspace.settings):
            assert run_dataset_stage(workspace, stage).status == "made"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def workspace(root: Path) -> Workspace:
    workspace = open_made(root, str(root / "store"))
    fill(root, workspace)
    return workspace


@pytest.fixture(scope="module")
def exported(root: Path, workspace: Workspace) -> Path:
    export_hub_layout(workspace, root / "out")
    return root / "out"


def front_matter(folder: Path) -> dict[str, Any]:
    text = (folder / "README.md").read_text(encoding="utf-8")
    front_matter: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return front_matter


@pytest.mark.parametrize("config", SOURCES)
def test_every_configuration_streams_and_has_the_rows_of_its_export(
    workspace, exported, hub, config
):
    streamed = hub.load_dataset(str(exported), config, streaming=True)
    output, _, below = SOURCES[config].partition("/")
    folder = workspace.store.open(output)[0]
    for split in ("train", "val", "test"):
        written = read_rows(folder / below / f"{split}.parquet")
        rows = list(streamed[split]) if split in streamed else []
        assert len(rows) == len(written)
        for row, source in zip(rows, written, strict=True):
            plain = set(row) - {*PICTURES.get(config, ()), "ui_tree"}
            assert {name: row[name] for name in plain} == {name: source[name] for name in plain}
            for name in PICTURES.get(config, ()):
                check_picture(row[name], source[name], folder)


def check_picture(picture: Any, path: Any, folder: Path) -> None:
    """Asserts that an image that `datasets` decoded has the same pixels as its file."""
    if isinstance(path, list):
        (picture,), (path,) = picture, path
    pixels = cv2.imread(str(folder / path))
    assert pixels is not None
    assert np.array_equal(np.asarray(picture.convert("RGB")), pixels[:, :, ::-1])


def test_the_features_on_the_card_are_those_of_the_files(exported, hub):
    for info in front_matter(exported)["dataset_info"]:
        config = info["config_name"]
        on_card = hub.Features._from_yaml_list(info["features"])
        for path in (exported / "data" / config).glob("*.parquet"):
            assert hub.Features.from_arrow_schema(pq.read_schema(path)) == on_card
        pictures = [name for name, kind in on_card.items() if kind == hub.Image()]
        lists = [name for name, kind in on_card.items() if kind == hub.List(hub.Image())]
        assert [*pictures, *lists] == PICTURES.get(config, [])


def test_a_table_that_is_loaded_and_not_streamed_agrees_with_the_card(exported, hub, tmp_path):
    loaded = hub.load_dataset(str(exported), "transitions", cache_dir=str(tmp_path))
    sizes = {info["config_name"]: info["splits"] for info in front_matter(exported)["dataset_info"]}
    assert {name: len(rows) for name, rows in loaded.items()} == {
        split["name"]: split["num_examples"] for split in sizes["transitions"]
    }


def test_the_card_says_what_the_hub_asks_for(exported):
    matter = front_matter(exported)
    assert matter["license"] == "cc-by-4.0"
    assert matter["language"] == ["en", "de"]
    assert matter["size_categories"] == ["n<1K"]
    assert "image-text-to-text" in matter["task_categories"]
    assert [config["config_name"] for config in matter["configs"]] == list(SOURCES)
    text = (exported / "README.md").read_text(encoding="utf-8")
    for line in ("| `transitions` | train |", "Splits are by task"):
        assert line in text


def test_no_task_is_in_two_splits_over_all_configurations(exported):
    splits: dict[str, set[str]] = {}
    for path in (exported / "data").rglob("*.parquet"):
        for row in read_rows(path, columns=["trajectory_id"]):
            splits.setdefault(row["trajectory_id"], set()).add(path.name.partition("-")[0])
    assert len(splits) == 8
    assert all(len(files_of_split) == 1 for files_of_split in splits.values())


def test_there_is_nothing_but_the_card_and_full_shards(exported):
    files = [path for path in exported.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".parquet", ".md"}
    assert [path.name for path in files if path.suffix == ".md"] == ["README.md"]
    assert all(path.name.count("-of-") == 1 for path in files if path.suffix == ".parquet")


@pytest.mark.parametrize(
    ("datasets", "hub_settings", "named"),
    [
        (DatasetSettings(exports=EVERY), HUB, "DEMO_PIPELINE_DATASETS__LICENSE"),
        (DATASETS, HubSettings(), "DEMO_PIPELINE_HUB__LANGUAGE"),
        (DatasetSettings(exports=("cudag",), license="mit"), HUB, "datasets.exports"),
    ],
)
def test_the_card_needs_the_settings_that_only_the_owner_knows(
    workspace, tmp_path, datasets, hub_settings, named
):
    changes = {"datasets": datasets, "hub": hub_settings}
    changed = replace(workspace, settings=workspace.settings.model_copy(update=changes))
    with pytest.raises(StorageError, match=named):
        export_hub_layout(changed, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_was_never_built_is_named(tmp_path):
    empty = open_made(tmp_path, str(tmp_path / "store"))
    with pytest.raises(MissingOutput, match="sft"):
        export_hub_layout(empty, tmp_path / "out")
    assert not (tmp_path / "out").exists()
