"""The outputs of a single demonstration, from its uploaded recording to its training records.

This module opens the inputs of an output, handles uploads that change while they are read, and
decides which demonstrations are quarantined. graph.py decides whether an output is up to date, and
builds it.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline import __version__
from demo_pipeline.osworld.task_matching import NO_CATALOG
from demo_pipeline.privacy.redaction_stage import REDACTIONS, is_redacted
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.runs.damage import noted_problem
from demo_pipeline.runs.failures import (
    UPLOAD_CHANGED,
    DefectError,
    RefusedError,
    UnusableInputError,
    UploadChangedError,
)
from demo_pipeline.runs.graph import (
    Absent,
    BuildPlan,
    Cause,
    Current,
    Graph,
    Output,
    Refused,
    Stale,
    State,
)
from demo_pipeline.runs.quarantine import (
    QuarantineRecord,
    quarantine_demonstration,
    read_quarantine,
    record_crash,
    release,
)
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS, match_task
from demo_pipeline.stage import Need, SourceInput, Stage
from demo_pipeline.store.errors import OutputError
from demo_pipeline.store.names import is_bucket, is_safe_id
from demo_pipeline.store.uploads import changed_while_read
from demo_pipeline.store.versions import Recipe, Staging, Version
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

# Key in a recipe's inputs for the fingerprint of the files of an imported trajectory.
IMPORTED_FILES = "imported_files"
IMPORTED_ID = "imported_id"  # problem code: an imported trajectory has the same id as the upload
UPLOAD = "upload"  # key in a recipe's inputs; the value is the fingerprint of the upload
_CHANGED = "upload_changed"  # problem code: the uploaded files differ from their listing
_RECORDING = RAW_RECORDINGS_STAGE.name
_TRAJECTORY = TRAJECTORIES_STAGE.name


def demonstration_outputs(graph: Graph, demonstration: str) -> list[Output[Any]]:
    """Returns every output of a demonstration, in the order in which they are built."""
    stages: Sequence[Stage[RecordingInputs]] = STAGES
    is_imported = has_imported_trajectory(graph, demonstration)
    if is_imported and graph.workspace.uploads.find(demonstration) is None:
        stages = stages_after_import()
    return [demonstration_output(graph, stage, demonstration) for stage in stages]


def demonstration_output(
    graph: Graph, stage: Stage[RecordingInputs], demonstration: str
) -> Output[Any]:
    """Returns the output that a stage builds for a demonstration."""
    if not stage.inputs:
        return RecordingOutput(graph, stage, demonstration)
    if stage.name == _TRAJECTORY and has_imported_trajectory(graph, demonstration):
        return ImportedTrajectory(graph, stage, demonstration)
    return DemonstrationOutput(graph, stage, demonstration)


def demonstration_states(graph: Graph, demonstration: str) -> Iterator[State]:
    """Yields the state of each output of a demonstration in build order, computed on demand."""
    for output in demonstration_outputs(graph, demonstration):
        yield graph.state(output)


def is_up_to_date(graph: Graph, demonstration: str) -> bool:
    """Returns whether every output of a demonstration is current, so that a run builds nothing."""
    try:
        states = demonstration_states(graph, demonstration)
        return all(isinstance(state, Current) for state in states)
    finally:
        graph.forget_states()


def is_refused(graph: Graph, demonstration: str) -> bool:
    """Returns whether this version of the package rejected the upload in its current form."""
    try:
        states = demonstration_states(graph, demonstration)
        return any(isinstance(state, Refused) for state in states)
    finally:
        graph.forget_states()


def noted_damage(graph: Graph, demonstrations: Collection[str] | None = None) -> list[Problem]:
    """Returns a problem for each damaged file of the demonstrations that datasets left out.

    Files that were rebuilt in the meantime are not reported.

    Args:
        demonstrations: ids to which the result is limited; None means all.
    """
    suspects = graph.suspects if demonstrations is None else graph.suspects & {*demonstrations}
    problems: list[Problem] = []
    for key in sorted(suspects):
        for stage in STAGES:
            problems += map(noted_problem, graph.damages(stage.output(key)))
    return problems


def is_outdated(graph: Graph, demonstration: str) -> bool:
    """Returns whether a demonstration has outdated outputs although its upload is unchanged.

    Usually, the code or the settings have changed. Returns False if the upload was never built,
    changed after its build, or was rejected.
    """
    recording = graph.state(demonstration_output(graph, STAGES[0], demonstration))
    if isinstance(recording, Absent | Refused):
        return False
    if isinstance(recording, Stale) and Cause.INPUTS in recording.causes:
        return False
    states = list(demonstration_states(graph, demonstration))
    if any(isinstance(state, Refused) for state in states):
        return False
    return not all(isinstance(state, Current) for state in states)


def has_imported_trajectory(graph: Graph, demonstration: str) -> bool:
    """Returns whether the trajectory with this id was imported without a recording."""
    version = graph.published(TRAJECTORIES_STAGE.output(demonstration))
    if version is None or IMPORTED_FILES not in version.manifest.inputs:
        return False
    return graph.published(RAW_RECORDINGS_STAGE.output(demonstration)) is None


def stages_after_import() -> list[Stage[RecordingInputs]]:
    """Returns the stages that can process a trajectory without a recording, in build order."""
    available = {_TRAJECTORY}
    stages: list[Stage[RecordingInputs]] = []
    for stage in STAGES:
        if stage.inputs and available.issuperset(stage.inputs):
            stages.append(stage)
            available.add(stage.name)
    return stages


class DemonstrationOutput(Output[RecordingInputs]):
    """An output that a stage builds from earlier outputs of the same demonstration."""

    def inputs(self) -> list[Output[Any]]:
        """Returns the outputs of the stages that this stage names as its inputs."""
        return [
            demonstration_output(self.graph, STAGE_BY_NAME[name], self.key)
            for name in self.stage.inputs
        ]

    def plan(self) -> BuildPlan[RecordingInputs]:
        """Plans a build from the committed versions of the inputs and the stage's other data."""
        versions = {
            name: self.graph.required_version(STAGE_BY_NAME[name].output(self.key))
            for name in self.stage.inputs
        }
        source = self._source(versions)
        inputs = {name: version.content for name, version in versions.items()}
        inputs |= source.fingerprints
        settings = self.graph.fingerprint_of_settings(self.stage)
        return BuildPlan(
            recipe=Recipe(self.stage.name, self.stage.code_version, settings, inputs),
            open_inputs=partial(self._open_inputs, versions, source),
        )

    def _source(self, versions: Mapping[str, Version]) -> SourceInput:
        """Returns the data that the stage reads besides the outputs of other stages."""
        workspace = self.graph.workspace
        if self.stage.source is not None:
            return self.stage.source(workspace, self.key, versions)
        if Need.TASK not in self.stage.needs:
            return SourceInput(NO_CATALOG, {})
        match = match_task(workspace, versions[_RECORDING])
        # A fingerprint of the whole catalog would make every trajectory stale after each new task.
        return SourceInput(match, {OSWORLD_TASKS: match.fingerprint})

    @contextmanager
    def _open_inputs(
        self, versions: Mapping[str, Version], source: SourceInput, staging: Staging
    ) -> Iterator[RecordingInputs]:
        store = self.graph.workspace.store
        uploads = self.graph.workspace.uploads
        folders = {name: store.open_version(version, None) for name, version in versions.items()}
        trajectory = versions.get(_TRAJECTORY)
        if REDACTIONS in versions and is_redacted(versions[REDACTIONS]):
            trajectory = versions[REDACTIONS]
            folders[_TRAJECTORY] = folders[REDACTIONS]
        staging.hardlink_sources.extend(versions.values())
        if Need.LINKS in self.stage.needs and trajectory is not None:
            staging.link(_TRAJECTORY, trajectory)
        upload: AbstractContextManager[Path] = nullcontext(Path())
        if uploads.copies:  # the output of the first stage contains the downloaded files
            upload = nullcontext(folders.get(_RECORDING, Path()))
        elif Need.UPLOADS in self.stage.needs:
            upload = uploads.open(self.key)
        with upload as upload_folder:
            yield RecordingInputs(
                demonstration=self.key,
                upload=upload_folder,
                manifest=read_manifest(folders[_RECORDING]) if _RECORDING in folders else None,
                folders=folders,
                settings=self.graph.workspace.settings,
                source=source.value,
                downloaded=uploads.copies,
            )

    # Attempts

    def prepare(self) -> None:
        """Raises `UnusableInputError` for an invalid id or an earlier rejection of the upload."""
        require_safe_id(self.key)
        record = read_quarantine(self.graph.workspace.store, self.key)
        if record is not None and self._is_held_up_by(record):
            problems = record.known_problems() or [Problem("quarantined", ".", "was rejected")]
            raise UnusableInputError(problems)

    def can_retry(self, error: DemonstrationError | OutputError) -> bool:
        """Returns False, because retrying the stage would not help.

        Raises:
            UploadChangedError: the upload changed during the build.
        """
        if _is_change(error):
            raise UploadChangedError(UPLOAD_CHANGED) from None
        return False

    def _is_held_up_by(self, record: QuarantineRecord) -> bool:
        """Returns whether a quarantine record of an earlier stage stops this stage.

        A rejected upload with the same id does not stop stages that process an imported trajectory.
        """
        if record.stage not in self._earlier_stages():
            return False
        return all(problem.code != IMPORTED_ID for problem in record.known_problems())

    def _earlier_stages(self) -> list[str]:
        names = [stage.name for stage in STAGES]
        return names[: names.index(self.stage.name)]

    # Quarantine

    def refusal(self) -> str:
        """Returns why this or an earlier stage rejected the upload, or an empty string.

        Rejections of an earlier upload or by another version of the package are ignored.
        """
        workspace = self.graph.workspace
        record = read_quarantine(workspace.store, self.key)
        if record is None or record.tool_version != __version__:
            return ""
        if not self._owns(record.stage) and not self._is_held_up_by(record):
            return ""
        if record.fingerprint != workspace.uploads.identity(self.key):
            return ""
        return str(record.known_problems()[0]) if record.problems else "no reason was given"

    def _owns(self, stage_of_record: str) -> bool:
        """Returns whether a success of this stage ends a quarantine by the given stage."""
        return stage_of_record == self.stage.name

    def remember_refusal(self, error: RefusedError) -> None:
        """Quarantines the demonstration."""
        workspace = self.graph.workspace
        identity = workspace.uploads.identity(self.key)
        stage = self.stage.name
        quarantine_demonstration(workspace.store, self.key, stage, identity, error.problems)

    def remember_failure(self, error: Exception) -> None:
        """Quarantines the demonstration if the build failed because of a defect in the package."""
        if isinstance(error, DefectError):
            record_crash(self.graph.workspace, self.key, self.stage.name, str(error))

    def remember_success(self, result: BuildResult) -> None:
        """Ends a quarantine that this stage began."""
        del result
        store = self.graph.workspace.store
        record = read_quarantine(store, self.key)
        if record is not None and self._owns(record.stage):
            release(store, self.key)


