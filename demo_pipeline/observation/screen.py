"""The recorded screen: how the log's coordinates lie on the video, as far as documents can tell.

Belongs here: which scales are worth testing, and what stands when the pictures confirm none of
them. The transform itself is canvas.py's.
"""

from dataclasses import dataclass

import numpy as np

from demo_pipeline.formats.demonstration import Meta
from demo_pipeline.observation.clock import PointerTrack
from demo_pipeline.problems import DemonstrationError, Problem

_COMMON = (1.0, 2.0, 1.5, 1.25, 1.75)  # factors of common displays
_SAME_SHAPE = 0.02
_FIT = 0.9  # of the pointer's positions lie on the screen


@dataclass(frozen=True)
class Screen:
    """What is known of a screen. Sizes are (width, height).

    Attributes:
        video: of the upright video, pixels.
        monitor: meta's primary_monitor, before or after the system's own scaling; None: not told.
    """

    video: tuple[int, int]
    monitor: tuple[int, int] | None

    @classmethod
    def of(cls, meta: Meta, video: tuple[int, int]) -> "Screen":
        """The screen of a recording."""
        monitor = meta.primary_monitor
        return cls(video, (monitor.width, monitor.height) if monitor else None)

    @property
    def told(self) -> float | None:
        """Video pixels for one unit of the monitor; None without a monitor of the same shape."""
        if self.monitor is None or min(self.monitor) <= 0:
            return None
        across, down = (self.video[side] / self.monitor[side] for side in (0, 1))
        return across if abs(across - down) <= _SAME_SHAPE * max(across, down) else None

    @property
    def candidates(self) -> list[float]:
        """Event scales worth testing, the most likely first."""
        told = [] if self.told is None else [self.told]
        return list(dict.fromkeys(round(scale, 6) for scale in (*told, *_COMMON)))

    def without_pictures(self, track: PointerTrack) -> float:
        """The scale where the video confirms none: as documented, else one unit a pixel.

        Raises:
            DemonstrationError: no monitor tells, and the positions do not fit on the video.
        """
        if self.told is not None or not len(track.times):
            return self.candidates[0]
        width, height = self.video
        inside = (track.x >= 0) & (track.x < width) & (track.y >= 0) & (track.y < height)
        if inside.mean() >= _FIT:
            return self.candidates[0]
        message = (
            f"primary_monitor {_size(self.monitor)} has not the shape of the video "
            f"({_size(self.video)}), {np.mean(~inside):.0%} of the pointer's positions lie off it, "
            "and the pictures show no pointer: how coordinates lie on the video is ambiguous"
        )
        remedy = "correct primary_monitor in meta.json, or record with the pointer in the video"
        raise DemonstrationError(Problem("ambiguous_scale", "meta.json", message, remedy=remedy))


def _size(size: tuple[int, int] | None) -> str:
    return f"{size[0]}x{size[1]}" if size else "(missing)"
