"""`demo-pipeline diff` of two recordings: exactly the rows that changed are listed."""

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
from demo_pipeline_tests.simulator.script import click, hotkey, scroll

INBOX = "recordings"  # folder of a project for uploads
FIRST = "first"
SECOND = "second"
ACTS = {
    FIRST: (click("Agree"), scroll("Rows", 2), click("Name")),
    SECOND: (click("Rows/b"), hotkey("ctrl", "a"), click("Agree")),
}


def ours() -> dict[str, None]:
    """Returns the environment variables to unset for a project: all settings, and DAGSTER_HOME."""
    ours = (name for name in os.environ if name.startswith("DEMO_PIPELINE_"))
    return dict.fromkeys((*ours, "DAGSTER_HOME"))


class Project:
    """A project with two recordings, whose datasets are exported to the folder `before`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.call("init", str(folder))
        shutil.rmtree(folder / "data" / INBOX)
        for name, acts in ACTS.items():
            recording_script = replace(
                script(*acts), title=name, content=f"Could you do the {name} task?"
            )
            write_recording(folder / "data" / INBOX / name, recording_script, SMALL)
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
        comparisons = json.loads(self.call("diff", *sides, "--json"))
        [samples] = [item for item in comparisons if item["stage"] == "sft_samples"]
        return list(samples["differences"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("diff") / "project")


def test_a_setting_changes_the_rows_that_depend_on_it(project):
    assert project.rows("before", "sft") == []
    [index] = json.loads(project.call("diff", "before/dataset", "dataset", "--json"))
    assert (index["rows"], index["differences"]) == ([8, 8], [])  # 6 steps, 2 trajectories
    project.settings('[actions]\nwheel_sign = "positive_up"\n')
    project.run()
    rows = project.rows("before", project.current())
    assert {row["change"] for row in rows} == {"changed"}
    # The first row is the scroll. The second row has the scroll in its history.
    assert [row["row"] for row in rows] == ["first_001", "first_002"]
    assert "action" in rows[0]["parts"]
    printed = project.call("diff", "before/sft", "sft")
    assert "6 → 6 rows: 0 added, 0 removed, 2 changed\n" in printed
    assert re.search(r"1 changed of first \(\w+\): action, reasoning\n", printed)


def test_a_changed_recording_changes_its_own_rows(project):
    before = project.current()
    meta = project.folder / "data" / INBOX / FIRST / "meta.json"
    meta.write_text(meta.read_text().replace("Could you", "Please"))
    project.run()
    rows = project.rows(before, project.current())
    assert {row["demonstration"] for row in rows} == {FIRST}
    assert {part for row in rows for part in row["parts"]} == {"instruction"}
    assert "Please" not in project.call("diff", before, project.current())


def decide(project: Project, demonstration: str, kind: str, value: Any) -> None:
    store = open_store(str(project.folder / "data" / "store"))
    folder, version = store.open(f"trajectories/{demonstration}")
    Reviews(store).make(subject_of(version, demonstration), folder, "ann", kind, value)


def test_rows_that_decisions_leave_out_are_removed(project):
    before = project.current()
    decide(project, FIRST, "bad_step", {"step": 1})
    decide(project, SECOND, "reject", {"reason": "duplicate"})
    project.run()
    project.call("export", "after")
    for sides in ((before, "sft"), (before, "after"), (before, "after/sft")):
        rows = project.rows(*sides)
        [removed] = [row for row in rows if row["demonstration"] == FIRST]
        assert (removed["row"], removed["change"]) == ("first_001", "removed")
        others = [row for row in rows if row["demonstration"] == SECOND]
        assert len(others) == 3
        assert {row["change"] for row in others} == {"removed"}
        assert len(rows) == 4  # no row changed its split
    back = project.rows("after", before)
    assert {row["change"] for row in back} == {"added"}
    assert len(back) == 4


def test_an_unknown_name_is_refused_with_the_versions(project):
    with chdir(project.folder):
        done = CliRunner().invoke(app, ["diff", "nothing", "sft"], env=ours())
    assert "'nothing' is neither one version" in str(done.exception)
    assert f"{project.current()}" in str(done.exception)
