"""Tests that `demo-pipeline reviews` prints and writes decisions, but no typed text."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.sample_workspace import live_in, open_workspace

SECRET = "hunter2 hunter2"  # noqa: S105 - a typed text that must not be printed


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a root whose store has a corrected text, a withdrawn verdict and a stale decision."""
    live_in(tmp_path, monkeypatch)
    workspace = open_workspace(tmp_path)
    actions = (("type", {"text": "x"}), CLICK, CLICK)
    recorded = make_trajectory(tmp_path, actions=actions)
    version = commit_trajectory(workspace, recorded)
    reviews = Reviews(workspace.store)
    subject = subject_of(version, "demo")
    typed = {"action": {"step_index": 0, "parameters": {"text": SECRET}}}
    reviews.make(subject, recorded.path, "ann", "action", typed)
    reviews.make(subject, recorded.path, "ann", "bad_step", {"step": 2})
    verdict = reviews.make(subject, recorded.path, "bob", "approve", {})
    reviews.make(subject, recorded.path, "bob", "undo", {"decision": verdict.id})
    screenshot = recorded.path / "steps/002/screenshot.png"
    screenshot.write_bytes((recorded.path / "steps/001/screenshot.png").read_bytes())
    commit_trajectory(workspace, recorded)
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["reviews", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_list_says_which_decisions_hold_without_typed_text(root):
    output = run("list")
    assert SECRET not in output
    assert "ann: action step 0 [holds]" in output
    assert "ann: bad_step step 2 [stale]" in output
    assert "bob: approve [undone]" in output
    assert "1 holds, 1 stale, 1 undone, 1 undo\n" in output
    assert "0 holds" in run("list", "another")
    assert root.is_dir()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_an_export_goes_to_a_private_file_and_comes_back(root, suffix, monkeypatch):
    file = root / f"out{suffix}"
    assert ": 4" in run("export", str(file))
    assert file.stat().st_mode & 0o077 == 0
    assert SECRET in file.read_text()
    assert "new file" in run("export", str(file), code=2)
    monkeypatch.setenv("DEMO_PIPELINE_STORE", str(root / "other"))
    assert "4 added, 0 known" in run("import", str(file))
    assert "0 added, 4 known" in run("import", str(file))
    file.write_text("nonsense\n")
    run("import", str(file), code=1)
    run("import", str(root / "none.jsonl"), code=2)
