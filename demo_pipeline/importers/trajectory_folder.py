"""Writes a trajectory of another tool as an OSWorld-Desktopd trajectory.

Each screenshot is scaled to fit into the canvas of 1920x1080 pixels, and positions are scaled in
the same way. An action without a screenshot or a position becomes a hidden action instead of a
step. ui_tree.json contains the screen and, if recorded, the element under the pointer.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    PARAMETERS,
    ActionType,
    ModelInfo,
    Parameters,
    Result,
    Role,
    StepAction,
    TargetElement,
)
from demo_pipeline.files.image_files import PngWriter, probe_image
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.files.recording_files import SOURCE_FILE
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.source_trajectory import (
    POINTED,
    SourceAct,
    SourceElement,
    SourceImage,
    SourceStep,
    SourceTrajectory,
)
from demo_pipeline.importers.source_values import UnreadableSourceError
from demo_pipeline.importers.upload_folder import OUTCOMES, Given, source_record
from demo_pipeline.importers.video_remux import first_frame
from demo_pipeline.observation.clock.canvas import Canvas, Image, fit_canvas
from demo_pipeline.observation.trees.step_tree import canonical_role
from demo_pipeline.trajectories.provenance import HiddenAction, HiddenReason
from demo_pipeline.trajectories.step_sentences import step_sentence

# Maximum share of the screen that the target of an action may cover. Larger elements are windows,
# pages and the desktop.
_LARGEST_TARGET = 0.25
# Bit depth 8 and color type RGB in the header of a PNG file. A PNG file with this header and the
# size of the canvas is copied unchanged.
_RGB_OF_8_BITS = b"\x08\x02"
_HEADER_FORM = slice(24, 26)
_Box = tuple[int, int, int, int]  # left, top, width and height on the canvas, pixels


@dataclass
class WrittenSteps:
    """Facts about the written steps that the files of OSWorld-Desktopd cannot express.

    Attributes:
        columns: for each step, a dictionary from columns of the provenance table to the values
            known from the source.
        hidden: the actions that did not become steps.
        status: completed or aborted. Empty if the outcome is not known.
    """

    columns: list[Mapping[str, Any]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    hidden: list[HiddenAction] = field(default_factory=list)
    status: str = ""


@dataclass(frozen=True)
class _Screen:
    """A screenshot scaled to the canvas.

    Attributes:
        canvas: converts positions on the original screenshot to the canvas.
        png: content of the PNG file.
    """

    canvas: Canvas
    png: bytes


def outcome_of(trajectory: SourceTrajectory, given: Given) -> tuple[str, str]:
    """Returns the outcome of a trajectory, and a text for result.json about the outcome's source.

    The outcome is completed, failed or aborted, or empty if it is not known.
    """
    if given.status:
        return given.status, f"given as {given.status}"
    if trajectory.status:
        return trajectory.status, trajectory.status_source
    return "", "the outcome is not known"


def write_steps(trajectory: SourceTrajectory, out: Path) -> WrittenSteps:
    """Writes `steps/NNN` and `final_screenshot.png`.

    If no screenshot after the last step can be read, the last step is dropped and its screenshot
    becomes the final one. Unreadable screenshots are added to `trajectory.damaged`.

    Raises:
        UnreadableSourceError: no action became a step.
    """
    writer = _StepWriter(trajectory, out)
    steps = list(trajectory.steps)
    final = writer.screen(trajectory.final)
    while steps and final is None:
        last = steps.pop()
        final = writer.screen(last.screenshot)
        trajectory.left_out["actions at the end, after which there is no screenshot"] += len(
            last.acts
        )
    for step in steps:
        writer.add(step)
    if not writer.written.columns or final is None:
        reasons = Counter(action.reason for action in writer.written.hidden)
        counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(reasons.items()))
        raise UnreadableSourceError(
            f"no action became a step ({counts or 'the source has no action'})"
        )
    (out / "final_screenshot.png").write_bytes(final.png)
    return writer.written


def write_result(
    trajectory: SourceTrajectory, given: Given, key: str, steps: int, out: Path
) -> str:
    """Writes result.json.

    Args:
        key: the demonstration's id.

    Returns:
        The status for the provenance table: completed, aborted, or empty if not known.
    """
    status, sentence = outcome_of(trajectory, given)
    times = [step.time_ms for step in trajectory.steps]
    ends = [step.end_ms for step in trajectory.steps if step.end_ms is not None]
    success = status == "completed"
    result = Result(
        trajectory_id=key,
        success=success,
        total_steps=steps,
        completion_time_ms=max(0, round(max([*times, *ends]) - min(times))),
        error_message=None if success else sentence,
        model_info=ModelInfo(name=trajectory.actor or "unknown", version=""),
    )
    dump_json(out / "result.json", result)
    return OUTCOMES[status][0] if status else ""


def write_source(
    trajectory: SourceTrajectory,
    source: SourceFiles,
    importer: Importer,
    given: Given,
    *,
    written: WrittenSteps,
    out: Path,
) -> None:
    """Writes source.json, which lists the source's files and says what was lost or damaged."""
    kinds = Counter(written.kinds)
    lost = trajectory.not_carried_over
    hidden = Counter(action.reason for action in written.hidden)
    lost += [f"{count} actions are hidden: {reason}" for reason, count in sorted(hidden.items())]
    missing = [] if outcome_of(trajectory, given)[0] else ["status"]
    record = source_record(
        source, importer, given, damaged=trajectory.damaged, lost=lost, missing=missing
    )
    # Modification times are left out, so that the output stays the same if a file is only touched.
    for file in record["files"]:
        del file["changed_ns"]
    dump_json(out / SOURCE_FILE, record | {"carried_over": dict(sorted(kinds.items()))})


