"""Makes hostile recordings, which crash a careless reader or exhaust its memory.

Each hostile recording is made from an intact recording. Tests define how the pipeline must handle
them.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

Spoil = Callable[[Path], None]
VIDEO = "recording.mp4"
META = "meta.json"
LOG = "input_log.jsonl"
HUGE_INTEGER = 10**400


def hostile_upload(recording: Path, folder: Path, name: str) -> None:
    """Copies an intact recording to `folder`, and spoils the copy with the entry of `HOSTILE`."""
    shutil.copytree(recording, folder)
    HOSTILE[name](folder)


def _meta(**changes: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        (folder / META).write_text(json.dumps(meta | changes), encoding="utf-8")

    return spoil


def _deep_key(levels: int) -> Spoil:
    def spoil(folder: Path) -> None:
        text = (folder / META).read_text(encoding="utf-8").rstrip().removesuffix("}")
        deep = '{"a":' * levels + "1" + "}" * levels
        (folder / META).write_text(f'{text}, "extra": {deep}}}', encoding="utf-8")

    return spoil


def _sparse(file: str, size: int) -> Spoil:
    """Replaces a file by a sparse file, which has `size` bytes but takes no space on the disk."""

    def spoil(folder: Path) -> None:
        with (folder / file).open("wb") as out:
            out.truncate(size)

    return spoil


def _content(file: str, data: bytes) -> Spoil:
    return lambda folder: _write(folder / file, data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _without(file: str) -> Spoil:
    return lambda folder: (folder / file).unlink()


def _truncated(file: str, share: float) -> Spoil:
    def spoil(folder: Path) -> None:
        size = (folder / file).stat().st_size
        os.truncate(folder / file, int(size * share))

    return spoil


def _link_to_itself(file: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).symlink_to(file)

    return spoil


def _folder_for(file: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return spoil


def _pipe_for(file: str) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return spoil


def _log(*lines: Mapping[str, Any] | str) -> Spoil:
    """Replaces the log by the given lines."""
    log = ""
    for line in lines:
        text = line if isinstance(line, str) else json.dumps(line)
        log += f"{text}\n"
    return lambda folder: _write(folder / LOG, log.encode())


def _start_ms(folder: Path) -> int:
    lines = (folder / LOG).read_text(encoding="utf-8").splitlines()
    return min(json.loads(line)["time"] for line in lines)


def _clicks(count: int) -> Spoil:
    """Replaces the log by `count` clicks in many places, one every 20 ms, as a program clicks."""

    def spoil(folder: Path) -> None:
        start = _start_ms(folder)
        with (folder / LOG).open("w", encoding="utf-8") as log:
            for number in range(count):
                at = {"x": 10 + number * 37 % 400, "y": 10 + number * 91 % 200, "button": "Left"}
                for offset, event in enumerate(("mousedown", "mouseup")):
                    time = start + number * 20 + offset * 5
                    line = {"event": event, "data": at, "time": time}
                    log.write(json.dumps(line) + "\n")

    return spoil


def _tree_value(value: Any) -> Spoil:
    """Adds a scan before the first line; the root's x coordinate and width are `value`."""

    def spoil(folder: Path) -> None:
        start = _start_ms(folder)
        node = {
            "name": "n", "role": "window", "description": "", "value": "", "children": [],
            "bbox": {"x": value, "y": 0, "width": value, "height": 100},
            "states": {"enabled": True, "visible": True, "keyboard_focusable": False},
        }  # fmt: skip
        scan = {"duration": 1, "focused_element": node, "tree": [node], "queries": {}}
        line = json.dumps({"event": "axtree", "data": scan, "time": start})
        before = (folder / LOG).read_text(encoding="utf-8")
        (folder / LOG).write_text(f"{line}\n{before}", encoding="utf-8")

    return spoil


def _deep_tree(levels: int) -> Spoil:
    def spoil(folder: Path) -> None:
        start = _start_ms(folder)
        deep = '{"children":[' * levels + "]}" * levels
        line = f'{{"event":"axtree","data":{{"duration":1,"tree":[{deep}]}},"time":{start}}}'
        before = (folder / LOG).read_text(encoding="utf-8")
        (folder / LOG).write_text(f"{line}\n{before}", encoding="utf-8")

    return spoil


def _film(width: int, height: int, frames: int = 30) -> Spoil:
    """Replaces the video by a video of this size."""
    return lambda folder: write_film(folder / VIDEO, [(width, height)] * frames)


def _bomb(width: int, height: int, first: int = 20) -> Spoil:
    """Replaces the video: after `first` frames of 640 x 360, three frames have another size."""
    return lambda folder: write_film(
        folder / VIDEO, [(640, 360)] * first + [(width, height)] * 3 + [(640, 360)] * 5
    )


