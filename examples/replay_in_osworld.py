"""Replay a demonstration of an OSWorld task in OSWorld, and ask OSWorld whether it was done.

    python replay_in_osworld.py agentnet/train.jsonl TRAJECTORY TASK.json SCREENS

TRAJECTORY is a `task_id` of the lines, TASK.json the task's file in OSWorld, and SCREENS a folder
for the screens after each step. It needs OSWorld's package `desktop_env` and its virtual machine.
docs/guides/replaying.md says how the lines are made and what a replay shows.
"""

import argparse
import ast
import json
import struct
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 2.0  # after each step, as OSWorld's own agents have it
_SPECIAL = {"success": "DONE", "failure": "FAIL"}


class _ScreenCode(ast.NodeTransformer):
    """Turns shares of the screen into pixels, and waits into calls that OSWorld's machine has."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size = dict(zip("xy", size, strict=True))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        for keyword in node.keywords:
            if keyword.arg in self._size:
                side = self._size[keyword.arg]
                share = ast.literal_eval(keyword.value)
                keyword.value = ast.Constant(min(round(share * side), side - 1))
        name = ast.unparse(node.func)
        if name == "computer.wait":
            node.func = ast.parse("time.sleep", mode="eval").body
        elif name == "pyautogui.write" and not ast.literal_eval(node.keywords[0].value).isascii():
            raise ValueError("pyautogui.write types nothing for characters beyond ASCII")
        return node


def screen_action(code: str, size: tuple[int, int]) -> str:
    """The code of a step as `DesktopEnv.step` takes it: pixels of the screen, `DONE` or `FAIL`.

    Raises:
        ValueError: the step types a character that pyautogui cannot type.
    """
    tree = ast.parse(code)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "computer.terminate":
            return _SPECIAL[ast.literal_eval(call.keywords[0].value)]
    return ast.unparse(_ScreenCode(size).visit(tree))


def png_size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def replay(environment: Any, line: dict[str, Any], task: dict[str, Any], screens: Path) -> float:
    """Replay a line from the task's start; returns the score of OSWorld's own evaluation.

    The screen at the start is written to `screens` as `start.png`, the one after the step of
    `traj[3]` as `003.png`.

    Raises:
        ValueError: the line begins after the task's start, or pyautogui cannot type a character.
    """
    if line.get("part", {}).get("first_step", 0):
        raise ValueError("the line begins after the start of its trajectory: it cannot be replayed")
    screens.mkdir(parents=True, exist_ok=True)
    observation = environment.reset(task_config=task)
    size = png_size(observation["screenshot"])
    (screens / "start.png").write_bytes(observation["screenshot"])
    for number, step in enumerate(line["traj"]):
        action = screen_action(step["value"]["code"], size)
        observation, _, done, _ = environment.step(action, PAUSE_SECONDS)
        (screens / f"{number:03d}.png").write_bytes(observation["screenshot"])
        if done:
            break
    return float(environment.evaluate())


def main() -> None:
    """Replay the line of a trajectory in OSWorld's virtual machine."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("lines", type=Path)
    parser.add_argument("trajectory")
    parser.add_argument("task", type=Path)
    parser.add_argument("screens", type=Path)
    parser.add_argument("--provider", default="vmware")
    parser.add_argument("--path-to-vm", default=None)
    given = parser.parse_args()

    from desktop_env.desktop_env import DesktopEnv  # noqa: PLC0415 - only OSWorld has it

    lines = [json.loads(text) for text in given.lines.read_text("utf-8").splitlines()]
    [line] = [line for line in lines if line["task_id"] == given.trajectory]
    environment = DesktopEnv(
        provider_name=given.provider, path_to_vm=given.path_to_vm, action_space="pyautogui"
    )
    try:
        score = replay(environment, line, json.loads(given.task.read_text("utf-8")), given.screens)
    finally:
        environment.close()
    print(f"{given.trajectory}: OSWorld's evaluation gives {score:g}")


if __name__ == "__main__":
    main()
