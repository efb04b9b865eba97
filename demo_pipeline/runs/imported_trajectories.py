"""Trajectories of other origin: they have no recording, and are published as if built by a stage.

The recipe of such a trajectory names the files that it was copied from instead of a recording. The
stages before `trajectories` have no output; `run` renews the outputs of the stages after it.
"""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.importers.desktopd_trajectories import copy_trajectory, files_of, write_origin
from demo_pipeline.importers.import_recordings import ImportOutcome, ImportState
from demo_pipeline.importers.source_recording import FoundRecording, UnreadableSourceError
from demo_pipeline.importers.upload_folder import Given, given_for
from demo_pipeline.osworld.task_matching import TaskMatch
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording.meta import Meta
from demo_pipeline.runs.demonstration_outputs import (
    IMPORTED_FILES,
    demonstration_output,
    has_imported_trajectory,
    stages_after_import,
)
from demo_pipeline.runs.failures import DefectError, RefusedError, TransientError
from demo_pipeline.runs.graph import BuildPlan, Graph, Output
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.task_catalog import match_meta
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, Inputs, Stage, Summary
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.uploads import NAME_RULE
from demo_pipeline.store.versions import Recipe
from demo_pipeline.trajectories.provenance import recorded_outcome
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_MAX_PROBLEMS = 3  # that an outcome names


@dataclass(frozen=True, kw_only=True)
class _ImportInputs(Inputs):
    """The inputs of an import: the folder of the trajectory, its new id, its task and platform."""

    folder: Path
    key: str
    match: TaskMatch
    platform: str


def _copy(inputs: _ImportInputs, out: Path) -> Summary:
    copy_trajectory(inputs.folder, inputs.key, out)
    _require_valid(out, inputs.key)
    return write_origin(out, inputs.match, inputs.platform)


_IMPORT_STAGE: Stage[_ImportInputs] = Stage(
    name=TRAJECTORIES_STAGE.name,
    folder=TRAJECTORIES_STAGE.folder,
    description=TRAJECTORIES_STAGE.description,
    kinds=TRAJECTORIES_STAGE.kinds,
    code_version="imported-2",  # raised whenever the code writes other bytes
    inputs=(),
    build=_copy,
    checks=(
        Check(
            "desktopd_trajectory",
            "The copied trajectory is valid.",
            lambda inputs, out: validate_trajectory(out, inputs.key),
        ),
    ),
)


class _TrajectoryImport(Output[_ImportInputs]):
    """The output that a trajectory of other origin becomes."""

    def __init__(self, graph: Graph, recording: FoundRecording, options: Given) -> None:
        super().__init__(graph, _IMPORT_STAGE, recording.name)
        self._folder = recording.folder
        self._platform = given_for(recording, options).platform

    def plan(self) -> BuildPlan[_ImportInputs]:
        """Plan from the files of the folder, and from the matching benchmark task, if any."""
        workspace = self.graph.workspace
        names = files_of(self._folder)
        digests = ((name, file_digest(self._folder / name).sha256) for name in names)
        match = match_meta(workspace, _as_meta(self._folder))
        fingerprints = {
            IMPORTED_FILES: combined_digest(digests),
            "osworld": match.fingerprint,
            "given": self._platform,
        }
        inputs = _ImportInputs(
            settings=workspace.settings,
            folder=self._folder,
            key=self.key,
            match=match,
            platform=self._platform,
        )
        return BuildPlan(
            recipe=Recipe(self.stage.name, self.stage.code_version, "", fingerprints),
            open_inputs=lambda _: nullcontext(inputs),
        )


def import_trajectory(
    workspace: Workspace, recording: FoundRecording, options: Given
) -> ImportOutcome:
    """Publish a trajectory, and build the outputs that need only trajectories, such as records.

    If the trajectory is invalid, nothing is published, and the outcome says what is wrong.
    """
    key = recording.name
    if not is_safe_id(key):
        return ImportOutcome(recording.folder, ImportState.REFUSED, sentences=(NAME_RULE,))
    graph = Graph(workspace)
    output = TRAJECTORIES_STAGE.output(key)
    if graph.published(output) is not None and not has_imported_trajectory(graph, key):
        sentence = f"the store has a demonstration of the id {key}, made from a recording"
        return ImportOutcome(recording.folder, ImportState.REFUSED, sentences=(sentence,))
    try:
        result = graph.build(_TrajectoryImport(graph, recording, options))
        for stage in stages_after_import():
            graph.build(demonstration_output(graph, stage, key))
    except UnreadableSourceError as error:
        return ImportOutcome(recording.folder, ImportState.REFUSED, sentences=(str(error),))
    except RefusedError as error:
        first = error.problems[:_MAX_PROBLEMS]
        sentences = [str(replace(problem, demonstration="")) for problem in first]
        if len(error.problems) > _MAX_PROBLEMS:
            sentences.append(f"and {len(error.problems) - _MAX_PROBLEMS} more problems")
        return ImportOutcome(recording.folder, ImportState.REFUSED, sentences=tuple(sentences))
    state = ImportState.KNOWN if result.status is Status.CACHED else ImportState.IMPORTED
    return ImportOutcome(recording.folder, state, key, ("there is no recording of it",))


def imported_ids(workspace: Workspace, recorded: Collection[str]) -> list[str]:
    """The ids of imported trajectories. `recorded`: ids of uploads, which are not imported."""
    outputs = workspace.store.outputs(TRAJECTORIES_STAGE.folder)
    others = {name.rpartition("/")[2] for name in outputs}.difference(recorded)
    return [key for key in sorted(others) if has_imported_trajectory(Graph(workspace), key)]


def renew_trajectory(workspace: Workspace, key: str, *, force: bool) -> DemonstrationResult:
    """Build the stages after an imported trajectory that are not up to date."""
    graph = Graph(workspace)
    version = graph.published(TRAJECTORIES_STAGE.output(key))
    summary = version.manifest.summary if version is not None else {}
    stage = TRAJECTORIES_STAGE
    try:
        for stage in stages_after_import():
            graph.build(demonstration_output(graph, stage, key), force=force)
    except RefusedError as error:
        return DemonstrationResult(key, Status.REJECTED, {}, stage.name, error.problems)
    except (TransientError, DefectError) as error:
        problem = Problem("run_failed", ".", str(error), demonstration=key)
        return DemonstrationResult(key, Status.FAILED, {}, stage.name, (problem,))
    outcome = recorded_outcome("completed", success=bool(summary.get("success")))
    return DemonstrationResult(key, Status.BUILT, {**summary, "outcome": outcome})


def _require_valid(folder: Path, key: str) -> None:
    """Raise `DemonstrationError` if the trajectory does not follow the format."""
    problems = errors(validate_trajectory(folder, key))
    if problems:
        raise DemonstrationError(problems)


def _as_meta(folder: Path) -> Meta:
    """The task as the meta.json of a recording, to match it with the benchmark's tasks."""
    task = read_trajectory(folder).task
    quest = {"title": task.instruction, "content": task.instruction, "app": task.application}
    if task.osworld_task_id:
        quest["osworld_task_id"] = task.osworld_task_id
    return Meta.model_validate({"timestamp": "1970-01-02T00:00:00+00:00", "quest": quest})
