"""One stage of one demonstration: its inputs and recipe, its output, its checks, its quarantine.

Belongs here: the wiring between store and build functions, the same for the orchestrator and the
command line; whether an output is up to date, and whether the upload changed meanwhile.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from demo_pipeline import __version__
from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.processes import return_free_memory, return_large_blocks
from demo_pipeline.osworld.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.runs.build import build_if_stale
from demo_pipeline.runs.quarantine import quarantine_demonstration, read_quarantine, release
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS, match_task
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Check, Stage, Summary
from demo_pipeline.store.errors import ChangedOutput, MissingOutput
from demo_pipeline.store.uploads import Uploads, changed_while_read, upload_listing_fingerprint
from demo_pipeline.store.version_manifest import CheckOutcome, Recipe, Version
from demo_pipeline.store.versions import Staging, document_damage


def stage_inputs(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    demonstration: str,
    versions: Mapping[str, Version],
    match: TaskMatch,
) -> dict[str, str]:
    """Fingerprints of the stage's inputs, of the upload and of the matched task, by name.

    Raises:
        DemonstrationError: the upload cannot be read.
    """
    inputs = {name: versions[name].content for name in stage.inputs}
    if not stage.inputs:
        inputs["upload"] = _upload_identity(workspace, demonstration)
    if stage.matches_task:
        # Only its own match, so that another task in the catalog rebuilds no trajectory.
        inputs[OSWORLD_TASKS] = match.fingerprint
    return inputs


def _upload_identity(workspace: Workspace, demonstration: str) -> str:
    identity = workspace.uploads.identity(demonstration)
    if identity is None:
        with workspace.uploads.open(demonstration):  # raises what is wrong with it
            raise DemonstrationError(changed_while_read(demonstration, "."))
    return identity


def stage_recipe(
    workspace: Workspace, stage: Stage[RecordingInputs], inputs: Mapping[str, str]
) -> Recipe:
    """Everything that the stage's output depends on."""
    settings = stage.fingerprint(workspace.settings)
    inputs = {**inputs, **stage.parts(workspace.settings)}
    return Recipe(stage.name, stage.code_version, settings, inputs)


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
    versions: dict[str, Version] = {}
    try:
        for stage in STAGES:
            current = workspace.store.current(stage.output(demonstration))
            if current is None:
                return False
            versions[stage.name] = current
            match = _match(workspace, demonstration) if stage.matches_task else NO_CATALOG
            inputs = stage_inputs(workspace, stage, demonstration, versions, match)
            if current.manifest.recipe != stage_recipe(workspace, stage, inputs):
                return False
            if not workspace.store.is_complete(current):
                return False
    except (DemonstrationError, MissingOutput):
        return False
    return True


def _match(workspace: Workspace, demonstration: str) -> TaskMatch:
    output = RAW_RECORDINGS_STAGE.output(demonstration)
    with workspace.store.open(output) as (folder, _):
        return match_task(workspace, manifest.read_manifest(folder))


_CHANGED = "upload_changed"


class SupersededError(Exception):
    """The upload changed while it was processed; the result describes no existing upload."""

    def __init__(self, demonstration: str, stage: str) -> None:
        self.demonstration, self.stage = demonstration, stage
        super().__init__(f"{demonstration}: the upload changed during {stage}")

    def __reduce__(self) -> tuple[type["SupersededError"], tuple[str, str]]:
        return (type(self), (self.demonstration, self.stage))


