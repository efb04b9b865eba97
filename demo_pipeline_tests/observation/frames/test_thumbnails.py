"""Thumbnails: the same picture, whether it is made of the frame or of the screenshot."""

from pathlib import Path

import cv2
import numpy as np

from demo_pipeline.observation.frames.screenshot_writer import (
    THUMBNAIL_WIDTH,
    open_thumbnails,
    read_thumbnails,
)
from demo_pipeline.observation.frames.video_reader import Span, decode_spans, rgb_of
from demo_pipeline.recording.video_probe import read_packets

RECORDINGS = Path(__file__).resolve().parents[3] / "data" / "samples"
SAMPLE = RECORDINGS / "20261121_212358" / "recording.mp4"


def test_the_planes_of_a_frame_give_the_same_picture_as_its_colours(tmp_path: Path) -> None:
    frame = next(iter(decode_spans(SAMPLE, read_packets(SAMPLE), [Span(10.0, 10.2)])))
    rgb = rgb_of(frame)
    with open_thumbnails(tmp_path) as thumbnails:
        thumbnails.add(0, rgb)
        thumbnails.add(1, rgb, frame)
    of_colours, of_planes = (
        np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), int)
        for data in read_thumbnails(tmp_path).values()
    )
    assert of_planes.shape == (rgb.shape[0] * THUMBNAIL_WIDTH // rgb.shape[1], THUMBNAIL_WIDTH, 3)
    difference = np.abs(of_colours - of_planes)
    assert difference.mean() < 1
    assert np.percentile(difference, 99) <= 8
    assert of_planes.std() > 10  # a picture, not a blank
