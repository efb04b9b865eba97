"""All datasets of a job: building them in this process, and what there is when nothing changed.

Belongs here: the order, what is skipped after a failure, patience with what passes by itself, and
what people see of a dataset. One dataset is built by datasets.py.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.problems import Problem
from demo_pipeline.runs.damage import left_out_damage, storage_message
from demo_pipeline.runs.datasets import committed_trajectories, rebuild_cause, run_dataset_stage
from demo_pipeline.runs.failures import COMMAND_PAUSES, TransientError, redacted_errors
from demo_pipeline.runs.results import BuildResult, DatasetOutcome, left_out_words
from demo_pipeline.runs.stages import DATASET_STAGES, TRAINING_EXPORTS, is_built, job_of
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import MissingOutput, OutputError
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


RetryPause = Callable[[str, float], None]
"""Gets what is waited for and the seconds to wait, and returns after them."""


@dataclass(frozen=True, slots=True)
class BuiltDatasets:
    """What building the datasets of a job gave.

    By stage its output, or the error that ended it, without those that were skipped; the datasets
    that were built; why others were not; what is wrong with the trajectories that they lack.
    """

    results: Mapping[str, BuildResult | Exception] = field(default_factory=dict)
    outcomes: Sequence[DatasetOutcome] = ()
    errors: Sequence[str] = ()
    damage: Sequence[Problem] = ()


def build_datasets(
    workspace: Workspace, job: str, pause: RetryPause | None = None, *, force: bool = False
) -> BuiltDatasets:
    """Build every dataset of a job; one that fails holds up those only that read it.

    `pause` is called before what passes by itself is tried again; None: it is not.
    """
    wanted = [
        stage
        for stage in DATASET_STAGES
        if job_of(stage) == job and is_built(stage, workspace.settings)
    ]
    results = _attempt(workspace, wanted, force=force)
    for seconds in COMMAND_PAUSES if pause is not None else ():
        waits = [error.reason for error in results.values() if isinstance(error, TransientError)]
        if pause is None or not waits:
            break
        pause(f"{job}: {waits[0]}", seconds)
        results = _attempt(workspace, wanted, force=force)
    outcomes, errors, damage = list[DatasetOutcome](), list[str](), dict[Problem, None]()
    for stage in wanted:
        result = results.get(stage.name)
        if isinstance(result, BuildResult) and result.version is not None:
            damage |= dict.fromkeys(left_out_damage(result.summary))
            if stage.counts:
                outcomes.append(dataset_outcome(workspace.store, stage, result.output))
        elif result is not None:
            errors.append(f"{stage.name}: {failure_text(result)}")
    return BuiltDatasets(results, outcomes, errors, list(damage))


def _attempt(
    workspace: Workspace, wanted: Sequence[Stage[DatasetInputs]], *, force: bool
) -> dict[str, BuildResult | Exception]:
    results: dict[str, BuildResult | Exception] = {}
    opened: list[CommittedTrajectories] = []
    for stage in wanted:
        needed = [name for name in stage.inputs if name in results and name not in TRAINING_EXPORTS]
        if any(failed(results[name]) for name in needed):
            continue
        try:
            with redacted_errors(stage.name):
                results[stage.name] = run_dataset_stage(
                    workspace, stage, force=force, opened=opened
                )
        except Exception as error:  # noqa: BLE001 - it is this dataset's, and was redacted
            results[stage.name] = error
    return results


def failed(result: BuildResult | Exception) -> bool:
    """Whether a dataset was not built."""
    return isinstance(result, Exception) or result.version is None


def failure_text(result: BuildResult | Exception) -> str:
    """Why a dataset was not built, in plain words."""
    if isinstance(result, BuildResult):
        why = plain_line(str(result.problems[0]))
        return f"a check failed, so the last good version is kept: {why}"
    if isinstance(result, OutputError):
        return storage_message(result)
    if isinstance(result, TransientError):
        return f"waiting: {result.reason}; it is tried again by itself"
    return f"{type(result).__name__}: {result}"
