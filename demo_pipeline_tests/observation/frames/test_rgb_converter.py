"""Tests that colours are converted like in FFmpeg's own conversion, for all pixel formats."""

import av
import numpy as np
import pytest

from demo_pipeline.observation.frames.video_reader import Frame, RgbConverter

_BT709 = 1
_UNSPECIFIED = 2
_FULL = 2


def _frame(form: str, size: tuple[int, int], colours: int, levels: int, seed: int) -> Frame:
    image = av.VideoFrame(*size, form)
    noise = np.random.default_rng(seed)
    for plane in image.planes:
        pixels = np.frombuffer(plane, np.uint8)
        pixels[:] = noise.integers(0, 256, len(pixels))
    image.colorspace = colours
    image.color_range = levels
    return Frame(seed, seed / 30, image)


@pytest.mark.parametrize("form", ["yuv420p", "yuvj420p", "yuv422p", "yuv444p", "nv12", "gray"])
@pytest.mark.parametrize("colours", [_BT709, _UNSPECIFIED])
@pytest.mark.parametrize("levels", [0, _FULL])
def test_pixels_are_those_of_a_conversion_by_itself(form: str, colours: int, levels: int) -> None:
    converter = RgbConverter()
    for seed, size in enumerate([(64, 48), (64, 48), (65, 47), (64, 48)]):
        frame = _frame(form, size, colours, levels, seed)
        width, height = size
        plane = frame.decoded.reformat(format="rgb24").planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        expected = rows[:height, : width * 3].reshape(height, width, 3)
        assert (converter.rgb(frame) == expected).all()
