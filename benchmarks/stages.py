"""Wall and CPU seconds of every stage for one long recording, beside decoding alone.

Run: `.venv/bin/python benchmarks/stages.py [--rounds 3] [--film usual] [--keep DIR]`. The film is
`light` to decode, which shows the other costs best, or encoded as `usual` for real recordings. The
recording is made once (some minutes) and reused when `--keep` names the same folder. All figures
come from one run on one machine; the ratio to the plain decodes before and after, in the same
round, is what to compare. The memory of a stage is the most that the process had held by its end in
the first round.
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import Process
from pathlib import Path
from typing import NamedTuple

import av

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stage_types import Stage
from demo_pipeline.settings import Settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.simulator.long_recording import light_video, long_recording, usual_video

NAME = "long"


class Cost(NamedTuple):
    """Seconds of one measured piece of work, and the most memory the process held by its end."""

    wall: float
    cpu: float
    peak_mb: float


def measured(work: Callable[[], object]) -> Cost:
    """Run `work` once in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, peak_mb)


def decode(video: Path) -> None:
    """Every frame, one thread, nothing kept."""
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        for _ in container.decode(stream):
            pass


def rounds_of(uploads: Path, rounds: int) -> dict[str, list[Cost]]:
    """Plain decode, each stage, and plain decode again, `rounds` times, each into a fresh store."""
    costs: dict[str, list[Cost]] = {"plain decode": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as store:
            settings = Settings(uploads=str(uploads), store=store)
            workspace = Workspace.open(settings)
            before = measured(_decoder(uploads))
            for stage in STAGES:
                costs.setdefault(stage.name, []).append(measured(_runner(workspace, stage)))
            after = measured(_decoder(uploads))
        mean = Cost((before.wall + after.wall) / 2, (before.cpu + after.cpu) / 2, before.peak_mb)
        costs["plain decode"].append(mean)
    return costs


def _decoder(uploads: Path) -> Callable[[], object]:
    return lambda: decode(uploads / NAME / "recording.mp4")


def _runner(workspace: Workspace, stage: Stage) -> Callable[[], object]:
    return lambda: run_stage(workspace, stage, NAME)


def report(costs: dict[str, list[Cost]]) -> None:
    """Medians over the rounds: seconds, and CPU as a multiple of the round's plain decode.

    Beside that multiple, its least and its largest of any round.
    """
    decodes = [cost.cpu for cost in costs["plain decode"]]
    sums = [0.0] * len(decodes)
    print(f"{'':<16}{'wall s':>9}{'cpu s':>9}{'x decode':>10}{'of rounds':>13}{'peak MB':>9}")
    for name, found in costs.items():
        if name == "contact_sheets":
            print(_row("to trajectories", sums, decodes))
        cpu = [cost.cpu for cost in found]
        if name != "plain decode":
            sums = [before + more for before, more in zip(sums, cpu, strict=True)]
        wall = statistics.median(cost.wall for cost in found)
        print(_row(name, cpu, decodes, f"{wall:.2f}") + f"{found[0].peak_mb:>9.0f}")
    print(_row("all stages", sums, decodes))


def _row(name: str, cpu: list[float], decodes: list[float], wall: str = "") -> str:
    ratios = [one / base for one, base in zip(cpu, decodes, strict=True)]
    ratio, spread = statistics.median(ratios), f"{min(ratios):.2f}-{max(ratios):.2f}"
    return f"{name:<16}{wall:>9}{statistics.median(cpu):>9.2f}{ratio:>10.2f}{spread:>13}"


def main() -> None:
    """Make the recording where it is missing, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--log-mb", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--film", choices=["light", "usual"], default="light")
    parser.add_argument("--keep", type=Path, help="where the recording is kept for the next time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        uploads = arguments.keep or Path(scratch)
        if not (uploads / NAME / "recording.mp4").is_file():
            print("making the recording …", file=sys.stderr)
            video = usual_video() if arguments.film == "usual" else light_video()
            amount = (arguments.minutes, arguments.steps, video, arguments.log_mb)
            # In a process of its own, whose memory is not counted here.
            maker = Process(target=long_recording, args=(uploads / NAME, *amount))
            maker.start()
            maker.join()
        report(rounds_of(uploads, arguments.rounds))


if __name__ == "__main__":
    main()