@dataclass(frozen=True, slots=True)
class ExpectedUpload:
    """The upload that a stage of a demonstration is run for.

    Attributes:
        uploads: the root.
        demonstration: its id.
        stage: name of the stage, for the error.
        listed: listing fingerprint (store/uploads.py); None: the upload cannot be
            opened.
        compared: whether `require` compares it with the current listing.
    """

    uploads: Uploads
    demonstration: str
    stage: str
    listed: str | None
    compared: bool

    @classmethod
    def of(
        cls, uploads: Uploads, demonstration: str, stage: str, listed: str | None, *, first: bool
    ) -> Self:
        """The upload `listed`; for the `first` stage and None, the current one.

        Raises:
            SupersededError: the first stage would read another upload than `listed`.
        """
        expected = cls(uploads, demonstration, stage, listed, listed is not None)
        if not first:
            return expected
        expected.require()
        current = upload_listing_fingerprint(uploads, demonstration) if listed is None else listed
        return replace(expected, listed=current, compared=True)

    def require(self) -> None:
        """Verify that it is the current upload.

        Raises:
            SupersededError: it is not.
        """
        if not self.compared:
            return
        if upload_listing_fingerprint(self.uploads, self.demonstration) != self.listed:
            raise SupersededError(self.demonstration, self.stage) from None


def is_upload_change(problems: Iterable[Problem]) -> bool:
    """Whether a reader found other bytes than the listing describes."""
    return any(problem.code == _CHANGED for problem in problems)


def unreadable_as_listed(problems: Iterable[Problem]) -> list[Problem]:
    """The problems of a second reading that failed although the listing did not change."""
    return [_unreadable(problem) if problem.code == _CHANGED else problem for problem in problems]


def _unreadable(problem: Problem) -> Problem:
    return replace(
        problem,
        code="unreadable_file",
        message="was read twice and differed from its listing, which did not change",
        remedy="upload it again; if that does not help, check the storage",
    )


_GB = 2**30


@dataclass(frozen=True, slots=True)
class StageLimit:
    """What one build, or one round of checks, of a stage may use.

    Attributes:
        memory_bytes: resident memory of its process.
        cpu_seconds: CPU time of its process, from the stage's start.
    """

    memory_bytes: int
    cpu_seconds: float

    @classmethod
    def of(cls, limits: LimitSettings, video_seconds: float, actions: int) -> "StageLimit":
        """The limit for a recording of this length with so many actions."""
        seconds = limits.cpu_seconds
        seconds += limits.cpu_seconds_per_video_second * max(video_seconds, 0.0)
        seconds += limits.cpu_seconds_per_action * actions
        return cls(limits.max_memory_bytes, seconds)

    def exceeded(self, memory: int, seconds: float) -> str:
        """Which limit is exceeded, in plain words; empty when none is."""
        if memory > self.memory_bytes:
            return (
                f"needs more than {self.memory_bytes / _GB:.3g} GB of memory "
                "(limits.max_memory_bytes)"
            )
        if seconds > self.cpu_seconds:
            return f"needs more than {self.cpu_seconds:.4g} s of CPU time (limits.cpu_seconds)"
        return ""


Watch = Callable[[StageLimit | None], None]


@contextmanager
def _watched(watch: Watch, limit: StageLimit) -> Iterator[None]:
    watch(limit)
    try:
        yield
    finally:
        watch(None)


def run_stage(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    demonstration: str,
    *,
    force: bool = False,
    listed: str | None = None,
    watch: Watch = lambda _limit: None,
) -> BuildResult:
    """Build one stage's output of one demonstration, unless it is up to date.

    A demonstration that the stage rejects is quarantined; one that it accepts is released.

    Args:
        workspace: roots and settings.
        stage: to run.
        demonstration: its id.
        force: build although nothing changed.
        listed: listing fingerprint (store/uploads.py) of the expected upload; None:
            the upload that exists when the first stage begins.
        watch: called with what the build, and then the checks, may use, and with None afterwards.

    Raises:
        DemonstrationError: the demonstration was quarantined, with the problems.
        MissingOutput: an input has not been built.
        SupersededError: the upload is another one than `listed`, or it changed meanwhile. Nothing
            is quarantined for that, and the first stage commits nothing.
    """
    first = not stage.inputs
    expected = ExpectedUpload.of(workspace.uploads, demonstration, stage.name, listed, first=first)
    try:
        result = _build_with_retry(workspace, stage, expected, watch, force=force)
    except DemonstrationError as error:
        _quarantine(workspace, stage, expected, error.problems)
        raise
    if result.status is Status.REJECTED:
        failed = [p for c in result.checks if c.blocking for p in c.problems if not c.passed]
        _quarantine(workspace, stage, expected, failed)
        return result
    if first and result.status is Status.CACHED:  # a build verifies the upload before its commit
        expected.require()
    _release(workspace, stage, demonstration)
    return result


