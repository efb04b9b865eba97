"""Measures many small demonstrations in batch runs, beside the same functions without Dagster.

Run: `.venv/bin/python benchmarks/batch_runs.py [--demonstrations 500] [--rounds 3] [--single 50]
[--broken] [--recording DIR]`. Copies of one recording of ten seconds, which differ in every file,
are processed to their contact sheets; every figure is from a new process and holds its imports:

- `functions`: the stages in a loop, in one process;
- `at once`: the same in as many processes at once as a batch has. Cores that share a cache or an
  arithmetic unit need more CPU time for the same work when all are busy;
- `batches`: `demo-pipeline run` without the datasets, one process per core;
- `batches by one process`: the same with a single one, to compare with `functions`;
- `runs of one`: a run each for `--single` of them, scaled.

The outputs of all are compared. `--broken` breaks one in ten, in four ways, for the batches only:
those of the others have to stay the same. Exits with 1 when one differs, or when, in the median of
the rounds, batches need more than 1.10 times the CPU time of the functions in as many processes.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.child import Spent, in_child, spent  # noqa: E402 - after the path
from demo_pipeline.settings import Settings  # noqa: E402
from demo_pipeline_tests.simulator.form import script  # noqa: E402
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_recording  # noqa: E402
from demo_pipeline_tests.simulator.script import (  # noqa: E402
    click,
    hotkey,
    scroll,
    type_text,
)
from demo_pipeline_tests.simulator.video import VideoOptions  # noqa: E402
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload  # noqa: E402

LIMIT = 1.10
FUNCTIONS, AT_ONCE, BATCHES = "functions", "at once", "batches"
ALONE, SINGLE = "batches by one process", "runs of one"
WAYS = (FUNCTIONS, ALONE, AT_ONCE, BATCHES)
_ACTS = (click("Agree"), click("Name"), type_text("Hello"), scroll("Rows", 2), hotkey("ctrl", "a"))
_FREE_BOX = 8  # bytes of an empty box of MP4, which players skip


class Places(NamedTuple):
    """Where one piece of work reads and writes."""

    uploads: Path
    store: Path
    home: Path


def tear_video(folder: Path) -> None:
    """Half of the video is missing."""
    video = folder / "recording.mp4"
    video.write_bytes(video.read_bytes()[: video.stat().st_size // 2])


def lose_meta(folder: Path) -> None:
    """There is no meta.json."""
    (folder / "meta.json").unlink()


BREAKING = (tear_video, spoil_log, tear_meta, lose_meta)


def write_example(folder: Path) -> None:
    """A synthetic recording of about ten seconds, 1280x720."""
    video = VideoOptions(preset="ultrafast", fps=15)
    write_recording(folder, script(*_ACTS), RecordingOptions(width=1280, height=720, video=video))


def write_copies(recording: Path, uploads: Path, count: int, *, broken: bool) -> set[str]:
    """Write copies that differ in every file; returns the ids of those that are broken."""
    damaged = set[str]()
    for number in range(count):
        folder = upload(recording, uploads, f"demo_{number:05d}")
        _mark(folder, number)
        if broken and number % 10 == 9:
            BREAKING[number // 10 % len(BREAKING)](folder)
            damaged.add(folder.name)
    return damaged


def _mark(folder: Path, number: int) -> None:
    """Make video and log unlike those of other copies, without a change of what they say."""
    text = f"{number:08d}".encode()
    with (folder / "recording.mp4").open("ab") as video:
        video.write((_FREE_BOX + len(text)).to_bytes(4, "big") + b"free" + text)
    log = folder / "input_log.jsonl"
    first, rest = log.read_bytes().split(b"\n", 1)
    log.write_bytes(first + b" " * (number + 1) + b"\n" + rest)


def run_functions(places: Places, ids: Sequence[str]) -> None:
    """Every stage of these demonstrations, one after the other."""
    from demo_pipeline.runs.stage_runs import build_stage  # noqa: PLC0415
    from demo_pipeline.runs.stages import STAGES  # noqa: PLC0415
    from demo_pipeline.runs.workspace import Workspace  # noqa: PLC0415

    workspace = Workspace.open(_settings(places))
    for key in ids:
        for stage in STAGES:
            build_stage(workspace, stage, key)


def run_at_once(places: Places, ids: Sequence[str], workers: int) -> None:
    """The same in some processes, which begin at the same time."""
    parts = [ids[number::workers] for number in range(workers)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(run_functions, places, part) for part in parts]:
            future.result()


def run_batches(places: Places, ids: Sequence[str], workers: int) -> None:
    """As `demo-pipeline run` does: a run of Dagster for each, in the workers of a pool."""
    from demo_pipeline.defs.local_instance import opened_instance  # noqa: PLC0415 - measured too
    from demo_pipeline.defs.local_runs import process  # noqa: PLC0415
    from demo_pipeline.defs.partitions import register_partitions  # noqa: PLC0415
    from demo_pipeline.runs.workspace import Workspace  # noqa: PLC0415

    os.environ["DAGSTER_HOME"] = str(places.home)
    workspace = Workspace.open(_settings(places))
    with opened_instance(places.home) as instance:
        register_partitions(instance, ids)
        for _ in process(workspace, instance, ids, workers, command="benchmark"):
            pass


def run_single(places: Places, ids: Sequence[str], workers: int) -> None:
    """A run of Dagster for each."""
    run_batches(places, ids, workers)


def _settings(places: Places) -> Settings:
    roots = {"uploads": str(places.uploads), "store": str(places.store)}
    return Settings(**roots, osworld_tasks=str(places.store / "none"))


def measure(work: Callable[..., None], *arguments: object) -> Spent:
    """What the work takes, with its imports."""
    return spent(lambda: work(*arguments))


def contents(store: Path, names: Iterable[str] = ()) -> dict[str, str]:
    """Output → fingerprint of its bytes; of all outputs, or of those with these names."""
    from demo_pipeline.store.store import open_store  # noqa: PLC0415

    opened = open_store(str(store))
    found = {name: opened.current(name) for name in names or opened.outputs()}
    return {name: version.content for name, version in found.items() if version}


class Benchmark:
    """The rounds over one set of uploads.

    Args:
        scratch: a folder for everything.
        whole, uploads: the copies without and with damage.
        workers: processes of a batch.
    """

    def __init__(self, scratch: Path, whole: Path, uploads: Path, workers: int) -> None:
        self._scratch, self._whole, self._uploads = scratch, whole, uploads
        ids = sorted(path.name for path in whole.iterdir())
        self.ids, self.home_bytes = ids, 0
        self._ways: dict[str, tuple[Callable[..., None], tuple[object, ...]]] = {
            FUNCTIONS: (run_functions, (ids,)),
            ALONE: (run_batches, (ids, 1)),
            AT_ONCE: (run_at_once, (ids, workers)),
            BATCHES: (run_batches, (ids, workers)),
        }
        self._workers = workers

    def run(self, way: str) -> tuple[Spent, dict[str, str]]:
        """What one way takes, and its outputs."""
        work, arguments = self._ways[way]
        undamaged = way in {FUNCTIONS, AT_ONCE}
        with self._places(self._whole if undamaged else self._uploads) as places:
            cost = in_child(measure, work, places, *arguments)
            if way == BATCHES:
                self.home_bytes = _bytes_of(places.home)
            return cost, contents(places.store)

    def run_single(self, count: int) -> Spent:
        """What runs of one take, scaled to all."""
        with self._places(self._uploads) as places:
            cost = in_child(measure, run_single, places, self.ids[:count], self._workers)
        scale = len(self.ids) / count
        return Spent(cost.wall * scale, cost.cpu * scale, cost.peak_mb)

    @contextmanager
    def _places(self, uploads: Path) -> Iterator[Places]:
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            root = Path(folder)
            (root / "home").mkdir()
            shutil.copy(ROOT / "dagster.yaml", root / "home")
            yield Places(uploads, root / "store", root / "home")


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def differing(
    first: Mapping[str, str], other: Mapping[str, str], damaged: Collection[str]
) -> list[str]:
    """Outputs of demonstrations without damage that one of the two has not, or other bytes of."""
    names = {name for name in {*first, *other} if "/" in name}
    undamaged = (name for name in names if name.rpartition("/")[2] not in damaged)
    return sorted(name for name in undamaged if first.get(name) != other.get(name))


def report(rounds: Sequence[Mapping[str, Spent]], single: Spent | None, count: int) -> None:
    """Print the medians."""
    columns = {way: [one[way] for one in rounds] for way in rounds[0]}
    if single is not None:
        columns[SINGLE] = [single]
    print(f"\n{'':<22}{'wall s':>8}{'cpu s':>8}{'ms each':>9}{'peak MB':>9}")
    for way, costs in columns.items():
        wall = statistics.median(cost.wall for cost in costs)
        cpu = statistics.median(cost.cpu for cost in costs)
        peak = max(cost.peak_mb for cost in costs)
        print(f"{way:<22}{wall:>8.1f}{cpu:>8.1f}{1000 * cpu / count:>9.0f}{peak:>9.0f}")


def ratio(rounds: Sequence[Mapping[str, Spent]], way: str, other: str) -> float:
    """Median of the rounds of CPU of one way over another's; 0 when one was not measured."""
    if not {way, other} <= set(rounds[0]):
        return 0.0
    ratios = [one[way].cpu / one[other].cpu for one in rounds]
    shown = ", ".join(f"{one:.3f}" for one in ratios)
    print(f"CPU of {way} / {other}: {statistics.median(ratios):.3f} (of {shown})")
    return statistics.median(ratios)


