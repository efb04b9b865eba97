"""From the steps of one trajectory to CUDAG records (seed 003; formats notes, section 4).

Belongs here: what a record shows, asks and answers, and how far a prediction may be off. Steps that
no record can be made from stay in the history of the later ones, because they happened: off-screen
ones without a coordinate, those that the tool has no words for with a note.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.common.image_header import png_size
from demo_pipeline.datasets.cudag_actions import (
    ActionCalls,
    ImageSize,
    describe_action,
    is_off_screen,
    task_type,
)
from demo_pipeline.datasets.export_loop import Excluded
from demo_pipeline.datasets.prompts import grounding_prompt, history_line, human_prompt
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.formats.cudag.models import (
    IMAGE_TOKEN,
    CudagMetadata,
    CudagRecord,
    CudagTest,
    ExpectedAction,
    TestMetadata,
    Turn,
    box_to_ru,
    cudag_id,
    tolerance_ru,
)
from demo_pipeline.formats.cudag.tool_calls import ToolCall, escape_markers, render_tool_calls
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.desktopd.step_actions import (
    Parameters,
    ScrollParameters,
    StepAction,
    points,
)
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.settings import DatasetSettings

DRAFT_EXCLUSIONS = ("off_screen", "missing_frame", "leak", "no_tool_call", "not_grounded")
PROVENANCE_COLUMNS = (
    *("pts", "leak", "off_screen"),
    *("target_x", "target_y", "target_width", "target_height"),
)


@dataclass(frozen=True, slots=True)
class RecordDraft:
    """One record before it is known where it goes.

    Attributes:
        id: of the record, and the stem of its image.
        screenshot: the PNG of the trajectory.
        prompt: what is asked, no marker left in it.
        calls: the right answer.
        metadata: every key.
        markers: made harmless in the prompt, beside those of the instruction.
    """

    id: str
    screenshot: Path
    prompt: str
    calls: tuple[ToolCall, ...]
    metadata: CudagMetadata
    markers: int = 0

    def training_record(self, suffix: str = ".png") -> CudagRecord:
        """As a line of a split; `suffix` is that of its image."""
        answer, _ = render_tool_calls(self.calls)
        turns = (
            Turn(speaker="human", value=f"{IMAGE_TOKEN}\n{self.prompt}"),
            Turn(speaker="gpt", value=answer),
        )
        image = f"images/{self.id}{suffix}"
        return CudagRecord(id=self.id, image=image, conversations=turns, metadata=self.metadata)

    def test(self) -> CudagTest:
        """As an entry of `test.json`."""
        first, *more = (call.as_dict() for call in self.calls)
        known = self.metadata.model_dump()
        return CudagTest(
            test_id=self.id,
            screenshot=f"images/{self.id}.png",
            prompt=self.prompt,
            expected_action=ExpectedAction(**first),
            tolerance=self.metadata.tolerance,
            metadata=TestMetadata(**known, additional_tool_calls=tuple(more)),
        )


@dataclass(frozen=True, slots=True)
class TargetTolerance:
    """How large a target is: tolerance and box [x0, y0, x1, y1], both in RU."""

    tolerance: ImageSize
    box: tuple[int, int, int, int]


def record_drafts(
    trajectory: Trajectory, rows: Mapping[int, ProvenanceRow], settings: DatasetSettings
) -> Iterator[RecordDraft | Excluded]:
    """Yield a record a step, then the `terminate` record on the final screenshot.

    A step that gives no record is yielded as `Excluded`, for a reason of `DRAFT_EXCLUSIONS`.

    Args:
        trajectory: as read, under its committed id.
        rows: its provenance by step index, of `PROVENANCE_COLUMNS` at least.
        settings: tolerances, wheel, style of the prompts, what is left out.
    """
    history: list[str] = []
    for step in trajectory.steps:
        row = rows[step.index]
        found = png_size(step.screenshot)
        size = found or (CANVAS_WIDTH, CANVAS_HEIGHT)
        deed = describe_action(step.action, row, size, settings)
        reason = _exclusion(step, row, found, deed, settings)
        if reason:
            yield Excluded(reason)
        else:
            aim = _target_tolerance(step.action.parameters, row, size, settings)
            metadata = _metadata(trajectory, step, deed, size, aim)
            asked = _prompt(trajectory, step.action, history, settings)
            yield _draft(trajectory, step.screenshot, asked, deed.calls, metadata)
        history.append(history_line(len(history) + 1, deed.calls, deed.note))
    final = png_size(trajectory.final_screenshot)
    if settings.prompt_style == "grounding":
        yield Excluded("not_grounded")
    elif final:
        yield _terminate_draft(trajectory, _prompt(trajectory, None, history, settings), final)
    else:
        yield Excluded("missing_frame")


def _exclusion(
    step: StepFiles,
    row: ProvenanceRow,
    found: ImageSize | None,
    deed: ActionCalls,
    settings: DatasetSettings,
) -> str:
    """Why no record is made from a step, the first reason that holds; empty when one is."""
    if is_off_screen(step.action, row, found or (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if found is None or row["pts"] is None:
        return "missing_frame"
    if row["leak"] and not settings.include_leaky:
        return "leak"
    if deed.note:
        return "no_tool_call"
    named = settings.prompt_style != "grounding" or grounding_prompt(step.action)
    return "" if named else "not_grounded"


def _prompt(
    trajectory: Trajectory,
    action: StepAction | None,
    history: Sequence[str],
    settings: DatasetSettings,
) -> tuple[str, int]:
    """What is asked, and the markers made harmless in it beside those of the instruction."""
    if settings.prompt_style == "grounding" and action is not None:
        return escape_markers(grounding_prompt(action))
    told = history if settings.prompt_style == "history" else ()
    return human_prompt(trajectory.task.instruction, told), 0


def _draft(
    trajectory: Trajectory,
    screenshot: Path,
    asked: tuple[str, int],
    calls: tuple[ToolCall, ...],
    metadata: CudagMetadata,
) -> RecordDraft:
    name = f"{cudag_id(trajectory.id)}_{metadata.step_index:03d}"
    return RecordDraft(name, screenshot, asked[0], calls, metadata, asked[1])


def _terminate_draft(
    trajectory: Trajectory, asked: tuple[str, int], size: ImageSize
) -> RecordDraft:
    """The `terminate` record: a step after the last."""
    success = trajectory.result.success
    index = trajectory.steps[-1].index + 1 if trajectory.steps else 0
    metadata = CudagMetadata(
        task_type="terminate",
        image_size=size,
        trajectory_id=trajectory.id,
        step_index=index,
        application=trajectory.task.application,
        reasoning="The task is done." if success else "The task was not done.",
    )
    calls = (ToolCall("terminate", {"status": "success" if success else "failure"}),)
    return _draft(trajectory, trajectory.final_screenshot, asked, calls, metadata)


def _metadata(
    trajectory: Trajectory,
    step: StepFiles,
    deed: ActionCalls,
    size: ImageSize,
    aim: TargetTolerance,
) -> CudagMetadata:
    action = step.action
    places = points(action)
    scroll = action.parameters if isinstance(action.parameters, ScrollParameters) else None
    return CudagMetadata(
        task_type=task_type(action, deed.calls),
        real_coords=places[0] if places else (0, 0),
        tolerance=aim.tolerance if places else (0, 0),
        image_size=size,
        has_coordinate=bool(places),
        end_coords=places[1] if len(places) > 1 else (0, 0),
        scroll_direction=scroll.direction if scroll else "",
        scroll_amount=scroll.amount if scroll else 0,
        trajectory_id=trajectory.id,
        step_index=step.index,
        application=trajectory.task.application,
        reasoning=action.reasoning,
        target_bbox=aim.box,
    )


def _target_tolerance(
    parameters: Parameters, row: ProvenanceRow, size: ImageSize, settings: DatasetSettings
) -> TargetTolerance:
    """Tolerance: half the target an axis, a default without one; a scroll hits a region."""
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    known = None not in target
    box = box_to_ru(target[0], target[1], target[2], target[3], size) if known else (0, 0, 0, 0)
    if isinstance(parameters, ScrollParameters):
        return TargetTolerance((settings.scroll_tolerance, settings.scroll_tolerance), box)
    if not known:
        return TargetTolerance((settings.default_tolerance, settings.default_tolerance), box)
    limits = (settings.tolerance_min, settings.tolerance_max)
    return TargetTolerance(tolerance_ru(target[2], target[3], size, limits), box)