def write_film(path: Path, sizes: list[tuple[int, int]], fps: int = 10) -> None:
    """Writes a video of JPEG frames with the given sizes. The container declares the first size."""
    pictures = {size: _jpeg(*size) for size in set(sizes)}
    with av.open(str(path), "w", format="mp4") as output:
        stream: Any = output.add_stream("mjpeg", rate=fps)
        stream.width, stream.height = sizes[0]
        stream.pix_fmt = "yuvj420p"
        stream.time_base = Fraction(1, 90_000)
        output.start_encoding()
        for number, size in enumerate(sizes):
            packet = av.Packet(pictures[size])
            packet.stream = stream
            packet.pts = packet.dts = number * 90_000 // fps
            packet.time_base = Fraction(1, 90_000)
            packet.is_keyframe = True
            output.mux(packet)


def _jpeg(width: int, height: int) -> bytes:
    picture = np.full((height, width), 128, np.uint8)
    picture[::7] = 90
    ok, data = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_GRAY2BGR))
    assert ok
    return bytes(data.tobytes())


STAMP = "2026-01-05T09:00:00+00:00"
HOSTILE: dict[str, Spoil] = {
    # the video
    "video-bomb": _bomb(16_000, 16_000),
    "video-bomb-wide": _bomb(16_380, 4_000),
    "video-grows": _bomb(1280, 720),
    "video-2x2": _film(2, 2),
    "video-2x4096": _film(2, 4096),
    "video-16384x2": _film(16_384, 2),
    "video-64x4096": _film(64, 4096),
    "video-16384x64": _film(16_384, 64),
    "video-too-large": _film(16_000, 12_000, 3),
    "video-empty": _content(VIDEO, b""),
    "video-text": _content(VIDEO, b"this is not a film\n" * 100),
    "video-playlist": _content(VIDEO, b"#EXTM3U\nfile:///etc/hostname\n"),
    "video-half": _truncated(VIDEO, 0.5),
    "video-sparse": _sparse(VIDEO, 2**40),
    "video-missing": _without(VIDEO),
    "video-folder": _folder_for(VIDEO),
    "video-loop": _link_to_itself(VIDEO),
    # meta.json
    "meta-sparse": _sparse(META, 2 * 2**30),
    "meta-missing": _without(META),
    "meta-empty": _content(META, b""),
    "meta-torn": _truncated(META, 0.5),
    "meta-list": _content(META, b"[]"),
    "meta-deep-list": _content(META, b"[" * 100_000),
    "meta-binary": _content(META, bytes(range(256)) * 4),
    "meta-pipe": _pipe_for(META),
    "meta-loop": _link_to_itself(META),
    "meta-deep-3000": _deep_key(3_000),
    "meta-deep-200": _deep_key(200),
    "meta-year-1": _meta(timestamp="0001-01-01T00:00:00+05:00"),
    "meta-year-9999": _meta(timestamp="9999-12-31T23:59:59-05:00"),
    "meta-year-1900": _meta(timestamp="1900-01-01T00:00:00+00:00"),
    "meta-no-zone": _meta(timestamp="2026-01-05T09:00:00"),
    "meta-number-time": _meta(timestamp=1767603600),
    "meta-null-time": _meta(timestamp=None),
    "meta-monitor-huge": _meta(primary_monitor={"width": HUGE_INTEGER, "height": 1080}),
    "meta-monitor-10e30": _meta(primary_monitor={"width": 10**30, "height": 10**30}),
    "meta-monitor-zero": _meta(primary_monitor={"width": 0, "height": 0}),
    "meta-duration-huge": _meta(duration_seconds=HUGE_INTEGER),
    "meta-reward-huge": _meta(quest={"title": "t", "reward": {"time": HUGE_INTEGER}}),
    "meta-no-task": _meta(quest=None, title="", description=""),
    "meta-blank-task": _meta(quest={"content": "  "}, title="\n", description=" "),
    "meta-title-list": _meta(title=["a"]),
    # input_log.jsonl
    "log-missing": _without(LOG),
    "log-empty": _content(LOG, b""),
    "log-blank": _content(LOG, b"\n" * 1000),
    "log-binary": _content(LOG, bytes(range(256)) * 40),
    "log-text": _content(LOG, b"hello\n" * 10),
    "log-sparse": _sparse(LOG, 2**40),
    "log-zeros": _content(LOG, bytes(2**20)),
    "log-loop": _link_to_itself(LOG),
    "log-pipe": _pipe_for(LOG),
    "log-folder": _folder_for(LOG),
    "log-clicks": _clicks(20_000),
    "log-only-bad": _log("{", "[]", "null", '{"event": 1}'),
    "log-huge-time": _log({"event": "keydown", "data": {"key": "A"}, "time": HUGE_INTEGER}),
    "log-huge-x": _log({"event": "mousemove", "data": {"x": HUGE_INTEGER, "y": 1}, "time": 5}),
}  # fmt: skip

# Recordings with a single odd value. Only results that depend on the value may be lost.
ODD: dict[str, Spoil] = {
    "tree-huge": _tree_value(HUGE_INTEGER),
    "tree-float": _tree_value(1e308),
    "tree-deep": _deep_tree(3_000),
}
