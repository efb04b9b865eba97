"""Facts about a step that all forms need: whether it can be shown, and the screenshot's size."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    Pixel,
    StepAction,
    WaitParameters,
    points,
)
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.files.image_files import png_size
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import ProvenanceRow, has_picture

CANVAS: Pixel = (CANVAS_WIDTH, CANVAS_HEIGHT)
STEP_EXCLUSIONS = ("off_screen", "missing_frame", *LEAK_EXCLUSIONS)
STEP_SETTINGS = (
    "include_avoidable_leaks",
    "include_unavoidable_leaks",
)


def step_exclusion(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, size: Pixel | None
) -> str:
    """Returns the first of `STEP_EXCLUSIONS` that applies to a step; empty if none applies.

    Args:
        row: provenance of the step.
        settings: decide which leaks are included.
        size: of its screenshot; None if a file that the form needs cannot be read.
    """
    if is_off_screen(step.action, row, size or CANVAS):
        return "off_screen"
    if size is None or not has_picture(row):
        return "missing_frame"
    return leak_exclusion(row, settings)


def hovered_places(row: ProvenanceRow) -> tuple[Pixel, ...]:
    """Returns the places where the pointer rested to open the element that the step presses."""
    if row.get("hover_x") is None:
        return ()
    sides = [*(row["hovered_before"] or ()), row["hover_x"], row["hover_y"]]
    return tuple(zip(sides[::2], sides[1::2], strict=True))


def is_off_screen(action: StepAction, row: ProvenanceRow, size: Pixel) -> bool:
    """Whether an action points at a place outside the screenshot."""
    positions = points(action)
    if not positions:
        return False
    width, height = size
    is_inside = all(0 <= x < width and 0 <= y < height for x, y in positions)
    return bool(row["off_screen"]) or not is_inside


def is_last_end_filmed(steps: Sequence[StepFiles], rows: Mapping[int, ProvenanceRow]) -> bool:
    """Whether the video contains the end of the last action.

    If it does not, the final screenshot is from before the action's effect. Waits are not counted
    as actions.
    """
    for step in reversed(steps):
        if not isinstance(step.action.parameters, WaitParameters):
            return bool(rows[step.index]["end_filmed"])
    return True


def readable_size(screenshot: Path) -> Pixel | None:
    """Returns width and height of a PNG, or None if it is missing or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        return None
