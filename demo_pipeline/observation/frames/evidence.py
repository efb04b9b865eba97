"""What the video shows about a recording: the model of evidence.json.

Later stages read it instead of decoding the video again.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.actions.scrolls import WheelVote
from demo_pipeline.observation.clock.canvas import ALWAYS, Canvas, ScreenPart, ScreenParts
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.pointer_path import PixelBox


class ClockEvidence(BaseModel):
    """How event times map to the video; units as in `clock.Clock`."""

    model_config = ConfigDict(frozen=True)

    origin_ms: float
    method: Literal["ffmpeg_start", "pixels", "typing", "click_onsets", "meta_timestamp"]
    uncertainty_ms: float = Field(ge=0)
    documented_offset_ms: float
    score: float | None
    moves: int
    agreement: float | None = None
    rate: float = 1.0
    drift_ppm: float | None = None
    pictures_ms: float | None = None


class CanvasEvidence(BaseModel):
    """How event space maps to the canvas; units as in `canvas.Canvas`."""

    model_config = ConfigDict(frozen=True)

    width: int = Field(gt=0)
    height: int = Field(gt=0)
    video_width: int = Field(gt=0)
    video_height: int = Field(gt=0)
    event_scale: float = Field(gt=0)
    scale: float = Field(gt=0)
    pad_x: int = Field(ge=0)
    pad_y: int = Field(ge=0)
    scale_method: Literal["pixels", "monitor", "assumed"] = Field(
        "assumed", description="what the event scale follows from"
    )

    def as_canvas(self) -> Canvas:
        """The canvas."""
        return Canvas(**self.model_dump(exclude={"scale_method"}))


class PartCanvas(CanvasEvidence):
    """The canvas of a part; `left`, `top` and `stretch` as in `canvas.Canvas`."""

    left: float
    top: float
    stretch: float


class PartEvidence(BaseModel):
    """A part of a recording whose screen changed its resolution; as `screen_parts.ScreenPart`."""

    model_config = ConfigDict(frozen=True)

    from_ms: float | None = Field(description="epoch milliseconds; null: from the beginning")
    canvas: PartCanvas | None = Field(description="null: its resolution and scale are unknown")
    evidence: str


class WaitEvidence(BaseModel):
    """A pause that was a wait."""

    model_config = ConfigDict(frozen=True)

    action_index: int
    seconds: float = Field(description="without input")
    settled_s: float = Field(description="video time at which the screen came to rest")


ChangedBox = tuple[int, int, int, int]
"""x, y, width, height; video pixels."""


class ChangesEvidence(BaseModel):
    """What changed between two pictures beyond highlights; as `picture_changes.PictureChanges`."""

    model_config = ConfigDict(frozen=True)

    regions: tuple[ChangedBox, ...] = ()
    panels: tuple[ChangedBox, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.regions or self.panels)


class SinceScanEvidence(BaseModel):
    """What changed between an action's scan and its screenshot."""

    model_config = ConfigDict(frozen=True)

    action_index: int
    scan_event: int = Field(description="line of the scan")
    began: ChangesEvidence | None = Field(description="since it began; null: not compared")
    ended: ChangesEvidence | None = Field(description="since it ended; null: not compared")


class TargetEvidence(BaseModel):
    """What the pictures show of the target of a pointing action."""

    model_config = ConfigDict(frozen=True)

    action_index: int
    window: int | None = Field(description="position in the tree; null: the tree has to tell")
    began: bool | None = Field(description="redrawn since the scan began; null: not compared")
    ended: bool | None = Field(description="redrawn since the scan ended; null: not compared")


class TypedEvidence(BaseModel):
    """What changed while text was typed."""

    model_config = ConfigDict(frozen=True)

    action_index: int
    places: tuple[ChangedBox, ...]


class TreeScale(BaseModel):
    """From which scan on trees are in other units than the pointer."""

    model_config = ConfigDict(frozen=True)

    scan_event: int = Field(description="line of the first such scan")
    scale: float | None = Field(description="units of the log for one of the tree; null: in doubt")


class Evidence(BaseModel):
    """evidence.json: what the stage that decodes hands to later stages."""

    model_config = ConfigDict(frozen=True)

    clock: ClockEvidence
    canvas: CanvasEvidence
    wheel: WheelVote = WheelVote()
    waits: tuple[WaitEvidence, ...]
    screen_changes_s: tuple[float, ...] = Field(description="video times of large changes")
    targets: tuple[TargetEvidence, ...] = Field(
        (), description="the targets of pointing actions that have a scan"
    )
    tree_scales: tuple[TreeScale, ...] = Field(
        (), description="where the units of trees change; without one they are those of the log"
    )
    typed: tuple[TypedEvidence, ...] = Field(
        (), description="what changed from before a typing action to the action after it"
    )
    since_scan: tuple[SinceScanEvidence, ...] = Field(
        (), description="what changed between the scan of each action and its screenshot"
    )
    recorder_control: tuple[int, ...] = Field(
        (), description="actions that started or stopped the recorder; they are no steps"
    )

    parts: tuple[PartEvidence, ...] = Field(
        (), description="of a recording whose screen changed its resolution or scale; else none"
    )

    def as_clock(self) -> Clock:
        """The clock."""
        return Clock(**self.clock.model_dump(), event_scale=self.canvas.event_scale)

    def as_canvas(self) -> Canvas:
        """The canvas at the beginning."""
        return self.canvas.as_canvas()

    def screen(self) -> ScreenParts:
        """The parts of the recording, nearly always one."""
        if not self.parts:
            return ScreenParts.single(self.as_canvas())
        return ScreenParts(
            tuple(
                ScreenPart(
                    ALWAYS if part.from_ms is None else part.from_ms,
                    part.canvas.as_canvas() if part.canvas else None,
                    part.evidence,
                )
                for part in self.parts
            )
        )


def whole_boxes(boxes: Sequence[PixelBox]) -> tuple[ChangedBox, ...]:
    """Boxes on whole pixels, as evidence has them."""
    return tuple((int(box.x), int(box.y), int(box.width), int(box.height)) for box in boxes)
