"""Tests that the stored facts about a screenshot are the same however they are computed."""

from pathlib import Path

import cv2
import numpy as np

from demo_pipeline.observation.clock.canvas import CANVAS_SIZE
from demo_pipeline.observation.frames.screenshot_files import (
    DIGESTS_FILE,
    THUMBNAIL_WIDTH,
    digest_lines,
    open_screenshot_files,
    read_screenshot,
    read_screenshot_facts,
    read_thumbnails,
)
from demo_pipeline.observation.frames.video_reader import Span, decode_spans, rgb_of
from demo_pipeline.recording.video_probe import read_packets

RECORDINGS = Path(__file__).resolve().parents[3] / "data" / "samples"
SAMPLE = RECORDINGS / "20261121_212358" / "recording.mp4"


def test_the_planes_of_a_frame_give_the_same_screenshot_as_its_colours(tmp_path: Path) -> None:
    frame = next(iter(decode_spans(SAMPLE, read_packets(SAMPLE), [Span(10.0, 10.2)])))
    rgb = rgb_of(frame)
    with open_screenshot_files(tmp_path) as images:
        images.write("000.png", rgb)
        images.write("001.png", rgb, frame)
    of_colours, of_planes = (
        np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), int)
        for data in read_thumbnails(tmp_path).values()
    )
    assert of_planes.shape == (rgb.shape[0] * THUMBNAIL_WIDTH // rgb.shape[1], THUMBNAIL_WIDTH, 3)
    difference = np.abs(of_colours - of_planes)
    assert difference.mean() < 1
    assert np.percentile(difference, 99) <= 8
    assert of_planes.std() > 10  # the image is not blank


def test_the_stored_facts_about_a_screenshot_match_its_file(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    images = {
        "000.png": cv2.resize(random.integers(0, 255, (60, 90, 3), np.uint8), CANVAS_SIZE),
        "001.png": np.full((CANVAS_SIZE[1], CANVAS_SIZE[0], 3), 12, np.uint8),
        "final.png": np.full((CANVAS_SIZE[1], CANVAS_SIZE[0], 3), 30, np.uint8),
    }
    with open_screenshot_files(tmp_path) as written:
        for name, rgb in images.items():
            written.write(name, rgb)
        written.remove("final.png")
    (tmp_path / DIGESTS_FILE).write_text(digest_lines(tmp_path, written.digests), "utf-8")
    kept = read_screenshot_facts(tmp_path)
    assert sorted(kept) == ["000.png", "001.png"]
    for name, facts in kept.items():
        again = read_screenshot(tmp_path / name)
        assert np.array_equal(facts.cells, again.cells)
        assert (facts.black, facts.hash) == (again.black, again.hash)
    assert [facts.black for facts in kept.values()] == [False, True]
