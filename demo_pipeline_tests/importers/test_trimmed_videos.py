"""Tests the import of trimmed MP4 videos.

A trimmed video has packets that players do not show, but that are needed to decode later frames.
"""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from demo_pipeline.importers.source_recording import VideoPart
from demo_pipeline.importers.source_values import UnreadableSourceError
from demo_pipeline.importers.video_remux import copy_video
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

WIDTH = 128
HEIGHT = 64
FPS = 20
SECONDS = 3
TRIMMED_S = 1.0


def frames(video: Path) -> list[tuple[float, int]]:
    """Returns (time, number) of each frame that a player shows.

    The number of a frame is its brightness.
    """
    with av.open(str(video)) as container:
        return [
            (round(frame.time or 0.0, 3), round(float(frame.to_ndarray()[:HEIGHT].mean() - 40) / 3))
            for frame in container.decode(video=0)
        ]


@pytest.fixture(name="trimmed")
def _trimmed(tmp_path: Path) -> Path:
    """Writes a video of 60 frames and removes its first second without encoding it again."""
    whole = tmp_path / "whole.mp4"
    cut = tmp_path / "cut.mp4"

    def picture(number: int) -> Any:
        page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        page[:HEIGHT] = 40 + 3 * number
        return page

    pictures = ((n * TICKS // FPS, picture(n)) for n in range(SECONDS * FPS))
    options = VideoOptions(fps=FPS, gop=100, b_frames=2, preset="veryfast")
    encode(whole, pictures, (WIDTH, HEIGHT), options)
    with av.open(str(whole)) as source, av.open(str(cut), "w") as target:
        stream = source.streams.video[0]
        copied = target.add_stream_from_template(stream)
        for packet in source.demux(stream):
            if packet.dts is not None and packet.pts is not None:
                packet.pts -= round(TRIMMED_S * TICKS)
                packet.dts -= round(TRIMMED_S * TICKS)
                packet.stream = copied
                target.mux(packet)
    return cut


def test_the_copy_of_a_trimmed_video_shows_the_same_frames_at_the_same_times(
    tmp_path: Path, trimmed: Path
) -> None:
    shown_frames = frames(trimmed)
    assert shown_frames[0] == (0.0, 20)
    assert len(shown_frames) == 40
    copy = tmp_path / "copy.mp4"
    facts = copy_video([VideoPart(trimmed)], copy)
    assert frames(copy) == shown_frames
    assert facts.first_s == 0.0
    assert facts.last_s == pytest.approx(1.95)


def test_a_trimmed_video_after_the_first_part_is_refused_with_a_remedy(
    tmp_path: Path, trimmed: Path
) -> None:
    parts = [VideoPart(tmp_path / "whole.mp4"), VideoPart(trimmed, 60.0)]
    with pytest.raises(
        UnreadableSourceError, match=r"cut\.mp4: the start of the video is trimmed.*ffmpeg"
    ):
        copy_video(parts, tmp_path / "copy.mp4")
