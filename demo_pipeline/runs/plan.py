"""What a run would build and why, and what people see of the datasets; nothing is written.

Belongs here: looking at what is committed. One dataset is built by datasets.py.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.build import (
    SETTINGS_CHANGED,
    noted_settings,
    section_values,
    setting_changes,
)
from demo_pipeline.runs.datasets import committed_trajectories, rebuild_cause
from demo_pipeline.runs.results import DatasetOutcome, left_out_words
from demo_pipeline.runs.stage_runs import stale_stages
from demo_pipeline.runs.stages import DATASET_STAGES, STAGE_BY_NAME, STAGES, is_built, job_of
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.names import is_bucket
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

Reasons = Sequence[tuple[str, str]]
"""(stage, why it would be built)."""


@dataclass(frozen=True)
class Plan:
    """The stages that a run would build by demonstration, and the datasets.

    Those after the first may turn out to be unchanged.
    """

    demonstrations: Mapping[str, Reasons]
    datasets: Reasons


def plan(workspace: Workspace, todo: Sequence[str], *, force: bool) -> Plan:
    """What a run over these demonstrations would build; nothing is written."""
    reasons = {key: _reasons(workspace, key, force=force) for key in todo}
    return Plan(reasons, _dataset_reasons(workspace, forced=force, after=bool(todo)))


def _reasons(workspace: Workspace, demonstration: str, *, force: bool) -> Reasons:
    if force:
        return [(stage.name, "--force") for stage in STAGES]
    try:
        found = stale_stages(workspace, demonstration)
        return [
            (stage.name, _named(workspace, stage, stage.output(demonstration), why))
            for stage, why in ((STAGE_BY_NAME[name], why) for name, why in found)
        ]
    except DemonstrationError as error:
        return [(STAGES[0].name, f"it cannot be read: {error.problems[0].message}")]
    except MissingOutput as error:
        return [(STAGES[0].name, str(error))]


def _named(workspace: Workspace, stage: Stage[Any], output: str, why: str) -> str:
    """A reason, with the settings that changed as far as they were noted."""
    current = workspace.store.published(output) if why == SETTINGS_CHANGED else None
    if current is None or stage.section is None:
        return why
    before = noted_settings(workspace.store, current.manifest.settings)
    after = section_values(workspace.settings, stage.section(workspace.settings))
    return ", ".join(setting_changes(before, after)) if before else why


def _dataset_reasons(workspace: Workspace, *, forced: bool, after: bool) -> Reasons:
    if forced or after:
        why = "--force" if forced else "after the demonstrations"
        return [(stage.name, why) for stage in _wanted(workspace.settings)]
    committed = committed_trajectories(workspace)
    if not committed.trajectories:
        return []
    causes = _causes(workspace, committed)
    return [(one.name, _named(workspace, one, out, why)) for one, out, why in causes if why]


def _wanted(settings: Settings) -> list[Stage[DatasetInputs]]:
    """The stages that a run builds after the demonstrations."""
    return [
        one for one in DATASET_STAGES if job_of(one) == DATASETS_JOB and is_built(one, settings)
    ]


def _causes(
    workspace: Workspace, committed: CommittedTrajectories
) -> Iterator[tuple[Stage[DatasetInputs], str, str]]:
    """Yield each of them, its output, and why it would be built; empty when it would not."""
    for stage in _wanted(workspace.settings):
        yield (stage, *rebuild_cause(workspace, stage, committed))


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
    committed = committed_trajectories(workspace)
    if committed.damaged:
        return None
    outcomes = []
    for stage, output, cause in _causes(workspace, committed):
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
