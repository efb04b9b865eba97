"""What the video proves about a recording, before any frame is chosen.

Belongs here: settling the clock, the event scale and the flickering cells from a stretch of video
with pointer movement, longer only where that is not enough; the model of evidence.json.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.observation.approach import PointerPath
from demo_pipeline.observation.canvas import Canvas, candidate_scales, fit_canvas
from demo_pipeline.observation.change import flickering_cells
from demo_pipeline.observation.clock import (
    Cells,
    ChangeMap,
    Clock,
    clock_from_pictures,
    documented_clock,
    ffmpeg_clock,
)
from demo_pipeline.observation.pictures import Span, decode_spans, rotation
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.video import PacketScan
from demo_pipeline.settings import ObservationSettings

FIRST_STRETCH_S = 20.0
LONGEST_STRETCH_S = 320.0  # who has not moved the pointer enough by then gets the documented clock
_DECIMALS = 6


class ClockEvidence(BaseModel):
    """How event times map to the video; units as in `clock.Clock`."""

    model_config = ConfigDict(frozen=True)

    origin_ms: float
    method: str
    uncertainty_ms: float
    documented_offset_ms: float
    score: float | None
    moves: int


class CanvasEvidence(BaseModel):
    """How event space maps to the canvas; units as in `canvas.Canvas`."""

    model_config = ConfigDict(frozen=True)

    width: int
    height: int
    video_width: int
    video_height: int
    event_scale: float
    scale: float
    pad_x: int
    pad_y: int


class WaitEvidence(BaseModel):
    """A pause that was a wait."""

    model_config = ConfigDict(frozen=True)

    action_index: int
    seconds: float = Field(description="without input")
    settled_s: float = Field(description="video time at which the screen came to rest")


class Evidence(BaseModel):
    """evidence.json: what later stages take from the one stage that decodes."""

    model_config = ConfigDict(frozen=True)

    clock: ClockEvidence
    canvas: CanvasEvidence
    waits: tuple[WaitEvidence, ...]
    screen_changes_s: tuple[float, ...] = Field(description="video times of large changes")
    redrawn: tuple[int, ...] = Field(
        (), description="actions whose place on the screen was redrawn after their scan began"
    )
    unmoved: tuple[int, ...] = Field(
        (), description="actions whose place on the screen still looks as their scan saw it"
    )

    def as_clock(self) -> Clock:
        """The clock itself."""
        return Clock(**self.clock.model_dump(), event_scale=self.canvas.event_scale)

    def as_canvas(self) -> Canvas:
        """The canvas itself."""
        return Canvas(**self.canvas.model_dump())


class Findings(Protocol):
    """What the decode pass found. `redrawn`: action index → whether its place changed."""

    waits: list[WaitEvidence]
    large_changes: list[float]
    redrawn: dict[int, bool]


@dataclass(frozen=True)
class Settled:
    """The clock, the canvas, and the cells that always change."""

    clock: Clock
    canvas: Canvas
    flickering: Cells | None

    def evidence(self, findings: Findings) -> Evidence:
        """As the model that is written."""
        clock, canvas = self.clock, self.canvas
        return Evidence(
            clock=ClockEvidence(
                origin_ms=round(clock.origin_ms, _DECIMALS),
                method=clock.method,
                uncertainty_ms=clock.uncertainty_ms,
                documented_offset_ms=round(clock.documented_offset_ms, _DECIMALS),
                score=clock.score,
                moves=clock.moves,
            ),
            canvas=CanvasEvidence(**{k: getattr(canvas, k) for k in CanvasEvidence.model_fields}),
            waits=tuple(findings.waits),
            screen_changes_s=tuple(round(time, _DECIMALS) for time in findings.large_changes),
            redrawn=tuple(index for index, changed in findings.redrawn.items() if changed),
            unmoved=tuple(index for index, changed in findings.redrawn.items() if not changed),
        )


def settle(
    video: Path,
    scan: PacketScan,
    manifest: RecordingManifest,
    *,
    events: Any,
    path: PointerPath,
    settings: ObservationSettings,
) -> Settled:
    """Decide clock and canvas by the order of trust: ffmpeg's own start, pictures, meta.timestamp.

    `events` is the events table. Decodes a first stretch of video, and more only where that
    stretch holds too little movement to be sure.
    """
    timestamp_ms = manifest.recorded_at.timestamp() * 1000
    told = events.filter(pc.equal(events["event"], "ffmpeg_stderr"))["payload"]
    payloads = [payload for payload in told.to_pylist() if payload]
    logged = ffmpeg_clock(payloads, timestamp_ms, float(scan.times[0]))
    monitor = manifest.parsed_meta().primary_monitor
    size = _upright_size(manifest)
    scales = candidate_scales(size, (monitor.width, monitor.height) if monitor else None)
    documented = documented_clock(timestamp_ms)
    changes = ChangeMap()
    seen: Clock | None = None
    for stretch in _stretches(scan, path, documented, settings.search_lag_s):
        for frame in decode_spans(video, scan, [stretch]):
            changes.add(frame)
        reference = logged or documented
        seen = clock_from_pictures(changes, path.track(), reference, scales, settings.search_lag_s)
        if seen is not None or logged is not None:
            break
    clock = logged or seen or documented
    scale = seen.event_scale if seen else scales[0]
    canvas = fit_canvas(size, scale, (settings.canvas_width, settings.canvas_height))
    return Settled(clock, canvas, flickering_cells(changes))


def _stretches(
    scan: PacketScan, path: PointerPath, documented: Clock, search_s: float
) -> Iterator[Span]:
    """Successive stretches of video, together 20, 40, 80, … s, from where the pointer first moves.

    At least the first two frames, so that there is something to compare.
    """
    first, last = float(scan.times[0]), float(scan.times[-1])
    moves = path.track().times
    begin = documented.video_time(float(moves[0])) - search_s if len(moves) else first
    begin = min(max(first, begin), max(first, last - FIRST_STRETCH_S))
    length, end = FIRST_STRETCH_S, begin - 1
    while end < last and length <= LONGEST_STRETCH_S:
        following = scan.times[scan.times > end + 1e-6]
        start = max(begin, float(following[0]))
        end = min(last, max(begin + length, start))
        yield Span(start, end)
        length *= 2


def _upright_size(manifest: RecordingManifest) -> tuple[int, int]:
    size = (manifest.video.width, manifest.video.height)
    return size[::-1] if rotation(manifest.video) in {90, 270} else size
