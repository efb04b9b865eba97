"""Tests how the command line reports and repairs a flipped byte in a demonstration's records."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from demo_pipeline.runs.graph import Graph
from demo_pipeline_tests.damage import broken_counts, flip_byte
from demo_pipeline_tests.sample_workspace import open_workspace, variables_of
from demo_pipeline_tests.uploads import upload

DAMAGE = (
    "one: records/one/messages.jsonl: has another SHA-256 than its manifest "
    "(`demo-pipeline run` builds it again)"
)


def command(root: Path, *arguments: str) -> tuple[int, str]:
    """Runs `demo-pipeline`; returns the exit code and everything that was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "demo_pipeline.cli.app", *arguments],
        env={**os.environ, **variables_of(root), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def card(root: Path, dataset: str) -> str:
    return (open_workspace(root).store.open(dataset)[0] / "README.md").read_text()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Path:
    """Returns a root in which a byte in the records of `one` was flipped after a run.

    The upload `three` was added after the run.
    """
    root = tmp_path_factory.mktemp("damaged")
    (root / "home").mkdir()
    (root / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    for name in ("one", "two"):
        upload(recording, root / "uploads", name)
    code, output = command(root, "run")
    assert code == 0, output
    flip_byte(open_workspace(root), "records/one", "messages.jsonl")
    upload(recording, root / "uploads", "three")
    return root


@pytest.fixture(scope="module")
def noticed(damaged: Path) -> tuple[Path, int, str]:
    """Runs the pipeline again; returns the root, the exit code and the printed text."""
    return (damaged, *command(damaged, "run", "--strict"))


def test_a_strict_run_names_the_damage_and_fails(noticed):
    _, code, output = noticed
    assert code == 1
    assert f"left out: {DAMAGE}" in output


def test_every_dataset_leaves_out_the_damaged_demonstration(noticed):
    root, *_ = noticed
    assert set(broken_counts(open_workspace(root)).values()) == {1}
    for dataset in ("sft", "messages", "dataset"):
        assert "| trajectories left out: damaged | 1 |" in card(root, dataset)


def test_export_doctor_and_inspect_name_the_damage(noticed, tmp_path):
    root, *_ = noticed
    code, output = command(root, "export", str(tmp_path / "copy"))
    assert code == 0
    assert f"left out: {DAMAGE}" in output
    code, output = command(root, "doctor", "--json")
    assert code == 1
    findings = {row["check"]: row for row in json.loads(output)["findings"]}
    assert findings["outputs"]["level"] == "error"
    assert DAMAGE in findings["outputs"]["message"]
    code, output = command(root, "inspect", "one")
    assert code == 0
    assert f"damaged: {DAMAGE}" in output
    assert "not up to date: records (a file was damaged); `demo-pipeline run` builds them" in output


def test_no_repair_is_promised_without_the_upload(noticed, tmp_path):
    root, *_ = noticed
    shutil.move(root / "uploads" / "one", tmp_path / "one")
    try:
        _, output = command(root, "inspect", "one")
    finally:
        shutil.move(tmp_path / "one", root / "uploads" / "one")
    assert "its upload is gone, so it cannot be built again" in output
    assert "builds them" not in output


def test_the_next_run_repairs_the_records(noticed):
    root, *_ = noticed
    code, output = command(root, "run", "--dry-run")
    assert "one: records (a file was damaged)" in output
    code, output = command(root, "run", "--strict")
    assert code == 0, output
    assert set(broken_counts(open_workspace(root)).values()) == {0}
    assert "damaged" not in card(root, "sft")
    assert Graph(open_workspace(root)).suspects == set()
    code, output = command(root, "run", "--dry-run")
    assert "to build: 0 demonstrations, 0 datasets" in output
