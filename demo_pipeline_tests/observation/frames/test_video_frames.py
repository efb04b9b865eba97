"""Tests that exactly the requested frames are decoded, in order, from every kind of video."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from demo_pipeline.observation.frames.video_reader import (
    HAS_SPARE_PROCESSOR,
    RecordedVideo,
    Span,
    _ForwardReader,
    decode_spans,
    rgb_of,
)
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.video_probe import VideoPackets, open_video, read_packets
from demo_pipeline_tests.observation.made import cut_video, turn_video
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number, stamp
from demo_pipeline_tests.simulator.video import VideoOptions, encode, frame_schedule

SIZE = (320, 180)
SECONDS = 24
VIDEOS = {
    "constant_gop_30": VideoOptions(preset="ultrafast", gop=30),
    "constant_gop_250": VideoOptions(preset="ultrafast", gop=250),
    "variable": VideoOptions(preset="ultrafast", gop=30, variable=True),
    "b_frames": VideoOptions(preset="veryfast", gop=30, b_frames=3, first_pts=9000),
    "b_frames_variable": VideoOptions(preset="veryfast", gop=250, b_frames=2, variable=True),
}
times = st.floats(-1, SECONDS + 1)


def write_video(path: Path, options: VideoOptions) -> None:
    """Writes a video of numbered grey frames."""

    def images() -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for frame in frame_schedule(options, 0, SECONDS * 1000):
            planes = np.full((SIZE[1] * 3 // 2, SIZE[0]), 128, np.uint8)
            stamp(planes[: SIZE[1]], frame.number)
            yield frame.pts, planes

    encode(path, images(), SIZE, options)


@pytest.fixture(scope="module", params=sorted(VIDEOS))
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, VideoPackets]:
    path = tmp_path_factory.mktemp("films") / "recording.mp4"
    write_video(path, VIDEOS[request.param])
    return path, read_packets(path)


def disjoint(bounds: list[float]) -> list[Span]:
    ordered = sorted(bounds)
    return [Span(a, b) for a, b in zip(ordered[::2], ordered[1::2], strict=True)]


@settings(max_examples=8, deadline=None)
@given(bounds=st.lists(times, min_size=2, max_size=8, unique=True).filter(lambda b: not len(b) % 2))
def test_spans_yield_their_frames_and_no_others(
    simulated: tuple[Path, VideoPackets], bounds: list[float]
) -> None:
    path, packets = simulated
    spans = disjoint(bounds)
    inside = np.zeros(len(packets.pts), bool)
    for span in spans:
        inside |= (packets.times >= span.start - 1e-9) & (packets.times <= span.end + 1e-9)
    got = list(decode_spans(path, packets, spans))
    assert [frame.pts for frame in got] == packets.pts[inside].tolist()
    for frame in got[:2] + got[-2:]:
        assert packets.pts[read_frame_number(rgb_of(frame))] == frame.pts


@pytest.mark.parametrize("is_spare", [False, True])
def test_frames_decoded_ahead_are_the_same_and_their_thread_ends(
    simulated: tuple[Path, VideoPackets], is_spare: bool
) -> None:
    path, packets = simulated
    spans = [Span(1, 2), Span(9, 11)]
    threads = threading.active_count()
    token = HAS_SPARE_PROCESSOR.set(is_spare)
    try:
        video = RecordedVideo(path, packets)
        expected = [frame.pts for frame in decode_spans(path, packets, spans)]
        assert [frame.pts for frame in video.frames(spans)] == expected
        begun = video.frames(spans)
        next(begun)
        assert threading.active_count() == threads + is_spare
        del begun
        with pytest.raises(DemonstrationError, match="pixels"):
            next(RecordedVideo(path, packets, (640, 360)).frames(spans))
    finally:
        HAS_SPARE_PROCESSOR.reset(token)
    assert threading.active_count() == threads


def test_single_frames_far_apart_are_decoded(simulated: tuple[Path, VideoPackets]) -> None:
    path, packets = simulated
    wanted = [3, 40, 41, 200, len(packets.pts) - 1]
    spans = [Span(float(packets.times[n]), float(packets.times[n])) for n in wanted]
    got = list(decode_spans(path, packets, spans))
    assert [read_frame_number(rgb_of(frame)) for frame in got] == wanted


def test_skipping_frames_changes_no_pixel(
    simulated: tuple[Path, VideoPackets],
) -> None:
    path, packets = simulated
    whole = list(decode_spans(path, packets, [Span(-1, SECONDS + 1)]))
    chosen = range(1, len(whole), 23)
    sparse = list(decode_spans(path, packets, [Span(whole[n].time, whole[n].time) for n in chosen]))
    assert [frame.pts for frame in sparse] == [whole[n].pts for n in chosen]
    for number, frame in zip(chosen, sparse, strict=True):
        assert np.array_equal(rgb_of(frame), rgb_of(whole[number]))


def test_between_the_spans_only_what_others_are_built_on_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "recording.mp4"
    write_video(path, VIDEOS["b_frames"])
    packets = read_packets(path)
    last = int(packets.pts[-1])
    with open_video(path) as (container, stream):
        reader = _ForwardReader(container, stream, packets, [(last, last)])
        decoded = list(reader._decoded(int(packets.key_pts[0])))
    assert decoded[-1].pts == last
    assert len(decoded) < 0.75 * len(packets.pts)


def test_a_span_between_two_frames_is_empty_and_costs_the_next_nothing(tmp_path: Path) -> None:
    path = tmp_path / "recording.mp4"
    write_video(path, VIDEOS["constant_gop_250"])
    packets = read_packets(path)
    spans = [Span(1.001, 1.002), Span(1.05, 1.07)]
    assert [round(f.time, 3) for f in decode_spans(path, packets, spans)] == [1.067]


@pytest.mark.parametrize("share", [0.35, 0.6, 0.97])
def test_a_truncated_file_ends_early_without_an_error(tmp_path: Path, share: float) -> None:
    whole = tmp_path / "whole.mp4"
    path = tmp_path / "recording.mp4"
    write_video(whole, VIDEOS["constant_gop_30"])
    cut_video(whole, path, 99, front=True)
    packets = read_packets(path)
    data = path.read_bytes()
    path.write_bytes(data[: round(len(data) * share)])
    got = [frame.pts for frame in decode_spans(path, packets, [Span(0, 5), Span(6, 99)])]
    assert got == sorted(set(got))
    assert len(got) < len(packets.pts)
    assert 0 in got


def test_bytes_damaged_in_the_middle_are_survived(tmp_path: Path) -> None:
    path = tmp_path / "recording.mp4"
    write_video(path, VIDEOS["constant_gop_30"])
    packets = read_packets(path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 3
    data[middle : middle + 3000] = bytes(3000)
    path.write_bytes(data)
    got = [frame.pts for frame in decode_spans(path, packets, [Span(0, 3), Span(20, 23)])]
    assert got == sorted(set(got))
    assert packets.pts[-20] in got


def test_turned_video_is_read_as_a_player_shows_it(tmp_path: Path) -> None:
    source = tmp_path / "level.mp4"
    path = tmp_path / "turned.mp4"
    write_video(source, VIDEOS["constant_gop_30"])
    turn_video(source, path)
    (level,) = decode_spans(source, read_packets(source), [Span(1, 1)])
    (turned,) = decode_spans(path, read_packets(path), [Span(1, 1)])
    assert rgb_of(turned).shape == (SIZE[0], SIZE[1], 3)
    assert (rgb_of(turned) == np.rot90(rgb_of(level), -1)).all()
    height, width = turned.luma.shape
    assert (height, width) == (SIZE[0] // 4, SIZE[1] // 4)
