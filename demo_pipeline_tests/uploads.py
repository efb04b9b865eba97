"""Uploads roots for tests: copies of one recording, whole ones and broken ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

TYPED = "Xylo quark 47"
GARBAGE = f'{{"event": "keydown", "data": {{"key": "{TYPED}"\n'.encode()


def upload(recording: Path, root: Path, name: str) -> Path:
    """A copy with its own id and its own task."""
    folder = root / name
    shutil.copytree(recording, folder)
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    meta["id"] = name
    meta["quest"] |= {"title": f"Task of {name}", "content": f"Please do what {name} says."}
    (folder / "meta.json").write_text(json.dumps(meta, indent=2), encoding="utf-8")
    return folder


def tear_meta(folder: Path) -> None:
    """meta.json ends in its third line."""
    lines = (folder / "meta.json").read_text(encoding="utf-8").splitlines()
    (folder / "meta.json").write_text("\n".join(lines[:3]), encoding="utf-8")


def lose_video(folder: Path) -> None:
    (folder / "recording.mp4").unlink()


def spoil_log(folder: Path) -> None:
    """No line of the log is JSON."""
    (folder / "input_log.jsonl").write_bytes(GARBAGE * 3)


BREAKING: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "torn meta": (tear_meta, "raw_recordings", "meta.json:"),
    "no video": (lose_video, "raw_recordings", "recording.mp4"),
    "garbage log": (spoil_log, "events", "input_log.jsonl:1"),
}
