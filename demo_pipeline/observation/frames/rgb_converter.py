"""Frames as RGB arrays, one after the other in the same memory.

Belongs here: FFmpeg's scaler in a filter graph, which keeps the memory of its pictures. A picture
that is converted by itself takes 6 MB from the system each time: the page faults of one take three
times as long as its colours.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from av.filter import Graph

from demo_pipeline.observation.frames.video_frames import Frame, plane_rows, rotation, upright

_TIME_BASE = "1/1000"  # the graph asks for one; times pass it unread


class RgbConverter:
    """Converts frames; those of another size or other colours than the one before take longer."""

    def __init__(self) -> None:
        self._form: tuple[Any, ...] = ()
        self._graph: Any = None

    def rgb(self, frame: Frame) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """(height, width, 3) uint8, upright, read-only; let go of it before the next one."""
        return upright(self.of_picture(frame.picture), rotation(frame.picture))

    def of_picture(self, source: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """As `rgb`, of a picture that is not of a video; as it lies in memory."""
        colours = (int(source.colorspace), int(source.color_range))
        form = (source.width, source.height, source.format.name, *colours)
        if form != self._form:
            self._form, self._graph = form, _graph(*form)
        self._graph.push(source)
        picture = self._graph.pull()
        inside = plane_rows(picture.planes[0])[: picture.height, : picture.width * 3]
        return inside.reshape(*inside.shape[:1], -1, 3)


def rgb_of(frame: Frame) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """One frame, in memory of its own; as `RgbConverter.rgb`."""
    return RgbConverter().rgb(frame)


def _graph(width: int, height: int, pixels: str, colours: int, levels: int) -> Any:
    """From pictures of one form to rgb24; the scaler is set as for `VideoFrame.reformat`."""
    graph = Graph()
    source = (
        f"video_size={width}x{height}:pix_fmt={pixels}:time_base={_TIME_BASE}"
        f":colorspace={colours}:range={levels}"
    )
    chain = [
        graph.add("buffer", source),
        graph.add("scale", "flags=bilinear"),
        graph.add("format", "rgb24"),
        graph.add("buffersink"),
    ]
    for one, following in pairwise(chain):
        one.link_to(following)
    graph.configure()
    return graph
