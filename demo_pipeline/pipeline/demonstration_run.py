"""One demonstration through its stages: what each of them gave, as plain data.

Belongs here: running stages one after the other until one of them gives nothing, and results that
can be sent from one process to another. Running a single stage is in runner.py.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.error_redaction import DefectError, redacted_errors
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stage_limits import EarlierAttempts, ExceededLimitError
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.pipeline.transient import TransientError
from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.version_manifest import CheckOutcome
from demo_pipeline.trajectories import contact_sheets
from demo_pipeline.trajectories.contact_sheets import encode_jpeg
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

ResultStatus = Literal["done", "failed", "superseded", "waiting", "crashed"]
_PREVIEWS = {
    TRAJECTORIES_STAGE.name: contact_sheets.overview_sheet,
    CONTACT_SHEETS_STAGE.name: contact_sheets.first_steps_sheet,
}
_PREVIEW_QUALITY = 60


@dataclass(frozen=True, slots=True)
class StageReport:
    """What one stage gave a demonstration: its current version.

    Attributes:
        stage: its name.
        status: `made` or `unchanged`.
        summary: what its build function returned.
        version: id of the version.
        content: fingerprint of the content.
        files: number of files.
        size: of all files together, bytes.
        checks: the outcome of every check.
    """

    stage: str
    status: str
    summary: Mapping[str, Any]
    version: str
    content: str
    files: int
    size: int
    checks: tuple[CheckOutcome, ...]

    @classmethod
    def of(cls, stage: str, result: BuildResult) -> "StageReport | None":
        """The report of a built output; None when it was rejected."""
        version = result.version
        if version is None or result.status == "rejected":
            return None
        files = version.manifest.files
        return cls(
            stage=stage,
            status=result.status,
            summary=result.summary,
            version=version.id,
            content=version.content,
            files=len(files),
            size=files.size,
            checks=result.checks,
        )


@dataclass(frozen=True, slots=True)
class DemonstrationResult:
    """How a demonstration came through its stages.

    Attributes:
        demonstration: its id.
        status: `done`; `failed`: a stage rejected it, as a quarantine record or a missing input
            says; `superseded`: its upload changed meanwhile; `waiting`: something passing stopped
            it; `crashed`: a defect did.
        stages: what the stages gave, in order, up to the one that gave nothing.
        stage: that gave nothing; empty when `done`.
        problems: why; for `waiting` and `crashed` one, in plain words.
        exceeded: it waits because a stage exceeded its limits.
        seconds: that it took.
    """

    demonstration: str
    status: ResultStatus
    stages: tuple[StageReport, ...] = ()
    stage: str = ""
    problems: tuple[Problem, ...] = ()
    exceeded: bool = False
    seconds: float = 0.0

    @property
    def unchanged(self) -> bool:
        """Whether every output was up to date before."""
        return self.status == "done" and all(one.status == "unchanged" for one in self.stages)

    @property
    def reason(self) -> str:
        """The first problem in plain words; empty when it is done."""
        return self.problems[0].message if self.problems else ""


@dataclass(frozen=True, slots=True)
class DemonstrationTask:
    """What is to be done with one demonstration.

    Attributes:
        demonstration: its id.
        listed: listing fingerprint of the expected upload; None: the one that is there.
        force: build although nothing changed.
    """

    demonstration: str
    listed: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class _NoResult:
    """Why a stage gave nothing."""

    status: ResultStatus
    problems: tuple[Problem, ...]
    exceeded: bool = False


def run_demonstration(
    workspace: Workspace,
    stages: Sequence[Stage[RecordingInputs]],
    task: DemonstrationTask,
    earlier: EarlierAttempts = EarlierAttempts(),  # noqa: B008 - it is frozen
    started: Callable[[str], None] = lambda _stage: None,
) -> DemonstrationResult:
    """Run the stages in order, until one gives nothing; no error of a stage is raised.

    Args:
        workspace: roots and settings.
        stages: some or all of a demonstration's stages, in their order.
        task: which demonstration, and how.
        earlier: attempts at a stage before, for one that exceeds its limits again.
        started: called with the name of each stage before it runs.
    """
    begun = time.monotonic()
    reports: list[StageReport] = []
    for stage in stages:
        started(stage.name)
        outcome = _run_one(workspace, stage, task, earlier, first=stage is stages[0])
        if isinstance(outcome, _NoResult):
            return DemonstrationResult(
                task.demonstration,
                outcome.status,
                tuple(reports),
                stage.name,
                outcome.problems,
                outcome.exceeded,
                time.monotonic() - begun,
            )
        reports.append(outcome)
    seconds = time.monotonic() - begun
    return DemonstrationResult(task.demonstration, "done", tuple(reports), seconds=seconds)


def _run_one(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    task: DemonstrationTask,
    earlier: EarlierAttempts,
    *,
    first: bool,
) -> StageReport | _NoResult:
    key = task.demonstration
    try:
        with redacted_errors(stage.name, key):
            problems = cannot_start(workspace, stage, key) if first else []
            if problems:
                return _NoResult("failed", tuple(problems))
            result = run_stage(
                workspace, stage, key, force=task.force, listed=task.listed, earlier=earlier
            )
    except (
        SupersededError,
        DemonstrationError,
        TransientError,
        StorageError,
        DefectError,
    ) as error:
        return _no_result(stage, key, error)
    report = StageReport.of(stage.name, result)
    return report or _NoResult("failed", tuple(found_problems(result)))


def _no_result(stage: Stage[RecordingInputs], demonstration: str, error: Exception) -> _NoResult:
    """What the errors of a stage mean for its demonstration."""
    match error:
        case SupersededError():
            return _NoResult("superseded", (Problem("upload_changed", ".", str(error)),))
        case DemonstrationError():
            return _NoResult("failed", error.problems)
        case MissingOutput():
            return _NoResult("failed", (missing_input(stage, error),))
        case TransientError():
            exceeded = isinstance(error, ExceededLimitError)
            return _NoResult("waiting", (Problem("waiting", ".", error.reason),), exceeded)
    cause = f"{type(error).__name__}: {error}"
    return _NoResult("crashed", (Problem("run_failed", ".", cause, demonstration=demonstration),))


def found_problems(result: BuildResult) -> list[Problem]:
    """What the checks of an output found, errors before warnings."""
    problems = [problem for outcome in result.checks for problem in outcome.problems]
    return sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)


def missing_input(stage: Stage[RecordingInputs], error: MissingOutput) -> Problem:
    """Why a stage without an input cannot run."""
    remedy = f"materialize {', '.join(stage.inputs)} of this demonstration first"
    return Problem("missing_input", stage.folder, storage_message(error), remedy=remedy)


def cannot_start(
    workspace: Workspace, stage: Stage[RecordingInputs], demonstration: str
) -> list[Problem]:
    """Why a stage cannot run: the key is not an id, or an earlier stage quarantined it.

    The outputs that the later stages built before are of another upload.
    """
    if not is_safe_id(demonstration):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        message = f"{demonstration!r} is not a demonstration id"
        return [Problem("unsafe_id", ".", message, remedy=remedy)]
    record = read_quarantine(workspace.store, demonstration)
    names = [known.name for known in STAGES]
    if record is None or record.stage not in names[: names.index(stage.name)]:
        return []
    return record.known_problems()


def draw_preview(workspace: Workspace, stage: str, demonstration: str) -> bytes | None:
    """A small JPEG of some steps, for the UI; None for a stage without a preview."""
    draw = _PREVIEWS.get(stage)
    if draw is None:
        return None
    trajectory = workspace.store.open(TRAJECTORIES_STAGE.output(demonstration))
    with redacted_errors(stage, demonstration), trajectory as (folder, _):
        return encode_jpeg(draw(demonstration, folder), _PREVIEW_QUALITY)
