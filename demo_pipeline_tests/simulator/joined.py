"""Recordings in which the screen gets another resolution: performances joined one after another.

The log of each keeps its own coordinates. The video keeps the size of the first, and shows the
later ones as grabbers do: stretched, with bars, cut off at the corner, or with frames of another
size.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import (
    GroundTruth,
    RecordingOptions,
    log_text,
    write_documents,
)
from demo_pipeline_tests.simulator.script import Script
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

Grabber = Literal["stretched", "bars", "corner", "frames"]
Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Joined:
    """The ground truth of each performance, in the coordinates of its own screen."""

    truths: tuple[GroundTruth, ...]

    @property
    def changes_ms(self) -> list[int]:
        """When the screen got the resolution of the next performance, epoch ms."""
        return [truth.timestamp_ms for truth in self.truths[1:]]


def write_joined(
    dest: Path,
    performances: Sequence[tuple[Script, tuple[int, int]]],
    options: RecordingOptions,
    grabber: Grabber = "stretched",
    *,
    pointer: bool = True,
) -> Joined:
    """Write a recording of scripts, each on a screen of its own size, right after each other.

    `pointer`: whether the video shows the pointer.
    """
    truths: list[GroundTruth] = []
    lines: list[str] = []
    start = datetime.fromisoformat(performances[0][0].timestamp)
    for script, (width, height) in reversed(list(_timed(performances, start, options, dest))):
        sized = replace(options, width=width, height=height)
        truths.insert(0, write_documents(dest, script, sized))  # the first one's meta.json stays
        lines[:0] = (dest / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
    events = sorted((json.loads(line) for line in lines), key=lambda event: event["time"])
    log = "\n".join(log_text(event) for event in events) + "\n"
    (dest / "input_log.jsonl").write_text(log, encoding="utf-8")
    _write_meta_end(dest, truths)
    frames = list(_pictures(performances, truths, options.video, pointer=pointer))
    if grabber == "frames":
        _encode_sizes(dest / "recording.mp4", frames, options.video)
    else:
        size = performances[0][1]
        shown = ((pts, planes_of(as_grabbed(picture, size, grabber))) for pts, picture in frames)
        encode(dest / "recording.mp4", shown, size, options.video)
    return Joined(tuple(truths))


def _timed(
    performances: Sequence[tuple[Script, tuple[int, int]]],
    start: datetime,
    options: RecordingOptions,
    dest: Path,
) -> Iterator[tuple[Script, tuple[int, int]]]:
    """The scripts with timestamps, each beginning when the one before has ended."""
    for script, (width, height) in performances:
        timed = replace(script, timestamp=start.isoformat())
        truth = write_documents(dest, timed, replace(options, width=width, height=height))
        start += timedelta(milliseconds=truth.end_ms - truth.timestamp_ms)
        yield timed, (width, height)


def _write_meta_end(dest: Path, truths: Sequence[GroundTruth]) -> None:
    path = dest / "meta.json"
    meta = json.loads(path.read_text(encoding="utf-8"))
    meta["duration_seconds"] = (truths[-1].end_ms - truths[0].timestamp_ms) // 1000
    path.write_text(json.dumps(meta, indent=2), encoding="utf-8")


def _pictures(
    performances: Sequence[tuple[Script, tuple[int, int]]],
    truths: Sequence[GroundTruth],
    video: VideoOptions,
    *,
    pointer: bool,
) -> Iterator[tuple[int, Image]]:
    """(PTS, BGR picture of the screen at its own size) at a constant rate."""
    painters = [Painter(script.desktop.at(*size)) for script, size in performances]
    start, number = truths[0].timestamp_ms, 0
    for painter, truth in zip(painters, truths, strict=True):
        while (ms := start + number * 1000 / video.fps) < truth.end_ms:
            moment = truth.timeline.at(ms)
            if not pointer:
                moment = replace(moment, pointer=(-100, -100))
            yield number * TICKS // video.fps, painter.draw(moment)
            number += 1


def as_grabbed(picture: Image, size: tuple[int, int], grabber: Grabber) -> Image:
    """A BGR picture of a screen in a video of another size."""
    (width, height), (rows, columns) = size, picture.shape[:2]
    if (columns, rows) == size:
        return picture
    if grabber == "stretched":
        return cv2.resize(picture, size, interpolation=cv2.INTER_LINEAR).astype(np.uint8)
    shown = np.zeros((height, width, 3), np.uint8)
    if grabber == "corner":
        part = picture[:height, :width]
        shown[: part.shape[0], : part.shape[1]] = part
        return shown
    scale = min(width / columns, height / rows)
    inner = cv2.resize(picture, (round(columns * scale), round(rows * scale)))
    top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
    shown[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
    return shown


def planes_of(picture: Image) -> Image:
    """A BGR picture as planar YUV 4:2:0."""
    return cv2.cvtColor(picture, cv2.COLOR_BGR2YUV_I420).astype(np.uint8)


def _encode_sizes(path: Path, frames: Sequence[tuple[int, Image]], options: VideoOptions) -> None:
    """Encode frames of several sizes into one stream; each size begins with a key frame.

    The parameter sets stand in the stream itself, so that a decoder notices each new size.
    """
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact"}) as output:
        track: Any = None
        for pictures in _of_one_size(frames):
            encoder: Any = av.CodecContext.create("libx264", "w")
            rows, columns = pictures[0][1].shape[:2]
            encoder.width, encoder.height, encoder.pix_fmt = columns, rows, "yuv420p"
            encoder.time_base = Fraction(1, TICKS)
            encoder.options = {
                "preset": "ultrafast",
                "tune": "zerolatency",
                "x264-params": f"repeat-headers=1:threads=1:bframes=0:keyint={options.gop}",
            }
            for pts, picture in [*pictures, (0, None)]:
                frame = None
                if picture is not None:
                    frame = av.VideoFrame.from_ndarray(planes_of(picture), format="yuv420p")
                    frame.pts, frame.time_base = pts, Fraction(1, TICKS)
                for packet in encoder.encode(frame):
                    if track is None:
                        track = output.add_stream("libx264", rate=options.fps)
                        track.width, track.height, track.pix_fmt = columns, rows, "yuv420p"
                        track.codec_context.time_base = Fraction(1, TICKS)
                    packet.stream = track
                    output.mux(packet)


def _of_one_size(frames: Sequence[tuple[int, Image]]) -> Iterator[list[tuple[int, Image]]]:
    """Runs of successive frames of one size."""
    run: list[tuple[int, Image]] = []
    for pts, picture in frames:
        if run and run[-1][1].shape != picture.shape:
            yield run
            run = []
        run.append((pts, picture))
    yield run
