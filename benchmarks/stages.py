"""CPU, wall and memory from a recording to its trajectory and datasets, beside decoding alone.

Run: `.venv/bin/python benchmarks/stages.py [--video busy] [--rounds 3] [--keep DIR]`, or with
`--recording DIR` for a given one. Without either, every kind is measured: `light` and `usual` (a
quiet screen, the cheapest encoding and that of real recordings), `busy` (windows dragged, long
scrolls, hover effects, a clip, hurried clicks), `variable` (the same with a variable frame rate)
and `large` (the same in 2560x1440). Recordings are made once (some minutes each) and reused when
`--keep` names the same folder.

Every piece of work runs in a fresh process, so that its memory is its own. In each round it stands
between two plain decodes of the same video; the ratio to their mean is what to compare, not the
seconds. `straightforward` is the same work by OpenCV, json and pydantic. `--run` adds the command
`demo-pipeline run` with the default exports, and two of them at once. `--double` doubles length and
number of actions instead, twice: the memory has to stay the same.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.child import Spent, in_child  # noqa: E402 - after the path
from benchmarks.pieces import (  # noqa: E402
    decode_piece,
    run_piece,
    stages_piece,
    straightforward_piece,
)
from benchmarks.recordings.busy_recording import (  # noqa: E402
    BusyOptions,
    busy_recording,
)
from benchmarks.recordings.long_recording import (  # noqa: E402
    light_video,
    long_recording,
    usual_video,
)
from demo_pipeline.files.processes import save_memory  # noqa: E402

NAME = "long"
DECODE = "plain decode"
TO_TRAJECTORIES = "to trajectories"
ALL_STAGES = "all stages"
Round = dict[str, Spent]


def _busy(**options: object) -> Callable[[Path, float, int], object]:
    def make(dest: Path, minutes: float, actions: int) -> object:
        return busy_recording(dest, BusyOptions(minutes=minutes, actions=actions, **options))

    return make


VIDEOS: Mapping[str, Callable[[Path, float, int], object]] = {
    "light": lambda dest, minutes, actions: long_recording(dest, minutes, actions, light_video()),
    "usual": lambda dest, minutes, actions: long_recording(dest, minutes, actions, usual_video()),
    "busy": _busy(),
    "variable": _busy(variable=True),
    "large": _busy(width=2560, height=1440),
}


def make_video(kind: str, dest: Path, minutes: float, actions: int) -> None:
    """Write a recording of a kind; in a child process, whose memory is not counted."""
    VIDEOS[kind](dest, minutes, actions)


def measured_round(recording: Path, *, run: bool) -> Round:
    """Every piece of work once, between two plain decodes."""
    video = recording / "recording.mp4"
    found: Round = {}
    before = in_child(decode_piece, video)
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "store"
        for name, cost in in_child(stages_piece, recording.parent, store, recording.name):
            found[name] = cost
            if name == "trajectories":
                found[TO_TRAJECTORIES] = _sum(found)
        rows = {name: cost for name, cost in found.items() if name != TO_TRAJECTORIES}
        found[ALL_STAGES] = _sum(rows)
        found["straightforward"] = in_child(
            straightforward_piece, recording, store, Path(scratch) / "plain"
        )
    if run:
        found["demo-pipeline run"] = in_child(run_piece, recording, 1)
    after = in_child(decode_piece, video)
    if run:
        found["two decodes"] = in_child(decode_piece, video, 2)
        found["two runs"] = in_child(run_piece, recording, 2)
    mean = [(one + other) / 2 for one, other in zip(before, after, strict=True)]
    return {DECODE: Spent(*mean), **found}


def _sum(found: Round) -> Spent:
    costs = list(found.values())
    wall = sum(cost.wall for cost in costs)
    cpu = sum(cost.cpu for cost in costs)
    return Spent(wall, cpu, max(cost.peak_mb for cost in costs))


def report(kind: str, rounds: Sequence[Round]) -> None:
    """Print medians: seconds, CPU as a multiple of the round's decodes with its spread, memory."""
    heads = f"{'wall s':>9}{'cpu s':>9}{'x decode':>10}{'of rounds':>13}{'peak MB':>9}"
    print(f"\n{kind:<18}{heads}")
    for name in rounds[0]:
        costs = [one[name] for one in rounds]
        ratios = [one[name].cpu / one[DECODE].cpu for one in rounds]
        wall = statistics.median(cost.wall for cost in costs)
        cpu = statistics.median(cost.cpu for cost in costs)
        peak = max(cost.peak_mb for cost in costs)
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        ratio = statistics.median(ratios)
        print(f"{name:<18}{wall:>9.2f}{cpu:>9.2f}{ratio:>10.2f}{spread:>13}{peak:>9.0f}")
    if "two runs" in rounds[0]:
        walls = [one["two runs"].wall / one["two decodes"].wall for one in rounds]
        print(f"two runs at once, wall: {statistics.median(walls):.2f} x two decodes at once")


