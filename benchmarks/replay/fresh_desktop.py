"""The desktop's side of `make replay`: record a scenario, or replay a line on a fresh desktop.

    fresh_desktop.py record SCENARIO.py FOLDER
    fresh_desktop.py replay SCENARIO.py LINE.json FOLDER

Runs under the system's Python, like the recorder. Both write `end_state.json` to FOLDER. A replay
has the three calls of OSWorld's environment (`reset`, `step`, `evaluate`), so that it is the same
runner, `examples/replay_in_osworld.py`, that replays here and there.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "benchmarks/truth/recorder"))
sys.path.insert(0, str(_ROOT / "benchmarks/replay"))
sys.path.insert(0, str(_ROOT / "examples"))

import record as recorder
from desktop import Desktop
from hand import Hand
from replay_in_osworld import replay
from replayed_scenario import ReplayedScenario

Observation = dict[str, bytes]


class FreshDesktop:
    """A desktop with a scenario's programs, driven by pyautogui; see OSWorld's `DesktopEnv`."""

    def __init__(self, scenario: ReplayedScenario, desktop: Desktop) -> None:
        self._scenario = scenario
        self._desktop = desktop
        self._names: dict[str, Any] = {"time": time}

    def reset(self, task_config: dict[str, Any]) -> Observation:
        """Starts the programs as the recording did; the desktop is fresh already."""
        del task_config
        scenario = self._scenario
        self._desktop.set_keyboard_layout(scenario.layout, scenario.variant)
        scenario.prepare(self._desktop)
        hand = Hand()
        hand.jump(scenario.width // 2, scenario.height - 12)
        import pyautogui  # it looks for the display when it is imported

        pyautogui.FAILSAFE = False
        self._names["pyautogui"] = pyautogui
        time.sleep(3)
        return self._observe()

    def step(self, action: str, pause: float) -> tuple[Observation, float, bool, dict[str, Any]]:
        """Runs the code of a step, and waits before it looks at the screen."""
        done = action in {"DONE", "FAIL"}
        if not done:
            exec(action, self._names)  # noqa: S102 - code of our own export, read from its form
        time.sleep(pause)
        return self._observe(), 0.0, done, {}

    def evaluate(self) -> float:
        """The share of the end state that is as wanted."""
        state = self._scenario.end_state(self._desktop.home)
        right = sum(state.get(name) == value for name, value in self._scenario.wanted.items())
        return right / len(self._scenario.wanted)

    def _observe(self) -> Observation:
        size = f"{self._desktop.width}x{self._desktop.height}"
        grab = ["ffmpeg", "-v", "error", "-f", "x11grab", "-draw_mouse", "1", "-video_size", size]
        picture = ["-i", self._desktop.display, "-frames:v", "1", "-c:v", "png", "-f", "image2pipe"]
        png = subprocess.run([*grab, *picture, "-"], capture_output=True, check=True).stdout
        return {"screenshot": png}


def _record(scenario: ReplayedScenario, folder: Path) -> None:
    """Records the scenario, and reads its end state before the desktop ends."""
    homes: list[Path] = []
    state: dict[str, str] = {}

    def prepare(desktop: Desktop) -> None:
        homes.append(desktop.home)
        scenario.prepare(desktop)

    def run(hand: Hand) -> None:
        scenario.run(hand)
        state.update(scenario.end_state(homes[0]))

    recording = recorder.record(replace(scenario, prepare=prepare, run=run), folder)
    (recording / "truth.json").rename(folder / "truth.json")
    _write_state(state, folder)


def _replay(scenario: ReplayedScenario, line: dict[str, Any], folder: Path) -> None:
    with Desktop(scenario.width, scenario.height) as desktop:
        environment = FreshDesktop(scenario, desktop)
        replay(environment, line, {}, folder)
        _write_state(scenario.end_state(desktop.home), folder)


def _write_state(state: dict[str, str], folder: Path) -> None:
    (folder / "end_state.json").write_text(json.dumps(state, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    command, scenario_file, *paths = sys.argv[1:]
    scenario = recorder.load_scenario(Path(scenario_file))
    if not isinstance(scenario, ReplayedScenario):
        raise SystemExit(f"{scenario_file} assigns no ReplayedScenario to SCENARIO.")
    if command == "record":
        _record(scenario, Path(paths[0]))
    else:
        _replay(scenario, json.loads(Path(paths[0]).read_text("utf-8")), Path(paths[1]))


if __name__ == "__main__":
    main()
