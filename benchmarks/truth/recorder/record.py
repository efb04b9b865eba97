"""Records a scenario on a private desktop: input_log.jsonl, meta.json, recording.mp4, truth.json.

Run: `/usr/bin/python3 benchmarks/truth/recorder/record.py SCENARIO.py FOLDER`. A folder named after
the demonstration's id is made in FOLDER; truth.json in it is the hand's own list. The README beside
this file says which apt packages are needed and how a scenario is written.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TextIO

from desktop import Desktop
from hand import Hand
from rdev_keys import rdev_name
from scenario import Scenario
from Xlib import X, display
from Xlib.ext import record as x_record
from Xlib.protocol import rq

_BUTTONS = {1: "Left", 2: "Middle", 3: "Right"}
_WHEEL_UP = 4
_WHEEL_DOWN = 5
_ENCODER = "-c:v libx264 -preset ultrafast -tune zerolatency -crf 24 -pix_fmt yuv420p -g 150"
# On a busy machine ffmpeg grabs frames late, and would still stamp them at even intervals: in the
# first second of a recording it was 0.2 s off. So every frame keeps the time of its grab.
_EXACT_TIMES = "-vsync passthrough -enc_time_base 1:1000"


class InputLog:
    """The log file, written by several threads."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, event: str, data: dict[str, Any], milliseconds: int | None = None) -> None:
        """Writes a line with the time of the event, or with the present."""
        line = {
            "event": event,
            "data": data,
            "time": milliseconds or time.time_ns() // 1_000_000,
        }
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Later lines are dropped."""
        with self._lock:
            self._file.close()


class InputListener:
    """Logs keys, buttons, the wheel and the pointer by the X RECORD extension."""

    def __init__(self, log: InputLog) -> None:
        self._events = rq.EventField(None)
        self._log = log
        self._control = display.Display()
        self._data = display.Display()
        nothing = (0, 0)
        ranges = {
            "core_requests": nothing,
            "core_replies": nothing,
            "ext_requests": (0, 0, 0, 0),
            "ext_replies": (0, 0, 0, 0),
            "delivered_events": nothing,
            "device_events": (X.KeyPress, X.MotionNotify),
            "errors": nothing,
            "client_started": False,
            "client_died": False,
        }
        self._context = self._data.record_create_context(0, [x_record.AllClients], [ranges])
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the listening."""
        self._control.record_disable_context(self._context)
        self._control.flush()
        self._thread.join(3)

    def _listen(self) -> None:
        self._data.record_enable_context(self._context, self._receive)

    def _receive(self, reply: Any) -> None:
        if reply.category != x_record.FromServer or reply.client_swapped:
            return
        data = reply.data
        while len(data):
            event, data = self._events.parse_binary_value(data, self._data.display, None, None)
            self._write(event)

    def _write(self, event: Any) -> None:
        place = {"x": event.root_x, "y": event.root_y}
        if event.type == X.KeyPress:
            self._log.write("keydown", {"key": rdev_name(event.detail)})
        elif event.type == X.KeyRelease:
            self._log.write("keyup", {"key": rdev_name(event.detail)})
        elif event.type == X.MotionNotify:
            self._log.write("mousemove", place)
        elif event.detail in (_WHEEL_UP, _WHEEL_DOWN):
            if event.type == X.ButtonPress:
                self._log.write("mousewheel", {"delta": 1 if event.detail == _WHEEL_UP else -1})
        elif event.detail in _BUTTONS:
            name = "mousedown" if event.type == X.ButtonPress else "mouseup"
            self._log.write(name, {**place, "button": _BUTTONS[event.detail]})


