"""Small recordings and the chain run on them, for tests of stages and datasets."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, hotkey, scroll, type_text

DEMOS = {
    "first": (click("Agree"), click("Name"), type_text("Ab, c!"), scroll("Rows", 2)),
    "second": (click("Rows/b"), hotkey("ctrl", "a"), click("Agree")),
}


def write_demos(uploads: Path) -> None:
    """Two recordings of a few seconds each, of two tasks."""
    for name, acts in DEMOS.items():
        demonstration = replace(
            script(*acts), title=f"The {name} task", content=f"Please do the {name} task."
        )
        write_recording(uploads / name, demonstration, SMALL)


def places_in(root: Path) -> dict[str, Any]:
    """Every root of the settings, each a folder below `root`, which need not be there."""
    names = {"osworld_tasks": "tasks"}
    kinds = ("uploads", "store", "cache", "osworld_tasks")
    return {kind: str(root / names.get(kind, kind)) for kind in kinds}


def variables_of(root: Path) -> dict[str, str]:
    """The same as the environment of a command has them, with `root`/home for Dagster."""
    places = {f"DEMO_PIPELINE_{name.upper()}": place for name, place in places_in(root).items()}
    return places | {"DAGSTER_HOME": str(root / "home")}


def live_in(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the commands of this process have these roots, and a new home for Dagster."""
    for name, value in variables_of(root).items():
        patch.setenv(name, value)
    (root / "home").mkdir(parents=True, exist_ok=True)


def open_workspace(root: Path, **settings: Any) -> Workspace:
    """The pipeline over `places_in` a folder; `settings`: other roots, and sections."""
    return Workspace.open(Settings(**places_in(root) | settings))


def run_catalog(workspace: Workspace, *, force: bool = False) -> BuildResult:
    """The catalog of OSWorld tasks."""
    return run_dataset_stage(workspace, TASKS_STAGE, force=force)


def run_all_stages(workspace: Workspace, demonstration: str) -> dict[str, str]:
    """The catalog of OSWorld tasks, then every stage in order; name → status."""
    run_catalog(workspace)
    return {stage.name: build_stage(workspace, stage, demonstration).status for stage in STAGES}


def copy_of(source: Path, destination: Path) -> Path:
    """A made root to be changed; links stay links."""
    shutil.copytree(source, destination, symlinks=True)
    return destination


def contents(workspace: Workspace, demonstration: str) -> dict[str, dict[str, bytes]]:
    """Stage → relative path → bytes of what readers see."""
    found = {}
    for name, stage in STAGE_BY_NAME.items():
        folder = workspace.store.open(stage.output(demonstration))[0]
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        found[name] = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return found
