"""Tells people what a run would build and why, and summarizes the datasets."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.damage import left_out_damage
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import demonstration_outputs
from demo_pipeline.runs.graph import (
    SETTINGS_CHANGED,
    Absent,
    Current,
    Graph,
    Output,
    Refused,
    Stale,
)
from demo_pipeline.runs.results import DatasetOutcome, left_out_words
from demo_pipeline.runs.setting_notes import noted_settings, section_values, setting_changes
from demo_pipeline.runs.stages import STAGES, built_stages
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Stage
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.names import is_bucket
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

Reasons = Sequence[tuple[str, str]]
"""Pairs of a stage and the reason why a run would build its output."""


@dataclass(frozen=True)
class Plan:
    """The outputs that a run would build.

    For a demonstration with stale outputs, only the first listed stage is certain to run. Its
    result may leave the later stages up to date.

    Attributes:
        demonstrations: maps each demonstration id to the stages to build, with reasons.
        datasets: the dataset stages to build, with reasons.
    """

    demonstrations: Mapping[str, Reasons]
    datasets: Reasons


def plan(workspace: Workspace, todo: Mapping[str, str], *, force: bool) -> Plan:
    """Returns the outputs that a run over these demonstrations would build.

    Args:
        todo: maps each demonstration id to the reason for building all of its outputs. If the
            reason is an empty string, only stale outputs are built.
        force: whether the datasets would be built even if they are up to date.
    """
    graph = Graph(workspace)
    demonstrations = {key: reasons_to_build(graph, key, why) for key, why in todo.items()}
    return Plan(demonstrations, _dataset_reasons(workspace, forced=force, after=bool(todo)))


def reasons_to_build(graph: Graph, demonstration: str, why: str = "") -> Reasons:
    """Returns the stages that a run would build for a demonstration, with reasons.

    Args:
        why: the reason for building all stages. If empty, only stale stages are returned.
    """
    outputs = demonstration_outputs(graph, demonstration)
    if why:
        return [(output.stage.name, why) for output in outputs]
    try:
        return list(_stale_outputs(graph, outputs))
    except DemonstrationError as error:
        return [(STAGES[0].name, f"it cannot be read: {error.problems[0].message}")]
    except MissingOutput as error:
        return [(STAGES[0].name, str(error))]


def _stale_outputs(graph: Graph, outputs: Sequence[Output[Any]]) -> Iterator[tuple[str, str]]:
    """Yields the stage of each output that is not up to date, and the reason."""
    for output in outputs:
        state = graph.state(output)
        if not isinstance(state, Current):
            yield output.stage.name, _why(graph.workspace, output, state)


def _why(workspace: Workspace, output: Output[Any], state: Stale | Refused | Absent) -> str:
    """Returns why an output would be built.

    Names the changed settings if an earlier build stored their old values.
    """
    if isinstance(state, Refused) and isinstance(output, DatasetOutput):
        return "it failed before"
    section = output.stage.section
    if state.why != SETTINGS_CHANGED or state.version is None or section is None:
        return state.why
    before = noted_settings(workspace.store, state.version.manifest.settings)
    after = section_values(workspace.settings, section(workspace.settings))
    return ", ".join(setting_changes(before, after)) if before else state.why


def _dataset_reasons(workspace: Workspace, *, forced: bool, after: bool) -> Reasons:
    stages = built_stages(workspace.settings)
    if forced or after:
        why = "--force" if forced else "after the demonstrations"
        return [(stage.name, why) for stage in stages]
    graph = Graph(workspace)
    if not graph.trajectories.trajectories:
        return []
    outputs = [DatasetOutput(graph, stage) for stage in stages]
    return list(_stale_outputs(graph, outputs))


def bytes_written(store: Store, output: str) -> int:
    """Returns the bytes that the published version of an output takes in the store.

    Hard-linked files and linked outputs do not count.

    Raises:
        MissingOutput: the output was never built.
    """
    version = store.current(output)
    if version is None:
        raise MissingOutput(output)
    if is_bucket(store.url):
        return version.manifest.size
    folder = store.open_version(version)
    statuses = (os.stat(f"{folder}/{file.path}") for file in version.manifest.files)  # noqa: PTH116
    return sum(status.st_size for status in statuses if status.st_nlink == 1)


def tasks_unchanged(workspace: Workspace) -> bool:
    """Returns whether the catalog of OSWorld tasks is up to date."""
    graph = Graph(workspace)
    return isinstance(graph.state(DatasetOutput(graph, TASKS_STAGE)), Current)


def unchanged_datasets(workspace: Workspace) -> list[DatasetOutcome] | None:
    """Returns the outcome of every dataset; None if a dataset is not up to date.

    Also returns None if a trajectory is damaged, so that a run reports the damage. Returns an empty
    list if the store has no trajectory.

    Raises:
        StorageError: the store cannot be read.
    """
    if not workspace.store.outputs(TRAJECTORIES_STAGE.folder):
        return []
    graph = Graph(workspace)
    if graph.trajectories.damaged:
        return None
    outcomes = []
    for stage in built_stages(workspace.settings):
        output = DatasetOutput(graph, stage)
        if not isinstance(graph.state(output), Current):
            return None
        if stage.counts:
            outcomes.append(dataset_outcome(workspace.store, stage, output.name))
    return outcomes


def dataset_outcome(store: Store, stage: Stage[DatasetInputs], output: str) -> DatasetOutcome:
    """Returns the counts and remarks in the summary of a published dataset."""
    version = store.current(output)
    summary = version.manifest.summary if version else {}
    counts = {key: summary[key] for key in stage.counts if key in summary}
    return DatasetOutcome(
        name=stage.name,
        path=f"{store.url}/{output}",
        counts=counts,
        left_out=tuple(left_out_words(summary)),
        told=tuple(map(str, cast("list[str]", summary.get("told", [])))),
        damaged=tuple(map(str, left_out_damage(summary))),
        bytes_written=bytes_written(store, output) if version else 0,
    )
