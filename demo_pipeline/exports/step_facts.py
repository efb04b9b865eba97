"""Decides from a step's screenshot and provenance whether the step can be exported."""

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
STEP_EXCLUSIONS = ("off_screen", "missing_frame", *LEAK_EXCLUSIONS)  # results of `step_exclusion`
STEP_SETTINGS = (  # the settings that `step_exclusion` reads
    "include_avoidable_leaks",
    "include_unavoidable_leaks",
)


def step_exclusion(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, size: Pixel | None
) -> str:
    """Returns why a step is left out, an item of `STEP_EXCLUSIONS`; empty if no item applies.

    Args:
        settings: decide whether a screenshot may already show the pointer at the target.
        size: width and height of the screenshot, pixels; None if a required file is missing or
            unreadable.
    """
    if is_off_screen(step.action, row, size or CANVAS):
        return "off_screen"
    if size is None or not has_picture(row):
        return "missing_frame"
    return leak_exclusion(row, settings)


def hovered_places(row: ProvenanceRow) -> tuple[Pixel, ...]:
    """Returns the points where the pointer rested to open the target, such as an item of a submenu.

    The points are in order of time, in pixels of the screenshot.
    """
    if row.get("hover_x") is None:
        return ()
    sides = [*(row["hovered_before"] or ()), row["hover_x"], row["hover_y"]]
    return tuple(zip(sides[::2], sides[1::2], strict=True))


def is_off_screen(action: StepAction, row: ProvenanceRow, size: Pixel) -> bool:
    """Returns whether an action points outside a screenshot of this width and height."""
    positions = points(action)
    if not positions:
        return False
    width, height = size
    is_inside = all(0 <= x < width and 0 <= y < height for x, y in positions)
    return bool(row["off_screen"]) or not is_inside


def is_last_end_filmed(steps: Sequence[StepFiles], rows: Mapping[int, ProvenanceRow]) -> bool:
    """Returns whether the video contains the end of the last action that is not a wait.

    If the video ends earlier, the final screenshot does not show the effect of this action.

    Args:
        steps: all steps in order.
        rows: provenance of each step by its index.
    """
    for step in reversed(steps):
        if not isinstance(step.action.parameters, WaitParameters):
            return bool(rows[step.index]["end_filmed"])
    return True


def readable_size(screenshot: Path) -> Pixel | None:
    """Returns width and height of a PNG; None if the file is missing, unreadable or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        return None