class RecordingOutput(DemonstrationOutput):
    """The output of the first stage, which reads the upload."""

    # Fingerprint of the upload's file listing at the start of the build; None without an upload.
    _listing: str | None = None
    _was_retried = False

    def plan(self) -> BuildPlan[RecordingInputs]:
        """Plans a build from the uploaded files."""
        uploads = self.graph.workspace.uploads
        identity = self._identity_by_times() or uploads.identity(self.key)
        if identity is None:
            with uploads.open(self.key):  # raises an error that names the cause
                raise DemonstrationError(changed_while_read(self.key, "."))
        settings = self.graph.fingerprint_of_settings(self.stage)
        return BuildPlan(
            recipe=Recipe(self.stage.name, self.stage.code_version, settings, {UPLOAD: identity}),
            open_inputs=partial(self._open_upload, identity),
            require_same_inputs=self._require_same_listing,
        )

    def _identity_by_times(self) -> str | None:
        """Returns the upload's fingerprint from the last build if change times show no change.

        This saves hashing the files, which takes minutes for thousands of videos. Change times
        (ctime) are also updated if an old file is copied or an old folder is moved.

        Returns None if something changed after the last build, if the graph does not trust times,
        or if the uploads or the store are in a bucket, where the local time of a version is the
        time of its download.
        """
        store = self.graph.workspace.store
        uploads = self.graph.workspace.uploads
        if not self.graph.trusts_times or uploads.copies or is_bucket(store.url):
            return None
        version = self.graph.published(self.name)
        if version is None:
            return None
        with suppress(OSError):
            built = os.stat(store.local.content(version.path)).st_mtime  # noqa: PTH116 - faster
            if uploads.last_change(self.key) < built:
                return version.manifest.inputs[UPLOAD]
        return None

    @contextmanager
    def _open_upload(self, identity: str, _staging: Staging) -> Iterator[RecordingInputs]:
        uploads = self.graph.workspace.uploads
        with uploads.open(self.key, identity if uploads.copies else None) as upload_folder:
            yield RecordingInputs(
                demonstration=self.key,
                upload=upload_folder,
                manifest=None,
                settings=self.graph.workspace.settings,
                source=NO_CATALOG,
                downloaded=uploads.copies,
            )

    def prepare(self) -> None:
        """Remembers the upload's file listing, to notice if the upload is replaced.

        Raises:
            DemonstrationError: an imported trajectory has the same id.
        """
        require_safe_id(self.key)
        if has_imported_trajectory(self.graph, self.key):
            raise DemonstrationError(_imported_id(self.key))
        self._listing = self.graph.workspace.uploads.listed(self.key)
        self._was_retried = False

    def can_retry(self, error: DemonstrationError | OutputError) -> bool:
        """Returns True if the build failed because the upload differs from its listing.

        Only the first such failure is retried.

        Raises:
            UploadChangedError: the upload was replaced during the build. The next run builds it.
            DemonstrationError: the upload differs from its listing for the second time, although
                the listing is unchanged. The upload is therefore unreadable.
        """
        if isinstance(error, OutputError):
            return False
        self._require_same_listing()
        if not _is_change(error):
            return False
        if self._was_retried:
            raise DemonstrationError(list(map(_as_unreadable, error.problems))) from None
        self._was_retried = True
        return True

    def _require_same_listing(self) -> None:
        """Raises `UploadChangedError` if the upload was replaced since the build began."""
        if self.graph.workspace.uploads.listed(self.key) != self._listing:
            raise UploadChangedError(UPLOAD_CHANGED)

    def _owns(self, stage_of_record: str) -> bool:
        """Returns whether a success of this first stage ends a quarantine by the given stage.

        Quarantines by stages that no longer exist are ended, too.
        """
        return stage_of_record == self.stage.name or stage_of_record not in STAGE_BY_NAME


