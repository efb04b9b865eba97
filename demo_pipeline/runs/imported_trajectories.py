"""Imports trajectories that other tools wrote, without a recording.

An imported trajectory is published as an output of the stage `trajectories`; earlier stages have no
output for it. The import also runs the later stages.
"""

import json
from collections.abc import Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.importers.desktopd_trajectories import copy_trajectory, files_of, write_origin
from demo_pipeline.importers.import_recordings import (
    NO_STATUS,
    ImportOutcome,
    ImportState,
    read_failure,
)
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_trajectory import SourceTrajectory
from demo_pipeline.importers.source_values import UnreadableSourceError
from demo_pipeline.importers.trajectory_folder import (
    outcome_of,
    write_result,
    write_source,
    write_steps,
)
from demo_pipeline.importers.upload_folder import Given, given_for, import_id
from demo_pipeline.osworld.task_matching import TaskMatch
from demo_pipeline.osworld.task_text import Assignment, assignment_of
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording.meta import Meta
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import (
    IMPORTED_FILES,
    demonstration_output,
    has_imported_trajectory,
    stages_after_import,
)
from demo_pipeline.runs.failures import DefectError, RefusedError, TransientError
from demo_pipeline.runs.graph import BuildPlan, Graph, Output
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.task_catalog import TASKS_STAGE, match_meta, task_instruction
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, Inputs, Stage, Summary
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.uploads import NAME_RULE
from demo_pipeline.store.versions import Recipe
from demo_pipeline.trajectories.provenance import recorded_outcome
from demo_pipeline.trajectories.trajectories import trajectory_task
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_MAX_PROBLEMS = 3  # maximum number of problems listed for a rejected import; others are counted


@dataclass(frozen=True, kw_only=True)
class _ImportInputs(Inputs):
    """The inputs for importing a trajectory.

    Attributes:
        source: the parsed trajectory. None for an OSWorld-Desktopd trajectory, whose files are
            copied.
        key: the id of the new demonstration.
        given: facts from command-line options or import.json.
        assignment: the instruction, the application and the task group.
        match: the matching task of the OSWorld benchmark, or why there is no match.
    """

    importer: Importer
    source_files: SourceFiles
    source: SourceTrajectory | None
    key: str
    given: Given
    assignment: Assignment
    match: TaskMatch


def _build(inputs: _ImportInputs, out: Path) -> Summary:
    if inputs.source is None:
        copy_trajectory(inputs.source_files.folder, inputs.key, out)
        _require_valid(out, inputs.key)
        return write_origin(out, inputs.match, inputs.given.platform)
    try:
        written = write_steps(inputs.source, out)
    except UnreadableSourceError as error:
        problem = Problem("no_steps", inputs.source_files.place.name, str(error))
        raise DemonstrationError(problem) from None
    steps = len(written.columns)
    written.status = write_result(inputs.source, inputs.given, inputs.key, steps, out)
    task = trajectory_task(inputs.assignment, steps, inputs.match)
    dump_json(out / "task.json", task)
    write_source(
        inputs.source, inputs.source_files, inputs.importer, inputs.given, written=written, out=out
    )
    _require_valid(out, inputs.key)
    platform = inputs.given.platform or inputs.source.platform
    return write_origin(out, inputs.match, platform, written)


_IMPORT_STAGE: Stage[_ImportInputs] = Stage(
    name=TRAJECTORIES_STAGE.name,
    folder=TRAJECTORIES_STAGE.folder,
    description=TRAJECTORIES_STAGE.description,
    kinds=TRAJECTORIES_STAGE.kinds,
    code_version="imported-4",  # increase whenever the code writes different bytes
    inputs=(),
    build=_build,
    checks=(
        Check(
            "desktopd_trajectory",
            "The imported trajectory is valid.",
            lambda inputs, out: validate_trajectory(out, inputs.key),
        ),
    ),
)


class _TrajectoryImport(Output[_ImportInputs]):
    """Builds the `trajectories` output of an imported trajectory."""

    def __init__(
        self,
        graph: Graph,
        importer: Importer,
        source_files: SourceFiles,
        source: SourceTrajectory | None,
        given: Given,
    ) -> None:
        super().__init__(graph, _IMPORT_STAGE, import_id(source_files))
        self._importer = importer
        self._source_files = source_files
        self._source = source
        self._given = given
        self._meta = None
        if source is not None:
            self._meta = _source_meta(graph.workspace, source_files, source, given)

    def plan(self) -> BuildPlan[_ImportInputs]:
        """Plans a build from the files of the source and the matching task of the benchmark."""
        folder = self._source_files.folder
        meta = self._meta or _copied_meta(folder)
        match = match_meta(self.graph.workspace, meta)
        if self._source is None:
            names = list(files_of(folder))
            given = self._given.platform
        else:
            names = [
                str(path.relative_to(folder)) for path in self._source_files.files if path.is_file()
            ]
            given = json.dumps(vars(self._given))
        digests = ((name, file_digest(folder / name).sha256) for name in names)
        fingerprints = {
            IMPORTED_FILES: combined_digest(digests),
            "osworld": match.fingerprint,
            "given": given,
        }
        inputs = _ImportInputs(
            settings=self.graph.workspace.settings,
            importer=self._importer,
            source_files=self._source_files,
            source=self._source,
            key=self.key,
            given=self._given,
            assignment=assignment_of(meta),
            match=match,
        )
        return BuildPlan(
            recipe=Recipe(self.stage.name, self.stage.code_version, "", fingerprints),
            open_inputs=lambda _: nullcontext(inputs),
        )


