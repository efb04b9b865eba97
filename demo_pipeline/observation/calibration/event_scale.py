"""The event scale: how many video pixels one unit of the log's coordinates is.

Belongs here: which scales are worth testing against the pictures, and which scale is used when the
pictures confirm none. The transform itself is in canvas.py.
"""

from dataclasses import dataclass

from demo_pipeline.common.recording_files import META_FILE
from demo_pipeline.formats.demonstration.meta import Meta
from demo_pipeline.observation.frames.pointer_path import PointerTrack
from demo_pipeline.problems import DemonstrationError, Problem

COMMON_SCALES = (1.0, 2.0, 1.5, 1.25, 1.75)  # scale factors of common displays
SAME_SHAPE = 0.02  # largest relative difference of the scales along the two sides
FITTING_SHARE = 0.9  # of the pointer's positions; with these on the video, a scale fits


@dataclass(frozen=True)
class RecordedScreen:
    """The sizes that are known of a recorded screen, each as (width, height).

    Attributes:
        video: of the upright video, pixels.
        monitor: meta's primary_monitor, before or after the display's own scaling; None: missing.
        in_points: the platform counts in points, so that a unit need not be a pixel.
    """

    video: tuple[int, int]
    monitor: tuple[int, int] | None
    in_points: bool = False

    @classmethod
    def of(cls, meta: Meta, video: tuple[int, int]) -> "RecordedScreen":
        """The screen of a recording."""
        monitor, in_points = meta.primary_monitor, meta.platform == "macos"
        if monitor is None:
            return cls(video, None, in_points)
        # With a scale factor the size is in pixels, and the log of macOS counts in points.
        factor = monitor.scale_factor if in_points and monitor.scale_factor in COMMON_SCALES else 1
        size = (round(monitor.width / factor), round(monitor.height / factor))
        return cls(video, size, in_points)

    @property
    def documented_scale(self) -> float | None:
        """Video pixels for one unit of the monitor; None without a monitor of the same shape."""
        if self.monitor is None or min(self.monitor) <= 0:
            return None
        across, down = (self.video[side] / self.monitor[side] for side in (0, 1))
        return across if abs(across - down) <= SAME_SHAPE * max(across, down) else None

    @property
    def candidates(self) -> list[float]:
        """Event scales worth testing, the most likely first."""
        scale = self.documented_scale
        scales = COMMON_SCALES if scale is None else (scale, *COMMON_SCALES)
        return list(dict.fromkeys(round(scale, 6) for scale in scales))

    def scale_from_documents(self, track: PointerTrack) -> float:
        """The event scale when the pictures confirm none: the documented one unless it cannot be.

        Raises:
            DemonstrationError: the pointer's positions fit on the video at no candidate scale, or
                at several and none is documented.
        """
        likeliest, documented = self.candidates[0], self.documented_scale is not None
        if not len(track.times):
            return likeliest
        fitting = [s for s in self.candidates if self._share_on_video(track, s) >= FITTING_SHARE]
        if likeliest in fitting and (documented or not self.in_points):
            return likeliest
        if documented and not fitting:  # the pointer was on another display: nothing contradicts
            return likeliest
        if len(fitting) == 1:
            return fitting[0]
        off = 1 - self._share_on_video(track, likeliest)
        message = (
            f"the scale of the log's coordinates is ambiguous: primary_monitor "
            f"{_size_text(self.monitor)}, video {_size_text(self.video)}, {off:.0%} of the "
            "pointer's positions are outside the video, and the video does not show the pointer"
        )
        remedy = "correct primary_monitor in meta.json, or record with the pointer in the video"
        raise DemonstrationError(Problem("ambiguous_scale", META_FILE, message, remedy=remedy))

    def _share_on_video(self, track: PointerTrack, scale: float) -> float:
        """Share of the positions that are on the video at a scale."""
        x, y = track.x * scale, track.y * scale
        width, height = self.video
        return float(((x >= 0) & (x < width) & (y >= 0) & (y < height)).mean())


def _size_text(size: tuple[int, int] | None) -> str:
    return f"{size[0]}x{size[1]}" if size else "(missing)"
