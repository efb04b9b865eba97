"""Writes a recording of six seconds, its truth list, and a store in which all labels are correct.

In the recording, a person clicks OK, waits for a page, types an address and presses Enter. Tests
change a label and check which figures of the scores change.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DEMONSTRATION = "20260101_000000"
START_MS = 1_000_000
SIZE = (320, 240)
FPS = 10
SECONDS = 6
BUTTON = {"role": "button", "name": "OK", "box": [90, 90, 40, 20]}
FIELD = {"role": "text", "name": "Mail", "box": [20, 150, 200, 20]}

Row = dict[str, Any]


def _at(seconds: float) -> int:
    return START_MS + round(1000 * seconds)


def _truth() -> Row:
    click = {
        "kind": "click",
        "t": _at(1),
        "t_end": _at(1.08),
        "t_look": _at(0.45),
        "t_arrive": _at(0.9),
        "x": 110,
        "y": 100,
        "target": BUTTON,
    }
    wait = {"kind": "wait", "t": _at(1.2), "t_end": _at(3.7), "seconds": 2.5, "why": "a page loads"}
    typing = {
        "kind": "type",
        "t": _at(4),
        "t_end": _at(4.4),
        "t_look": _at(3.95),
        "text": "a@b",
        "keys": "a@b",
        "focus": FIELD,
    }
    enter = {
        "kind": "hotkey",
        "t": _at(5),
        "t_end": _at(5.05),
        "t_look": _at(4.9),
        "keys": ["Return"],
        "focus": FIELD,
    }
    return {
        "video_start_ms": START_MS + 30,
        "picture_start_ms": START_MS,
        "actions": [click, wait, typing, enter],
    }


def _log_lines() -> Iterator[Row]:
    box = dict(zip(("x", "y", "width", "height"), BUTTON["box"], strict=True))
    element = {
        "role": BUTTON["role"],
        "name": BUTTON["name"],
        "bbox": box,
        "states": {"visible": True},
        "children": [],
    }
    yield {"event": "mousemove", "time": _at(0.1), "data": {"x": 10, "y": 10}}
    yield {"event": "axtree", "time": _at(0.3), "data": {"duration": 100, "tree": [element]}}
    for step in range(9):
        place = {"x": 10 + 12.5 * step, "y": 10 + 11.25 * step}
        yield {"event": "mousemove", "time": _at(0.5 + 0.05 * step), "data": place}
    yield {"event": "keydown", "time": _at(5), "data": {"key": "Return"}}


def _step(index: int, kind: str, seconds: tuple[float, float], **row: Any) -> Row:
    return {
        "step_index": index,
        "action_index": index,
        "press_ms": _at(seconds[0]),
        "end_ms": _at(seconds[1]),
        "pts": None,
        "leak": False,
        "scale": 1.0,
        "pad_x": 0.0,
        "pad_y": 0.0,
        "doubtful_text": None,
        "screen_changed": None,
        "action_type": kind,
        "parameters": {},
        "target": None,
        **row,
    }


def _steps() -> list[Row]:
    place = {"x": 110, "y": 100, "button": "left"}
    return [
        _step(
            *(0, "click", (1, 1.08)),
            parameters=place,
            target=BUTTON,
            pts=0.4,
            screen_changed=True,
        ),
        _step(1, "wait", (1.3, 3.6), parameters={"seconds": 2.3}, pts=1.2),
        _step(2, "type", (4, 4.4), parameters={"text": "a@b"}, target=FIELD, pts=3.9),
        _step(3, "hotkey", (5, 5.05), parameters={"keys": ["enter"]}, target=FIELD, pts=4.9),
    ]


@dataclass
class KnownStore:
    """The truth list of the recording, and its labels. Tests change them before `write`."""

    truth: Row = field(default_factory=_truth)
    steps: list[Row] = field(default_factory=_steps)
    origin_ms: float = START_MS
    hidden_ms: list[int] = field(default_factory=list)

    def add_step(self, kind: str, seconds: tuple[float, float], **row: Any) -> None:
        self.steps.append(_step(len(self.steps), kind, seconds, **row))

    def write(self, root: Path) -> tuple[Path, Path, Path]:
        """Writes and returns the store, the folder of the recording, and the truth list."""
        recording = root / "recordings" / DEMONSTRATION
        recording.mkdir(parents=True)
        lines = [json.dumps(line) + "\n" for line in _log_lines()]
        (recording / "input_log.jsonl").write_text("".join(lines), encoding="utf-8")
        _write_video(recording / "recording.mp4")
        truth = root / "truth.json"
        truth.write_text(json.dumps(self.truth), encoding="utf-8")
        self._write_store(root / "store")
        return root / "store", recording, truth

    def _write_store(self, store: Path) -> None:
        trajectory = store / "trajectories" / DEMONSTRATION
        trees = []
        rows = []
        for step in self.steps:
            row = dict(step)
            action = {"action_type": row["action_type"], "parameters": row.pop("parameters")}
            folder = trajectory / "steps" / f"{row['step_index']:03d}"
            folder.mkdir(parents=True)
            (folder / "action.json").write_text(json.dumps(action), encoding="utf-8")
            target = row.pop("target")
            trees.append({"action_index": row["action_index"], **_target_columns(target)})
            rows.append(row)
        pq.write_table(pa.Table.from_pylist(rows), trajectory / "provenance.parquet")
        if self.hidden_ms:
            hidden = pa.table({"press_ms": self.hidden_ms})
            pq.write_table(hidden, trajectory / "hidden_actions.parquet")
        folder = store / "ui_trees" / DEMONSTRATION
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(trees), folder / "trees.parquet")
        evidence = {"clock": {"origin_ms": self.origin_ms}, "canvas": {"event_scale": 1.0}}
        folder = store / "screenshots" / DEMONSTRATION
        folder.mkdir(parents=True)
        (folder / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")


def _target_columns(target: Row | None) -> Row:
    if target is None:
        names = ("target_id", "target_role", "target_name", "target_x", "target_y")
        return {**dict.fromkeys((*names, "target_width", "target_height")), "tree_agreement": ""}
    x, y, width, height = target["box"]
    return {
        "target_id": "node_1",
        "target_role": target["role"],
        "target_name": target["name"],
        "target_x": x,
        "target_y": y,
        "target_width": width,
        "target_height": height,
        "tree_agreement": "agrees",
    }


def _write_video(path: Path) -> None:
    """Writes a video of a grey screen, which shows a page after 3.5 s."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height = SIZE
        stream.pix_fmt = "yuv420p"
        for number in range(FPS * SECONDS):
            picture = np.full((SIZE[1], SIZE[0], 3), 120, np.uint8)
            if number >= 3.5 * FPS:
                picture[150:230, 20:220] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
