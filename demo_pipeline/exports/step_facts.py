"""What every form asks about a step: whether a screenshot shows what it did, and its size."""

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
    "include_unproven_clock",
)


def step_exclusion(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, size: Pixel | None
) -> str:
    """Which of `STEP_EXCLUSIONS` keeps a step out of a form, the first that holds; empty: none.

    Args:
        step: the step.
        row: its provenance.
        settings: which leaks are included.
        size: of its screenshot; None: a file that the form needs cannot be read.
    """
    if is_off_screen(step.action, row, size or CANVAS):
        return "off_screen"
    if size is None or not has_picture(row):
        return "missing_frame"
    return leak_exclusion(row, settings)


def hovered_places(row: ProvenanceRow) -> tuple[Pixel, ...]:
    """Where the pointer rested to open what a step pressed, in order; empty: it did not."""
    if row.get("hover_x") is None:
        return ()
    sides = [*(row["hovered_before"] or ()), row["hover_x"], row["hover_y"]]
    return tuple(zip(sides[::2], sides[1::2], strict=True))


def is_off_screen(action: StepAction, row: ProvenanceRow, size: Pixel) -> bool:
    """Whether an action points at a place outside the screenshot."""
    positions = points(action)
    inside = all(0 <= x < size[0] and 0 <= y < size[1] for x, y in positions)
    return bool(positions) and (bool(row["off_screen"]) or not inside)


def is_last_end_filmed(steps: Sequence[StepFiles], rows: Mapping[int, ProvenanceRow]) -> bool:
    """Whether the final screenshot may show what the last action of a trajectory led to.

    It shows the last frame when the video ends before the action does. A wait after the action is
    not an action: the person waited for what the video shows.
    """
    acted = [step for step in steps if not isinstance(step.action.parameters, WaitParameters)]
    return not acted or bool(rows[acted[-1].index]["end_filmed"])


def readable_size(screenshot: Path) -> Pixel | None:
    """Width and height of a PNG; None: it is missing or not a PNG."""
    try:
        return png_size(screenshot)
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        return None
