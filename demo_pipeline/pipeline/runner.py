"""Running one stage of one demonstration: its inputs, its output, its checks, its quarantine.

Belongs here: the wiring between store and build functions, the same for the orchestrator and the
command line. Which stages exist is registered in demonstration_stages.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from demo_pipeline import __version__
from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.files.processes import return_free_memory, return_large_blocks
from demo_pipeline.osworld.task_matching import NO_CATALOG
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import quarantine_demonstration, read_quarantine, release
from demo_pipeline.pipeline.stage_limits import (
    EarlierAttempts,
    ExceededLimitError,
    StageLimit,
    within_limit,
)
from demo_pipeline.pipeline.stages import STAGE_BY_NAME
from demo_pipeline.pipeline.staleness import stage_inputs, stage_recipe
from demo_pipeline.pipeline.superseded import (
    ExpectedUpload,
    is_upload_change,
    unreadable_as_listed,
)
from demo_pipeline.pipeline.task_catalog import match_task
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.stage import Check, Stage, Summary
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Version


def run_stage(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    demonstration: str,
    *,
    force: bool = False,
    listed: str | None = None,
    earlier: EarlierAttempts = EarlierAttempts(),  # noqa: B008 - it is frozen
) -> BuildResult:
    """Build one stage's output of one demonstration, unless it is up to date.

    A demonstration that the stage rejects is quarantined; one that it accepts is released.

    Args:
        workspace: roots and settings.
        stage: to run.
        demonstration: its id.
        force: build although nothing changed.
        listed: listing fingerprint (storage/uploads/fingerprint.py) of the expected upload; None:
            the upload that exists when the first stage begins.
        earlier: attempts at this stage, for one that exceeds its limits again.

    Raises:
        DemonstrationError: the demonstration was quarantined, with the problems.
        ExceededLimitError: the stage was stopped, and is to be tried once more, alone in a process.
        MissingOutput: an input has not been built.
        SupersededError: the upload is another one than `listed`, or it changed meanwhile. Nothing
            is quarantined for that, and the first stage commits nothing.
    """
    first = not stage.inputs
    expected = ExpectedUpload.of(workspace.uploads, demonstration, stage.name, listed, first=first)
    try:
        result = _build_with_retry(workspace, stage, expected, earlier, force=force)
    except DemonstrationError as error:
        _quarantine(workspace, stage, expected, error.problems)
        raise
    except ExceededLimitError as error:
        if not earlier.exceeded():
            raise ExceededLimitError(f"{stage.name} {error.reason}") from None
        problem = _too_expensive(stage.name, error.reason)
        _quarantine(workspace, stage, expected, [problem])
        raise DemonstrationError(problem) from None
    if result.status == "rejected":
        failed = [p for c in result.checks if c.blocking for p in c.problems if not c.passed]
        _quarantine(workspace, stage, expected, failed)
        return result
    if first and result.status == "unchanged":  # a build verifies the upload before its commit
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


def _too_expensive(stage: str, reason: str) -> Problem:
    """What is wrong with a demonstration whose stage exceeds its limits again, alone."""
    return Problem(
        "too_expensive",
        ".",
        f"{stage} {reason}, also alone in a process",
        remedy="split the recording; or raise that setting and run it with `--retry`",
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
    earlier: EarlierAttempts,
    *,
    force: bool,
) -> BuildResult:
    """Build; in the first stage once more when the upload read differs from the one listed."""
    try:
        return _build(workspace, stage, expected, earlier, force=force)
    except DemonstrationError as error:
        if stage.inputs or not is_upload_change(error.problems):
            raise
    expected.require()
    try:
        return _build(workspace, stage, expected, earlier, force=force)
    except DemonstrationError as error:
        raise DemonstrationError(unreadable_as_listed(error.problems)) from None


def _build(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    expected: ExpectedUpload,
    earlier: EarlierAttempts,
    *,
    force: bool,
) -> BuildResult:
    return_large_blocks()
    demonstration = expected.demonstration
    with _opened(workspace, stage, demonstration) as (context, versions):
        limit = _limit(context, versions)
        inputs = stage_inputs(workspace, stage, demonstration, versions, context.source)

        def build(staging: Staging) -> Summary:
            staging.hardlink_sources.extend(versions.values())
            return_free_memory()  # of the stage before
            download = _with_download(workspace, stage, context, inputs)
            with download as ready, within_limit(limit, earlier.note):
                return stage.build(ready, staging.path)

        def check(out: Path) -> list[CheckOutcome]:
            with within_limit(limit, earlier.note):
                outcomes = [_outcome(known, context, out) for known in stage.checks]
            if not stage.inputs:  # the last moment before its commit
                expected.require()
            return outcomes

        def mend() -> None:
            for name in stage.inputs:
                if workspace.store.verify(STAGE_BY_NAME[name].output(demonstration)):
                    run_stage(workspace, STAGE_BY_NAME[name], demonstration, earlier=earlier)

        recipe = stage_recipe(workspace, stage, inputs)
        output = stage.output(demonstration)
        return build_if_stale(workspace.store, output, recipe, build, check, force=force, mend=mend)


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