class _StepWriter:
    """Writes the steps in order, and collects facts about them in `written`."""

    def __init__(self, trajectory: SourceTrajectory, out: Path) -> None:
        self.written = WrittenSteps()
        self._trajectory = trajectory
        self._out = out
        self._png = PngWriter()
        self._decoded: tuple[SourceImage | None, _Screen | None] = (None, None)
        self._acts = 0

    def screen(self, image: SourceImage | None) -> _Screen | None:
        """Returns a screenshot scaled to the canvas, or None if it is missing or cannot be read."""
        if image is None:
            return None
        if self._decoded[0] != image:
            try:
                self._decoded = (image, self._read(image))
            except ValueError as error:
                self._trajectory.damaged.append(f"{image.path.name}: {error}")
                self._decoded = (image, None)
        return self._decoded[1]

    def _read(self, image: SourceImage) -> _Screen:
        """Reads a screenshot; raises ValueError with the reason if it cannot be read."""
        if image.is_video:
            return self._fitted(first_frame(image.path))
        try:
            data = image.path.read_bytes() if image.data is None else image.data
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from None
        info = probe_image(data)
        canvas = fit_canvas((info.width, info.height), 1.0)
        is_whole = (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT)
        if is_whole and info.kind == "png" and data[_HEADER_FORM] == _RGB_OF_8_BITS:
            return _Screen(canvas, data)
        decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        if decoded is None:
            raise ValueError("the image cannot be decoded")
        return self._fitted(np.asarray(decoded, np.uint8))

    def _fitted(self, rgb: Image) -> _Screen:
        height, width = rgb.shape[:2]
        canvas = fit_canvas((width, height), 1.0)
        return _Screen(canvas, self._png.encode(np.ascontiguousarray(canvas.fit(rgb))))

    def add(self, step: SourceStep) -> None:
        """Writes the first action of a source step as a step if possible.

        All other actions become hidden actions.
        """
        screen = self.screen(step.screenshot)
        for number, act in enumerate(step.acts):
            reason = _hidden_reason(act, screen)
            if reason is None and number:
                # The source has a screenshot only before the first action of a step.
                reason = HiddenReason.UNDECODABLE
            if step.screenshot is None and not number:
                reason = HiddenReason.BEFORE_VIDEO
            if reason is None and screen is not None:
                self._write(step, act, screen)
            else:
                hidden = HiddenAction(
                    len(self.written.columns),
                    self._acts,
                    act.kind,
                    _milliseconds(step.time_ms),
                    str(reason),
                )
                self.written.hidden.append(hidden)
            self._acts += 1

    def _write(self, step: SourceStep, act: SourceAct, screen: _Screen) -> None:
        """Writes the folder of a step, and records its provenance columns."""
        index = len(self.written.columns)
        folder = self._out / "steps" / f"{index:03d}"
        folder.mkdir(parents=True)
        (folder / "screenshot.png").write_bytes(screen.png)
        parameters = _parameters(act, screen.canvas)
        platform = self._trajectory.platform
        box = None
        target = None
        if step.element is not None:
            box = _canvas_box(step.element, screen.canvas)
            target = _target(step.element, act, platform, screen.canvas)
        dump_json(folder / "ui_tree.json", _tree(step, box, platform))
        sentence = step_sentence(act.kind, parameters, target, box if target else None)
        action = StepAction(
            step_index=index,
            action_type=act.kind,
            parameters=parameters,
            target_element=target,
            reasoning=step.reasoning or sentence,
        )
        dump_json(folder / "action.json", action)
        begin = _milliseconds(step.time_ms)
        end = begin if step.end_ms is None else max(begin, _milliseconds(step.end_ms))
        self.written.kinds.append(str(act.kind))
        self.written.columns.append(
            {
                "action_index": self._acts,
                "press_ms": begin,
                "end_ms": end,
                "freshness": "sparse" if box else "none",
                "hidden_before": sum(hidden.before_step == index for hidden in self.written.hidden),
                "scale": screen.canvas.scale,
                "pad_x": float(screen.canvas.pad_x),
                "pad_y": float(screen.canvas.pad_y),
                "reasoning_source": "imported" if step.reasoning else "template",
            }
        )