def main() -> int:
    """Make the copies, measure, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--single", type=int, default=50, help="runs of one; 0: none")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ways", default=",".join(WAYS), help="some of the ways")
    parser.add_argument("--broken", action="store_true", help="one in ten")
    parser.add_argument("--recording", type=Path, help="to copy; default: a synthetic one")
    parser.add_argument("--scratch", type=Path, help="folder for everything; default: temporary")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as folder:
        return _measure_all(Path(folder), chosen)


def _measure_all(scratch: Path, chosen: argparse.Namespace) -> int:
    example = chosen.recording or scratch / "example"
    if chosen.recording is None:
        in_child(write_example, example)
    whole = uploads = scratch / "uploads"
    write_copies(example, whole, chosen.demonstrations, broken=False)
    damaged = set[str]()
    if chosen.broken:
        uploads = scratch / "damaged"
        damaged = write_copies(example, uploads, chosen.demonstrations, broken=True)
    benchmark = Benchmark(scratch, whole, uploads, chosen.workers)
    rounds, wrong, first = [], list[str](), dict[str, str]()
    for number in range(chosen.rounds):
        found = {}
        for way in chosen.ways.split(","):
            found[way], outputs = benchmark.run(way)
            first = first or outputs
            wrong += differing(first, outputs, damaged)
            print(f"round {number + 1}, {way}: {found[way].cpu:.1f} CPU s", flush=True)
        rounds.append(found)
    single = benchmark.run_single(chosen.single) if chosen.single else None
    report(rounds, single, chosen.demonstrations)
    if benchmark.home_bytes:
        print(f"Dagster's home: {benchmark.home_bytes / chosen.demonstrations:,.0f} bytes each")
    print(f"outputs that differ between the ways: {len(wrong)} {wrong[:5]}")
    ratio(rounds, BATCHES, FUNCTIONS)
    ratios = ratio(rounds, ALONE, FUNCTIONS), ratio(rounds, BATCHES, AT_ONCE)
    return 1 if wrong or (max(ratios) > LIMIT and not damaged) else 0


if __name__ == "__main__":
    sys.exit(main())
