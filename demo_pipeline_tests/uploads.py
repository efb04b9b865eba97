"""Uploads roots for tests: copies of one recording, whole ones and broken ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

TYPED = "Xylo quark 47"
KEY = "Zyzzyva 83 key"  # the name of a pressed key
NODE = "Quokka 59 node"  # the name of elements in the accessibility trees
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


def add_canaries(folder: Path) -> None:
    """Elements get the name `NODE`; a key called `KEY` is pressed, with and without Ctrl."""
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
