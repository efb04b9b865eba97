"""What a run finds when nothing is to do: which outputs there are, without building any.

Belongs here: asking every dataset stage of the run whether it is up to date. Demonstrations are
compared in staleness.py.
"""

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.pipeline.committed_trajectories import committed_trajectories
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_runner import unchanged_output
from demo_pipeline.pipeline.outcomes import DatasetOutcome, left_out_words
from demo_pipeline.pipeline.output_sizes import bytes_written
from demo_pipeline.pipeline.stages import DATASET_STAGES
from demo_pipeline.pipeline.task_catalog import TASKS_STAGE
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.storage.store.store import Store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE


def tasks_unchanged(workspace: Workspace) -> bool:
    """Whether the catalog of OSWorld tasks is the one that would be read now."""
    return unchanged_output(workspace, TASKS_STAGE, CommittedTrajectories()) is not None


def unchanged_datasets(workspace: Workspace) -> list[DatasetOutcome] | None:
    """Every dataset when none of them would change; None when one would be built.

    None also when a trajectory is damaged: the ordinary run names it. Without a committed
    trajectory no dataset is built.

    Raises:
        StorageError: the store cannot be read.
    """
    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        return []
    outcomes = []
    with committed_trajectories(workspace) as committed:
        if committed.damaged:
            return None
        for stage in DATASET_STAGES:
            if stage.job != DATASETS_JOB or not stage.is_built(workspace.settings):
                continue
            output = unchanged_output(workspace, stage, committed)
            if output is None:
                return None
            if stage.counts:
                outcomes.append(dataset_outcome(workspace.store, stage, output))
    return outcomes


def dataset_outcome(store: Store, stage: Stage[DatasetInputs], output: str) -> DatasetOutcome:
    """What people see of a dataset, by the summary of its current version."""
    version = store.current(output)
    summary = version.manifest.summary if version else {}
    counts = {key: summary[key] for key in stage.counts if key in summary}
    size = bytes_written(store, output) if version else 0
    left_out = tuple(left_out_words(summary))
    return DatasetOutcome(stage.name, f"{store.url}/{output}", counts, left_out, size)
