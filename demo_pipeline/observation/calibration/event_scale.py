"""The recorded screen: how the log's coordinates lie on the video, as far as documents can tell.

Belongs here: which scales are worth testing, and what stands when the pictures confirm none of
them. The transform itself is canvas.py's.
"""

from dataclasses import dataclass

from demo_pipeline.formats.demonstration.meta import Meta
from demo_pipeline.observation.frames.pointer_path import PointerTrack
from demo_pipeline.problems import DemonstrationError, Problem

_COMMON = (1.0, 2.0, 1.5, 1.25, 1.75)  # factors of common displays
_SAME_SHAPE = 0.02
_FIT = 0.9  # of the pointer's positions lie on the screen


@dataclass(frozen=True)
class RecordedScreen:
    """What is known of a screen. Sizes are (width, height).

    Attributes:
        video: of the upright video, pixels.
        monitor: meta's primary_monitor, before or after the system's own scaling; None: not told.
        in_points: the system counts in points, so that a unit need not be a pixel.
    """

    video: tuple[int, int]
    monitor: tuple[int, int] | None
    in_points: bool = False

    @classmethod
    def of(cls, meta: Meta, video: tuple[int, int]) -> "RecordedScreen":
        """The screen of a recording."""
        monitor = meta.primary_monitor
        size = (monitor.width, monitor.height) if monitor else None
        return cls(video, size, meta.platform == "macos")

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
        """The scale where the video confirms none: as documented, unless the positions deny it.

        Raises:
            DemonstrationError: the positions do not fit on the video, or fit in several ways.
        """
        if not len(track.times):
            return self.candidates[0]
        fitting = [scale for scale in self.candidates if self._inside(track, scale) >= _FIT]
        documented = self.candidates[0] if self.told is not None or not self.in_points else None
        if documented in fitting:
            return self.candidates[0]
        if not fitting and self.told is not None:  # positions on other displays deny nothing
            return self.candidates[0]
        if len(fitting) == 1:
            return fitting[0]
        off = 1 - self._inside(track, self.candidates[0])
        message = (
            f"primary_monitor {_size(self.monitor)}, video {_size(self.video)}, {off:.0%} of the "
            "pointer's positions off it, and the pictures show no pointer: how coordinates lie on "
            "the video is ambiguous"
        )
        remedy = "correct primary_monitor in meta.json, or record with the pointer in the video"
        raise DemonstrationError(Problem("ambiguous_scale", "meta.json", message, remedy=remedy))

    def _inside(self, track: PointerTrack, scale: float) -> float:
        """Share of the positions that lie on the video at a scale."""
        x, y = track.x * scale, track.y * scale
        width, height = self.video
        return float(((x >= 0) & (x < width) & (y >= 0) & (y < height)).mean())


def _size(size: tuple[int, int] | None) -> str:
    return f"{size[0]}x{size[1]}" if size else "(missing)"
