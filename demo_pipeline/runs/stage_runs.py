"""One stage of one demonstration: its inputs and recipe, its output, its checks, its quarantine.

Belongs here: the wiring between store and build functions, the same for the orchestrator and the
command line; whether an output is up to date, and whether the upload changed meanwhile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.files.processes import return_free_memory, return_large_blocks
from demo_pipeline.osworld.task_matching import NO_CATALOG
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording import manifest
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.runs.build import build_if_stale, note_settings, rebuild_reason
from demo_pipeline.runs.quarantine import (
    quarantine_demonstration,
    read_quarantine,
    release,
    require_listed,
)
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS, match_task
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Check, Need, SourceInput, Stage, Summary
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.uploads import changed_while_read, upload_listing_fingerprint
from demo_pipeline.store.versions import CheckOutcome, Recipe, Staging, Version
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

AFTER_INPUTS = "perhaps, when what it reads has changed"
_CHANGED = "upload_changed"
_GB = 2**30

AStage = Stage[RecordingInputs]


@dataclass(frozen=True, slots=True)
class StageLimit:
    """What one build, or one round of checks, of a stage may use of its process's resources."""

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
            size = f"{self.memory_bytes / _GB:.3g}"
            return f"needs more than {size} GB of memory (limits.max_memory_bytes)"
        if seconds > self.cpu_seconds:
            return f"needs more than {self.cpu_seconds:.4g} s of CPU time (limits.cpu_seconds)"
        return ""


Watch = Callable[[StageLimit | None], None]


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


def stale_stages(workspace: Workspace, demonstration: str) -> Iterator[tuple[str, str]]:
    """Yield each stage that a run would build, and why.

    Raises:
        DemonstrationError: the upload cannot be read.
        MissingOutput: an output has lost a file.
    """
    store, versions = workspace.store, dict[str, Version]()
    for stage in STAGES:
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


def run_stage(
    workspace: Workspace,
    stage: AStage,
    demonstration: str,
    *,
    force: bool = False,
    listed: str | None = None,
    watch: Watch = lambda _limit: None,
) -> BuildResult:
    """Build one stage's output of one demonstration, unless it is up to date.

    A demonstration that the stage rejects is quarantined; one that it accepts is released.
    `listed` is the listing fingerprint of the expected upload, None: of the one that exists when
    the first stage begins; `watch` is called with what the build, and then the checks, may use, and
    with None afterwards.

    Raises:
        DemonstrationError: the demonstration was quarantined, with the problems.
        MissingOutput: an input has not been built.
        SupersededError: the upload is another one than `listed`, or it changed meanwhile. Nothing
            is quarantined for that, and the first stage commits nothing.
    """
    compared = listed is not None
    run = _StageRun(workspace, stage, demonstration, force, listed, watch, compared)
    if not stage.inputs:
        run.require_upload()
        if listed is None:
            run.listed = upload_listing_fingerprint(workspace.uploads, demonstration)
            run.compared = True
    try:
        result = run.build_patiently()
    except DemonstrationError as error:
        run.quarantine(error.problems)
        raise
    if result.status is Status.REJECTED:
        run.quarantine([p for c in result.checks if c.blocking for p in c.problems if not c.passed])
        return result
    if not stage.inputs and result.status is Status.CACHED:
        run.require_upload()  # a build verifies it before its commit
    run.release()
    return result