def _milliseconds(time_ms: float) -> int:
    return max(round(time_ms), 0)


def _hidden_reason(act: SourceAct, screen: _Screen | None) -> HiddenReason | None:
    """Returns the reason why an action cannot become a step, or None if it can."""
    if screen is None:
        return HiddenReason.UNDECODABLE
    if act.kind not in POINTED:
        return None
    if act.at is None or (act.kind is ActionType.DRAG and act.end is None):
        return HiddenReason.NO_POSITION
    places = [place for place in (act.at, act.end) if place is not None]
    if not all(screen.canvas.on_screen(*place) for place in places):
        return HiddenReason.OFF_SCREEN
    return None


def _parameters(act: SourceAct, canvas: Canvas) -> Parameters:
    """Returns the parameters of action.json, with positions in pixels of the canvas."""
    values = dict(act.values)
    if act.kind is ActionType.DRAG and act.at is not None and act.end is not None:
        values["start_x"], values["start_y"] = canvas.pixel_of(*act.at)
        values["end_x"], values["end_y"] = canvas.pixel_of(*act.end)
    elif act.kind in POINTED and act.at is not None:
        values["x"], values["y"] = canvas.pixel_of(*act.at)
    return PARAMETERS[act.kind].model_validate(values)


def _canvas_box(element: SourceElement, canvas: Canvas) -> _Box:
    """Returns an element's box, which may extend beyond the canvas."""
    left, top = canvas.to_canvas(*element.box[:2])
    right, bottom = canvas.to_canvas(*element.box[2:])
    return round(left), round(top), round(right - left), round(bottom - top)


def _target(
    element: SourceElement, act: SourceAct, platform: str, canvas: Canvas
) -> TargetElement | None:
    """Returns the element under the pointer as the target of an action, or None.

    A target has a name, contains the action's position, and is not larger than `_LARGEST_TARGET`.
    """
    left, top, right, bottom = element.box
    if act.kind not in POINTED or act.at is None or not element.name:
        return None
    x, y = act.at
    if not (left <= x <= right and top <= y <= bottom):
        return None
    width, height = canvas.shown_size
    if (right - left) * (bottom - top) > _LARGEST_TARGET * width * height:
        return None
    return TargetElement(id="node_1", role=_role(element, platform), name=element.name)


def _role(element: SourceElement, platform: str) -> Role:
    return Role(canonical_role(element.role, platform) or Role.UNKNOWN)


def _tree(step: SourceStep, box: _Box | None, platform: str) -> dict[str, Any]:
    """Returns the content of ui_tree.json: the screen, and the element under the pointer if known.

    Args:
        box: the element's box. None if the recorder found no element.
        platform: windows, macos, linux, or empty.
    """
    at = datetime.fromtimestamp(_milliseconds(step.time_ms) / 1000, UTC)
    children = []
    if step.element is not None and box is not None:
        role = str(_role(step.element, platform))
        children = [_node("node_1", role, step.element.name, box, [])]
    whole = (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT)
    return {
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "screen": {"width": CANVAS_WIDTH, "height": CANVAS_HEIGHT},
        "root": _node("node_0", str(Role.DESKTOP), "", whole, children),
    }


def _node(
    key: str, role: str, name: str, box: _Box, children: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    bounds = dict(zip(("x", "y", "width", "height"), box, strict=True))
    return {
        "id": key,
        "role": role,
        "name": name,
        "bounds": bounds,
        "states": [],
        "children": list(children),
    }