def _quarantine(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    expected: ExpectedUpload,
    problems: Sequence[Problem],
) -> None:
    """Quarantine the demonstration, unless its upload changed while it was read."""
    expected.require()
    demonstration = expected.demonstration
    named = [replace(p, demonstration=p.demonstration or demonstration) for p in problems]
    uploaded = workspace.uploads.identity(demonstration)
    quarantine_demonstration(
        workspace.store, demonstration, stage.name, uploaded, __version__, problems=named
    )


def _release(workspace: Workspace, stage: Stage[RecordingInputs], demonstration: str) -> None:
    """Release it from the quarantine of this stage.

    The first stage also releases it from the quarantine of a stage that does not exist.
    """
    record = read_quarantine(workspace.store, demonstration)
    if record is None:
        return
    foreign = record.stage not in STAGE_BY_NAME and not stage.inputs
    if foreign or record.stage == stage.name:
        release(workspace.store, demonstration)


def _build_with_retry(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    expected: ExpectedUpload,
    watch: Watch,
    *,
    force: bool,
) -> BuildResult:
    """Build; once more when an input was damaged and is built again.

    In the first stage also when the upload that was read differs from the one listed.
    """
    try:
        return _build(workspace, stage, expected, watch, force=force)
    except ChangedOutput:
        if not stage.inputs:
            raise
        _mend(workspace, stage, expected.demonstration, watch)
        return _build(workspace, stage, expected, watch, force=force)
    except DemonstrationError as error:
        if stage.inputs or not is_upload_change(error.problems):
            raise
    expected.require()
    try:
        return _build(workspace, stage, expected, watch, force=force)
    except DemonstrationError as error:
        raise DemonstrationError(unreadable_as_listed(error.problems)) from None


def _mend(
    workspace: Workspace, stage: Stage[RecordingInputs], demonstration: str, watch: Watch
) -> None:
    """Build the damaged inputs of a stage again."""
    for name in stage.inputs:
        if workspace.store.verify(STAGE_BY_NAME[name].output(demonstration)):
            run_stage(workspace, STAGE_BY_NAME[name], demonstration, watch=watch)


def _require_whole_inputs(
    workspace: Workspace, stage: Stage[RecordingInputs], demonstration: str
) -> None:
    """Let no demonstration be blamed for a damaged file. Raises `ChangedOutput`."""
    for name in stage.inputs:
        for damage in workspace.store.verify(STAGE_BY_NAME[name].output(demonstration)):
            raise damage.as_error()


def _build(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    expected: ExpectedUpload,
    watch: Watch,
    *,
    force: bool,
) -> BuildResult:
    return_large_blocks()
    demonstration = expected.demonstration
    with _opened(workspace, stage, demonstration) as (context, versions):
        limit = _limit(context, versions)
        inputs = stage_inputs(workspace, stage, demonstration, versions, context.source)
        recipe = stage_recipe(workspace, stage, inputs)

        def build(staging: Staging) -> Summary:
            staging.hardlink_sources.extend(versions.values())
            for name, folder in context.folders.items():  # what is read has the bytes of its commit
                if damage := document_damage(folder, STAGE_BY_NAME[name].output(demonstration)):
                    raise damage.as_error()
            if stage.linked_input:
                staging.link(stage.linked_input, versions[stage.linked_input])
            if not force:
                _copy_parts(workspace, stage, staging, recipe)
            return_free_memory()  # of the stage before
            download = _with_download(workspace, stage, context, inputs)
            try:
                with download as ready, _watched(watch, limit):
                    return stage.build(ready, staging.path)
            except DemonstrationError:
                _require_whole_inputs(workspace, stage, demonstration)
                raise

        def check(out: Path) -> list[CheckOutcome]:
            with _watched(watch, limit):
                outcomes = [_outcome(known, context, out) for known in stage.checks]
            if not all(outcome.passed for outcome in outcomes if outcome.blocking):
                _require_whole_inputs(workspace, stage, demonstration)
            if not stage.inputs:  # the last moment before its commit
                expected.require()
            return outcomes

        mend = partial(_mend, workspace, stage, demonstration, watch)
        output = stage.output(demonstration)
        return build_if_stale(workspace.store, output, recipe, build, check, force=force, mend=mend)


