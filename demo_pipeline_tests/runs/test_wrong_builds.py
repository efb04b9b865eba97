"""Tests that a build is not published if its output contradicts its inputs."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from demo_pipeline.datasets import index_checks
from demo_pipeline.exports.dataset_stages import INDEX_STAGE, QUESTS_STAGE
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Stage
from demo_pipeline.trajectories.contact_sheets import build_contact_sheets, check_contact_sheets
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

Spoil = Callable[[Path], None]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Returns a workspace with three trajectories: one failed, and one has hidden actions."""
    (tmp_path / "uploads").mkdir()
    workspace = open_workspace(tmp_path)
    hidden = [(0, "click", "off_screen")]
    folder = tmp_path / "made"
    commit_trajectories(
        workspace,
        [
            make_trajectory(folder, "one", [CLICK, CLICK], group="first"),
            make_trajectory(folder, "two", [CLICK], group="second", shade=10, hidden=hidden),
            make_trajectory(folder, "three", success=False, group="third", shade=20),
        ],
    )
    return workspace


def spoiled(stage: Stage[Any], spoil: Spoil) -> Stage[Any]:
    """Returns a stage whose build function additionally spoils the output."""

    def build(inputs: Any, out: Path) -> Any:
        summary = stage.build(inputs, out)
        spoil(out)
        return summary

    return replace(stage, build=build)


def change_json(file: str, *keys: str | int, value: Any) -> Spoil:
    def spoil(out: Path) -> None:
        document = json.loads((out / file).read_bytes())
        place = document
        for key in keys[:-1]:
            place = place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
        (out / file).unlink()
        dump_json(out / file, document)

    return spoil


def drop_first_row(file: str) -> Spoil:
    def spoil(out: Path) -> None:
        table = pq.read_table(out / file)
        (out / file).unlink()
        pq.write_table(table.slice(1), out / file)

    return spoil


WRONG_INDEXES = {
    "total": change_json("index.json", "total_trajectories", value=4),
    "successful": change_json("index.json", "successful", value=3),
    "no version": change_json("index.json", "version", value=None),
    "success is a word": change_json("index.json", "trajectories", 0, "success", value="yes"),
    "steps of an entry": change_json("index.json", "trajectories", 0, "steps", value=9),
    "one entry less": change_json("index.json", "trajectories", 0, value=None),
    "steps in metadata": change_json("metadata.json", "counts", "steps", value=9),
    "actions in metadata": change_json("metadata.json", "counts", "actions", "click", value=9),
    "configuration": change_json("metadata.json", "configuration", "seed", value=9),
    "status of an export": change_json("exports.json", "exports", "sft", "status", value="built"),
    "version of an export": change_json("exports.json", "exports", "sft", "version", value="ab"),
    "split": change_json("exports.json", "trajectories", "one", "split", value="held_out"),
    "records": change_json("exports.json", "trajectories", "one", "records", value={"sft": 9}),
    "a step less": drop_first_row("steps.parquet"),
    "a trajectory less": drop_first_row("trajectories.parquet"),
    "a hidden action less": drop_first_row("hidden_actions.parquet"),
    "an export less": drop_first_row("exports.parquet"),
    "no table": lambda out: (out / "steps.parquet").unlink(),
    "another link": lambda out: (out / "trajectories/one").rename(out / "trajectories/other"),
}


@pytest.mark.parametrize("wrong", WRONG_INDEXES)
def test_a_wrong_index_is_not_published(workspace, wrong):
    with pytest.raises(RefusedError):
        run_dataset_stage(workspace, spoiled(INDEX_STAGE, WRONG_INDEXES[wrong]))
    assert workspace.store.current(INDEX_STAGE.folder) is None


@pytest.mark.parametrize("rows_at_once", [1, 2, 1000])
def test_a_wrong_step_is_named_with_its_trajectory(workspace, monkeypatch, rows_at_once):
    monkeypatch.setattr(index_checks, "_ROWS_AT_ONCE", rows_at_once)

    def spoil(out: Path) -> None:
        table = pq.read_table(out / "steps.parquet")
        rows = table.to_pylist()
        assert rows[-1]["trajectory_id"] == "two"
        rows[-1]["press_ms"] += 1
        (out / "steps.parquet").unlink()
        pq.write_table(table.from_pylist(rows, schema=table.schema), out / "steps.parquet")

    with pytest.raises(RefusedError) as refused:
        run_dataset_stage(workspace, spoiled(INDEX_STAGE, spoil))
    [problem] = refused.value.problems
    assert problem.message == "differs from the provenance of two"


