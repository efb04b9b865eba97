"""Tests that a damaged document, such as a decision or the memory of splits, decides nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.problems import Problem
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.runs.dataset_outputs import DatasetOutput, failed_before
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.quarantine import quarantine_demonstration, read_quarantine
from demo_pipeline.runs.setting_notes import noted_settings
from demo_pipeline.runs.stages import STAGE_BY_NAME, dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.documents import DamagedDocument, damaged_documents, sealed, unsealed
from demo_pipeline.store.split_memory import SPLIT_MEMORY, read_split_memory
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.sample_workspace import copy_of, live_in, open_workspace

SFT = dataset_stages_by_name()["sft_samples"]


def lose_a_brace(data: bytes) -> bytes:
    end = data.rindex(b"}")
    return data[:end] + data[end + 1 :]


def change_a_letter(data: bytes) -> bytes:
    """Changes a letter in the first value that is a text."""
    at = data.index(b'": "') + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def change_the_digest_s_name(data: bytes) -> bytes:
    return data.replace(b'"sha256"', b'"sha257"')


DAMAGES = [lose_a_brace, change_a_letter, change_the_digest_s_name]


@pytest.fixture
def workspace(made_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    root = copy_of(made_root, tmp_path / "root")
    live_in(root, monkeypatch)
    return open_workspace(root)


def damage(workspace: Workspace, key: str, how: Callable[[bytes], bytes]) -> None:
    data = workspace.store.get_document(key)
    assert data is not None
    workspace.store.put_document(key, how(data))


def decided(workspace: Workspace, kind: str, **value: object) -> str:
    """Stores a decision about the first demonstration; returns its key."""
    folder, version = workspace.store.open("trajectories/first")
    reviews = Reviews(workspace.store)
    decision = reviews.make(subject_of(version, "first"), folder, "ann", kind, value)
    return f"reviews/first/{decision.id}.json"


@pytest.mark.parametrize("how", DAMAGES)
def test_splits_are_not_drawn_anew_when_their_document_is_damaged(workspace, how):
    run_dataset_stage(workspace, SFT)
    before = workspace.store.get_document(SPLIT_MEMORY)
    damage(workspace, SPLIT_MEMORY, how)
    damaged = workspace.store.get_document(SPLIT_MEMORY)
    with pytest.raises((DamagedDocument, RefusedError), match=SPLIT_MEMORY):
        run_dataset_stage(workspace, SFT, force=True)
    assert workspace.store.get_document(SPLIT_MEMORY) == damaged
    for command in (["revalidate"], ["doctor"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 1
        assert f"{SPLIT_MEMORY} was damaged after it was written; restore it" in done.output
    assert before is not None
    workspace.store.put_document(SPLIT_MEMORY, before)
    assert run_dataset_stage(workspace, SFT, force=True).version
    assert not damaged_documents(workspace.store)


def test_run_says_which_document_is_damaged(workspace):
    run_dataset_stage(workspace, SFT)
    damage(workspace, SPLIT_MEMORY, lose_a_brace)
    done = CliRunner().invoke(app, ["run"])
    assert done.exit_code == 1
    assert f"{SPLIT_MEMORY} was damaged" in " ".join(done.output.split())
    assert "defect" not in done.output


def test_forget_removes_nothing_while_splits_cannot_be_read(workspace):
    run_dataset_stage(workspace, SFT)
    damage(workspace, SPLIT_MEMORY, lose_a_brace)
    done = CliRunner().invoke(app, ["forget", "first", "--delete-upload", "--yes"])
    assert SPLIT_MEMORY in str(done.exception)  # the command line prints the error as a sentence
    assert workspace.store.current("trajectories/first")
    assert workspace.uploads.find("first")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("stage", ["redactions", "annotations", "records"])
def test_no_output_is_built_without_a_decision_that_is_damaged(workspace, how, stage):
    key = decided(workspace, "private_box", step=0, x=1, y=1, width=9, height=9)
    damage(workspace, key, how)
    with pytest.raises(RefusedError, match=key):
        build_stage(workspace, STAGE_BY_NAME[stage], "first")
    assert read_quarantine(workspace.store, "first") is None
    assert build_stage(workspace, STAGE_BY_NAME[stage], "second")


def test_a_demonstration_with_a_damaged_decision_counts_as_rejected(workspace):
    key = decided(workspace, "note", text="good")
    assert not rejected(workspace)
    damage(workspace, key, change_a_letter)
    assert rejected(workspace) == ["first"]


def rejected(workspace: Workspace) -> list[str]:
    """Returns the demonstrations that are rejected according to freshly read decisions."""
    outputs = workspace.store.outputs("trajectories")
    versions = {}
    for name in outputs:
        version = workspace.store.current(name)
        if version is not None:
            versions[name.partition("/")[2]] = version.name
    verdicts = Reviews(workspace.store).verdicts(versions)
    return [name for name, verdict in verdicts.items() if verdict.status == "rejected"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_quarantine_record_still_quarantines(workspace, how):
    problem = Problem("broken", "meta.json", "is broken")
    quarantine_demonstration(workspace.store, "first", "events", "abc", [problem])
    [key] = workspace.store.list_documents("quarantine/first")
    damage(workspace, key, how)
    record = read_quarantine(workspace.store, "first")
    assert record is not None
    assert record.problems[0]["code"] == "unreadable_record"
    assert [document.output for document in damaged_documents(workspace.store)] == [key]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_note_of_a_failed_export_lets_it_be_built_again(workspace, how):
    DatasetOutput(Graph(workspace), SFT).remember_failure(ValueError())
    assert failed_before(workspace.store, SFT) == "ValueError"
    damage(workspace, f"failed_exports/{SFT.name}.json", how)
    assert failed_before(workspace.store, SFT)
    run_dataset_stage(workspace, SFT)
    assert not failed_before(workspace.store, SFT)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_settings_count_as_unknown(workspace, how):
    build_stage(workspace, STAGE_BY_NAME["actions"], "first", force=True)
    keys = workspace.store.list_documents("settings")
    names = {key.rpartition("/")[2].removesuffix(".json"): key for key in keys}
    fingerprint = next(name for name in names if noted_settings(workspace.store, name))
    key = names[fingerprint]
    damage(workspace, key, how)
    assert noted_settings(workspace.store, fingerprint) is None


def test_documents_of_older_stores_have_no_digest_and_are_read():
    assert unsealed(b'{"a": 1}', "reviews/x/y.json") == {"a": 1}
    assert unsealed(sealed({"a": 1.5, "b": "\ud800"}), "x/y.json") == {"a": 1.5, "b": "\ud800"}


def test_a_document_of_splits_without_a_digest_is_read(workspace):
    run_dataset_stage(workspace, SFT)
    memory = read_split_memory(workspace.store)
    data = workspace.store.get_document(SPLIT_MEMORY)
    assert data is not None
    workspace.store.put_document(SPLIT_MEMORY, json.dumps(unsealed(data, SPLIT_MEMORY)).encode())
    assert read_split_memory(workspace.store) == memory
