"""One forward decode: what calibration looked at is not decoded again, and is the same frame."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from demo_pipeline.observation.frames import recorded_video
from demo_pipeline.observation.frames.recorded_video import FrameArchive, Lookback
from demo_pipeline.observation.frames.video_reader import Frame, RgbConverter, Span, decode_spans
from demo_pipeline.recording.video_probe import scan_packets
from demo_pipeline_tests.observation.decoded_packets import decoded_packets
from demo_pipeline_tests.observation.made import turn_video
from demo_pipeline_tests.simulator.frame_numbers import stamp
from demo_pipeline_tests.simulator.video import VideoOptions, encode, frame_schedule

SIZE = (320, 180)
SECONDS = 12
FILMS = {
    "constant": VideoOptions(preset="ultrafast", gop=100),
    "variable": VideoOptions(preset="ultrafast", gop=40, variable=True),
    "b_frames": VideoOptions(preset="veryfast", gop=50, b_frames=3, first_pts=9000),
}
ROOMY = 10**9


def film(path: Path, options: VideoOptions) -> None:
    """A film of numbered frames, in which a square moves across a still picture."""
    random = np.random.default_rng(3)
    still = random.integers(0, 255, (SIZE[1] * 3 // 2, SIZE[0]), np.uint8)

    def pictures() -> Any:
        for frame in frame_schedule(options, 0, SECONDS * 1000):
            picture: NDArray[np.uint8] = still.copy()
            left = frame.number * 3 % (SIZE[0] - 20)
            picture[60:80, left : left + 20] = 235
            stamp(picture[: SIZE[1]], frame.number)
            yield frame.pts, picture

    encode(path, pictures(), SIZE, options)


@pytest.fixture(scope="module", params=sorted(FILMS))
def video(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("film") / "recording.mp4"
    film(path, FILMS[request.param])
    return path


def contents(frames: Any) -> list[tuple[int, bool, bytes, bytes]]:
    rgb = RgbConverter().rgb
    return [(one.pts, one.is_key, rgb(one).tobytes(), one.glance.tobytes()) for one in frames]


def spans_of(edges: Sequence[float]) -> list[Span]:
    ordered = sorted(edges)
    return [Span(*pair) for pair in zip(ordered[::2], ordered[1::2], strict=False)]


times = st.floats(0, SECONDS)


@settings(max_examples=8, deadline=None)
@given(
    looks=st.lists(times, min_size=2, max_size=6),
    wanted=st.lists(times, min_size=2, max_size=10),
)
def test_frames_are_those_of_separate_decodes(
    video: Path, looks: list[float], wanted: list[float]
) -> None:
    packets = scan_packets(video)
    with Lookback(video, packets, None) as ahead:
        for span in spans_of(looks):
            seen = contents(ahead.look([span]))
            assert seen == contents(decode_spans(video, packets, [span]))
        resumed = contents(ahead.resume(spans_of(wanted)))
    assert resumed == contents(decode_spans(video, packets, spans_of(wanted)))


def test_no_packet_is_decoded_twice(video: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets, decoded = scan_packets(video), decoded_packets(monkeypatch)
    with Lookback(video, packets, None) as ahead:
        list(ahead.look([Span(0, 3)]))
        list(ahead.look([Span(5, 6), Span(6, 7)]))
        list(ahead.resume([Span(1, 2), Span(4, 9), Span(11, 99)]))
    assert sorted(decoded) == sorted(set(decoded))


def test_one_look_may_begin_with_the_last_frame_of_the_one_before(video: Path) -> None:
    packets = scan_packets(video)
    shared = float(packets.times[30])
    with Lookback(video, packets, None) as ahead:
        first = list(ahead.look([Span(0, shared)]))
        second = list(ahead.look([Span(shared, 4)]))
    assert first[-1].pts == second[0].pts


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize(("limit", "most"), [(20_000, ROOMY), (ROOMY, 50)])
def test_frames_that_take_too_much_memory_are_decoded_again(
    video: Path, monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    monkeypatch.setattr(recorded_video, "KEPT_BYTES", limit)
    monkeypatch.setattr(recorded_video, "FRAME_BYTES", most)
    packets = scan_packets(video)
    with Lookback(video, packets, None) as ahead:
        looked = contents(ahead.look([Span(0, 5)]))
        assert not ahead._archive.is_open
        resumed = contents(ahead.resume([Span(1, 8)]))
    assert looked == contents(decode_spans(video, packets, [Span(0, 5)]))
    assert resumed == contents(decode_spans(video, packets, [Span(1, 8)]))


def test_a_turned_video_is_not_kept(tmp_path: Path) -> None:
    source, turned = tmp_path / "source.mp4", tmp_path / "turned.mp4"
    film(source, FILMS["constant"])
    turn_video(source, turned)
    packets = scan_packets(turned)
    with Lookback(turned, packets, None) as ahead:
        list(ahead.look([Span(0, 1)]))
        assert not ahead._archive.is_open
        assert contents(ahead.resume([Span(0, 1)])) == contents(
            decode_spans(turned, packets, [Span(0, 1)])
        )


def test_frames_that_look_the_same_share_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "still.mp4"
    still = np.full((SIZE[1] * 3 // 2, SIZE[0]), 90, np.uint8)
    options = VideoOptions(preset="ultrafast", gop=300)
    pictures = ((frame.pts, still) for frame in frame_schedule(options, 0, 3000))
    encode(path, pictures, SIZE, options)
    packets, archive = scan_packets(path), FrameArchive(ROOMY, ROOMY)
    for frame in decode_spans(path, packets, [Span(0, 3)]):
        archive.add(frame)
    kept: list[Frame] = list(archive.take(lambda _: True))
    assert len(kept) == len(packets.pts)
    assert len({id(frame.picture) for frame in kept}) <= 3


@settings(max_examples=3, deadline=None)
@given(held=st.lists(st.integers(0, 9), min_size=SECONDS * 30, max_size=SECONDS * 30))
def test_a_frame_stays_as_it_is_while_it_is_held(video: Path, held: list[int]) -> None:
    """Each frame is held until so many later ones were taken; its picture is used again then."""
    packets, archive = scan_packets(video), FrameArchive(ROOMY, ROOMY)
    expected, rgb = [], RgbConverter().rgb
    for frame in decode_spans(video, packets, [Span(0, SECONDS)]):
        archive.add(frame)
        expected.append(frame.halved.tobytes() + rgb(frame)[::9].tobytes())
    waiting: dict[int, tuple[int, Frame]] = {}
    for number, frame in enumerate(archive.take(lambda _: True)):
        waiting[number] = number + held[number], frame
        for earlier, (due, kept) in list(waiting.items()):
            if due <= number:
                del waiting[earlier]
                seen = kept.halved.tobytes() + rgb(kept)[::9].tobytes()
                assert seen == expected[earlier]
