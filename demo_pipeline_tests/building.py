"""Builds single outputs, for tests of stages and of datasets."""

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs import demonstration_outputs
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import demonstration_output
from demo_pipeline.runs.graph import Graph
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
    """Builds the output of a stage for a demonstration, unless the output is up to date."""
    graph = Graph(workspace)
    return graph.build(demonstration_output(graph, stage, demonstration), force=force)


def run_dataset_stage(
    workspace: Workspace, stage: Stage[DatasetInputs], *, force: bool = False
) -> BuildResult:
    """Builds the output of a dataset stage, unless the output is up to date."""
    graph = Graph(workspace)
    return graph.build(DatasetOutput(graph, stage), force=force)


def is_up_to_date(workspace: Workspace, demonstration: str) -> bool:
    """Returns whether all outputs of a demonstration are up to date."""
    return demonstration_outputs.is_up_to_date(Graph(workspace), demonstration)
