"""Rewrites a recording in the format of today's recorder, which differs from the documentation.

Times count from meta.timestamp. Positions are clamped to the main display, and `raw_x` and `raw_y`
hold the original positions. meta.json contains a schema version and a scale factor. There are two
more files: input_log_meta.json and sft.json.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from demo_pipeline_tests.simulator.recording import log_text

SCHEMA_VERSION = {"major": 1, "minor": 0, "patch": 0}


def rewrite(folder: Path, *, raw: bool = True, ffmpeg_lines: bool = False) -> None:
    """Rewrites the recording in `folder`. The video stays unchanged.

    Args:
        folder: the folder with the log, meta.json and the video.
        raw: whether to write `raw_x` and `raw_y`.
        ffmpeg_lines: whether to keep the output of ffmpeg, which today's recorder does not log.
    """
    meta = json.loads((folder / "meta.json").read_bytes())
    started_ms = round(datetime.fromisoformat(_microseconds(meta["timestamp"])).timestamp() * 1000)
    monitor = meta["primary_monitor"]
    log = folder / "input_log.jsonl"
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    kept = [line for line in lines if ffmpeg_lines or line["event"] != "ffmpeg_stderr"]
    for line in kept:
        line["time"] -= started_ms
        if line["event"].startswith("mouse"):
            line["data"] |= _cut(line["data"], (monitor["width"], monitor["height"]), raw=raw)
    log.write_text("".join(log_text(line) + "\n" for line in kept), "utf-8", newline="\n")
    meta |= {"schema_version": SCHEMA_VERSION}
    meta["primary_monitor"] = monitor | {"scale_factor": 1.0, "x": 0, "y": 0}
    _write(folder / "meta.json", meta)
    about = {"schema_version": SCHEMA_VERSION, "format": "jsonl", "event_count": len(kept)}
    _write(folder / "input_log_meta.json", about | {"timestamp_type": "relative"})
    _write(folder / "sft.json", [])


def _microseconds(timestamp: str) -> str:
    """Returns a timestamp with at most six digits after the decimal point."""
    seconds, _, rest = timestamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return f"{seconds}.{digits[:6]}{rest[len(digits) :]}" if rest else timestamp


def _cut(data: dict[str, Any], size: tuple[int, int], *, raw: bool) -> dict[str, Any]:
    """Returns the position of an event, clamped to [0, width] and [0, height]."""
    axes = [
        (axis, most) for axis, most in zip("xy", size, strict=True) if data.get(axis) is not None
    ]
    cut = {axis: min(max(data[axis], 0), most) for axis, most in axes}
    return cut | ({f"raw_{axis}": data[axis] for axis, _ in axes} if raw else {})


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", "utf-8", newline="\n")
