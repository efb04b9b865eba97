"""Measures `demo-pipeline import` of a folder with many recordings of another tool.

Run: `.venv/bin/python benchmarks/many_imports.py [--count 1000] [--steps 8] [--bad 10]`.
The recordings are in the form of PC Tracker: a line and a PNG of 1920x1080 a step; the screenshots
are hard links to ten pictures. Every `--bad`th of the last ones has a log that is cut off. The
command runs three times: all is new, nothing is new, and a tenth was added. Each figure is of the
whole process: wall and CPU seconds, and the most memory that it held.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

PICTURES = 10
SIZE = (1080, 1920, 3)


def write_pictures(folder: Path) -> list[Path]:
    """Pictures of windows with text, so that they compress as screens do."""
    folder.mkdir(parents=True)
    paths = []
    for number in range(PICTURES):
        picture = np.full(SIZE, 235, np.uint8)
        for row in range(40):
            text = f"Line {row} of window {number}: the quick brown fox jumps over the lazy dog"
            place = (40 + 10 * number, 40 + 25 * row)
            cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.6, (40, 40, 40), 1)
        paths.append(folder / f"{number}.png")
        assert cv2.imwrite(str(paths[-1]), picture)
    return paths


def write_recording(folder: Path, number: int, steps: int, pictures: list[Path]) -> Path:
    """One recording; returns its log."""
    name = f"task{number + 1}_20260105_{number % 240000:06d}"
    images = folder / "screenshot"
    images.mkdir(parents=True, exist_ok=True)
    lines = []
    for step in range(steps + 1):
        image = f"20260105_{number:06d}_{step + 1}.png"
        os.link(pictures[(number + step) % PICTURES], images / image)
        place = (100 + 13 * number % 1500, 100 + 50 * step)
        rect = {"left": place[0] - 9, "top": place[1] - 9}
        rect |= {"right": place[0] + 9, "bottom": place[1] + 9}
        is_last = step == steps
        lines.append(
            {
                "timestamp": f"2026-01-05_09:{step // 60:02d}:{step % 60:02d}",
                "action": "finish" if is_last else f"click ({place[0]}, {place[1]})",
                "screenshot": f"events\\screenshot\\{image}",
                "element": None if is_last else f"Button {step}",
                "rect": None if is_last else rect,
            }
        )
    log = folder / f"{name}.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    page = f"# Task {number + 1}\n**Description:** Press the buttons of form {number}.\n"
    log.with_suffix(".md").write_text(page, encoding="utf-8")
    return log


def run_import(source: Path, root: Path) -> str:
    """Run the command; returns a line with its figures and its own summary."""
    variables = {
        "DEMO_PIPELINE_UPLOADS": str(root / "uploads"),
        "DEMO_PIPELINE_STORE": str(root / "store"),
        "DEMO_PIPELINE_OSWORLD_TASKS": str(root / "tasks"),
        "DAGSTER_HOME": str(root / "home"),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "demo_pipeline.cli.app", "import", str(source)]
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    summary = (done.stdout.strip().splitlines() or [done.stderr])[-1].strip()
    peak = after.ru_maxrss / 1024
    return f"{wall:7.1f} s  {cpu:7.1f} CPU s  {peak:5.0f} MB  exit {done.returncode}  {summary}"


def main() -> None:
    """Write the recordings, and run the command on them three times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--bad", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="many-imports-") as place:
        root = Path(place)
        for name in ("uploads", "store", "tasks", "home"):
            (root / name).mkdir()
        pictures = write_pictures(root / "pictures")
        source = root / "source"
        for number in range(options.count):
            log = write_recording(source / f"person{number % 20}", number, options.steps, pictures)
            if number >= options.count - options.bad:
                log.write_bytes(log.read_bytes()[:60])
        print("all new     ", run_import(source, root))
        print("nothing new ", run_import(source, root))
        for number in range(options.count, options.count + options.count // 10):
            write_recording(source / "later", number, options.steps, pictures)
        print("a tenth new ", run_import(source, root))


if __name__ == "__main__":
    main()
