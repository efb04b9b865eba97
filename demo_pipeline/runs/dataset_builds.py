"""What people see of the datasets, and whether any of them would be built now.

Belongs here: looking at what is committed. One dataset is built by datasets.py.
"""

import os
from typing import cast

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.runs.datasets import committed_trajectories, rebuild_cause
from demo_pipeline.runs.results import DatasetOutcome, left_out_words
from demo_pipeline.runs.stages import DATASET_STAGES, is_built, job_of
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.names import is_bucket
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE


def bytes_written(store: Store, output: str) -> int:
    """Bytes that the current version of an output wrote to the store.

    In a folder hard links to files of other versions count nothing; a bucket has none, so there
    every file counts. Links to whole versions never count.

    Raises:
        MissingOutput: the output was never built.
    """
    version = store.current(output)
    if version is None:
        raise MissingOutput(output)
    if is_bucket(store.url):
        return version.manifest.size
    folder = store.open_version(version)
    found = (os.stat(f"{folder}/{file.path}") for file in version.manifest.files)  # noqa: PTH116
    return sum(status.st_size for status in found if status.st_nlink == 1)


def tasks_unchanged(workspace: Workspace) -> bool:
    """Whether the catalog of OSWorld tasks is the one that would be read now."""
    return not rebuild_cause(workspace, TASKS_STAGE, CommittedTrajectories())[1]


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
    committed = committed_trajectories(workspace)
    if committed.damaged:
        return None
    for stage in DATASET_STAGES:
        if job_of(stage) != DATASETS_JOB or not is_built(stage, workspace.settings):
            continue
        output, cause = rebuild_cause(workspace, stage, committed)
        if cause:
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
    told = tuple(map(str, cast("list[str]", summary.get("told", []))))
    return DatasetOutcome(stage.name, f"{store.url}/{output}", counts, left_out, told, size)
