"""Measures what Dagster's record of a demonstration costs, beside a bare job of the same shape.

Run: `.venv/bin/python benchmarks/demonstration_runs.py [--demonstrations 40]`. Copies of one short
recording are built first, so that what is measured next is little but the record. CPU milliseconds
a demonstration, each way in a new process, after its imports and a first one:

- `stages`: the stages that find everything up to date, without Dagster;
- `record`: the job `process_demonstration` in process, which says the same to Dagster;
- `bare`: a job with as many partitioned assets, the same edges and as many checks, and no work.

Exits with 1 when `record` without `stages` is more than 1.25 times `bare`, or when Dagster's home
takes more than 500 kB a demonstration.
"""

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import dagster as dg  # noqa: E402, TID251 - after the path; measured itself

from benchmarks.child import cpu_seconds, in_child  # noqa: E402
from demo_pipeline.defs import build_defs  # noqa: E402
from demo_pipeline.defs.partitions import PARTITIONS_NAME  # noqa: E402
from demo_pipeline.runs.stages import STAGES  # noqa: E402
from demo_pipeline.runs.workspace import Workspace  # noqa: E402
from demo_pipeline.settings import Settings  # noqa: E402
from demo_pipeline.stage import DEMONSTRATION_JOB  # noqa: E402
from demo_pipeline.store.store import open_store  # noqa: E402
from demo_pipeline_tests.building import build_stage  # noqa: E402
from demo_pipeline_tests.simulator.form import script  # noqa: E402
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_recording  # noqa: E402
from demo_pipeline_tests.simulator.script import (  # noqa: E402
    click,
    hotkey,
    scroll,
    type_text,
)
from demo_pipeline_tests.simulator.video import VideoOptions  # noqa: E402
from demo_pipeline_tests.uploads import upload  # noqa: E402

LIMIT = 1.25
LIMIT_BYTES = 500_000
_ACTS = (click("Agree"), click("Name"), type_text("Hello"), scroll("Rows", 2), hotkey("ctrl", "a"))
_FREE_BOX = 8  # bytes of an empty box of MP4, which players skip


class Spent(NamedTuple):
    """What a demonstration took: CPU seconds, and bytes in the home; the first is left out."""

    cpu: float
    home: float


class Places(NamedTuple):
    """Where one piece of work reads and writes."""

    uploads: Path
    store: Path
    home: Path

    @property
    def settings(self) -> Settings:
        """The settings with these roots."""
        tasks = str(self.store / "none")
        return Settings(uploads=str(self.uploads), store=str(self.store), osworld_tasks=tasks)


def write_example(folder: Path) -> None:
    """A synthetic recording of about ten seconds, 1280x720."""
    video = VideoOptions(preset="ultrafast", fps=15)
    write_recording(folder, script(*_ACTS), RecordingOptions(width=1280, height=720, video=video))


def write_copies(recording: Path, uploads: Path, count: int) -> list[str]:
    """Write copies that differ in every file, without a change of what they say; returns ids."""
    ids = [f"demo_{number:05d}" for number in range(count)]
    for number, key in enumerate(ids):
        folder = upload(recording, uploads, key)
        text = f"{number:08d}".encode()
        with (folder / "recording.mp4").open("ab") as video:
            video.write((_FREE_BOX + len(text)).to_bytes(4, "big") + b"free" + text)
        log = folder / "input_log.jsonl"
        first, rest = log.read_bytes().split(b"\n", 1)
        log.write_bytes(first + b" " * (number + 1) + b"\n" + rest)
    return ids


def contents(store: Path, names: Iterable[str] = ()) -> dict[str, str]:
    """Output → fingerprint of its bytes; of all outputs, or of those with these names."""
    opened = open_store(str(store))
    found = {name: opened.current(name) for name in names or opened.outputs()}
    return {name: version.content for name, version in found.items() if version}


def run_stages(places: Places, ids: Sequence[str]) -> Spent:
    """Every stage of these demonstrations."""
    workspace = Workspace.open(places.settings)

    def work(key: str) -> None:
        for stage in STAGES:
            build_stage(workspace, stage, key)

    return _each(work, ids, places.home)


def run_record(places: Places, ids: Sequence[str]) -> Spent:
    """The same by the job, in process."""
    return _each(_runs(places, ids, build_defs(places.settings)), ids, places.home)


def run_bare(places: Places, ids: Sequence[str]) -> Spent:
    """A job of the same shape that does nothing."""
    return _each(_runs(places, ids, _bare()), ids, places.home)


def _bare() -> dg.Definitions:
    partitions = dg.DynamicPartitionsDefinition(name=PARTITIONS_NAME)

    def asset(name: str, inputs: Sequence[str], checks: Sequence[str]) -> dg.AssetsDefinition:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            specs = [dg.AssetCheckSpec(c, asset=name, partitions_def=partitions) for c in checks]

        @dg.asset(name=name, deps=inputs, partitions_def=partitions, check_specs=specs)
        def build() -> Iterator[dg.MaterializeResult[None]]:
            done = [dg.AssetCheckResult(check_name=one, passed=True) for one in checks]
            yield dg.MaterializeResult(check_results=done)

        return build

    made = [asset(one.name, one.inputs, [check.name for check in one.checks]) for one in STAGES]
    job = dg.define_asset_job(DEMONSTRATION_JOB, selection=[one.name for one in STAGES])
    return dg.Definitions(assets=made, jobs=[job], executor=dg.in_process_executor)


def _runs(places: Places, ids: Sequence[str], defs: dg.Definitions) -> Callable[[str], None]:
    os.environ["DAGSTER_HOME"] = str(places.home)
    instance = dg.DagsterInstance.get()
    job = defs.resolve_job_def(DEMONSTRATION_JOB)
    instance.add_dynamic_partitions(PARTITIONS_NAME, list(ids))
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

    def work(key: str) -> None:
        job.execute_in_process(partition_key=key, instance=instance, run_config=quiet)

    return work


def _each(work: Callable[[str], None], ids: Sequence[str], home: Path) -> Spent:
    work(ids[0])
    cpu = cpu_seconds()
    size = _bytes_of(home)
    for key in ids[1:]:
        work(key)
    return Spent((cpu_seconds() - cpu) / len(ids[1:]), (_bytes_of(home) - size) / len(ids[1:]))


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Make the copies, build them, measure, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=40)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="demonstration-runs-") as text:
        folder = Path(text)
        in_child(write_example, folder / "example")
        ids = write_copies(folder / "example", folder / "uploads", chosen.demonstrations)
        spent = dict[str, Spent]()
        ways = {"built": run_stages, "stages": run_stages, "record": run_record, "bare": run_bare}
        for way, work in ways.items():
            home = folder / way
            home.mkdir()
            shutil.copy(ROOT / "dagster.yaml", home)
            places = Places(folder / "uploads", folder / "store", home)
            spent[way] = in_child(work, places, ids)
            one = spent[way]
            print(f"{way:8}{1000 * one.cpu:>8.0f} ms {one.home / 1000:>6.0f} kB", flush=True)
    ratio = (spent["record"].cpu - spent["stages"].cpu) / spent["bare"].cpu
    print(f"Dagster's record: {ratio:.2f} times that of a bare job")
    return 1 if ratio > LIMIT or spent["record"].home > LIMIT_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
