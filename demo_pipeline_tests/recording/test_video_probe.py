"""Tests of the video probe: its values, and its errors and warnings for damaged files."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from demo_pipeline.observation.frames.video_reader import RecordedVideo, Span
from demo_pipeline.problems import DemonstrationError, Severity
from demo_pipeline.recording import video_probe
from demo_pipeline.recording.video_probe import open_video, probe_video, read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

SIZE = (96, 64)


def film(
    path: Path, pts: list[int], size: tuple[int, int] = SIZE, options: VideoOptions | None = None
) -> Path:
    """Writes a flickering video with a frame at each time of `pts`, in units of 1/90000 s."""
    noise = np.random.default_rng(0)
    scene = noise.integers(0, 200, (size[1] * 3 // 2, size[0]), dtype=np.uint8)
    pictures = ((at, scene + noise.integers(0, 40, scene.shape, dtype=np.uint8)) for at in pts)
    encode(path, pictures, size, options or VideoOptions(fps=10, gop=10))
    return path


def even(count: int, first: int = 0) -> list[int]:
    return [first + n * TICKS // 10 for n in range(count)]


@pytest.fixture
def mp4(tmp_path: Path) -> Path:
    return film(tmp_path / "recording.mp4", even(30))


def failure(path: Path) -> str:
    with pytest.raises(DemonstrationError) as caught:
        probe_video(path)
    [problem] = caught.value.problems
    assert (problem.code, problem.file) == ("video_unreadable", "recording.mp4")
    assert problem.remedy
    assert str(path.parent) not in str(problem)
    return problem.message


def test_a_constant_rate(mp4):
    probe, problems = probe_video(mp4)
    assert problems == []
    assert (probe.codec, probe.width, probe.height) == ("h264", 96, 64)
    assert (probe.frames, probe.declared_frames, probe.key_frames) == (30, 30, 3)
    assert [probe.first_pts_s, probe.last_pts_s] == pytest.approx([0.0, 2.9])
    assert (probe.variable_rate, probe.mean_fps) == (False, 10.0)
    assert Fraction(probe.time_base) == Fraction(1, TICKS)
    assert (probe.rotation, probe.pixel_format) == (0, "yuv420p")


def test_a_variable_rate(tmp_path):
    pts = [0, 9000, 12_000, 40_000, 41_000, 80_000]
    path = film(tmp_path / "recording.mp4", pts)
    probe, problems = probe_video(path)
    assert problems == []
    assert (probe.variable_rate, probe.frames) == (True, 6)
    assert read_packets(path).pts.tolist() == pts


def test_frames_are_in_the_order_they_are_shown(tmp_path):
    options = VideoOptions(fps=10, gop=12, b_frames=3)
    path = film(tmp_path / "recording.mp4", even(24), options=options)
    packets = read_packets(path)
    assert len(packets.pts) == 24
    assert np.all(np.diff(packets.pts) > 0)
    assert np.allclose(np.diff(packets.times), 0.1)
    assert set(packets.key_pts) <= set(packets.pts)
    assert probe_video(path)[1] == []


def test_a_video_that_begins_late(tmp_path):
    path = film(tmp_path / "recording.mp4", even(5, first=90_000))
    assert probe_video(path)[0].frames == 5
    assert np.allclose(np.diff(read_packets(path).times), 0.1)


@pytest.mark.parametrize(
    ("container", "codec", "pixels"),
    [
        ("matroska", "libx264", "yuv420p"),  # OBS writes Matroska, here named .mp4
        ("matroska", "libx265", "yuv420p10le"),
        ("mp4", "libx265", "yuv420p10le"),
        ("webm", "libsvtav1", "yuv420p"),
        ("flv", "libx264", "yuv420p"),
        ("mov", "libx264", "yuv420p"),
    ],
)
def test_a_video_is_opened_even_if_its_name_does_not_fit_the_container(
    tmp_path, container, codec, pixels
):
    path = tmp_path / "recording.mp4"
    with av.open(path, "w", format=container) as film:
        stream = film.add_stream(codec, rate=10)
        stream.width = 96
        stream.height = 64
        stream.pix_fmt = pixels
        for number in range(24):
            frame = av.VideoFrame.from_ndarray(np.full((64, 96, 3), 10 * number, np.uint8))
            frame.pts = number
            frame.time_base = Fraction(1, 10)
            film.mux(stream.encode(frame))
        film.mux(stream.encode())
    probe, problems = probe_video(path)
    assert (problems, probe.frames, probe.pixel_format) == ([], 24, pixels)
    video = RecordedVideo(path, read_packets(path))
    assert np.allclose(np.diff(video.times), 0.1)
    [last] = video.frames([Span(video.times[20] - 0.01, video.times[20] + 0.01)])
    brightness = last.decoded.to_ndarray(format="rgb24").mean()
    assert abs(brightness - 200) < 6  # frame 20; its neighbours differ by 10


def test_a_video_without_frames_has_a_clear_problem(tmp_path):
    path = tmp_path / "recording.mp4"
    with av.open(path, "w", format="matroska") as film:
        stream = film.add_stream("libx264", rate=10)
        stream.width = 96
        stream.height = 64
        stream.pix_fmt = "yuv420p"
        film.start_encoding()
    assert failure(path).startswith("contains no frame")


# --- damage


def test_a_file_cut_off_before_its_index(mp4):
    mp4.write_bytes(mp4.read_bytes()[:-2000])
    assert "cannot be opened as MP4" in failure(mp4)


def faststart(source: Path, target: Path) -> Path:
    """Copies a video with its index moved to the beginning.

    Such a file can be opened although its end is cut off.
    """
    with (
        av.open(str(source)) as film_in,
        av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as film_out,
    ):
        stream = film_out.add_stream_from_template(film_in.streams.video[0])
        for packet in film_in.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                film_out.mux(packet)
    return target


def test_a_video_without_its_end_has_a_warning(mp4, tmp_path):
    whole = faststart(mp4, tmp_path / "whole.mp4")
    cut = tmp_path / "recording.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    probe, problems = probe_video(cut)
    assert 0 < probe.frames < 30
    assert probe.declared_frames == 30
    missing = [problem for problem in problems if problem.code == "frames_missing"]
    assert [p.message for p in missing] == [f"declares 30 frames, contains {probe.frames}"]
    assert {problem.severity for problem in problems} == {Severity.WARNING}


def test_a_video_with_damaged_last_frames_has_a_warning(mp4, tmp_path):
    whole = faststart(mp4, tmp_path / "whole.mp4").read_bytes()
    at = len(whole) * 9 // 10
    bad = tmp_path / "recording.mp4"
    bad.write_bytes(whole[:at] + bytes(len(whole) - at))
    probe, problems = probe_video(bad)
    assert probe.frames == 30
    assert [problem.code for problem in problems] == ["video_damaged"]
    assert problems[0].frame is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"not a video at all" * 100, b"#EXTM3U\nfile:///etc/hostname\n", b"\x00\x00\x00\x08ftyp"],
)
def test_other_content_is_not_a_video(tmp_path, content):
    path = tmp_path / "recording.mp4"
    path.write_bytes(content)
    assert failure(path)


def test_a_missing_video(tmp_path):
    assert "cannot be opened" in failure(tmp_path / "recording.mp4")


def test_an_unsupported_codec(mp4):
    mp4.write_bytes(mp4.read_bytes().replace(b"avc1", b"zzz9"))
    assert "codec" in failure(mp4)


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("_MAX_PIXELS", 96 * 64 - 1, "are not accepted"),
        ("_MIN_SIDE", 65, "are not accepted"),
        ("_MAX_SECONDS", 2, "is longer than 2 s"),
    ],
)
def test_videos_beyond_the_limits_are_rejected(mp4, monkeypatch, limit, value, message):
    monkeypatch.setattr(video_probe, limit, value)
    assert message in failure(mp4)


def test_one_thread_decodes(mp4):
    with open_video(mp4) as (_, stream):
        assert stream.thread_type.name == "NONE"
