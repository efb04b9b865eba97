"""Fills a store with tiny trajectories and their records, for tests of later stages."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.privacy.redaction_stage import REDACTIONS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.versions import Recipe, Version
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.building import build_stage


def commit_trajectory(workspace: Workspace, trajectory: DatasetTrajectory) -> Version:
    """Commits a trajectory of `make_trajectory` to the store, and then its records."""
    with workspace.store.stage(TRAJECTORIES_STAGE.output(trajectory.id)) as staging:
        shutil.copytree(trajectory.path, staging.path, dirs_exist_ok=True)
        shutil.copyfile(trajectory.provenance, staging.path / "provenance.parquet")
        recipe = Recipe(TRAJECTORIES_STAGE.name, "made", "made", {})
        version = workspace.store.commit(staging, recipe, {})
    for stage in (REDACTIONS_STAGE, ANNOTATIONS_STAGE):
        build_stage(workspace, stage, trajectory.id)
    result = build_stage(workspace, RECORDS_STAGE, trajectory.id)
    assert result.version is not None, result.checks
    return version


def commit_trajectories(workspace: Workspace, trajectories: Iterable[DatasetTrajectory]) -> None:
    """Commits several trajectories with their records."""
    for trajectory in trajectories:
        commit_trajectory(workspace, trajectory)


def every_file(folder: Path) -> dict[str, bytes]:
    """Returns the content of all files below a folder, by path; links are followed."""
    contents: dict[str, bytes] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            contents |= {f"{path.name}/{name}": data for name, data in every_file(path).items()}
        else:
            contents[path.name] = path.read_bytes()
    return contents
