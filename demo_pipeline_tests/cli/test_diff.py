"""`demo-pipeline diff` of two recordings: one thing changes, and exactly this is named."""

import json
import os
import re
import shutil
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, drag, hotkey, right_click

INBOX = "recordings"  # of the project
FIRST, SECOND = "first", "second"
ACTS = {
    FIRST: (click("Agree"), drag("Form/title bar", 60, 40), right_click("Rows/c")),
    SECOND: (click("Rows/b"), hotkey("ctrl", "a"), click("Agree")),
}


def ours() -> dict[str, None]:
    """The variables of the tests, which a project has no need of, and the one that `run` sets."""
    ours = (name for name in os.environ if name.startswith("DEMO_PIPELINE_"))
    return dict.fromkeys((*ours, "DAGSTER_HOME"))


class Project:
    """A project with two recordings, which was run and exported to `before`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.call("init", str(folder))
        shutil.rmtree(folder / "data" / INBOX)
        for name, acts in ACTS.items():
            told = replace(script(*acts), title=name, content=f"Could you do the {name} task?")
            write_recording(folder / "data" / INBOX / name, told, SMALL)
        self.settings("")
        self.run()
        self.call("export", "before")

    def call(self, *arguments: str) -> str:
        with chdir(self.folder if self.folder.exists() else self.folder.parent):
            done = CliRunner().invoke(app, arguments, env=ours())
        assert done.exit_code == 0, done.output
        return done.stdout

    def run(self) -> None:
        self.call("run", "--workers", "1")

    def settings(self, more: str) -> None:
        text = f'[datasets]\nexports = ["sft"]\n{more}'
        (self.folder / "demo_pipeline.toml").write_text(text)

    def current(self) -> str:
        version = open_store(str(self.folder / "data" / "store")).published("sft")
        assert version is not None
        return f"sft@{version.id}"

    def rows(self, *sides: str) -> list[dict[str, Any]]:
        found = {one["stage"]: one for one in json.loads(self.call("diff", *sides, "--json"))}
        return list(found["sft_samples"]["differences"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("diff") / "project")


def causes(rows: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    return {tuple(row["causes"]) for row in rows}


def test_one_setting_is_named(project):
    assert project.rows("before", "sft") == []
    [index] = json.loads(project.call("diff", "before/dataset", "dataset", "--json"))
    assert (index["rows"], index["differences"]) == ([8, 8], [])  # 6 steps, 2 trajectories
    project.settings("[actions]\nclick_radius_px = 200\n")
    project.run()
    rows = project.rows("before", project.current())
    assert causes(rows) == {("setting actions.click_radius_px: 5.0 → 200.0",)}
    assert {row["change"] for row in rows} == {"changed"}
    assert [row["row"] for row in rows] == ["first_001", "first_002"]  # a click, and in a history
    assert "action_type" in rows[0]["parts"]
    said = project.call("diff", "before/sft", "sft")
    assert "because of setting actions.click_radius_px: 5.0 → 200.0\n" in said
    assert re.search(r"1 changed of first \(\w+\): action, action_type, reasoning\n", said)


def test_one_recording_is_named(project):
    before = project.current()
    meta = project.folder / "data" / INBOX / FIRST / "meta.json"
    meta.write_text(meta.read_text().replace("Could you", "Please"))
    project.run()
    rows = project.rows(before, project.current())
    assert causes(rows) == {("recording",)}
    assert {row["demonstration"] for row in rows} == {FIRST}
    assert {part for row in rows for part in row["parts"]} == {"instruction"}


def decide(project: Project, demonstration: str, kind: str, value: Any) -> str:
    store = open_store(str(project.folder / "data" / "store"))
    folder, version = store.open(f"trajectories/{demonstration}")
    subject = subject_of(version, demonstration)
    return Reviews(store).make(subject, folder, "ann", kind, value).id


def test_decisions_are_named(project):
    before = project.current()
    bad = decide(project, FIRST, "bad_step", {"step": 1})
    decide(project, SECOND, "reject", {"reason": "duplicate"})
    project.run()
    project.call("export", "after")
    rejected = "decision: it was not rejected, and is rejected (duplicate)"
    for sides in ((before, "sft"), (before, "after")):
        rows = project.rows(*sides)
        [gone] = [row for row in rows if row["row"] == "first_001"]
        assert (gone["change"], gone["causes"]) == ("removed", [f"decision {bad}"])
        second = [row for row in rows if row["demonstration"] == SECOND]
        assert {row["change"] for row in second} == {"removed"}
        assert causes(second) == {(rejected,)}
        assert rows == [row for row in rows if row in second or row is gone]  # splits stay


def test_what_is_no_dataset_is_refused_with_the_versions(project):
    with chdir(project.folder):
        done = CliRunner().invoke(app, ["diff", "nothing", "sft"], env=ours())
    assert "'nothing' is neither one version" in str(done.exception)
    assert f", {project.current()}" in str(done.exception)
