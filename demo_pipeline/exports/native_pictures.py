"""The screen's own pictures in place of the screenshots of 1920 by 1080, with their coordinates.

Belongs here: where a point of the canvas is in a picture of the screen's size. A trajectory has
such pictures where `screenshots.native` was set and the screen has another size.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.models import Pixel, StepAction
from demo_pipeline.desktopd.trajectory_reader import StepFiles, native_of
from demo_pipeline.exports.form import Source
from demo_pipeline.exports.prompts import points_in, with_points_replaced
from demo_pipeline.exports.step_facts import hovered_places, readable_size
from demo_pipeline.observation.clock.canvas import Canvas, fit_canvas
from demo_pipeline.trajectories.provenance import ProvenanceRow


class NativePicture:
    """The screen's own picture beside a screenshot.

    Attributes:
        path: of the picture.
        size: its width and height, pixels.
        scale: canvas pixels for one of its pixels.
    """

    def __init__(self, path: Path, size: Pixel) -> None:
        self.path = path
        self.size = size
        self._canvas: Canvas = fit_canvas(size, 1.0)
        self.scale = self._canvas.scale

    def at(self, x: float, y: float) -> Pixel:
        """A point of the canvas, or an edge of a box, in the picture's pixels.

        A place in the bars beside the screen is outside.
        """
        pads = (self._canvas.pad_x, self._canvas.pad_y)
        across, down = ((one - pad) / self.scale for one, pad in zip((x, y), pads, strict=True))
        return round(across), round(down)

    def pixel(self, x: float, y: float) -> Pixel:
        """The same of a point, which rounding does not move out of the picture."""
        across, down = self.at(x, y)
        width, height = self.size
        return across - (across == width), down - (down == height)


def native_picture_of(screenshot: Path) -> NativePicture | None:
    """The screen's own picture beside a screenshot; None: there is none."""
    size = readable_size(native_of(screenshot))
    return NativePicture(native_of(screenshot), size) if size else None


def natively(made_of: Source) -> Source:
    """The same trajectory with the screen's own pictures, where it has them, and their pixels."""
    trajectory = made_of.trajectory
    rows = dict(made_of.rows)
    steps: list[StepFiles] = []
    for step in trajectory.steps:
        native = native_picture_of(step.screenshot)
        if native:
            rows[step.index] = _row(rows[step.index], native)
            action = _action(step.action, native)
            step = replace(step, screenshot=native.path, action=action)  # noqa: PLW2901
        steps.append(step)
    end = native_picture_of(trajectory.final_screenshot)
    final = end.path if end else trajectory.final_screenshot
    taken = replace(trajectory, steps=tuple(steps), final_screenshot=final)
    return replace(made_of, trajectory=taken, rows=rows)


def _action(action: StepAction, native: NativePicture) -> StepAction:
    """The action with its points, and those that its sentence names, in the picture's pixels."""
    given = action.parameters.members()
    moved: dict[str, int] = {}
    for x, y in (("x", "y"), ("start_x", "start_y"), ("end_x", "end_y")):
        if x in given:
            moved[x], moved[y] = native.pixel(given[x], given[y])
    parameters = action.parameters.model_copy(update=moved)
    places = {f"({x}, {y})": str(native.pixel(x, y)) for x, y in points_in(action.reasoning)}
    reasoning = with_points_replaced(action.reasoning, places)
    return action.model_copy(update={"parameters": parameters, "reasoning": reasoning})


def _row(row: ProvenanceRow, native: NativePicture) -> ProvenanceRow:
    """A row whose target, and where the pointer rested, are in the picture's pixels."""
    if row.get("hover_x") is not None:
        *before, last = (native.pixel(x, y) for x, y in hovered_places(row))
        earlier = [side for place in before for side in place] or None
        row = {**row, "hover_x": last[0], "hover_y": last[1], "hovered_before": earlier}
    if row["target_x"] is None:
        return row
    left, top = native.at(row["target_x"], row["target_y"])
    right, bottom = native.at(
        row["target_x"] + row["target_width"], row["target_y"] + row["target_height"]
    )
    target: Mapping[str, Any] = {
        "target_x": left,
        "target_y": top,
        "target_width": right - left,
        "target_height": bottom - top,
    }
    return {**row, **target}
