"""Writes small recordings with screenshots in the formats of other tools.

The formats are taken from the source code of the tools. Each screenshot has its own colour, by
which tests recognise it.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

SIZE = (960, 540)  # half the canvas


def write_screenshot(path: Path, number: int, size: tuple[int, int] = SIZE) -> None:
    """Writes a PNG file in the colour `colour_of(number)`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = np.empty((size[1], size[0], 3), np.uint8)
    picture[:] = colour_of(number)
    assert cv2.imwrite(str(path), picture[:, :, ::-1])


def colour_of(number: int) -> tuple[int, int, int]:
    """Returns red, green and blue of a screenshot."""
    return (20 * number % 256, 100, 200)


def number_of(path: Path) -> int:
    """Returns the number of a screenshot, which the colour in its middle shows."""
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
    assert picture is not None
    assert picture.shape == (1080, 1920, 3)
    return round(int(picture[540, 960][0]) / 20)


OSWORLD_ACTIONS: tuple[Any, ...] = (
    "import pyautogui\nimport time\npyautogui.click(100.4, 50, button='left')\ntime.sleep(1)",
    "pyautogui.typewrite('notes')\npyautogui.press('enter')",
    "pyautogui.moveTo(10, 20)\npyautogui.dragTo(30, 40, duration=0.5)",
    "pyautogui.keyDown('ctrl')\npyautogui.click(x=7, y=8)\npyautogui.keyUp('ctrl')",
    {"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -3}},
    "WAIT",
    "DONE",
)


def osworld(
    out: Path,
    actions: Sequence[Any] = OSWORLD_ACTIONS,
    *,
    first: str = "step_0.png",
    result: str = "1.0\n",
) -> Path:
    """Writes the results of a task. Screenshot n shows the screen after action n."""
    out.mkdir(parents=True, exist_ok=True)
    if first:
        write_screenshot(out / first, 0)
    lines = []
    for number, action in enumerate(actions, 1):
        stamp = f"20250901@1048{number:02d}500000"
        image = f"step_{number}_{stamp}.png"
        write_screenshot(out / image, number)
        line = {"step_num": number, "action_timestamp": stamp, "action": action}
        line |= {"response": f"Thought {number}", "reward": 0, "done": action == "DONE", "info": {}}
        lines.append(line | {"screenshot_file": image})
    (out / "traj.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if result:
        (out / "result.txt").write_text(result)
    return out


_TRACKED: tuple[dict[str, Any], ...] = (
    {"action": "click (100, 50)", "element": "Start", "rect": (90, 40, 120, 60)},
    {"action": "double click (400, 300)", "element": "Unknown", "rect": (390, 290, 420, 320)},
    {"action": "right click (480, 270)", "element": "Desktop", "rect": (-9, -9, 969, 549)},
    {"action": "type text: Hello, world"},
    {"action": "press key enter"},
    {"action": "press key cmd"},
    {"action": "press key shift"},
    {"action": "hotkey (Ctrl, S)"},
    {"action": "press (10, 20)", "element": "Title bar", "rect": (0, 0, 200, 30)},
    {"action": "drag to (60, 70)"},
    {"action": "scroll (0, -2)"},
    {"action": "click (-500, 20)", "element": "Other display", "rect": (-600, 0, -400, 40)},
    {"action": "wait"},
    {"action": "finish"},
)


def pc_tracker(
    out: Path, lines: Sequence[dict[str, Any]] = _TRACKED, name: str = "task3_20241126_161517"
) -> Path:
    """Writes a recording of PC Tracker. Screenshot n shows the screen before line n (0-based)."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for number, line in enumerate(lines):
        image = f"20241126_1615{number:02d}_{number + 1}.png"
        write_screenshot(out / "screenshot" / image, number)
        rect = line.get("rect")
        sides = None
        if rect is not None:
            sides = dict(zip(("left", "top", "right", "bottom"), rect, strict=True))
        written.append(
            {
                "timestamp": f"2024-11-26_16:15:{number:02d}",
                "action": line["action"],
                "screenshot": f"events\\screenshot\\{image}",
                "element": line.get("element"),
                "rect": sides,
            }
        )
    log = out / f"{name}.jsonl"
    log.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written))
    page = "# Task 3\n**Description:** Save the slide.\n\n**Level:** easy\n\n"
    log.with_suffix(".md").write_text(page)
    return out


TURNS: tuple[dict[str, Any], ...] = (
    {"tool": "click", "arguments": {"pid": 7, "element_index": 14}, "click_point": (100.0, 50.0)},
    {"tool": "type_text", "arguments": {"pid": 7, "text": "notes"}},
    {"tool": "hotkey", "arguments": {"pid": 7, "keys": ["ctrl", "s"]}},
    {"tool": "press_key", "arguments": {"pid": 7, "key": "return", "modifiers": ["shift"]}},
    {"tool": "scroll", "arguments": {"pid": 7, "direction": "down", "x": 5, "y": 6, "amount": 2}},
    {"tool": "drag", "arguments": {"from_x": 1, "from_y": 2, "to_x": 30, "to_y": 40}},
    {"tool": "click", "arguments": {"x": 4, "y": 5, "count": 3, "modifier": ["shift"]}},
    {"tool": "set_value", "arguments": {"pid": 7, "value": "x"}},
    {"tool": "click", "arguments": {"x": 9, "y": 9}, "result_error": True},
)


def cua_driver(out: Path, turns: Sequence[dict[str, Any]] = TURNS) -> Path:
    """Writes turns of cua-driver.

    In turn n (0-based), before.png is screenshot n, and after.png is screenshot n + 1.
    """
    for number, turn in enumerate(turns):
        folder = out / f"turn-{number + 1:05d}"
        write_screenshot(folder / "before.png", number)
        write_screenshot(folder / "after.png", number + 1)
        write_screenshot(folder / "screenshot.png", number + 1)
        action = {"result_summary": "ok", "result_error": False} | turn
        if "click_point" in turn:
            action["click_point"] = dict(zip("xy", turn["click_point"], strict=True))
        action["timestamp"] = f"{1_760_000_000 + number}.250"
        action |= {
            "t_start_ms_from_session_start": 1000 * number,
            "t_ms_from_session_start": 1000 * number + 150,
        }
        (folder / "action.json").write_text(json.dumps(action))
        (folder / "before_state.json").write_text('{"tree_markdown": "- [14] Button \\"Save\\""}')
    (out / "session.json").write_text('{"schema_version": 1, "video": {"present": false}}')
    return out
