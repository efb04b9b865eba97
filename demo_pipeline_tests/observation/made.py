"""Runs the stages up to `screenshots` on simulated recordings, and cuts and rotates videos."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import cv2

from demo_pipeline.actions.action_tables import Action, read_actions
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.observation.frames.evidence import Evidence, read_evidence
from demo_pipeline.observation.frames.frames_table import read_frames
from demo_pipeline.observation.frames.screenshots import build_screenshots
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.manifest import build_manifest, read_manifest
from demo_pipeline.settings import Settings
from demo_pipeline_tests.simulator.recording import GroundTruth

_TURNED_CLOCKWISE = (  # display matrices for 0 to 3 quarter turns, as phones write them
    (1, 0, 0, 0, 1, 0),
    (0, 1, 0, -1, 0, 0),
    (-1, 0, 0, 0, -1, 0),
    (0, -1, 0, 1, 0, 0),
)


@dataclass(frozen=True)
class Observed:
    """An observed recording, with its files in `folder` and the outputs of the stages in `out`."""

    folder: Path
    out: Path
    truth: GroundTruth
    actions: list[Action]
    rows: list[dict[str, Any]]
    evidence: Evidence

    def screenshot(self, name: str) -> Any:
        return cv2.imread(str(self.out / "screenshots" / name))


def observe(folder: Path, out: Path, truth: GroundTruth) -> Observed:
    take_to_screenshots(folder, out)
    return read_observed(folder, out, truth)


def take_to_screenshots(folder: Path, out: Path) -> None:
    settings = Settings()
    stages = [out / name for name in ("recordings", "events", "actions", "screenshots")]
    for stage in stages:
        stage.mkdir(parents=True)
    recordings, events, actions, screenshots = stages
    build_manifest(folder, folder.name, recordings)
    manifest = read_manifest(recordings)
    log = folder / "input_log.jsonl"
    video = folder / "recording.mp4"
    recorded_at = manifest.recorded_at
    video_s = manifest.video.last_pts_s
    build_events(log, events, recorded_at=recorded_at, video_s=video_s)
    build_actions(events, actions, manifest.parsed_meta().platform, settings.actions)
    build_screenshots(log, video, manifest, events, actions, screenshots, settings.observation)


def read_observed(folder: Path, out: Path, truth: GroundTruth) -> Observed:
    screenshots = out / "screenshots"
    rows = read_frames(screenshots)
    evidence = read_evidence(screenshots)
    return Observed(folder, out, truth, read_actions(out / "actions"), rows, evidence)


def cut_video(source: Path, destination: Path, seconds: float, *, front: bool = False) -> None:
    """Writes a video with only the packets before `seconds`.

    `front` puts the index at the front of the file.
    """
    options = {"movflags": "+faststart"} if front else {}
    with (
        av.open(str(source)) as original,
        av.open(str(destination), "w", format="mp4", options=options) as kept,
    ):
        stream: Any = kept.add_stream_from_template(original.streams.video[0])
        for packet in original.demux(original.streams.video[0]):
            if packet.pts is None or float(packet.pts * packet.time_base) >= seconds:
                break  # in stored order, so that every kept B-frame has its reference frames
            packet.stream = stream
            kept.mux(packet)


def turn_video(source: Path, destination: Path, quarters: int = 1) -> None:
    """Writes the video with a display matrix that makes players rotate it clockwise."""
    data = bytearray(source.read_bytes())
    matrix = data.index(b"tkhd") + 4
    matrix += 52 if data[matrix] == 1 else 40
    words = [value << 16 for value in (*_TURNED_CLOCKWISE[quarters % 4], 0, 0, 1 << 14)]
    data[matrix : matrix + 36] = struct.pack(">9i", *words)
    destination.write_bytes(data)