def renew_catalog(workspace: Workspace) -> None:
    """Builds the catalog of OSWorld tasks, which is used to find the tasks of trajectories.

    Does nothing if the folder of task files is missing. If the catalog cannot be built, the
    previous catalog is kept.
    """
    if workspace.tasks.is_dir():
        graph = Graph(workspace)
        with suppress(RefusedError):
            graph.build(DatasetOutput(graph, TASKS_STAGE))


def import_trajectory(
    workspace: Workspace, importer: Importer, source_files: SourceFiles, options: Given
) -> ImportOutcome:
    """Publishes an imported trajectory, and builds the outputs of the later stages.

    If the trajectory is invalid, nothing is published, and the outcome names the problems.
    """
    place = source_files.place if importer.read_trajectory is not None else source_files.folder
    try:
        return _import(workspace, importer, source_files, given_for(source_files, options))
    except UnreadableSourceError as error:
        return _refused(place, str(error))
    except OSError as error:
        return _refused(place, read_failure(error, source_files))
    except RefusedError as error:
        first = error.problems[:_MAX_PROBLEMS]
        sentences = [str(replace(problem, demonstration="")) for problem in first]
        if len(error.problems) > _MAX_PROBLEMS:
            sentences.append(f"and {len(error.problems) - _MAX_PROBLEMS} more problems")
        return _refused(place, *sentences)


def _import(
    workspace: Workspace, importer: Importer, source_files: SourceFiles, given: Given
) -> ImportOutcome:
    """Publishes a trajectory and builds the outputs of the later stages.

    Raises:
        UnreadableSourceError: the id is unusable or taken, or the source cannot be read.
        OSError: a file of the source cannot be read.
        RefusedError: the trajectory is invalid.
    """
    place = source_files.place if importer.read_trajectory is not None else source_files.folder
    key = import_id(source_files)
    if not is_safe_id(key):
        raise UnreadableSourceError(NAME_RULE)
    graph = Graph(workspace)
    output = TRAJECTORIES_STAGE.output(key)
    if graph.published(output) is not None and not has_imported_trajectory(graph, key):
        message = f"the store has a demonstration of the id {key}, made from a recording"
        raise UnreadableSourceError(message)
    source = None
    if importer.read_trajectory is not None:
        source = importer.read_trajectory(source_files)
    result = graph.build(_TrajectoryImport(graph, importer, source_files, source, given))
    for stage in stages_after_import():
        graph.build(demonstration_output(graph, stage, key))
    notes = ["there is no recording of it"]
    if source is not None and not outcome_of(source, given)[0]:
        notes.append(NO_STATUS)
    if result.status is Status.CACHED:
        return ImportOutcome(place, ImportState.KNOWN, key)
    if source is not None and source.damaged:
        return ImportOutcome(place, ImportState.DAMAGED, key, (*source.damaged, *notes))
    return ImportOutcome(place, ImportState.IMPORTED, key, tuple(notes))


def _refused(place: Path, *sentences: str) -> ImportOutcome:
    return ImportOutcome(place, ImportState.REFUSED, sentences=sentences)


def imported_ids(workspace: Workspace, recorded: Collection[str]) -> list[str]:
    """Returns the sorted ids of imported trajectories, without the ids of `recorded` uploads."""
    outputs = workspace.store.outputs(TRAJECTORIES_STAGE.folder)
    others = {name.rpartition("/")[2] for name in outputs}.difference(recorded)
    return [key for key in sorted(others) if has_imported_trajectory(Graph(workspace), key)]


def renew_trajectory(workspace: Workspace, key: str, *, force: bool) -> DemonstrationResult:
    """Builds the missing and outdated outputs of the later stages of an imported trajectory."""
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
    status = str(summary.get("status", "completed"))
    outcome = recorded_outcome(status, success=bool(summary.get("success")))
    return DemonstrationResult(key, Status.BUILT, {**summary, "outcome": outcome})


def _require_valid(folder: Path, key: str) -> None:
    """Raises `DemonstrationError` if a trajectory does not follow the OSWorld-Desktopd format."""
    problems = errors(validate_trajectory(folder, key))
    if problems:
        raise DemonstrationError(problems)


def _copied_meta(folder: Path) -> Meta:
    """Returns the task of an OSWorld-Desktopd trajectory, in the format of a meta.json."""
    task = read_trajectory(folder).task
    return _meta(task.instruction, task.application, task.osworld_task_id)


def _source_meta(
    workspace: Workspace, source_files: SourceFiles, source: SourceTrajectory, given: Given
) -> Meta:
    """Returns the task of another tool's trajectory, in the format of a meta.json.

    Raises:
        UnreadableSourceError: neither the user, nor the source, nor the benchmark names the task.
    """
    task = given.task or source.task or task_instruction(workspace, source_files.name)
    if not task:
        message = "the task is not known: give it with --task, or as task in import.json"
        raise UnreadableSourceError(f"{source_files.place}: {message}")
    return _meta(task, given.application or source.application, source_files.name)


def _meta(task: str, application: str, task_id: str | None) -> Meta:
    named = {"osworld_task_id": task_id} if task_id else {}
    quest = {"title": task, "content": task, "app": application}
    return Meta.model_validate({"timestamp": "1970-01-02T00:00:00+00:00", "quest": quest | named})