class ImportedTrajectory(DemonstrationOutput):
    """A trajectory that was imported without a recording and therefore cannot be rebuilt."""

    def inputs(self) -> list[Output[Any]]:
        """Returns an empty list."""
        return []

    def plan(self) -> BuildPlan[RecordingInputs]:
        """Returns a plan with the recipe of the published version, so the version stays current."""
        version = self.graph.required_version(self.name)
        return BuildPlan(recipe=version.manifest.recipe, open_inputs=self._refuse_to_build)

    def _refuse_to_build(self, _staging: Staging) -> AbstractContextManager[RecordingInputs]:
        message = "was imported without a recording; import it again"
        raise UnusableInputError(Problem("imported", ".", message, demonstration=self.key))


def _imported_id(demonstration: str) -> Problem:
    """Returns the problem for an upload with the same id as an imported trajectory."""
    message = "an imported trajectory has this id, so the recording is not processed"
    remedy = "rename the folder, or first remove the trajectory with `demo-pipeline forget`"
    return Problem(IMPORTED_ID, ".", message, remedy=remedy, demonstration=demonstration)


def require_safe_id(demonstration: str) -> None:
    """Raises `UnusableInputError` if a partition key cannot be the id of a demonstration."""
    if not is_safe_id(demonstration):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        message = f"{demonstration!r} is not a demonstration id"
        raise UnusableInputError(Problem("unsafe_id", ".", message, remedy=remedy))


def _is_change(error: DemonstrationError | OutputError) -> bool:
    if isinstance(error, OutputError):
        return False
    return any(problem.code == _CHANGED for problem in error.problems)


def _as_unreadable(problem: Problem) -> Problem:
    """Replaces the problem "changed while it was read" by "cannot be read".

    The listing of the upload is unchanged, so the file itself is unreadable.
    """
    if problem.code != _CHANGED:
        return problem
    return replace(
        problem,
        code="unreadable_file",
        message="was read twice and differed from its listing, which did not change",
        remedy="upload it again; if that does not help, check the storage",
    )