class Scans:
    """Logs the accessibility scans of a process of its own."""

    def __init__(self, log: InputLog, seconds: float) -> None:
        script = Path(__file__).with_name("accessibility_scans.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._copy, args=(log,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the process, whose last scan may be lost."""
        self._process.terminate()
        self._thread.join(3)
        self._process.wait()

    def _copy(self, log: InputLog) -> None:
        output = self._process.stdout
        if output is None:
            return
        for line in output:
            scan = json.loads(line)
            log.write("axtree", scan["data"], scan["time"])


class ScreenVideo:
    """The screen's video, grabbed by ffmpeg."""

    def __init__(self, desktop: Desktop, scenario: Scenario, path: Path) -> None:
        self._path = path
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        command = ["ffmpeg", "-y", "-hide_banner", "-nostats", "-f", "x11grab", "-draw_mouse", "1"]
        command += ["-framerate", str(scenario.fps)]
        command += ["-video_size", f"{scenario.width}x{scenario.height}"]
        command += [
            "-thread_queue_size",
            "8",
            "-i",
            desktop.display,
            *_ENCODER.split(),
            *_EXACT_TIMES.split(),
            str(path),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=self._messages, text=True
        )

    def stop(self) -> tuple[float, float]:
        """The epoch seconds of the first frame as ffmpeg says it, and the length in seconds."""
        self._process.communicate("q", timeout=60)
        self._messages.seek(0)
        start = re.search(r"start: (\d+\.\d+)", self._messages.read())
        self._messages.close()
        if start is None:
            raise RuntimeError("ffmpeg grabbed no frame.")
        probe = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"]
        length = subprocess.run(
            [*probe, str(self._path)], capture_output=True, text=True, check=True
        ).stdout
        return float(start[1]), float(length)


def record(scenario: Scenario, folder: Path) -> Path:
    """Records a scenario; returns the folder of the recording."""
    with Desktop(scenario.width, scenario.height) as desktop:
        desktop.set_keyboard_layout(scenario.layout, scenario.variant, scenario.layout_options)
        hand = Hand()
        scenario.prepare(desktop)
        hand.jump(scenario.width // 2, scenario.height - 12)
        if scenario.caps_lock:
            hand.tap_caps_lock()
        time.sleep(1)
        folder.mkdir(parents=True, exist_ok=True)
        files = Path(tempfile.mkdtemp(prefix=".recording-", dir=folder))
        log = InputLog(files / "input_log.jsonl")
        video = ScreenVideo(desktop, scenario, files / "recording.mp4")
        listener = InputListener(log)
        scans = Scans(log, scenario.scan_seconds)
        time.sleep(3)
        try:
            scenario.run(hand)
        except Exception:
            traceback.print_exc()
        time.sleep(1.5)
        listener.stop()
        scans.stop()
        start, length = video.stop()
        log.close()
    meta = _meta(scenario, start, length)
    truth = {"video_start_ms": start * 1000, "actions": hand.truth}
    (files / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    (files / "truth.json").write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n")
    files.chmod(0o755)
    return files.rename(folder / meta["id"])


def _meta(scenario: Scenario, start: float, length: float) -> dict[str, Any]:
    begin = datetime.fromtimestamp(start, timezone(timedelta(hours=1)))
    quest = {
        "title": scenario.title,
        "app": scenario.app,
        "icon_url": "",
        "objectives": scenario.objectives,
        "content": scenario.content,
        "pool_id": "0" * 24,
        "reward": {"time": int(start) // 60 * 60_000, "max_reward": 5},
    }
    return {
        "id": begin.strftime("%Y%m%d_%H%M%S"),
        "timestamp": begin.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000+01:00",
        "duration_seconds": int(length),
        "status": "completed",
        "title": scenario.title,
        "description": "",
        "platform": "linux",
        "arch": "x86_64",
        "version": "12",
        "locale": scenario.locale,
        "primary_monitor": {"width": scenario.width, "height": scenario.height},
        "reason": "done",
        "quest": quest,
    }


def load_scenario(path: Path) -> Scenario:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scenario = module.SCENARIO
    if not isinstance(scenario, Scenario):
        raise SystemExit(f"{path} assigns no Scenario to SCENARIO.")
    return scenario


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    recording = record(load_scenario(arguments.scenario), arguments.folder)
    print(recording)


if __name__ == "__main__":
    main()
