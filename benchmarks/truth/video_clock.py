"""Finds where the video of a recording shows the pointer, and notes its exact start in the truth.

Run: `.venv/bin/python -m benchmarks.truth.video_clock RECORDING TRUTH.json`. What ffmpeg says about
its first frame may be two tenths of a second off. While the pointer moves, two frames differ where
it was and where it is. The start for which that holds best becomes `picture_start_ms` in the truth.
"""

import argparse
import json
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.truth.recording_log import RecordingLog

_SEARCHED_MS = range(-400, 401, 5)
_SEEN_MOVE = 30  # pixels between two frames: the pointer's pictures do not overlap
_AROUND = 8  # pixels around the tip: holds most of an arrow, a hand and a text cursor
_POINTER_PIXELS = 24  # of these, at least, differ where the pointer is
_CHANGED_GREY = 40
_FEWEST_FRAMES = 30
_LEAST_SCORE = 0.3  # of the best offset; recordings of our own have 0.4 to 0.7
_PLATEAU = 0.98  # offsets as good as the best one, of which the middle is taken


def picture_start_ms(recording: Path, video_start_ms: float) -> float:
    """The time of the first frame by the pointer; the log must have the video's pixels.

    Args:
        recording: the folder of the recording.
        video_start_ms: the start as ffmpeg says it.

    Raises:
        ValueError: the pointer moves in too few frames, or can hardly be seen.
    """
    log = RecordingLog(recording / "input_log.jsonl")
    scores = []
    with av.open(str(recording / "recording.mp4")) as container:
        stream = container.streams.video[0]
        previous = None
        previous_ms = 0.0
        for frame in container.decode(stream):
            shown_ms = video_start_ms + float(frame.pts * stream.time_base) * 1000
            if not _moves_near(log, shown_ms):
                previous = None
                continue
            grey = frame.to_ndarray(format="gray")
            if previous is not None:
                changed = cv2.absdiff(previous, grey) > _CHANGED_GREY
                times = (previous_ms, shown_ms)
                scores.append([_score(changed, log, times, offset) for offset in _SEARCHED_MS])
            previous = grey
            previous_ms = shown_ms
    table = np.array(scores)
    if len(table) < _FEWEST_FRAMES:
        raise ValueError(f"{recording.name}: the pointer moves in {len(table)} frames only.")
    means = np.nanmean(table, axis=0)
    best = float(np.nanmax(means))
    if best < _LEAST_SCORE:
        raise ValueError(f"{recording.name}: the pointer is hard to see in the video.")
    good = [
        offset for offset, mean in zip(_SEARCHED_MS, means, strict=True) if mean >= _PLATEAU * best
    ]
    return video_start_ms + float(np.mean(good))


def _moves_near(log: RecordingLog, time_ms: float) -> bool:
    """Whether the pointer moves within the searched time, so that the frame can tell something."""
    x, y = log.pointer(time_ms)
    times = range(_SEARCHED_MS.start, _SEARCHED_MS.stop, 100)
    distances = [log.distance(time_ms + offset, x, y) for offset in times]
    return _SEEN_MOVE < max(distances) < np.inf


def _score(
    changed: npt.NDArray[np.bool_], log: RecordingLog, times: tuple[float, float], offset: int
) -> float:
    """How well the two places of the pointer explain a change; NaN while it rests."""
    old_x, old_y = log.pointer(times[0] + offset)
    if log.distance(times[1] + offset, old_x, old_y) <= _SEEN_MOVE:
        return float("nan")
    new_x, new_y = log.pointer(times[1] + offset)
    return min(_share(changed, old_x, old_y), _share(changed, new_x, new_y))


def _share(changed: npt.NDArray[np.bool_], x: float, y: float) -> float:
    """How far the changed pixels around a place suffice for the pointer."""
    left = max(0, int(x) - _AROUND)
    top = max(0, int(y) - _AROUND)
    part = changed[top : top + 2 * _AROUND, left : left + 2 * _AROUND]
    return min(1.0, float(part.sum()) / _POINTER_PIXELS)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("truth", type=Path)
    arguments = parser.parse_args()
    truth = json.loads(arguments.truth.read_text("utf-8"))
    start = picture_start_ms(arguments.recording, truth["video_start_ms"])
    truth["picture_start_ms"] = start
    text = json.dumps(truth, indent=1, ensure_ascii=False)
    arguments.truth.write_text(text + "\n", encoding="utf-8")
    print(f"{arguments.recording.name}: {start - truth['video_start_ms']:+.0f} ms")


if __name__ == "__main__":
    main()
