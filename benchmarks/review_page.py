"""Measures the review page over many demonstrations.

Run: `.venv/bin/python benchmarks/review_page.py [--demonstrations 1000] [--steps 200]`. Made
demonstrations of five or six steps are committed to a new store, with a decision about one in five;
the server runs in a process of its own, Chromium in another. Figures:

- `first queue`, `queue`: from the request to the last byte, by a new server and by one that has
  read the store;
- `demonstration`: one is opened, from the click until its first screenshot is drawn;
- `step`: from a key to the drawn screenshot of the next step, median and the slowest of 20;
- `memory`: resident, of the server: after the first queue, and after all demonstrations were shown.

Exits with 1 when a queue takes 1 s or more, a step in the median 100 ms or more, or the memory
grows by more than 50 MB.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from demo_pipeline.review.review_store import Reviews, subject_of  # noqa: E402 - after the path
from demo_pipeline_tests.browser import opened_browser  # noqa: E402
from demo_pipeline_tests.review.made import clean, commit  # noqa: E402
from demo_pipeline_tests.review.serving import Served, kill, start_command  # noqa: E402
from demo_pipeline_tests.sample_workspace import open_workspace  # noqa: E402

PORT = 9575


def fill(root: Path, count: int) -> None:
    workspace = open_workspace(root)
    reviews = Reviews(workspace.store)
    for number in range(count):
        demo = clean(number)
        commit(workspace, demo, root / "made")
        if number % 5 == 0:
            folder, version = workspace.store.open(f"trajectories/{demo.id}")
            subject = subject_of(version, demo.id)
            reviews.make(subject, folder, "ann", "note", {"text": "x"}, uuid4().hex)


def memory(running: Served) -> float:
    """Resident megabytes of the server."""
    assert running.process is not None
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def seconds(running: Served, path: str) -> float:
    start = time.perf_counter()
    assert running.ask(path).status == 200
    return time.perf_counter() - start


def stepped(page: Page, steps: int) -> list[float]:
    """Milliseconds from a key to the drawn screenshot, measured in the page."""
    script = """() => new Promise((done) => {
      const place = state.step + 1, demo = state.demo, start = performance.now();
      if (place >= demo.steps.length) { nextDemonstration(1); }
      else document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
      const look = () => {
        const wanted = demo === state.demo ? `${demo.id}/${demo.steps[place]?.index}` : null;
        if (wanted ? canvas.dataset.shown === wanted : canvas.dataset.shown.endsWith("/0"))
          requestAnimationFrame(() => done([demo === state.demo, performance.now() - start]));
        else requestAnimationFrame(look);
      };
      look();
    })"""
    found = []
    while len(found) < steps:
        within, milliseconds = page.evaluate(script)
        page.wait_for_timeout(60)  # a person looks
        if within:
            found.append(milliseconds)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root, chosen.demonstrations)
        running = start_command(root, PORT, "--author", "ann", wait=False)
        try:
            first = seconds(running, "api/queue")
            queue = seconds(running, "api/queue")
            before = memory(running)
            names = [row["id"] for row in running.ask("api/queue").json["rows"]]
            opened = [seconds(running, f"api/demonstrations/{name}") for name in names]
            after = memory(running)
            with opened_browser() as browser:
                page = browser.new_page(viewport={"width": 1920, "height": 1080})
                page.goto(running.url)
                page.wait_for_selector('#canvas[data-shown*="/"]')
                steps = stepped(page, chosen.steps)
        finally:
            kill(running)
    median = statistics.median(steps)
    slowest = statistics.quantiles(steps, n=20)[-1]
    print(f"first queue {first:.2f} s, queue {queue:.2f} s, of {len(names)}")
    print(f"demonstration {statistics.median(opened) * 1000:.0f} ms")
    print(f"step {median:.0f} ms, one in 20 over {slowest:.0f} ms")
    print(f"memory {before:.0f} MB, then {after:.0f} MB")
    return int(max(first, queue) >= 1 or median >= 100 or after - before > 50)


if __name__ == "__main__":
    sys.exit(main())
