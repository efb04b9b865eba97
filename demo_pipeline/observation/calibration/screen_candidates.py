"""The resolutions and scales that a screen may have been given in mid-recording, as canvases.

Belongs here: which ones are tested against the video. Nothing else is ever assumed: a change to
another resolution stays unknown.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from demo_pipeline.observation.calibration.canvas import (
    Canvas,
    barred_canvas,
    fit_canvas,
    stretched_canvas,
)

ScreenSize = tuple[float, float]

# Resolutions that systems offer, in pixels or points (macOS), the most usual ones first.
RESOLUTIONS: tuple[tuple[int, int], ...] = (
    *((1920, 1080), (1366, 768), (1280, 720), (2560, 1440), (1600, 900), (1440, 900)),
    *((1280, 1024), (1024, 768), (1920, 1200), (1680, 1050), (1280, 800), (3840, 2160)),
    *((800, 600), (1152, 864), (1280, 960), (1280, 768), (1360, 768), (1400, 1050)),
    *((1600, 1200), (1600, 1024), (2048, 1152), (2048, 1536), (2560, 1600), (2560, 1080)),
    *((3440, 1440), (3840, 1600), (3840, 1080), (2880, 1800), (3200, 1800), (5120, 2880)),
    *((640, 480), (960, 540), (1024, 576), (1176, 664), (1512, 982), (1728, 1117)),
    *((1792, 1120), (2056, 1329), (1470, 956), (1710, 1112), (1147, 745), (1352, 878)),
)
SCALES = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)  # display scales; a log may count in scaled pixels
SAME_SIZE = 0.01  # largest relative difference of two sizes of one screen
SAME_ASPECT = (
    0.005  # largest relative difference of the shapes of a screen and its undistorted film
)


@dataclass(frozen=True)
class DesktopSize:
    """The size of the whole desktop in an accessibility scan: event space, epoch milliseconds."""

    time_ms: float
    size: ScreenSize


def is_same_size(first: ScreenSize, second: ScreenSize) -> bool:
    """Whether two sizes are those of one screen, but for rounding."""
    return all(abs(a - b) <= SAME_SIZE * b for a, b in zip(first, second, strict=True))


def screen_sizes(desktops: Iterable[DesktopSize], base: Canvas) -> list[DesktopSize]:
    """The desktops that tell the size of the recorded screen; none when they never do.

    They count when one is the recorded screen's. A desktop that grew along one side only may have
    got a second display.
    """
    found = list(desktops)
    width, height = base.event_size
    if not any(is_same_size(desktop.size, (width, height)) for desktop in found):
        return []

    def grew(size: ScreenSize) -> bool:
        wider, taller = size[0] - width, size[1] - height
        slack = SAME_SIZE * width
        return (abs(wider) <= slack < taller) or (abs(taller) <= slack < wider)

    return [desktop for desktop in found if not grew(desktop.size)]


def candidates(
    video_size: tuple[int, int], base: Canvas, desktops: Sequence[DesktopSize]
) -> list[Canvas]:
    """Canvases of a video of `video_size` that are worth testing, the most likely first.

    The first keeps the scale of `base`. In a video that keeps its size, a screen of another shape
    either has bars or is stretched; one that changes its size shows the screen as it is.
    """
    unchanged = video_size == (base.video_width, base.video_height)
    first = base if unchanged else fit_canvas(video_size, base.event_scale)
    width, height = base.event_size
    scaled = ((width * factor, height * factor) for s in SCALES for factor in (1 / s, s))
    sizes = chain((desktop.size for desktop in desktops), RESOLUTIONS, scaled)
    tried = chain([first], *(_fitted(video_size, size, unchanged=unchanged) for size in sizes))
    kept: dict[tuple[float, ...], Canvas] = {}
    for canvas in tried:
        key = (canvas.event_scale, canvas.stretch, canvas.left, canvas.top)
        kept.setdefault(tuple(round(value, 3) for value in key), canvas)
    return list(kept.values())


def _fitted(
    video_size: tuple[int, int], screen: ScreenSize, *, unchanged: bool
) -> Iterator[Canvas]:
    across, down = (video / side for video, side in zip(video_size, screen, strict=True))
    if abs(across - down) <= SAME_ASPECT * down:
        yield fit_canvas(video_size, across)
    elif unchanged:
        yield barred_canvas(video_size, screen)
        yield stretched_canvas(video_size, screen)
