"""Tests that damage in a video affects only the screenshots whose frames are lost.

No other screenshot is missing or shows a wrong frame.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest

from demo_pipeline.observation.frames.screenshot_checks import check_frames_present
from demo_pipeline.observation.frames.video_reader import Span, decode_spans, rgb_of
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.video_probe import probe_video, read_packets
from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.made import Observed, cut_video, observe
from demo_pipeline_tests.observation.videos import Rule, Shown, every_frame
from demo_pipeline_tests.simulator.form import SMALL
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.video import VideoOptions

GOP = 30
SPEAKS_FOR_S = 0.5
VIDEOS = {
    "plain": VideoOptions(preset="ultrafast", gop=GOP),
    "b_frames": VideoOptions(preset="veryfast", gop=GOP, b_frames=3),
}
Packets = list[tuple[int, int]]
Damage = Callable[[bytearray, Packets, int], None]


def one_byte(data: bytearray, packets: Packets, number: int) -> None:
    """Changes one byte, which the decoder conceals with pixels of the neighbouring frame."""
    at, size = packets[number]
    data[at + size // 2] ^= 0xFF


def noise(data: bytearray, packets: Packets, number: int) -> None:
    at, size = packets[number]
    data[at + 5 : at + size] = bytes((37 * n + 11) % 256 for n in range(size - 5))


def nothing_left(data: bytearray, packets: Packets, number: int) -> None:
    at, size = packets[number]
    data[at : at + size] = bytes(size)


def key_frame_torn(data: bytearray, packets: Packets, number: int) -> None:
    at, size = packets[number // GOP * GOP]
    data[at + size // 3 : at + size // 2] = bytes(size // 2 - size // 3)


# Kinds of damage that a decoder notices. In other encodings, changed bytes may decode to a wrong
# frame.
DAMAGES: tuple[tuple[str, Damage], ...] = (
    ("plain", noise),
    ("plain", nothing_left),
    ("plain", key_frame_torn),
    ("b_frames", one_byte),
    ("b_frames", noise),
    ("b_frames", nothing_left),
)
each_damage = pytest.mark.parametrize(
    ("whole", "damage"),
    DAMAGES,
    indirect=["whole"],
    ids=[f"{kind}-{damage.__name__}" for kind, damage in DAMAGES],
)
each_video = pytest.mark.parametrize("whole", sorted(VIDEOS), indirect=True)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observed]:
    options = replace(SMALL, ffmpeg_start_line=True)
    return {
        name: videos.simulated(tmp_path_factory.mktemp(name), replace(options, video=video))
        for name, video in VIDEOS.items()
    }


@pytest.fixture
def whole(request: pytest.FixtureRequest, wholes: dict[str, Observed]) -> Observed:
    return wholes[request.param]


def named(whole: Observed) -> list[Shown]:
    """Returns the frame of the intact video that is correct for each action, see `Rule`."""
    rule = Rule(every_frame(whole.folder / "recording.mp4"), whole.truth, whole.evidence.clock)
    return [rule.names(position) for position in range(len(whole.actions))]


def packets_of(path: Path) -> Packets:
    """Returns (offset, bytes) of every packet, in stored order."""
    with av.open(str(path)) as container:
        return [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]


def damaged(whole: Observed, damage: Damage, number: int) -> bytes:
    """Returns the bytes of the video, with the packet of this index damaged."""
    path = whole.folder / "recording.mp4"
    data = bytearray(path.read_bytes())
    damage(data, packets_of(path), number)
    return bytes(data)


def looked_at_again(whole: Observed, root: Path, video: bytes) -> Observed:
    folder = root / "uploads" / "demo"
    folder.mkdir(parents=True)
    for name in ("input_log.jsonl", "meta.json"):
        (folder / name).write_bytes((whole.folder / name).read_bytes())
    (folder / "recording.mp4").write_bytes(video)
    return observe(folder, root / "store", whole.truth)


def assert_no_neighbour_in_silence(whole: Observed, seen: Observed) -> None:
    """Checks that each screenshot is the frame of its row, and shows the correct screen.

    If the damage destroyed the correct frame, another frame within half a second may be used, but
    the row must say so.
    """
    for row, rightly in zip(seen.rows, named(whole), strict=True):
        if row["file"] is None:
            assert row["reason_code"] == "missing"
            continue
        assert read_frame_number(seen.screenshot(row["file"])) == row["frame"]
        assert abs(row["pts"] - rightly.time) < SPEAKS_FOR_S
        if row["frame"] != rightly.number:
            assert row["reason_code"] == "backoff"
        instants = [whole.truth.frames[n or 0].wall_ms for n in (row["frame"], rightly.number)]
        chosen, named_state = map(whole.truth.timeline.at, instants)
        assert chosen.state == named_state.state


@each_damage
def test_frames_that_conceal_damage_are_not_given_out(
    whole: Observed, damage: Damage, tmp_path: Path
) -> None:
    """Frames that depend on damaged ones are left out too, up to the next key frame."""
    path = tmp_path / "recording.mp4"
    packets = read_packets(whole.folder / "recording.mp4")
    path.write_bytes(damaged(whole, damage, 45))
    got = list(decode_spans(path, packets, [Span(0, 99)]))
    numbers = [int(n) for n in packets.pts.searchsorted([frame.pts for frame in got])]
    assert [read_frame_number(rgb_of(frame)) for frame in got] == numbers
    lost = set(range(len(packets.pts))) - set(numbers)
    assert 5 < len(lost) <= GOP + 3
    assert min(lost) >= 27
    assert max(lost) == 59


@each_damage
def test_spans_after_damage_are_whole(whole: Observed, damage: Damage, tmp_path: Path) -> None:
    """The first frame after the damage is yielded for the span that contains the frame."""
    path = tmp_path / "recording.mp4"
    packets = read_packets(whole.folder / "recording.mp4")
    path.write_bytes(damaged(whole, damage, 45))
    asked = [(40, 47), (48, 52), (59, 59), (60, 60), (61, 64)]
    spans = [Span(packets.times[first], packets.times[last]) for first, last in asked]
    got: list[Any] = [
        read_frame_number(rgb_of(frame)) for frame in decode_spans(path, packets, spans)
    ]
    assert got == sorted(set(got))
    assert got[-5:] == [60, 61, 62, 63, 64]


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("action", [1, 4])
@each_damage
def test_a_damaged_middle(whole: Observed, damage: Damage, action: int, tmp_path: Path) -> None:
    """The video is damaged shortly before the frame that an action needs."""
    wanted = named(whole)[action].number
    assert wanted is not None
    seen = looked_at_again(whole, tmp_path, damaged(whole, damage, wanted - 2))
    assert_no_neighbour_in_silence(whole, seen)
    elsewhere = [
        (row["frame"], rightly.number)
        for row, rightly in zip(seen.rows, named(whole), strict=True)
        if (rightly.number or 0) // GOP != wanted // GOP
    ]
    assert elsewhere
    assert [got for got, _ in elsewhere] == [number for _, number in elsewhere]


@each_video
@pytest.mark.parametrize("share", [0.3, 0.5])
def test_a_truncated_video(whole: Observed, share: float, tmp_path: Path) -> None:
    """An upload ended early, so the index at the front of the file lists missing frames."""
    fast = tmp_path / "fast.mp4"
    cut_video(whole.folder / "recording.mp4", fast, 99, front=True)
    data = fast.read_bytes()
    seen = looked_at_again(whole, tmp_path, data[: round(len(data) * share)])
    assert_no_neighbour_in_silence(whole, seen)
    lost = [row["action_index"] for row in seen.rows if row["file"] is None]
    assert lost
    (problem,) = check_frames_present(seen.out / "screenshots")
    assert problem.message.startswith(f"{len(lost)} actions")
    assert ", ".join(map(str, lost)) in problem.message
    _, warnings = probe_video(seen.folder / "recording.mp4")
    manifest = read_manifest(seen.out / "recordings")
    held = manifest.video.frames
    promised = len(whole.truth.frames)
    assert warnings
    assert any(str(promised) in problem.message for problem in warnings)
    assert held <= promised


@each_video
def test_a_video_shorter_than_its_events(whole: Observed, tmp_path: Path) -> None:
    """The video ends seconds before the log."""
    rightly = named(whole)
    end = rightly[2].time + 0.1
    cut_video(whole.folder / "recording.mp4", tmp_path / "cut.mp4", end)
    seen = looked_at_again(whole, tmp_path, (tmp_path / "cut.mp4").read_bytes())
    assert_no_neighbour_in_silence(whole, seen)
    held = [row["frame"] for row in seen.rows]
    assert held[:2] == [rightly[0].number, rightly[1].number]
    assert held[-1] is None
    (problem,) = check_frames_present(seen.out / "screenshots")
    lost = [row["action_index"] for row in seen.rows if row["file"] is None]
    assert f"{len(lost)} actions have no frame (actions {', '.join(map(str, lost))})" in (
        problem.message
    )
