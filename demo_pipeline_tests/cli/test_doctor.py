"""Tests of `demo-pipeline doctor`: its five checks and its exit code."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.problems import Problem
from demo_pipeline.runs.health import LOW_BYTES, VERY_LOW_BYTES, HealthLevel, space_finding
from demo_pipeline.runs.quarantine import quarantine_demonstration
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.split_memory import SPLIT_MEMORY
from demo_pipeline_tests.sample_workspace import live_in


class Patient:
    """A folder with uploads, a store and a Dagster home, on which the command is run."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        for name in ("uploads", "store", "home"):
            (root / name).mkdir()
        (root / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        live_in(root, patch)

    def doctor(self, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Runs the command. Returns the exit code, and check → finding."""
        result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
        report = json.loads(result.stdout)
        findings = {finding["check"]: finding for finding in report["findings"]}
        levels = [finding["level"] for finding in findings.values()]
        assert report["errors"] == levels.count("error")
        assert report["warnings"] == levels.count("warning")
        assert report["healthy"] is (report["errors"] == 0)
        return result.exit_code, findings


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patient:
    return Patient(tmp_path, monkeypatch)


def test_an_installation_that_works_is_healthy(patient):
    code, findings = patient.doctor()
    assert code == 0
    assert {finding["level"] for finding in findings.values()} == {"ok"}
    assert list(findings) == ["roots", "outputs", "quarantine", "leftovers", "dagster"]
    assert "sensor new_uploads" in findings["dagster"]["values"]
    assert "no recording is there yet" in findings["roots"]["message"]
    assert " GB are free at " in findings["roots"]["message"]
    assert list((patient.root / "store").iterdir()) == []
    printed = CliRunner().invoke(app, ["doctor"])
    assert printed.exit_code == 0
    assert "ok      roots: " in printed.stdout
    assert len(printed.stdout.splitlines()) == 6
    assert printed.stdout.endswith("0 errors, 0 warnings\n")


@pytest.mark.usefixtures("patient")
def test_it_imports_neither_the_stages_nor_the_definitions():
    command = [sys.executable, "-X", "importtime", "-m", "demo_pipeline.cli.app", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"dagster", "demo_pipeline.runs.health"} <= imported
    slow = {"pyarrow", "numpy", "rich.console", "pygments.lexer", "demo_pipeline.runs.stages"}
    slow.add("demo_pipeline.defs.demonstrations")
    assert imported & slow == set()  # the command must take less than one CPU second


def test_a_store_need_not_exist_yet(patient):
    (patient.root / "store").rmdir()
    code, _ = patient.doctor()
    assert code == 0


def test_roots_that_cannot_be_used_are_errors(patient):
    for name in ("uploads", "store"):
        (patient.root / name).rmdir()
    (patient.root / "store").write_text("a file")
    code, findings = patient.doctor()
    assert code == 1
    roots = findings["roots"]
    assert roots["level"] == "error"
    assert roots["values"]["uploads"]["level"] == roots["values"]["store"]["level"] == "error"
    assert "no such folder" in roots["message"]
    assert "cannot be written to: Not a directory; " in roots["message"]
    assert list(findings) == ["roots", "dagster"]  # the other checks need a store


def test_a_store_that_cannot_be_looked_at_is_an_error_and_no_crash(patient, monkeypatch):
    for name in ("STORE", "CACHE"):
        monkeypatch.setenv(f"DEMO_PIPELINE_{name}", str(patient.root / ("long" * 100)))
    code, findings = patient.doctor()
    assert code == 1
    assert "OSError; name another place" in findings["roots"]["message"]
    assert "cannot be written to: File name too long; " in findings["roots"]["message"]
    assert findings["dagster"]["level"] == "ok"


def test_unusable_settings_end_the_command_with_exit_code_2(monkeypatch):
    monkeypatch.setenv("DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS", "wide")
    assert CliRunner().invoke(app, ["doctor", "--json"]).exit_code == 2


def test_quarantined_demonstrations_are_a_warning(patient):
    store = Workspace.open(Settings()).store
    problem = Problem("torn", "meta.json", "is torn")
    quarantine_demonstration(store, "one", "events", None, [problem])
    code, findings = patient.doctor()
    assert code == 0
    assert findings["quarantine"]["level"] == "warning"
    assert findings["quarantine"]["values"] == {"quarantined": 1}
    assert patient.doctor("--strict")[0] == 1


def test_what_dead_processes_left_is_a_warning_until_it_is_pruned(patient):
    store = Workspace.open(Settings()).store
    left = patient.root / "store" / ".staging" / "events" / ".left"
    left.mkdir(parents=True)
    assert patient.doctor()[1]["leftovers"]["values"] == {"leftovers": 1}
    with store.stage("events/one"):
        assert patient.doctor()[1]["leftovers"]["values"] == {"leftovers": 1}
    store.prune(0)
    assert patient.doctor()[1]["leftovers"]["level"] == "ok"


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (LOW_BYTES, HealthLevel.OK),
        (LOW_BYTES - 1, HealthLevel.WARNING),
        (VERY_LOW_BYTES - 1, HealthLevel.ERROR),
    ],
)
def test_little_space_is_noticed_before_it_is_gone(free, level):
    finding = space_finding("store", Path("/disk"), free)
    assert finding.check == "store_space"
    assert finding.level is level
    assert ("prune" in finding.message) is (level is not HealthLevel.OK)


def test_a_home_without_limits_for_runs_is_a_warning(patient):
    (patient.root / "home" / "dagster.yaml").unlink()
    dagster = patient.doctor()[1]["dagster"]
    assert dagster["level"] == "warning"
    assert "has no dagster.yaml" in dagster["message"]
    assert "sensor" not in dagster["message"]  # the message names only the parts with problems


def test_a_broken_instance_is_an_error_and_no_crash(patient):
    (patient.root / "home" / "dagster.yaml").write_text("nonsense: [")
    code, findings = patient.doctor()
    assert code == 1
    assert findings["dagster"]["level"] == "error"
    assert findings["dagster"]["values"]["instance"]["level"] == "error"


def test_a_daemon_is_missed_when_it_is_expected(patient):
    assert patient.doctor()[1]["dagster"]["level"] == "ok"
    code, findings = patient.doctor("--expect-daemon")
    assert code == 1
    assert findings["dagster"]["level"] == "error"
    assert "never seen" in findings["dagster"]["message"]


def test_a_store_in_a_bucket_is_tried_and_left_as_it_was(seaweedfs_url, patient, monkeypatch):
    monkeypatch.setenv("DEMO_PIPELINE_STORE", f"{seaweedfs_url}/store")
    code, findings = patient.doctor()
    assert code == 0
    assert findings["roots"]["level"] == "ok"
    assert "the document with the splits can be read" in findings["outputs"]["message"]
    bucket = Bucket(seaweedfs_url, patient.root)
    assert list(bucket.listing()) == []
    torn = patient.root / "torn.json"
    torn.write_text("{")
    bucket.put(f"store/{SPLIT_MEMORY}", torn)
    code, findings = patient.doctor()
    assert code == 1
    assert findings["outputs"]["level"] == "error"
    assert SPLIT_MEMORY in findings["outputs"]["message"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr("demo_pipeline.store.bucket._CALLS", 1)  # retries take 15 s
    code, findings = patient.doctor()
    assert code == 1
    assert findings["roots"]["values"]["store"]["level"] == "error"
