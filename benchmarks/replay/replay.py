"""Record, export and replay scenarios, and compare every screen and the end state: `make replay`.

A scenario is recorded on a private desktop, exported as AgentNet's code, and replayed by pyautogui
on a fresh desktop. A step is right when the screen after it is the one that was recorded. The
README beside this file says what that means, and which programs are needed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DESKTOP = HERE / "fresh_desktop.py"
SYSTEM_PYTHON = "/usr/bin/python3"  # has the packages for accessibility and X from apt
PYAUTOGUI = ("pyautogui==0.9.54", "pytweening==1.2.0", "pyscreeze==1.0.1", "pymsgbox==2.0.1")
SETTINGS = {
    "DATASETS__EXPORTS": '["agentnet"]',
    "DATASETS__INCLUDE_CONTAMINATED": "true",
    "SCREENSHOTS__NATIVE": "true",
}
BLOCK = 8  # pixels a side
# The same screen differs by up to 17 levels in a block after the video's encoder (measured).
DIFFERENT = 32  # levels of the mean over a block, of 255
# The pointer and the caret, which blinks, are smaller than this (measured: 24 by 32 pixels).
SMALL_BLOCKS = (4, 5)  # width and height of the largest difference that does not count


@dataclass
class Outcome:
    """What a replay showed.

    Attributes:
        name: of the scenario.
        right: step → whether the screen after it was the recorded one; steps whose screen cannot be
            compared are missing.
        actions: step → its words.
        recorded_state, replayed_state: the end state that each left.
        lost: why steps of the recording are not in the line, with their number.
    """

    name: str
    right: dict[int, bool] = field(default_factory=dict)
    actions: dict[int, str] = field(default_factory=dict)
    recorded_state: dict[str, str] = field(default_factory=dict)
    replayed_state: dict[str, str] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def record(scenario: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "inbox").mkdir(parents=True)
    _run_desktop("record", str(scenario), str(folder / "inbox"))
    for name in ("truth.json", "end_state.json"):
        (folder / "inbox" / name).rename(folder / name)


def export(folder: Path) -> None:
    """Run the pipeline over the recording, into a store of its own."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    paths = {"UPLOADS": "inbox", "STORE": "store", "CACHE": "cache"}
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    environment |= {f"DEMO_PIPELINE_{name}": str(folder / path) for name, path in paths.items()}
    environment |= {f"DEMO_PIPELINE_{name}": value for name, value in SETTINGS.items()}
    command = [str(Path(sys.executable).with_name("demo-pipeline")), "run", "--strict"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def replay(scenario: Path, folder: Path, library: Path) -> Outcome:
    """Replay the exported line on a fresh desktop; returns how each step and the end came out."""
    dataset = folder / "store/agentnet"
    splits = [path for path in dataset.glob("*.jsonl") if path.stem in {"train", "val", "test"}]
    [text] = [line for path in splits for line in path.read_text("utf-8").splitlines()]
    line = json.loads(text)
    (folder / "line.json").write_text(text)
    screens = folder / "screens"
    shutil.rmtree(screens, ignore_errors=True)
    _run_desktop(
        "replay", str(scenario), str(folder / "line.json"), str(screens), library=str(library)
    )
    outcome = Outcome(scenario.stem)
    outcome.recorded_state = json.loads((folder / "end_state.json").read_text("utf-8"))
    outcome.replayed_state = json.loads((screens / "end_state.json").read_text("utf-8"))
    outcome.lost = _lost_steps(dataset)
    for number, (step, later) in enumerate(zip(line["traj"], line["traj"][1:], strict=False)):
        if _rests_first(later["value"]["code"]):
            continue  # its screenshot shows what opened under the pointer, which is still elsewhere
        recorded = dataset / "images" / later["image"]
        replayed = screens / f"{number:03d}.png"
        difference = different_blocks(recorded, replayed)
        outcome.right[number] = not difference.any()
        outcome.actions[number] = step["value"]["action"] or step["value"]["code"]
        if difference.any():
            _draw(recorded, replayed, difference, folder / f"different_{number:03d}.png")
    return outcome


def _rests_first(code: str) -> bool:
    """Whether the pointer rests somewhere before the step's press, to open what is pressed."""
    calls = [call.partition("(")[0].removeprefix("pyautogui.") for call in code.splitlines()]
    moves = calls.count("moveTo")
    clicks = any(call.lower().endswith("click") for call in calls)
    return moves > 1 or (moves == 1 and clicks)


def different_blocks(recorded: Path, replayed: Path) -> Any:
    """The blocks that differ between two screens, apart from differences as small as a pointer."""
    first = _blocks(recorded)
    second = _blocks(replayed)
    if first.shape != second.shape:
        raise SystemExit(f"{recorded.name} and {replayed.name} have different sizes.")
    differs = (np.abs(first - second).max(axis=2) > DIFFERENT).astype(np.uint8)
    count, labels, boxes, _ = cv2.connectedComponentsWithStats(differs, connectivity=8)
    for number in range(1, count):
        width = boxes[number, cv2.CC_STAT_WIDTH]
        height = boxes[number, cv2.CC_STAT_HEIGHT]
        if width <= SMALL_BLOCKS[0] and height <= SMALL_BLOCKS[1]:
            differs[labels == number] = 0
    return differs.astype(bool)


def _blocks(picture: Path) -> Any:
    """The mean colour of each block, levels."""
    pixels = cv2.imread(str(picture))
    height, width = pixels.shape[:2]
    size = (-(-width // BLOCK), -(-height // BLOCK))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA).astype(np.float32)


def _draw(recorded: Path, replayed: Path, difference: Any, path: Path) -> None:
    """Write the recorded screen above the replayed one, with the different blocks framed."""
    pictures = [cv2.imread(str(picture)) for picture in (recorded, replayed)]
    for row, column in np.argwhere(difference):
        corner = (int(column) * BLOCK, int(row) * BLOCK)
        opposite = (corner[0] + BLOCK, corner[1] + BLOCK)
        for picture in pictures:
            cv2.rectangle(picture, corner, opposite, (0, 0, 255), 1)
    cv2.imwrite(str(path), np.vstack(pictures))


def _lost_steps(dataset: Path) -> dict[str, int]:
    """Why steps of the recording are not in the line, with their number."""
    metadata = json.loads((dataset / "metadata.json").read_text("utf-8"))
    reasons = metadata["excluded_steps"].items()
    return {reason: entry["count"] for reason, entry in reasons if entry["count"]}


def _run_desktop(*arguments: str, library: str = "") -> None:
    environment = {**os.environ, "PYTHONPATH": library, "PYTHONWARNINGS": "ignore"}
    subprocess.run([SYSTEM_PYTHON, str(DESKTOP), *arguments], env=environment, check=True)


def _install_pyautogui(library: Path) -> None:
    """Install pyautogui for the system's Python without tkinter, which it needs for messages."""
    if library.is_dir():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(library), *PYAUTOGUI], check=True)


def print_outcome(outcome: Outcome, folder: Path) -> None:
    steps = len(outcome.right)
    kept = outcome.recorded_state
    same = [name for name in kept if outcome.replayed_state.get(name) == kept[name]]
    print(f"{outcome.name}: {sum(outcome.right.values())} of {steps} screens right", end="")
    print(f", end state {len(same)} of {len(kept)} right")
    if outcome.lost:
        print(f"  not in the line: {outcome.lost}")
    wrong = [number for number, is_right in outcome.right.items() if not is_right]
    if wrong:
        first = wrong[0]
        print(f"  first divergence at step {first}: {outcome.actions[first]}")
        print(f"  see {folder / f'different_{first:03d}.png'}")
    for name in sorted({*kept, *outcome.replayed_state} - set(same)):
        print(
            f"  {name}: recorded {kept.get(name)!r}, replayed {outcome.replayed_state.get(name)!r}"
        )


def main() -> None:
    known = sorted((HERE / "scenarios").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("scenarios", nargs="*", help="names; all without")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/replay"))
    parser.add_argument(
        "--again", action="store_true", help="replay the recordings that the folder has"
    )
    given = parser.parse_args()
    library = given.folder / "pyautogui"
    given.folder.mkdir(parents=True, exist_ok=True)
    _install_pyautogui(library)
    for scenario in known:
        if given.scenarios and scenario.stem not in given.scenarios:
            continue
        folder = given.folder / scenario.stem
        if not given.again:
            record(scenario, folder)
            export(folder)
        print_outcome(replay(scenario, folder, library), folder)


if __name__ == "__main__":
    main()
