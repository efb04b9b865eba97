"""`init` creates a project outside of the checkout, and commands in its folders use the project."""

import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from demo_pipeline import settings
from demo_pipeline.cli import ui_guard
from demo_pipeline.cli.app import app
from demo_pipeline.settings import Settings

RUNNER = CliRunner()
ROOT = Path(__file__).parents[2]


def test_a_project_has_everything_that_a_run_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("DEMO_PIPELINE_CONFIG")
    project = tmp_path / "project"
    assert RUNNER.invoke(app, ["init", str(project)]).exit_code == 0
    instance_file = project / "dagster" / "dagster.yaml"
    assert instance_file.read_bytes() == (ROOT / "dagster.yaml").read_bytes()
    assert not instance_file.is_symlink()
    monkeypatch.chdir(project / "data")
    assert Settings().store == str(project / "data" / "store")
    done = RUNNER.invoke(app, ["validate", "recordings/20260105_090000"])
    assert done.exit_code == 0, done.output
    assert {path.name for path in project.iterdir()} == {
        *("dagster", "workspace.yaml", "demo_pipeline.toml", "data")
    }


def test_the_settings_of_a_project_are_read_from_folders_below(tmp_path, monkeypatch):
    monkeypatch.delenv("DEMO_PIPELINE_CONFIG")
    (tmp_path / "demo_pipeline.toml").write_text('[datasets]\nlicense = "mine"\n')
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert Settings().datasets.license == "mine"


def test_a_folder_with_files_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").touch()
    done = RUNNER.invoke(app, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("command", ["run", "register", "doctor", "quarantine", "ui"])
def test_outside_of_a_project_nothing_is_created_and_the_message_says_what_to_do(
    tmp_path, monkeypatch, command
):
    monkeypatch.delenv("DEMO_PIPELINE_CONFIG")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(settings, "__file__", str(tmp_path / "packages" / "demo_pipeline" / "s.py"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = RUNNER.invoke(app, [command])
    assert done.exit_code == 2
    assert "is not in a project; make one with `demo-pipeline init DIR`" in done.output
    assert list((tmp_path / "here").iterdir()) == []


def test_the_databases_of_a_new_home_exist_before_daemon_and_webserver_start(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.delenv("DEMO_PIPELINE_CONFIG")
    project = tmp_path / "project"
    home = tmp_path / "home"
    home.mkdir()
    assert RUNNER.invoke(app, ["init", str(project)]).exit_code == 0
    monkeypatch.chdir(project / "data")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("DAGSTER_WEBSERVER_PATH_PREFIX", "")  # undone after the test
    started: list[list[str]] = []
    guarded: list[Any] = []
    monkeypatch.setattr(os, "execv", lambda _, command: started.append(command))
    monkeypatch.setattr(ui_guard, "start_guard", lambda *given: guarded.append(given))
    capfd.readouterr()
    done = RUNNER.invoke(app, ["ui", "--port", "40123"])
    assert (done.exit_code, *capfd.readouterr()) == (0, "", "")
    [(_, (address, port), token)] = guarded
    assert done.output == (f"http://127.0.0.1:40123 (under another name: …:40123/{token}/)\n")
    assert os.environ["DAGSTER_WEBSERVER_PATH_PREFIX"] == f"/{token}"
    assert (home / "dagster.yaml").read_bytes() == (ROOT / "dagster.yaml").read_bytes()
    databases = {path.relative_to(home).as_posix() for path in home.rglob("*.db")}
    assert databases >= {"history/runs.db", "history/runs/index.db", "schedules/schedules.db"}
    [command] = started
    assert command[-5:] == [
        str(project / "workspace.yaml"),
        "--host",
        address,
        "--port",
        str(port),
    ]
    assert Path.cwd() == project / "dagster"
