"""Small recordings and helpers that run the pipeline on them, for tests of stages and datasets."""

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
    """Writes two recordings of different tasks; each takes a few seconds."""
    for name, acts in DEMOS.items():
        demonstration = replace(
            script(*acts), title=f"The {name} task", content=f"Please do the {name} task."
        )
        write_recording(uploads / name, demonstration, SMALL)


def places_in(root: Path) -> dict[str, Any]:
    """Returns the settings for uploads, store, cache and tasks: folders below `root`.

    The folders need not exist.
    """
    names = {"osworld_tasks": "tasks"}
    kinds = ("uploads", "store", "cache", "osworld_tasks")
    return {kind: str(root / names.get(kind, kind)) for kind in kinds}


def variables_of(root: Path) -> dict[str, str]:
    """Returns the settings of `places_in` as environment variables, with DAGSTER_HOME."""
    places = {f"DEMO_PIPELINE_{name.upper()}": place for name, place in places_in(root).items()}
    return places | {"DAGSTER_HOME": str(root / "home")}


def live_in(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Makes commands in this process use the folders below `root`, with a home for Dagster."""
    for name, value in variables_of(root).items():
        patch.setenv(name, value)
    (root / "home").mkdir(parents=True, exist_ok=True)


def open_workspace(root: Path, **settings: Any) -> Workspace:
    """Opens a workspace with the folders below `root`.

    Args:
        root: the folder.
        settings: sections of the settings, or places that replace those below `root`.
    """
    return Workspace.open(Settings(**places_in(root) | settings))


def run_catalog(workspace: Workspace, *, force: bool = False) -> BuildResult:
    """Builds the catalog of OSWorld tasks."""
    return run_dataset_stage(workspace, TASKS_STAGE, force=force)


def run_all_stages(workspace: Workspace, demonstration: str) -> dict[str, str]:
    """Builds the catalog of OSWorld tasks, then every stage in order; returns name → status."""
    run_catalog(workspace)
    return {stage.name: build_stage(workspace, stage, demonstration).status for stage in STAGES}


def copy_of(source: Path, destination: Path) -> Path:
    """Copies a folder such as `made_root` with its links, so that a test may change the copy."""
    shutil.copytree(source, destination, symlinks=True)
    return destination


def contents(workspace: Workspace, demonstration: str) -> dict[str, dict[str, bytes]]:
    """Returns stage → path → content for every file of a demonstration's outputs."""
    files_by_stage = {}
    for name, stage in STAGE_BY_NAME.items():
        folder = workspace.store.open(stage.output(demonstration))[0]
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files_by_stage[name] = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return files_by_stage
