"""A recording of a busy screen for benchmarks, written with constant memory.

Windows open and are dragged, pages scroll far, lists light up under the pointer, a clip plays, and
some actions follow each other within one frame. It has no ground truth: what is right is tested
with the simulator's other films; this one costs what real screens cost.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.recordings.busy_person import BUSY_FPS, START_MS, BusyPerson
from benchmarks.recordings.busy_screen import BusyScreen
from demo_pipeline_tests.simulator.frame_numbers import stamp
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

_TIMESTAMP = "2026-09-21T14:13:20.000000000+00:00"


@dataclass(frozen=True)
class BusyOptions:
    """What is recorded.

    Attributes:
        minutes: length.
        actions: about how many; the time between them is spread evenly.
        width, height: of the screen, even.
        variable: frames without a change are mostly left out, and times are irregular.
        gop: largest number of frames between key frames.
        scan_every_s: from one accessibility scan to the next.
        scan_nodes: nodes in each scan.
        seed: of everything random.
    """

    minutes: float = 10
    actions: int = 280
    width: int = 1920
    height: int = 1080
    variable: bool = False
    gop: int = 250
    scan_every_s: float = 3.5
    scan_nodes: int = 1500
    seed: int = 1


def _life(person: BusyPerson, options: BusyOptions) -> Iterator[None]:
    """Everything that the person does, for ever: acts, and pauses that keep to the number."""
    total = options.minutes * 60 * BUSY_FPS
    yield from person.wait(30)
    yield from person.open_window()
    yield from person.wait(10)
    while True:
        window = person.screen.windows[-1]
        acts = (person.hurry, person.scroll, person.hover, person.type, person.play)
        chosen = person.random.choices(
            (*acts, person.drag_window, None), weights=(25, 20, 14, 14, 5, 12, 10)
        )[0]
        yield from person.open_window() if chosen is None else chosen(window)
        missing = person.actions * total / max(1, options.actions) - person.frame
        yield from person.wait(max(2, min(round(missing), 150)))


def busy_recording(dest: Path, options: BusyOptions) -> int:
    """Write `dest`/input_log.jsonl, meta.json and recording.mp4; returns the number of actions."""
    dest.mkdir(parents=True, exist_ok=True)
    random = Random(f"busy {options.seed}")
    screen = BusyScreen(options.width, options.height, random)
    with (dest / "input_log.jsonl").open("w", encoding="utf-8", newline="\n") as log:
        person = BusyPerson(screen, random, log)
        video = VideoOptions(fps=BUSY_FPS, gop=options.gop, preset="ultrafast", tune="zerolatency")
        size = (options.width, options.height)
        encode(dest / "recording.mp4", _pictures(person, options), size, video)
    (dest / "meta.json").write_text(json.dumps(_busy_meta(dest.name, options), indent=2) + "\n")
    return person.actions


def _pictures(person: BusyPerson, options: BusyOptions) -> Iterator[tuple[int, Any]]:
    life = _life(person, options)
    scan_every = round(options.scan_every_s * BUSY_FPS)
    before = (-1, -1)
    for number in range(round(options.minutes * 60 * BUSY_FPS)):
        still = not person.screen.changed and person.pointer == before
        if not (options.variable and still and person.random.random() < 0.9):
            before = person.pointer
            person.screen.changed = False
            planes = person.screen.planes(person.pointer)
            stamp(planes[: options.height], number)
            early = person.random.randrange(1200) if options.variable and number else 0
            yield number * TICKS // BUSY_FPS - early, planes
        if number % scan_every == 10:
            person.scan(options.scan_nodes)
        next(life)
        person.tick()


def _busy_meta(identifier: str, options: BusyOptions) -> dict[str, Any]:
    return {
        "id": identifier,
        "timestamp": _TIMESTAMP,
        "duration_seconds": round(options.minutes * 60),
        "status": "completed",
        "title": "Work in many windows",
        "description": "",
        "platform": "windows",
        "arch": "x86_64",
        "version": "10.0.26100",
        "locale": "en-US",
        "primary_monitor": {"width": options.width, "height": options.height},
        "reason": "done",
        "quest": {
            "title": "Work in many windows",
            "app": "Office",
            "icon_url": "",
            "objectives": ["Work in many windows"],
            "content": "Please look through the lists and mark what is late.",
            "pool_id": "000000000000000000000000",
            "reward": {"time": START_MS, "max_reward": 5},
        },
    }