def report_side_by_side(found: Mapping[str, Sequence[Round]]) -> None:
    """Print the CPU of each piece as a multiple of decoding, one column for each kind of video."""
    print(f"\n{'x plain decode':<18}" + "".join(f"{kind:>10}" for kind in found))
    for name in next(iter(found.values()))[0]:
        ratios = [
            statistics.median(one[name].cpu / one[DECODE].cpu for one in rounds)
            for rounds in found.values()
        ]
        print(f"{name:<18}" + "".join(f"{ratio:>10.2f}" for ratio in ratios))
    peaks = [max(one[ALL_STAGES].peak_mb for one in rounds) for rounds in found.values()]
    print(f"{'peak MB':<18}" + "".join(f"{peak:>10.0f}" for peak in peaks))


def report_doubling(kind: str, uploads: Path, minutes: float, actions: int) -> None:
    """Print the memory of the stages for one, two and four times the length and the actions."""
    print(f"\n{kind:<10}{'minutes':>9}{'actions':>9}{'x decode':>10}{'peak MB':>9}")
    for times in (1, 2, 4):
        folder = _made(kind, uploads / f"{kind}-{times}", minutes * times, actions * times)
        found = measured_round(folder, run=False)
        ratio = found[ALL_STAGES].cpu / found[DECODE].cpu
        columns = f"{minutes * times:>9.1f}{actions * times:>9}{ratio:>10.2f}"
        print(f"{'':<10}{columns}{found[ALL_STAGES].peak_mb:>9.0f}")


def _made(kind: str, uploads: Path, minutes: float, actions: int) -> Path:
    """The folder of a recording of a kind, made unless it is there."""
    folder = uploads / NAME
    if not (folder / "meta.json").is_file():  # written last
        print(f"making the recording {kind} …", file=sys.stderr)
        in_child(make_video, kind, folder, minutes, actions)
    return folder


def main() -> None:
    """Make the recordings that are missing, measure, print."""
    save_memory()  # as every process of the program does; children take it over
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--video", choices=list(VIDEOS), action="append")
    parser.add_argument("--recording", type=Path, action="append", help="a folder, in their place")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--actions", type=int, default=284)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", action="store_true", help="the whole command too")
    parser.add_argument("--double", action="store_true", help="twice and four times the length")
    parser.add_argument("--keep", type=Path, help="where recordings are kept for the next time")
    arguments = parser.parse_args()
    minutes = arguments.minutes
    actions = arguments.actions
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.keep or Path(scratch)
        if arguments.double:
            for kind in arguments.video or ["busy"]:
                report_doubling(kind, root, minutes, actions)
            return
        given = {folder.name: folder.resolve() for folder in arguments.recording or ()}
        found = {}
        for kind in given or arguments.video or VIDEOS:
            folder = given.get(kind) or _made(kind, root / kind, minutes, actions)
            rounds = range(arguments.rounds)
            found[kind] = [measured_round(folder, run=arguments.run) for _ in rounds]
            report(kind, found[kind])
        report_side_by_side(found)


if __name__ == "__main__":
    main()
