"""Finds where the video of a recording shows the pointer, and notes its exact start in the truth.

Run: `.venv/bin/python -m benchmarks.truth.video_clock RECORDING TRUTH.json`. What ffmpeg says about
its first frame may be a tenth of a second off. While the pointer moves, two frames differ where it
is; the start for which that holds best is written to the truth list as `picture_start_ms`.
"""

import argparse
import json
from pathlib import Path

import av
import cv2
import numpy as np

from benchmarks.truth.recording_log import RecordingLog

_SEARCHED_MS = range(-400, 401, 5)
_SEEN_MOVE = 30  # pixels between two frames: the pointer's pictures do not overlap
_AROUND = 8  # pixels around the tip: holds most of an arrow, a hand and a text cursor
_POINTER_PIXELS = 24  # of these, at least, differ where the pointer is
_CHANGED_GREY = 40
_FEWEST_FRAMES = 30
_PLATEAU = 0.98  # offsets as good as the best one, of which the middle is taken


def picture_start_ms(recording: Path, video_start_ms: float, pixel_ratio: float = 1) -> float:
    """The time of the first frame by the pointer.

    Args:
        recording: the folder of the recording.
        video_start_ms: the start as ffmpeg says it.
        pixel_ratio: video pixels for a pixel of the log.

    Raises:
        ValueError: the pointer moves in too few frames.
    """
    log = RecordingLog(recording / "input_log.jsonl")
    shares = []
    with av.open(str(recording / "recording.mp4")) as container:
        stream = container.streams.video[0]
        previous = None
        previous_ms = 0.0
        for frame in container.decode(stream):
            shown_ms = video_start_ms + float(frame.pts * stream.time_base) * 1000
            grey = frame.to_ndarray(format="gray")
            x, y = log.pointer(shown_ms)
            if previous is not None and log.distance(previous_ms, x, y) > _SEEN_MOVE:
                changed = cv2.absdiff(previous, grey) > _CHANGED_GREY
                shares.append(
                    [
                        _share(changed, log, shown_ms + offset, pixel_ratio)
                        for offset in _SEARCHED_MS
                    ]
                )
            previous = grey
            previous_ms = shown_ms
    if len(shares) < _FEWEST_FRAMES:
        raise ValueError(f"{recording.name}: the pointer moves in {len(shares)} frames only.")
    means = np.mean(shares, axis=0)
    best = [
        offset
        for offset, mean in zip(_SEARCHED_MS, means, strict=True)
        if mean >= _PLATEAU * means.max()
    ]
    return video_start_ms + float(np.mean(best))


def _share(changed: np.ndarray, log: RecordingLog, time_ms: float, ratio: float) -> float:
    """How far the changed pixels at the log's place of the pointer suffice for the pointer."""
    x, y = log.pointer(time_ms)
    left = max(0, int(x * ratio) - _AROUND)
    top = max(0, int(y * ratio) - _AROUND)
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