def test_a_right_index_is_published(workspace):
    assert run_dataset_stage(workspace, INDEX_STAGE).status == "made"


WRONG_QUESTS = {
    "instruction": lambda out: change_json(
        str(next(out.glob("examples/*/one.json")).relative_to(out)), "instruction", value="Do it."
    )(out),
    "list": lambda out: dump_json(out / "test_all.json", {}),
    "a task less": lambda out: next(out.glob("examples/*/*.json")).unlink(),
    "a file more": lambda out: (out / "notes.txt").touch(),
}


@pytest.mark.parametrize("wrong", WRONG_QUESTS)
def test_wrong_quests_are_not_published(workspace, wrong):
    assert run_dataset_stage(workspace, QUESTS_STAGE).summary["tasks"] == 3
    with pytest.raises(RefusedError):
        run_dataset_stage(workspace, spoiled(QUESTS_STAGE, WRONG_QUESTS[wrong]), force=True)


def test_statistics_that_count_something_else_fail_their_check(workspace):
    for stage in (SFT_STAGE, MESSAGES_STAGE, INDEX_STAGE):
        run_dataset_stage(workspace, stage)
    assert run_dataset_stage(workspace, STATISTICS_STAGE).checks[0].passed
    spoil = change_json("statistics.json", "overview", 0, "steps", value=99)
    wrong = run_dataset_stage(workspace, spoiled(STATISTICS_STAGE, spoil), force=True)
    assert not wrong.checks[0].passed


def paint(name: str, change: Callable[[Any], Any]) -> Spoil:
    def spoil(out: Path) -> None:
        picture = change(cv2.imread(str(out / name)))
        cv2.imwrite(str(out / name), np.ascontiguousarray(picture))

    return spoil


WRONG_SHEETS = {
    "half the size": paint("sheet.jpg", lambda picture: picture[::2, ::2]),
    "black": paint("sheet.jpg", np.zeros_like),
    "a row of tiles less": paint("sheet.jpg", lambda picture: picture[:-314]),
    "cut off": lambda out: (out / "sheet.jpg").write_bytes((out / "sheet.jpg").read_bytes()[:999]),
    "no second sheet": lambda out: (out / "sheet_2.jpg").unlink(),
    "a sheet more": lambda out: (out / "sheet_3.jpg").touch(),
}


@pytest.mark.parametrize("wrong", WRONG_SHEETS)
def test_contact_sheets_without_a_tile_for_every_step_fail_their_check(wrong, tmp_path):
    trajectory = make_trajectory(tmp_path / "made", "long", [CLICK] * 25)
    (trajectory.path / "provenance.parquet").write_bytes(trajectory.provenance.read_bytes())
    out = tmp_path / "out"
    out.mkdir()
    build_contact_sheets("long", trajectory.path, None, out)
    assert check_contact_sheets(trajectory.path, out) == []
    WRONG_SHEETS[wrong](out)
    assert check_contact_sheets(trajectory.path, out) != []


def cut_first_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


def double_first_line(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.partition(b"\n")[0] + b"\n" + data)


def exchange_screenshots(out: Path) -> None:
    first, other, *_ = sorted(out.rglob("screenshot.png"))
    data = other.read_bytes()
    assert first.read_bytes() != data
    first.unlink()
    first.write_bytes(data)


WRONG_EXPORTS = {
    "a row less": drop_first_row("samples.parquet"),
    "a line less": lambda out: cut_first_line(out / "samples.jsonl"),
    "a line twice": lambda out: double_first_line(out / "samples.jsonl"),
    "another screenshot": exchange_screenshots,
    "no screenshot": lambda out: next(out.rglob("screenshot.png")).unlink(),
    "a file more": lambda out: (out / "notes.txt").touch(),
    "no card": lambda out: (out / "README.md").unlink(),
    "no chart": lambda out: next((out / "plots").iterdir()).unlink(),
}


@pytest.mark.parametrize("wrong", WRONG_EXPORTS)
def test_a_wrong_training_export_is_not_published(workspace, wrong):
    with pytest.raises(RefusedError):
        run_dataset_stage(workspace, spoiled(SFT_STAGE, WRONG_EXPORTS[wrong]))
    assert workspace.store.current(SFT_STAGE.folder) is None
