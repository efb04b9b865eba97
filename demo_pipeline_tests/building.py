"""Builds single outputs, for tests of stages and of datasets."""

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs import datasets, stage_runs
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Stage


def build_stage(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    demonstration: str,
    *,
    force: bool = False,
) -> BuildResult:
    """Build the output of a stage of a demonstration, unless it is up to date."""
    return stage_runs.build_stage(workspace, stage, demonstration, force=force)


def run_dataset_stage(
    workspace: Workspace, stage: Stage[DatasetInputs], *, force: bool = False
) -> BuildResult:
    """Build the output of a dataset stage, unless it is up to date."""
    return datasets.run_dataset_stage(workspace, stage, force=force)


def is_up_to_date(workspace: Workspace, demonstration: str) -> bool:
    """Whether a run would build nothing of a demonstration."""
    return stage_runs.is_up_to_date(workspace, demonstration)