@dataclass
class _StageRun:
    """One stage of one demonstration, for an expected upload.

    Attributes:
        listed: its listing fingerprint; None: it cannot be opened.
        compared: whether `require_upload` compares it with the current listing.
    """

    workspace: Workspace
    stage: AStage
    key: str
    force: bool
    listed: str | None
    watch: Watch
    compared: bool

    def require_upload(self) -> None:
        """Raise `SupersededError` unless the expected upload is the current one."""
        if self.compared:
            require_listed(self.workspace, self.key, self.stage.name, self.listed)

    def quarantine(self, problems: Sequence[Problem]) -> None:
        """Quarantine the demonstration, unless its upload changed while it was read."""
        self.require_upload()
        named = [replace(p, demonstration=p.demonstration or self.key) for p in problems]
        uploaded = self.workspace.uploads.identity(self.key)
        quarantine_demonstration(self.workspace.store, self.key, self.stage.name, uploaded, named)

    def release(self) -> None:
        """Release it from the quarantine of this stage; the first: also of one that is unknown."""
        record = read_quarantine(self.workspace.store, self.key)
        if record is None:
            return
        foreign = record.stage not in STAGE_BY_NAME and not self.stage.inputs
        if foreign or record.stage == self.stage.name:
            release(self.workspace.store, self.key)

    def build_patiently(self) -> BuildResult:
        """Build; once more when the first stage's upload differs from the listed one."""
        try:
            return self._build()
        except DemonstrationError as error:
            changed = any(problem.code == _CHANGED for problem in error.problems)
            if self.stage.inputs or not changed:
                raise
        self.require_upload()
        try:
            return self._build()
        except DemonstrationError as error:
            raise DemonstrationError(list(map(_unreadable_as_listed, error.problems))) from None

    def _inputs(self) -> Iterator[tuple[AStage, str]]:
        stages = [STAGE_BY_NAME[name] for name in self.stage.inputs]
        return ((stage, stage.output(self.key)) for stage in stages)

    def _require_whole_inputs(self) -> None:
        """Let no demonstration be blamed for a damaged file. Raises `ChangedOutput`."""
        for _, output in self._inputs():
            for damage in self.workspace.store.verify(output):
                raise damage.as_error()

    def _build(self) -> BuildResult:
        return_large_blocks()
        with self._opened() as (context, versions, source):
            limit = _limit(context, versions)
            recipe = _recipe(self.workspace, self.stage, self.key, versions, source)

            def build(staging: Staging) -> Summary:
                note_settings(self.workspace, self.stage)
                staging.hardlink_sources.extend(versions.values())
                if Need.LINKS in self.stage.needs:
                    staging.link(TRAJECTORIES_STAGE.name, versions[TRAJECTORIES_STAGE.name])
                return_free_memory()  # of the stage before
                with ExitStack() as stack:
                    ready = context
                    if not self.stage.inputs and self.workspace.uploads.copies:  # only here
                        opened = self.workspace.uploads.open(self.key, recipe.inputs["upload"])
                        ready = replace(context, upload=stack.enter_context(opened))
                    stack.enter_context(self._watched(limit))
                    return self.stage.build(ready, staging.path)

            def check(out: Path) -> list[CheckOutcome]:
                with self._watched(limit):
                    outcomes = [_outcome(one, context, out) for one in self.stage.checks]
                if not all(outcome.passed for outcome in outcomes if outcome.blocking):
                    self._require_whole_inputs()
                if not self.stage.inputs:  # the last moment before its commit
                    self.require_upload()
                return outcomes

            output, force = self.stage.output(self.key), self.force
            return build_if_stale(self.workspace.store, output, recipe, build, check, force=force)

    @contextmanager
    def _watched(self, limit: StageLimit) -> Iterator[None]:
        self.watch(limit)
        try:
            yield
        except Exception:
            self._require_whole_inputs()
            raise
        finally:
            self.watch(None)

    @contextmanager
    def _opened(self) -> Iterator[tuple[RecordingInputs, dict[str, Version], SourceInput]]:
        """The stage's inputs as local folders, their versions by stage, and its source."""
        folders, versions = dict[str, Path](), dict[str, Version]()
        uploads, first, upload = self.workspace.uploads, RAW_RECORDINGS_STAGE.name, Path()
        with ExitStack() as stack:
            for stage, output in self._inputs():
                folders[stage.name], versions[stage.name] = self.workspace.store.open(output)
            if uploads.copies:
                upload = folders.get(first, upload)
            elif Need.UPLOADS in self.stage.needs or not self.stage.inputs:
                upload = stack.enter_context(uploads.open(self.key))
            listed = None if self.stage.inputs else uploads.find(self.key)
            recording = manifest.read_manifest(folders[first]) if first in folders else None
            source = _source(self.workspace, self.stage, self.key, versions, recording)
            context = RecordingInputs(
                demonstration=self.key,
                upload_name=listed.name if listed else self.key,
                upload=upload,
                manifest=recording,
                folders=folders,
                settings=self.workspace.settings,
                source=source.value,
                downloaded=uploads.copies,
            )
            yield context, versions, source


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


def _limit(context: RecordingInputs, versions: Mapping[str, Version]) -> StageLimit:
    """What the stage may use; the first stages know neither the length nor the actions yet."""
    video = context.manifest.video if context.manifest is not None else None
    seconds = video.last_pts_s - video.first_pts_s if video is not None else 0.0
    built = versions.get(ACTIONS_STAGE.name)
    count = built.manifest.summary.get("actions") if built is not None else None
    return StageLimit.of(context.settings.limits, seconds, count if isinstance(count, int) else 0)


def _outcome(check: Check[RecordingInputs], context: RecordingInputs, out: Path) -> CheckOutcome:
    try:
        problems = list(check.run(context, out))
    except DemonstrationError as error:
        problems = list(error.problems)
    key = context.demonstration
    named = tuple(replace(p, demonstration=p.demonstration or key) for p in problems)
    return CheckOutcome(check.name, not errors(named), named, blocking=check.blocking)
