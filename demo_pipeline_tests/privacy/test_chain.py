"""Tests that redacted text is in no output that is meant for readers of the store."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from demo_pipeline.annotations.annotate import quest_objectives
from demo_pipeline.annotations.annotation_store import open_judged
from demo_pipeline.privacy import screenshot_texts
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline_tests.api.test_notebook_store import build_datasets
from demo_pipeline_tests.privacy.test_secret_fields import holding
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, think, type_text

EMAIL = "bob.smith@example.com"
PRIVATE = {"recordings", "events", "actions", "screenshots", "ui_trees", "trajectories"}


def built(root: Path, **privacy: Any) -> Workspace:
    acts = (click("Name"), type_text(EMAIL), think(2.5), click("Agree"), click("Rows/b"))
    demonstration = replace(script(*acts), title="Mail", content=f"Write to {EMAIL} now.")
    demonstration = replace(demonstration, objectives=(f"{EMAIL} has mail",))
    write_recording(root / "uploads" / "mail", demonstration, SMALL)
    workspace = open_workspace(root, privacy=privacy)
    run_all_stages(workspace, "mail")
    build_datasets(workspace)
    return workspace


def test_a_redacted_address_is_in_no_dataset(tmp_path, monkeypatch):
    # Another test uses real text recognition.
    monkeypatch.setattr(screenshot_texts, "read_lines", lambda *_: [])
    workspace = built(tmp_path, policy="redact")
    store = tmp_path / "store"
    card = (store / "sft/README.md").read_text()
    assert "Private data: policy redact" in card
    assert "email (redact)" in card
    other = PrivacySettings(policy="redact", words=("Falcon",))
    with pytest.raises(StorageError, match="other settings of `privacy`"):
        export_datasets(workspace.store, tmp_path / "out", privacy=other)
    with pytest.raises(MissingOutput):  # `annotate` opens trajectories with this function
        open_judged(workspace.store, "mail", workspace.reviews, other)
    assert not (tmp_path / "out").exists()
    assert holding(store, EMAIL) <= PRIVATE
    samples = [json.loads(line) for line in (store / "sft/train.jsonl").read_text().splitlines()]
    assert any("<email>" in json.dumps(sample) for sample in samples)
    task = json.loads((store / "dataset/trajectories/mail/task.json").read_text())
    assert task["instruction"] == "Write to <email> now."
    assert "bob" not in task["task_id"]
    # Prompts for models contain these objectives.
    assert quest_objectives(workspace.store, "mail") == ("<email> has mail",)


def test_without_text_recognition_the_demonstration_is_in_no_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(screenshot_texts, "read_lines", Mock(side_effect=ModuleNotFoundError))
    built(tmp_path, policy="redact")
    assert not any(p.read_text() for p in (tmp_path / "store").glob("sft/*.jsonl"))
    assert not list((tmp_path / "store").glob("dataset/trajectories/*"))


def test_flagged_texts_are_unchanged(tmp_path):
    built(tmp_path)
    assert "sft" in holding(tmp_path / "store", EMAIL)