def _copy_parts(
    workspace: Workspace, stage: Stage[RecordingInputs], staging: Staging, recipe: Recipe
) -> None:
    """Copy the files that a build would write as they are; see `Stage.parts`."""
    before, parts = workspace.store.current(staging.output), stage.parts(workspace.settings)
    known = before.manifest.recipe if before and parts else None
    if known is None or known.code_version != recipe.code_version:
        return
    if any(known.inputs.get(name) != recipe.inputs[name] for name in stage.inputs):
        return
    with workspace.store.open(staging.output) as (folder, version):
        for name, text in parts.items():
            entry = version.manifest.files.find(name)
            same = entry is not None and known.inputs.get(name) == text
            if same and entry and read_digest(folder / name).sha256 == entry.sha256:
                shutil.copyfile(folder / name, staging.path / name)


def _limit(context: RecordingInputs, versions: Mapping[str, Version]) -> StageLimit:
    """What the stage may use; the first stages know neither the length nor the actions yet."""
    video = context.manifest.video if context.manifest is not None else None
    seconds = video.last_pts_s - video.first_pts_s if video is not None else 0.0
    built = versions.get(ACTIONS_STAGE.name)
    count = built.manifest.summary.get("actions") if built is not None else None
    actions = count if isinstance(count, int) else 0
    return StageLimit.of(context.settings.limits, seconds, actions)


@contextmanager
def _opened(
    workspace: Workspace, stage: Stage[RecordingInputs], demonstration: str
) -> Iterator[tuple[RecordingInputs, dict[str, Version]]]:
    """The stage's inputs as local folders, and their versions by stage."""
    folders: dict[str, Path] = {}
    versions: dict[str, Version] = {}
    downloaded, first = workspace.uploads.copies, RAW_RECORDINGS_STAGE.name
    with ExitStack() as stack:
        for name in stage.inputs:
            output = STAGE_BY_NAME[name].output(demonstration)
            folders[name], versions[name] = stack.enter_context(workspace.store.open(output))
        upload = folders.get(first, Path()) if downloaded else Path()
        if stage.reads_uploads and not downloaded:
            upload = stack.enter_context(workspace.uploads.open(demonstration))
        listed = None if stage.inputs else workspace.uploads.find(demonstration)
        recording = manifest.read_manifest(folders[first]) if first in folders else None
        match = NO_CATALOG
        if stage.matches_task and recording is not None:
            match = match_task(workspace, recording)
        context = RecordingInputs(
            demonstration=demonstration,
            upload_name=listed.name if listed else demonstration,
            upload=upload,
            manifest=recording,
            folders=folders,
            settings=workspace.settings,
            source=match,
            downloaded=downloaded,
        )
        yield context, versions


@contextmanager
def _with_download(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    context: RecordingInputs,
    inputs: Mapping[str, str],
) -> Iterator[RecordingInputs]:
    """The context with the uploaded files; only the first stage ever downloads them."""
    if stage.inputs or not workspace.uploads.copies:
        yield context
        return
    with workspace.uploads.open(context.demonstration, inputs["upload"]) as folder:
        yield replace(context, upload=folder)


def _outcome(check: Check[RecordingInputs], context: RecordingInputs, out: Path) -> CheckOutcome:
    try:
        problems = list(check.run(context, out))
    except DemonstrationError as error:
        problems = list(error.problems)
    key = context.demonstration
    named = tuple(replace(p, demonstration=p.demonstration or key) for p in problems)
    return CheckOutcome(check.name, not errors(named), named, blocking=check.blocking)
