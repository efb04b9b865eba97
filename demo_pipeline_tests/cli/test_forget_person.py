"""Tests which demonstrations `demo-pipeline forget --person` and `--field` list and remove."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from demo_pipeline.cli.app import app
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.runs.forgetting import PersonSearch
from demo_pipeline.runs.stages import dataset_stages, is_built
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import snapshot
from demo_pipeline_tests.made_once import made_once
from demo_pipeline_tests.sample_workspace import (
    copy_of,
    live_in,
    open_workspace,
    run_all_stages,
    write_demos,
)

ANNAS = "first"
BENS = "second"


def change_meta(upload: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = upload / "meta.json"
    meta = json.loads(path.read_text("utf-8"))
    change(meta)
    path.write_text(json.dumps(meta), "utf-8")


def make_workspace(root: Path) -> None:
    uploads = root / "uploads"
    write_demos(uploads)
    change_meta(uploads / ANNAS, lambda meta: meta.update(user="Anna Weber"))
    change_meta(uploads / BENS, lambda meta: meta.update(recorder={"name": "Ben", "team": 7}))
    workspace = open_workspace(root)
    for name in (ANNAS, BENS):
        run_all_stages(workspace, name)
    for stage in dataset_stages():
        if is_built(stage, workspace.settings):
            run_dataset_stage(workspace, stage)


@pytest.fixture
def root(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    template = made_once(tmp_path_factory, "forget_person", make_workspace)
    copied = copy_of(template, tmp_path / "copied")
    live_in(copied, monkeypatch)
    return copied


def forget(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["forget", *arguments], input=answer, env={"COLUMNS": "200"})


def trajectories(root: Path) -> list[str]:
    return open_workspace(root).store.outputs("trajectories")


def test_a_dry_run_lists_what_would_be_removed_and_removes_nothing(root):
    before = snapshot(root)
    listed = forget("--person", "anna weber", "--dry-run")
    assert listed.exit_code == 0, listed.output
    assert f"{ANNAS}:\n  upload: input_log.jsonl, meta.json, recording.mp4\n" in listed.output
    assert "  outputs, all versions: actions, " in listed.output
    assert "trajectories" in listed.output
    assert "  sft: " in listed.output
    assert "datasets that contain them, all versions: dataset, " in listed.output
    assert f"{BENS}:" not in listed.output
    assert "nothing was removed: 1 demonstration listed" in listed.output
    assert snapshot(root) == before


def test_all_of_a_person_is_removed_and_the_others_stay(root):
    refused = forget("--person", "Anna Weber", "--yes")
    assert refused.exit_code == 2
    assert "give --delete-upload" in refused.output
    declined = forget("--person", "Anna Weber", "--delete-upload", answer="n\n")
    assert declined.exit_code == 1
    assert f"Remove {ANNAS} for ever, as listed?" in declined.output
    assert len(trajectories(root)) == 2
    done = forget("--person", "Anna Weber", "--delete-upload", answer="y\n")
    assert done.exit_code == 0, done.output
    assert f"{ANNAS} removed: its upload, " in done.output
    assert trajectories(root) == [f"trajectories/{BENS}"]
    assert [path.name for path in (root / "uploads").iterdir()] == [BENS]
    assert open_workspace(root).store.current(INDEX_STAGE.folder) is None
    again = forget("--person", "Anna Weber", "--delete-upload")
    assert again.exit_code == 1
    assert "no demonstration matches" in again.output


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("--field", "recorder.name=Ben"), [BENS]),
        (("--field", "recorder.team=7"), [BENS]),
        (("--field", "platform=windows"), [ANNAS, BENS]),
        (("--field", "platform=windows", "--field", "user=Anna Weber"), [ANNAS]),
        (("--person", "Ben"), [BENS]),
        (("--person", "Ben", "--field", "user=Anna Weber"), []),
        (("--person", "Ann"), []),  # the whole value is compared
        (("--field", "user=anna weber"), []),
    ],
)
def test_people_are_found_by_any_field(root, arguments, ids):
    for name in (ANNAS, BENS):
        change_meta(root / "uploads" / name, lambda meta: meta.update(platform="windows"))
    listed = forget(*arguments, "--dry-run")
    assert [line[:-1] for line in listed.output.splitlines() if line.endswith(":")] == ids
    assert listed.exit_code == (0 if ids else 1)


def test_a_recording_whose_upload_is_gone_is_found_in_the_store(root):
    Workspace.open(Settings()).uploads.remove(ANNAS)
    listed = forget("--person", "Anna Weber", "--dry-run")
    assert f"{ANNAS}:\n  outputs, all versions: " in listed.output
    done = forget("--person", "Anna Weber", "--yes")
    assert done.exit_code == 0, done.output
    assert trajectories(root) == [f"trajectories/{BENS}"]


def test_recordings_that_cannot_be_searched_are_named(root):
    (root / "uploads" / "torn").mkdir()
    (root / "uploads" / "torn" / "meta.json").write_text("{")
    listed = forget("--person", "Anna Weber", "--dry-run")
    assert "not searched, because meta.json is missing or cannot be read: torn" in listed.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name demonstrations by their ids, or by --person or --field"),
        (("first", "--person", "Ben"), "name demonstrations by their ids, or by"),
        (("--field", "user"), "expected KEY=VALUE"),
        (("../x",), "this cannot be the id of a demonstration"),
    ],
)
def test_unclear_requests_are_usage_errors(root, arguments, message):
    refused = forget(*arguments, "--yes", "--delete-upload")
    assert refused.exit_code == 2
    assert message in refused.output
    assert len(trajectories(root)) == 2


def test_only_fields_that_name_people_are_compared_with_a_person():
    search = PersonSearch("Anna")
    assert search.matches({"username": "ANNA"})
    assert search.matches({"session": {"annotators": ["Ben", "anna"]}})
    assert not search.matches({"title": "Anna", "quest": {"content": "Anna"}})
    assert not search.matches({"user": "Anna Weber"})
