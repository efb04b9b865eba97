"""Makes uploads for tests: valid and broken copies of a recording."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.recording.manifest import FileFingerprint, RecordingManifest
from demo_pipeline.recording.video_probe import VideoProbe

TYPED = "Xylo quark 47"
KEY = "Zyzzyva 83 key"  # name of a pressed key
NODE = "Quokka 59 node"  # name of elements in accessibility scans
GARBAGE = f'{{"event": "keydown", "data": {{"key": "{TYPED}"\n'.encode()


def upload(recording: Path, root: Path, name: str) -> Path:
    """Copies a recording to `root`/`name`, with a new id and task; returns the folder."""
    folder = root / name
    shutil.copytree(recording, folder)
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    meta["id"] = name
    meta["quest"] |= {"title": f"Task of {name}", "content": f"Please do what {name} says."}
    (folder / "meta.json").write_text(json.dumps(meta, indent=2), encoding="utf-8")
    return folder


def made_manifest(
    name: str, digests: Sequence[str] = ("", "", ""), seconds: float = 1.0, **meta: Any
) -> RecordingManifest:
    """Returns the manifest of a recording whose files are not read.

    Args:
        name: id of the recording.
        digests: hashes of log, meta.json and video; zeros are added in front.
        seconds: time of the last video frame.
        meta: values of meta.json.
    """
    files = [
        FileFingerprint(name=file, size=1, sha256=digest.zfill(64))
        for file, digest in zip(RECORDING_FILES, digests, strict=True)
    ]
    video = VideoProbe(
        codec="h264", width=1920, height=1080, rotation=0, pixel_format="yuv420p", frames=100,
        declared_frames=100, key_frames=1, time_base="1/1000", first_pts_s=0.0,
        last_pts_s=seconds, variable_rate=False, mean_fps=10.0,
    )  # fmt: skip
    contents = {"timestamp": "2025-03-04T15:18:16-05:00", **meta}
    return RecordingManifest(
        id=name, name=name, fingerprint="0" * 64, files=tuple(files), meta=contents, video=video
    )


def add_canaries(folder: Path) -> None:
    """Renames elements to `NODE`, and adds presses of a key `KEY` with and without Ctrl."""
    log = folder / "input_log.jsonl"
    lines = log.read_text(encoding="utf-8").replace('"Name"', json.dumps(NODE)).splitlines()
    last = json.loads(lines[-1])["time"]
    keys = [("keydown", KEY), ("keyup", KEY), ("keydown", "LeftCtrl"), ("keydown", KEY)]
    keys += [("keyup", KEY), ("keyup", "LeftCtrl")]
    for number, (event, name) in enumerate(keys):
        time = last + 50 * (number + 1)
        data = {"key": name, "actual_char": TYPED} if number < 2 else {"key": name}
        lines.append(json.dumps({"event": event, "time": time, "data": data}))
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tear_meta(folder: Path) -> None:
    """Cuts meta.json off after its third line."""
    lines = (folder / "meta.json").read_text(encoding="utf-8").splitlines()
    (folder / "meta.json").write_text("\n".join(lines[:3]), encoding="utf-8")


def lose_video(folder: Path) -> None:
    (folder / "recording.mp4").unlink()


def spoil_log(folder: Path) -> None:
    """Replaces the log by three lines that are not JSON."""
    (folder / "input_log.jsonl").write_bytes(GARBAGE * 3)


BREAKING: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "torn meta": (tear_meta, "raw_recordings", "meta.json:"),
    "no video": (lose_video, "raw_recordings", "recording.mp4"),
    "garbage log": (spoil_log, "events", "input_log.jsonl:1"),
}
