"""From the steps of one trajectory to CUDAG records (seed 003; formats notes, section 4).

Belongs here: what a record shows, asks and answers, and how far a prediction may be off. Steps that
no record can be made from stay in the history of the later ones, because they happened: off-screen
ones without a coordinate, those that the tool has no words for with a note.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.datasets.cudag_actions import Deed, describe, is_off_screen, task_type
from demo_pipeline.datasets.prompts import history_line, human_prompt
from demo_pipeline.datasets.selection import Row
from demo_pipeline.formats.cudag import (
    IMAGE_TOKEN,
    CudagMetadata,
    CudagRecord,
    CudagTest,
    ExpectedAction,
    TestMetadata,
    ToolCall,
    Turn,
    box_to_ru,
    cudag_id,
    render_tool_calls,
    tolerance_ru,
)
from demo_pipeline.formats.desktopd import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    Parameters,
    ScrollParameters,
    points,
)
from demo_pipeline.formats.desktopd_reader import StepFiles, Trajectory
from demo_pipeline.formats.image_probe import png_size
from demo_pipeline.settings import DatasetSettings

STEP_EXCLUSIONS = ("off_screen", "missing_frame", "no_tool_call", "split_leak")
Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Draft:
    """One record before it is known where it goes.

    Attributes:
        id: of the record, and the stem of its image.
        screenshot: the PNG of the trajectory.
        prompt: instruction and previous actions.
        calls: the right answer.
        metadata: every key.
    """

    id: str
    screenshot: Path
    prompt: str
    calls: tuple[ToolCall, ...]
    metadata: CudagMetadata

    def training_record(self) -> CudagRecord:
        """As a line of a split."""
        answer, _ = render_tool_calls(self.calls)
        turns = (
            Turn(speaker="human", value=f"{IMAGE_TOKEN}\n{self.prompt}"),
            Turn(speaker="gpt", value=answer),
        )
        image = f"images/{self.id}.png"
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
class Aim:
    """How large a target is: tolerance and box [x0, y0, x1, y1], both in RU."""

    tolerance: Size
    box: tuple[int, int, int, int]


def drafts(
    trajectory: Trajectory,
    rows: Mapping[int, Row],
    settings: DatasetSettings,
    counts: Counter[str],
) -> Iterator[Draft]:
    """Yield a record a step, then the `terminate` record on the final screenshot.

    Args:
        trajectory: as read, under its committed id.
        rows: its provenance by step index.
        settings: tolerances, wheel.
        counts: told of steps left out (`STEP_EXCLUSIONS`).
    """
    history: list[str] = []
    for step in trajectory.steps:
        row = rows[step.index]
        found = png_size(step.screenshot)
        size = found or (CANVAS_WIDTH, CANVAS_HEIGHT)
        deed = describe(step.action, row, size, settings)
        reason = _exclusion(step, row, found, deed)
        if reason:
            counts[reason] += 1
        else:
            aim = _aim(step.action.parameters, row, size, settings)
            metadata = _metadata(trajectory, step, deed, size, aim)
            yield _draft(trajectory, step.screenshot, history, deed.calls, metadata)
        history.append(history_line(len(history) + 1, deed.calls, deed.note))
    final = png_size(trajectory.final_screenshot)
    if final:
        yield _end(trajectory, history, final)
    else:
        counts["missing_frame"] += 1


def _exclusion(step: StepFiles, row: Row, found: Size | None, deed: Deed) -> str:
    """Why no record can be made from a step; empty when one can."""
    if is_off_screen(step.action, row, found or (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if found is None or row["pts"] is None:
        return "missing_frame"
    return "no_tool_call" if deed.note else ""


def _draft(
    trajectory: Trajectory,
    screenshot: Path,
    history: Sequence[str],
    calls: tuple[ToolCall, ...],
    metadata: CudagMetadata,
) -> Draft:
    prompt = human_prompt(trajectory.task.instruction, history)
    name = f"{cudag_id(trajectory.id)}_{metadata.step_index:03d}"
    return Draft(name, screenshot, prompt, calls, metadata)


def _end(trajectory: Trajectory, history: Sequence[str], size: Size) -> Draft:
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
    return _draft(trajectory, trajectory.final_screenshot, history, calls, metadata)


def _metadata(
    trajectory: Trajectory, step: StepFiles, deed: Deed, size: Size, aim: Aim
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


def _aim(parameters: Parameters, row: Row, size: Size, settings: DatasetSettings) -> Aim:
    """Tolerance: half the target an axis, a default without one; a scroll hits a region."""
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    known = None not in target
    box = box_to_ru(target[0], target[1], target[2], target[3], size) if known else (0, 0, 0, 0)
    if isinstance(parameters, ScrollParameters):
        return Aim((settings.scroll_tolerance, settings.scroll_tolerance), box)
    if not known:
        return Aim((settings.default_tolerance, settings.default_tolerance), box)
    limits = (settings.tolerance_min, settings.tolerance_max)
    return Aim(tolerance_ru(target[2], target[3], size, limits), box)
