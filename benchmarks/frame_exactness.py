"""How many of 200 requested frames each method of reading a video gets right, and its CPU seconds.

Run: `.venv/bin/python benchmarks/frame_exactness.py [--seconds 120] [--keep DIR]`. Every frame of
the generated videos shows its own number, so that a decoded picture says which frame it is. All
methods get the same times; OpenCV's seeks even get the exact frame number and the exact PTS.
"""

import argparse
import random
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2

from demo_pipeline.observation.frames.video_reader import Span, decode_spans, rgb_of
from demo_pipeline.recording.video_probe import read_packets

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.simulator.form import DESKTOP
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import RecordingOptions, perform
from demo_pipeline_tests.simulator.script import Script, click
from demo_pipeline_tests.simulator.video import VideoOptions, encode, frame_schedule

WANTED = 200
TICKS = 90_000
SIZE = (1920, 1080)
FILMS = {
    "constant rate": VideoOptions(fps=30, gop=250, preset="ultrafast", tune="zerolatency"),
    "variable rate": VideoOptions(
        fps=30, gop=250, preset="ultrafast", tune="zerolatency", variable=True
    ),
    "B-frames": VideoOptions(fps=30, gop=250, preset="veryfast", b_frames=3),
}


class Film(NamedTuple):
    """A generated video: PTS of its frames in seconds; the requested times with their frames."""

    path: Path
    times: list[float]
    instants: list[float]
    due: list[int]


Numbers = Iterator[int | None]


def ours(film: Film) -> Numbers:
    """By PTS: reads the packets, seeks once per group of frames, decodes on."""
    packets = read_packets(film.path)
    times = [float(time) for time in packets.times]
    wanted = [times[bisect_right(times, instant) - 1] for instant in film.instants]
    spans = [Span(time, time) for time in wanted]
    yield from (
        read_frame_number(rgb_of(frame)) for frame in decode_spans(film.path, packets, spans)
    )


def by_frame_number(film: Film) -> Numbers:
    """OpenCV's seek to each frame's own number."""
    yield from _sought(film.path, cv2.CAP_PROP_POS_FRAMES, film.due)


def by_milliseconds(film: Film) -> Numbers:
    """OpenCV's seek to each frame's own PTS."""
    moments = [film.times[number] * 1000 for number in film.due]
    yield from _sought(film.path, cv2.CAP_PROP_POS_MSEC, moments)


def _sought(path: Path, position: int, places: Sequence[float]) -> Numbers:
    capture = cv2.VideoCapture(str(path))
    for place in places:
        capture.set(position, place)
        found, picture = capture.read()
        yield read_frame_number(picture) if found else None
    capture.release()


def by_rate(film: Film) -> Numbers:
    """OpenCV read through once, taking frame number instant x fps."""
    capture = cv2.VideoCapture(str(film.path))
    rate = capture.get(cv2.CAP_PROP_FPS)
    at = -1
    number: int | None = None
    for instant in film.instants:
        wanted = int(instant * rate + 1e-6)
        while at < wanted and capture.grab():
            at += 1
            number = None
        if number is None:
            found, picture = capture.retrieve()
            number = read_frame_number(picture) if found else None
        yield number
    capture.release()


WAYS: dict[str, Callable[[Film], Numbers]] = {
    "this project": ours,
    "OpenCV, POS_FRAMES": by_frame_number,
    "OpenCV, POS_MSEC": by_milliseconds,
    "OpenCV, index x fps": by_rate,
}


def make(path: Path, options: VideoOptions, seconds: float) -> Film:
    """A video of a form with clicks on it, unless it exists already."""
    targets = ("Agree", "Rows/d", "Name", "Form/title bar")
    acts = tuple(click(targets[n % len(targets)]) for n in range(round(seconds)))
    timeline = perform(Script(DESKTOP, acts, seed=1), RecordingOptions()).timeline
    start = timeline.move_ms[0]
    frames = list(frame_schedule(options, start, start + round(seconds * 1000)))
    if not path.is_file():
        painter = Painter(DESKTOP.at(*SIZE))
        pictures = ((f.pts, painter.planes(timeline.at(f.wall_ms), f.number)) for f in frames)
        encode(path, pictures, SIZE, options)
    times = [frame.pts / TICKS for frame in frames]
    chosen = random.Random(7).sample(range(len(frames) - 1), WANTED)
    due = sorted(chosen)
    instants = [(2 * times[number] + times[number + 1]) / 3 for number in due]
    return Film(path, times, instants, due)


def measure(film: Film, way: Callable[[Film], Numbers]) -> tuple[int, float, float]:
    """(exact frames, seconds that the worst of the others is off, CPU seconds)."""
    begin = time.process_time()
    read: list[Any] = list(way(film))
    spent = time.process_time() - begin
    pairs = list(zip(film.due, read, strict=False))
    exact = sum(number == due for due, number in pairs)
    off = [abs(film.times[n] - film.times[due]) for due, n in pairs if n is not None]
    return exact, max(off, default=0.0), spent


def main() -> None:
    """Make what is missing, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--keep", type=Path, help="where the videos are kept for the next time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'film':<15}{'method':<22}{'exact':>10}{'worst s':>10}{'cpu s':>9}")
        for name, options in FILMS.items():
            file = f"{name.replace(' ', '_')}_{arguments.seconds:g}.mp4"
            film = make(folder / file, options, arguments.seconds)
            for way, work in WAYS.items():
                exact, worst, spent = measure(film, work)
                of = f"{exact}/{WANTED}"
                print(f"{name:<15}{way:<22}{of:>10}{worst:>10.2f}{spent:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
