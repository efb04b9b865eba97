"""What a person would write first: OpenCV, `json` and pydantic, one step after the other.

Belongs here: the version that the stages are compared with. It gets the same frames by counting
them, encodes PNG as OpenCV does by default, and reads every line of the log into a model.
"""

import bisect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from pydantic import BaseModel

_CANVAS = (1920, 1080)


class Bounds(BaseModel):
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float


class Element(BaseModel):
    """A node of an accessibility tree, with those below it."""

    bbox: Bounds
    children: "list[Element]"
    name: str = ""
    description: str = ""
    role: str
    value: str | None = None
    states: dict[str, bool] = {}


class Line(BaseModel):
    """One line of input_log.jsonl."""

    event: str
    data: dict[str, Any]
    time: int


def make_steps(recording: Path, out: Path, frames: Sequence[int], times: Sequence[int]) -> None:
    """Write a screenshot and a tree for each step, and the events as Parquet.

    Args:
        recording: its folder.
        out: an empty folder.
        frames: number of the frame of each step, counted from the first, ascending.
        times: of each step, epoch milliseconds.
    """
    with (recording / "input_log.jsonl").open(encoding="utf-8") as log:
        lines = [Line.model_validate(json.loads(line)) for line in log]
    for step, picture in enumerate(_pictures(recording / "recording.mp4", frames)):
        cv2.imwrite(str(out / f"{step:03d}.png"), picture)
    scans = [line for line in lines if line.event == "axtree"]
    begins = [line.time for line in scans]
    for step, time in enumerate(times if scans else ()):
        scan = scans[max(0, bisect.bisect_right(begins, time) - 1)]
        tree = [Element.model_validate(node) for node in scan.data["tree"]]
        text = json.dumps([node.model_dump() for node in tree])
        (out / f"{step:03d}.json").write_text(text, encoding="utf-8")
    rows = [
        {"event": line.event, "time": line.time, "data": json.dumps(line.data)} for line in lines
    ]
    pd.DataFrame(rows).to_parquet(out / "events.parquet", compression="zstd")


def _pictures(video: Path, frames: Sequence[int]) -> Iterator[np.ndarray]:
    """The wanted frames, on a canvas of 1920 by 1080; every frame is decoded."""
    reader = cv2.VideoCapture(str(video))
    shown = -1
    picture = np.zeros((1080, 1920, 3), np.uint8)
    for wanted in frames:
        while shown < wanted:
            reader.grab()
            shown += 1
        found, frame = reader.retrieve()
        if found:
            picture = cv2.resize(frame, _CANVAS, interpolation=cv2.INTER_AREA)
        yield picture
    reader.release()
