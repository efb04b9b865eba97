"""One stage of one demonstration: its inputs and recipe, its output, its checks, its quarantine.

Belongs here: the wiring between store and build functions, the same for the orchestrator and the
command line; whether an output is up to date, and whether the upload changed meanwhile.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.files.processes import return_free_memory, return_large_blocks
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.osworld.task_matching import NO_CATALOG
from demo_pipeline.privacy.redaction_stage import REDACTIONS, is_redacted
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.runs.build import build_if_stale, note_settings, rebuild_reason
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.failures import (
    UPLOAD_CHANGED,
    DefectError,
    TransientError,
    UploadChangedError,
    redacted_errors,
)
from demo_pipeline.runs.quarantine import (
    quarantine_demonstration,
    read_quarantine,
    record_crash,
    release,
)
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS, match_task
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, Need, SourceInput, Stage, Summary
from demo_pipeline.store.errors import MissingOutput, OutputError
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.store import Store
from demo_pipeline.store.uploads import changed_while_read
from demo_pipeline.store.versions import CheckOutcome, Recipe, Staging, Version
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

AFTER_INPUTS = "perhaps, when what it reads has changed"
IMPORTED_FILES = "imported_files"  # in the recipe of a trajectory without a recording
IMPORTED_ID = "imported_id"
_CHANGED = "upload_changed"
_LOG = logging.getLogger(__package__)

AStage = Stage[RecordingInputs]


def is_outdated(workspace: Workspace, demonstration: str) -> bool:
    """Whether building its current upload again would give other outputs than the committed."""
    first = workspace.store.current(RAW_RECORDINGS_STAGE.output(demonstration))
    if first is None:
        return False
    same = first.manifest.recipe.inputs["upload"] == workspace.uploads.identity(demonstration)
    return same and not is_up_to_date(workspace, demonstration)


def is_up_to_date(workspace: Workspace, demonstration: str) -> bool:
    """Whether every stage's output was built from the current upload, by this code.

    Reads of the upload only what `Uploads.identity` reads.
    """
    try:
        return next(stale_stages(workspace, demonstration), None) is None
    except (DemonstrationError, MissingOutput):
        return False


def imported_trajectory(store: Store, demonstration: str) -> Version | None:
    """The trajectory of this id, if it was imported, so that it has no recording."""
    current = store.published(TRAJECTORIES_STAGE.output(demonstration))
    imported = current is not None and IMPORTED_FILES in current.manifest.recipe.inputs
    return current if imported else None


def stages_after_import() -> list[AStage]:
    """The stages after `trajectories` that need nothing of a recording, in order."""
    built, found = {TRAJECTORIES_STAGE.name}, list[AStage]()
    for stage in STAGES:
        if stage.inputs and set(stage.inputs) <= built:
            found.append(stage)
            built.add(stage.name)
    return found


def stale_stages(workspace: Workspace, demonstration: str) -> Iterator[tuple[str, str]]:
    """Yield each stage that a run would build, and why.

    Raises:
        DemonstrationError: the upload cannot be read.
        MissingOutput: an output has lost a file.
    """
    store, versions = workspace.store, dict[str, Version]()
    stages: Sequence[AStage] = STAGES
    if store.current(RAW_RECORDINGS_STAGE.output(demonstration)) is None:
        imported = imported_trajectory(store, demonstration)
        if imported is not None and workspace.uploads.find(demonstration) is None:
            versions, stages = {TRAJECTORIES_STAGE.name: imported}, stages_after_import()
    for stage in stages:
        current = store.current(stage.output(demonstration))
        if current is None or not versions.keys() >= set(stage.inputs):
            yield stage.name, "there is no version" if current is None else AFTER_INPUTS
            continue
        recording = None
        if Need.TASK in stage.needs:
            folder = store.open(RAW_RECORDINGS_STAGE.output(demonstration))[0]
            recording = manifest.read_manifest(folder)
        source = _source(workspace, stage, demonstration, versions, recording)
        recipe = _recipe(workspace, stage, demonstration, versions, source)
        if current.manifest.recipe != recipe:
            yield stage.name, rebuild_reason(current, recipe)
        elif not store.is_complete(current):
            yield stage.name, "a file is missing"
        else:
            versions[stage.name] = current


def _recipe(
    workspace: Workspace,
    stage: AStage,
    demonstration: str,
    versions: Mapping[str, Version],
    source: SourceInput,
) -> Recipe:
    """Everything that the stage's output depends on.

    Raises:
        DemonstrationError: the upload cannot be read.
    """
    inputs = {name: versions[name].content for name in stage.inputs}
    if not stage.inputs:
        identity = workspace.uploads.identity(demonstration)
        if identity is None:
            with workspace.uploads.open(demonstration):  # raises what is wrong with it
                raise DemonstrationError(changed_while_read(demonstration, "."))
        inputs["upload"] = identity
    settings = stage.fingerprint(workspace.settings)
    inputs |= source.fingerprints
    return Recipe(stage.name, stage.code_version, settings, inputs)


def _source(
    workspace: Workspace,
    stage: AStage,
    demonstration: str,
    versions: Mapping[str, Version],
    recording: RecordingManifest | None,
) -> SourceInput:
    """What the stage reads that no stage wrote."""
    if stage.source is not None:
        return stage.source(workspace, demonstration, versions)
    if Need.TASK not in stage.needs or recording is None:
        return SourceInput(NO_CATALOG, {})
    match = match_task(workspace, recording)
    # Only its own match, so that another task in the catalog rebuilds no trajectory.
    return SourceInput(match, {OSWORLD_TASKS: match.fingerprint})


class RefusedError(DemonstrationError):
    """A demonstration that a stage does not accept.

    Attributes:
        checks: the outcome of every check of the stage, when one of them refused it.
    """

    def __init__(self, problems: Sequence[Problem], checks: Sequence[CheckOutcome] = ()) -> None:
        self.checks = tuple(checks)
        super().__init__(problems)


def build_stage(
    workspace: Workspace, stage: AStage, demonstration: str, *, force: bool = False
) -> BuildResult:
    """Build one stage's output of one demonstration, unless it is up to date.

    A demonstration that the stage refuses, or that a defect of ours stops, is quarantined; one that
    it accepts is released.

    Raises:
        RefusedError: the recording is at fault; or, without quarantine, the key is no id, or an
            input is missing or damaged.
        TransientError: something that may pass, such as a full disk; or the upload changed
            meanwhile, of which nothing is then committed.
        DefectError: no input should be able to cause it.
    """
    try:
        with redacted_errors(stage.name, demonstration):
            if problems := _cannot_start(workspace, stage, demonstration):
                if not stage.inputs and problems[0].code == IMPORTED_ID:
                    uploaded = workspace.uploads.identity(demonstration)
                    key, name = demonstration, stage.name
                    quarantine_demonstration(workspace.store, key, name, uploaded, problems)
                raise RefusedError(problems)
            return _StageRun(workspace, stage, demonstration, force).run()
    except OutputError as error:
        problem = Problem("unusable_input", error.output, storage_message(error))
        raise RefusedError([replace(problem, demonstration=demonstration)]) from None
    except DefectError as error:
        with best_effort(_LOG, "noting the defect in the quarantine"):
            record_crash(workspace, demonstration, stage.name, f"{error}")
        raise


def _cannot_start(workspace: Workspace, stage: AStage, demonstration: str) -> list[Problem]:
    """Why a stage cannot run: the key is not an id, or an earlier stage quarantined it.

    The outputs that the later stages built before are of another upload.
    """
    if not is_safe_id(demonstration):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        message = f"{demonstration!r} is not a demonstration id"
        return [Problem("unsafe_id", ".", message, remedy=remedy)]
    if not stage.inputs and imported_trajectory(workspace.store, demonstration):
        return [_imported_id(demonstration)]
    record = read_quarantine(workspace.store, demonstration) if stage.inputs else None
    names = [known.name for known in STAGES]
    if record is None or record.stage not in names[: names.index(stage.name)]:
        return []
    problems = record.known_problems()
    is_of_upload = any(problem.code == IMPORTED_ID for problem in problems)
    return [] if is_of_upload else problems  # the imported trajectory is not at fault


def _imported_id(demonstration: str) -> Problem:
    """The problem of an upload whose id is that of an imported trajectory, which it would end."""
    message = "an imported trajectory has this id, so the recording is not processed"
    remedy = "rename the folder, or first remove the trajectory with `demo-pipeline forget`"
    return Problem(IMPORTED_ID, ".", message, remedy=remedy, demonstration=demonstration)


@dataclass
class _StageRun:
    """One stage of one demonstration.

    Attributes:
        listed: listing fingerprint of the upload when the first stage began; None: it cannot be
            opened.
    """

    workspace: Workspace
    stage: AStage
    key: str
    force: bool
    listed: str | None = None

    def run(self) -> BuildResult:
        """Build, and quarantine or release; errors as of `build_stage`."""
        if not self.stage.inputs:
            self.listed = self.workspace.uploads.listed(self.key)
        try:
            result = self._build_twice()
        except DemonstrationError as error:
            raise self._refused(error.problems) from None
        except (OutputError, TransientError):
            raise
        except Exception:
            self._require_whole_inputs()
            raise
        if result.status is Status.REJECTED:
            blocking = [one for one in result.checks if one.blocking and not one.passed]
            found = [problem for one in blocking for problem in one.problems]
            raise self._refused(found, result.checks)
        self._require_upload()
        self._release()
        return result

    def _require_upload(self) -> None:
        """Raise `UploadChangedError` when the first stage's upload is another one by now."""
        if self.stage.inputs:
            return
        if self.workspace.uploads.listed(self.key) != self.listed:
            raise UploadChangedError(UPLOAD_CHANGED)

    def _refused(
        self, problems: Sequence[Problem], checks: Sequence[CheckOutcome] = ()
    ) -> RefusedError:
        """The error of a demonstration that is quarantined here, unless its upload changed."""
        self._require_upload()
        if any(problem.code == _CHANGED for problem in problems):
            raise UploadChangedError(UPLOAD_CHANGED)
        self._require_whole_inputs()
        named = [replace(p, demonstration=p.demonstration or self.key) for p in problems]
        uploaded = self.workspace.uploads.identity(self.key)
        quarantine_demonstration(self.workspace.store, self.key, self.stage.name, uploaded, named)
        return RefusedError(named, checks)

    def _require_whole_inputs(self) -> None:
        """Let no demonstration be blamed for a damaged file. Raises `ChangedOutput`."""
        for name in self.stage.inputs:
            for damage in self.workspace.store.verify(STAGE_BY_NAME[name].output(self.key)):
                raise damage.as_error()

    def _release(self) -> None:
        """Release it from the quarantine of this stage; the first: also of one that is unknown."""
        record = read_quarantine(self.workspace.store, self.key)
        if record is None:
            return
        foreign = record.stage not in STAGE_BY_NAME and not self.stage.inputs
        if foreign or record.stage == self.stage.name:
            release(self.workspace.store, self.key)

    def _build_twice(self) -> BuildResult:
        """Build; once more when the upload that the first stage read differs from its listing."""
        try:
            return self._build()
        except DemonstrationError as error:
            changed = any(problem.code == _CHANGED for problem in error.problems)
            if self.stage.inputs or not changed:
                raise
        self._require_upload()
        try:
            return self._build()
        except DemonstrationError as error:
            raise DemonstrationError(list(map(_unreadable_as_listed, error.problems))) from None

    def _build(self) -> BuildResult:
        return_large_blocks()
        with self._opened() as (context, versions, source):
            recipe = _recipe(self.workspace, self.stage, self.key, versions, source)

            def build(staging: Staging) -> Summary:
                note_settings(self.workspace, self.stage)
                staging.hardlink_sources.extend(versions.values())
                if Need.LINKS in self.stage.needs:
                    shown = _shown(versions) or versions[TRAJECTORIES_STAGE.name]
                    staging.link(TRAJECTORIES_STAGE.name, shown)
                return_free_memory()  # of the stage before
                if self.stage.inputs or not self.workspace.uploads.copies:
                    return self.stage.build(context, staging.path)
                with self.workspace.uploads.open(self.key, recipe.inputs["upload"]) as upload:
                    return self.stage.build(replace(context, upload=upload), staging.path)

            def check(out: Path) -> list[CheckOutcome]:
                outcomes = [_outcome(one, context, out) for one in self.stage.checks]
                self._require_upload()  # the last moment before its commit
                return outcomes

            output, force = self.stage.output(self.key), self.force
            return build_if_stale(self.workspace.store, output, recipe, build, check, force=force)

    @contextmanager
    def _opened(self) -> Iterator[tuple[RecordingInputs, dict[str, Version], SourceInput]]:
        """The stage's inputs as local folders, their versions by stage, and its source."""
        folders, versions = dict[str, Path](), dict[str, Version]()
        uploads, first, upload = self.workspace.uploads, RAW_RECORDINGS_STAGE.name, Path()
        with ExitStack() as stack:
            for name in self.stage.inputs:
                output = STAGE_BY_NAME[name].output(self.key)
                folders[name], versions[name] = self.workspace.store.open(output)
            if _shown(versions):
                folders[TRAJECTORIES_STAGE.name] = folders[REDACTIONS]
            if uploads.copies:
                upload = folders.get(first, upload)
            elif Need.UPLOADS in self.stage.needs or not self.stage.inputs:
                upload = stack.enter_context(uploads.open(self.key))
            recording = manifest.read_manifest(folders[first]) if first in folders else None
            source = _source(self.workspace, self.stage, self.key, versions, recording)
            context = RecordingInputs(
                demonstration=self.key,
                upload=upload,
                manifest=recording,
                folders=folders,
                settings=self.workspace.settings,
                source=source.value,
                downloaded=uploads.copies,
            )
            yield context, versions, source


def _shown(versions: Mapping[str, Version]) -> Version | None:
    """The redacted trajectory that a stage reads instead of the original; None: the original."""
    version = versions.get(REDACTIONS)
    return version if version is not None and is_redacted(version) else None


def _unreadable_as_listed(problem: Problem) -> Problem:
    """A problem of a second reading that failed although the listing did not change."""
    if problem.code != _CHANGED:
        return problem
    return replace(
        problem,
        code="unreadable_file",
        message="was read twice and differed from its listing, which did not change",
        remedy="upload it again; if that does not help, check the storage",
    )


def _outcome(check: Check[RecordingInputs], context: RecordingInputs, out: Path) -> CheckOutcome:
    try:
        problems = list(check.run(context, out))
    except DemonstrationError as error:
        problems = list(error.problems)
    key = context.demonstration
    named = tuple(replace(p, demonstration=p.demonstration or key) for p in problems)
    return CheckOutcome(check.name, not errors(named), named, blocking=check.blocking)
