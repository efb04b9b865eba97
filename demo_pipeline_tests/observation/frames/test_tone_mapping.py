"""Tests that the white of an HDR desktop is white in a screenshot."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span, rgb_of
from demo_pipeline.recording.video_probe import read_packets

PQ = 16
HLG = 18
BT709 = 1
WHITE = {PQ: 0.5807, HLG: 0.75}  # code values, from 0 to 1, of a desktop's white
GREY = {PQ: 0.4360, HLG: 0.4707}  # code values of sRGB's 128, which has 21.6 % of white's light


def screenshot(folder: Path, transfer: int) -> np.ndarray:
    """Returns the pixels of an HDR frame whose left half is white and whose right half is grey."""
    video_path = folder / "video.mp4"
    luma = np.full((64, 128), 64 + 876 * WHITE[transfer], np.uint16)
    luma[:, 64:] = round(64 + 876 * GREY[transfer])
    with av.open(str(video_path), "w") as output:
        stream: Any = output.add_stream("libx265", rate=10)
        stream.width = 128
        stream.height = 64
        stream.pix_fmt = "yuv420p10le"
        stream.time_base = Fraction(1, 10)
        stream.options = {"crf": "4", "x265-params": f"log-level=none:transfer={transfer}"}
        stream.codec_context.color_trc = transfer
        for number in range(3):
            frame = av.VideoFrame(128, 64, "yuv420p10le")
            values = (luma, np.full((32, 64), 512, np.uint16), np.full((32, 64), 512, np.uint16))
            for plane, value in zip(frame.planes, values, strict=True):
                rows = np.zeros((plane.height, plane.line_size // 2), np.uint16)
                rows[:, : plane.width] = value
                plane.update(rows.tobytes())
            frame.pts = number
            frame.time_base = Fraction(1, 10)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    video = RecordedVideo(video_path, read_packets(video_path))
    return rgb_of(next(video.frames([Span(0.0, 0.3)])))


@pytest.mark.parametrize("transfer", [PQ, HLG])
def test_white_is_white_and_grey_is_grey(tmp_path: Path, transfer: int) -> None:
    rgb = screenshot(tmp_path, transfer)
    assert rgb.shape == (64, 128, 3)
    assert int(rgb[32, 20].min()) >= 250
    assert np.abs(rgb[32, 100].astype(int) - 128).max() <= 6


def test_other_videos_are_converted_as_before(tmp_path: Path) -> None:
    WHITE[BT709] = 1.0
    GREY[BT709] = 0.5
    rgb = screenshot(tmp_path, BT709)
    assert int(rgb[32, 20].min()) >= 252
    assert np.abs(rgb[32, 100].astype(int) - 128).max() <= 3
