"""The video of a recording: its file and the times of its frames."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from demo_pipeline.observation.frames.forward_reader import decode_spans
from demo_pipeline.observation.frames.lookback import Lookback
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline.observation.frames.video_frames import Frame, Span
from demo_pipeline.recording.video_probe import PacketScan

LONE_FRAME_S = 0.1  # seconds; taken as the distance of two frames in a video with a single one


@dataclass(frozen=True)
class RecordedVideo:
    """A video file and the presentation times of its frames.

    `size` is the width and height that every frame must have, in pixels before rotation.
    `lookback` keeps what calibration reads for the decode pass; without it each decodes for itself.
    """

    path: Path
    packets: PacketScan
    size: tuple[int, int] | None = None
    lookback: Lookback | None = None

    @cached_property
    def times(self) -> Floats:
        """(frames,) presentation times, ascending seconds."""
        return self.packets.times

    @cached_property
    def frame_s(self) -> float:
        """The mean distance of two frames, seconds."""
        times = self.times
        if len(times) < 2:
            return LONE_FRAME_S
        return float((times[-1] - times[0]) / (len(times) - 1))

    @cached_property
    def grab_s(self) -> float:
        """The distance of two frames while the screen changes, seconds.

        A tenth of the frames are nearer: with a variable rate, no frames show that nothing changes.
        """
        distances = np.diff(self.times)
        return float(np.percentile(distances, 10)) if len(distances) else LONE_FRAME_S

    def frames(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """Frames in ascending, disjoint spans, in presentation order.

        Raises:
            DemonstrationError: a frame has another size.
        """
        return decode_spans(self.path, self.packets, spans, self.size)

    def look(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """As `frames`, before the decode pass, which will not decode these frames again."""
        if self.lookback is None:
            return self.frames(spans)
        return self.lookback.look(spans)

    def resume(self, spans: Sequence[Span]) -> Iterator[Frame]:
        """As `frames`, for the decode pass."""
        if self.lookback is None or self.lookback.is_spent:
            return self.frames(spans)
        return self.lookback.resume(spans)

    def frame_at(self, position: int) -> Frame | None:
        """The frame of a 0-based number; None when it does not decode."""
        time = float(self.times[position])
        return next(self.frames([Span(time, time)]), None)
