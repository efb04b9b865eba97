"""A small valid OSWorld-Desktopd dataset."""

import functools
import struct
import zlib
from pathlib import Path
from typing import Any

from demo_pipeline.files.json_files import dump_json

NAME = "traj_chrome_001"
FULL_SCREEN = {"x": 0, "y": 0, "width": 1920, "height": 1080}
WINDOW = {"x": 100, "y": 50, "width": 1200, "height": 800}
BUTTON = {"x": 480, "y": 280, "width": 60, "height": 40}
TARGET = {"id": "node_2", "role": "button", "name": "Search"}


def _chunk(kind: bytes, body: bytes) -> bytes:
    checksum = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


@functools.cache
def png(width: int = 1920, height: int = 1080) -> bytes:
    """Returns a black image with one bit per pixel."""
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height))
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def ui_tree() -> dict[str, Any]:
    button = {**TARGET, "bounds": BUTTON, "states": ["visible"], "children": []}
    window = {
        "id": "node_1",
        "role": "window",
        "name": "Google Chrome",
        "bounds": WINDOW,
        "states": ["focused", "active"],
        "children": [button],
    }
    root = {"id": "node_0", "role": "desktop", "name": "", "bounds": FULL_SCREEN}
    return {
        "timestamp": "2025-01-29T10:30:00Z",
        "screen": {"width": 1920, "height": 1080},
        "root": {**root, "children": [window]},
    }


def actions() -> list[dict[str, Any]]:
    """Returns an action of each type. All except `wait` have the same button as target."""
    point = {"x": 500, "y": 300}
    drag = {"start_x": 500, "start_y": 300, "end_x": 0, "end_y": 1079}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("click", {**point, "button": "left"}),
        ("double_click", point),
        ("right_click", point),
        ("type", {"text": "google.com"}),
        ("hotkey", {"keys": ["ctrl", "c"]}),
        ("scroll", {**point, "direction": "down", "amount": 3}),
        ("drag", drag),
        ("wait", {"seconds": 2.5}),
    ]
    return [
        {
            "step_index": index,
            "action_type": kind,
            "parameters": parameters,
            "target_element": None if kind == "wait" else TARGET,
            "reasoning": f"Do a {kind} on the search button",
        }
        for index, (kind, parameters) in enumerate(kinds)
    ]


def task() -> dict[str, Any]:
    return {
        "task_id": "chrome_open_google",
        "instruction": "Open Chrome and navigate to google.com",
        "osworld_task_id": "chrome_001",
        "application": "chrome",
        "difficulty": "easy",
        "expected_steps": 8,
    }


def result(name: str = NAME) -> dict[str, Any]:
    return {
        "trajectory_id": name,
        "success": True,
        "total_steps": 8,
        "completion_time_ms": 12500,
        "error_message": None,
        "model_info": {"name": "qwen-vl-7b", "version": "1.0"},
    }


def index() -> dict[str, Any]:
    entry = {"id": NAME, "task_id": "chrome_open_google", "success": True, "steps": 8}
    return {
        "version": "1.0",
        "total_trajectories": 1,
        "successful": 1,
        "failed": 0,
        "trajectories": [{**entry, "application": "chrome"}],
    }


def write_trajectory(folder: Path) -> Path:
    dump_json(folder / "task.json", task())
    dump_json(folder / "result.json", result(folder.name))
    for number, action in enumerate(actions()):
        step = folder / "steps" / f"{number:03d}"
        dump_json(step / "action.json", action)
        dump_json(step / "ui_tree.json", ui_tree(), compact=True)
        (step / "screenshot.png").write_bytes(png())
    (folder / "final_screenshot.png").write_bytes(png())
    return folder


def write_dataset(root: Path) -> Path:
    write_trajectory(root / "trajectories" / NAME)
    dump_json(root / "index.json", index())
    dump_json(root / "metadata.json", {"name": "test", "created_by": {"name": "x", "version": "1"}})
    return root


def deep_tree(levels: int) -> dict[str, Any]:
    """Returns a tree with a single node on each level."""
    node: dict[str, Any] = {}
    for number in range(levels - 1, -1, -1):
        role = "desktop" if number == 0 else "panel"
        children = [node] if node else []
        node = {"id": f"node_{number}", "role": role, "name": "", "bounds": FULL_SCREEN}
        node["children"] = children
    return {**ui_tree(), "root": node}
