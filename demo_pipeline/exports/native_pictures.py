"""Replaces screenshots with native screenshots, and converts coordinates to native pixels.

Screenshots have the size of the canvas, 1920 by 1080 pixels. Native screenshots have the size of
the recorded screen; they exist if the setting `screenshots.native` was on and the sizes differ.
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
    """A native screenshot; converts canvas coordinates to pixels of this screenshot.

    Attributes:
        path: path of the PNG file.
        size: width and height, pixels.
        scale: canvas pixels per native pixel.
    """

    def __init__(self, path: Path, size: Pixel) -> None:
        self.path = path
        self.size = size
        self._canvas: Canvas = fit_canvas(size, 1.0)
        self.scale = self._canvas.scale

    def at(self, x: float, y: float) -> Pixel:
        """Converts a point on the canvas, or a corner of a box, to native pixels.

        Points in the bars around the screen become points outside the native screenshot.
        """
        native_x = (x - self._canvas.pad_x) / self.scale
        native_y = (y - self._canvas.pad_y) / self.scale
        return round(native_x), round(native_y)

    def pixel(self, x: float, y: float) -> Pixel:
        """Converts a point as `at` does, but keeps points on the right or bottom edge inside."""
        native_x, native_y = self.at(x, y)
        width, height = self.size
        if native_x == width:
            native_x -= 1
        if native_y == height:
            native_y -= 1
        return native_x, native_y


def native_picture_of(screenshot: Path) -> NativePicture | None:
    """Returns the native version of a screenshot; None if this version does not exist."""
    path = native_of(screenshot)
    size = readable_size(path)
    if size is None:
        return None
    return NativePicture(path, size)


def with_native_screenshots(source: Source) -> Source:
    """Returns a trajectory whose steps use their native screenshots, with converted coordinates.

    Steps without a native screenshot stay unchanged.
    """
    trajectory = source.trajectory
    rows = dict(source.rows)
    steps: list[StepFiles] = []
    for step in trajectory.steps:
        native = native_picture_of(step.screenshot)
        if native is None:
            steps.append(step)
            continue
        rows[step.index] = _native_row(rows[step.index], native)
        action = _native_action(step.action, native)
        steps.append(replace(step, screenshot=native.path, action=action))
    final_screenshot = trajectory.final_screenshot
    if native_final := native_picture_of(final_screenshot):
        final_screenshot = native_final.path
    native_trajectory = replace(trajectory, steps=tuple(steps), final_screenshot=final_screenshot)
    return replace(source, trajectory=native_trajectory, rows=rows)


def _native_action(action: StepAction, native: NativePicture) -> StepAction:
    """Converts the points in an action's parameters and description to native pixels."""
    members = action.parameters.members()
    converted: dict[str, int] = {}
    for x, y in (("x", "y"), ("start_x", "start_y"), ("end_x", "end_y")):
        if x in members:
            converted[x], converted[y] = native.pixel(members[x], members[y])
    parameters = action.parameters.model_copy(update=converted)
    places = {f"({x}, {y})": str(native.pixel(x, y)) for x, y in points_in(action.reasoning)}
    reasoning = with_points_replaced(action.reasoning, places)
    return action.model_copy(update={"parameters": parameters, "reasoning": reasoning})


def _native_row(row: ProvenanceRow, native: NativePicture) -> ProvenanceRow:
    """Converts the target's box and the hovered points of a provenance row to native pixels."""
    if row.get("hover_x") is not None:
        *before, last = (native.pixel(x, y) for x, y in hovered_places(row))
        hovered_before = list[int]()
        for place in before:
            hovered_before += place
        row = {
            **row,
            "hover_x": last[0],
            "hover_y": last[1],
            "hovered_before": hovered_before or None,
        }
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
