"""Measures the datasets over many trajectories, and what one added demonstration costs.

Run: `.venv/bin/python benchmarks/many_trajectories.py [--sizes 100,1000,10000] [--steps 5]`.
One sample recording is processed once; the others are clones of it, with ids and tasks of their
own and hard links to its pictures. Every figure comes from a process of its own: CPU seconds of
user and system, without the start of Python, and the most memory that it held, with Python.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.files.parquet import write_table
from demo_pipeline.files.processes import save_memory
from demo_pipeline.privacy.redaction_stage import REDACTIONS
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.demonstration_outputs import demonstration_output
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.stages import STAGE_BY_NAME, dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.folder import Folder
from demo_pipeline.store.versions import (
    CONTENT,
    MANIFEST,
    FileEntry,
    Recipe,
    Staging,
    new_version,
)
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA, read_provenance
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "samples" / "20260105_090000"
STAGES = (
    *("sft_samples", "messages_dataset", "cudag_dataset"),
    *("trajectory_index", "dataset_statistics"),
)
CLONES_OF_A_FILE = 500  # hard links of one file; ext4 allows 65,000, and each dataset makes more

_BUILDS = 3  # each from one more


class Cost(NamedTuple):
    """What a task took: wall and CPU seconds, peak megabytes, and its result."""

    wall: float
    cpu: float
    peak: float
    result: str


def process_sample(root: Path, steps: int) -> Path:
    """Process the sample and keep its first steps; returns the trajectory's folder."""
    (root / "uploads").mkdir(parents=True)
    shutil.copytree(SAMPLE, root / "uploads" / SAMPLE.name)
    workspace = open_workspace(root)
    run_all_stages(workspace, SAMPLE.name)
    folder = root / "trajectory"
    made = workspace.store.open(TRAJECTORIES_STAGE.output(SAMPLE.name))[0]
    shutil.copytree(made, folder)
    for step in sorted((folder / "steps").iterdir())[steps:]:
        shutil.rmtree(step)
    rows = read_provenance(folder / "provenance.parquet")[:steps]
    write_provenance(folder, rows)
    for name, key in (("result.json", "total_steps"), ("task.json", "expected_steps")):
        dump_json(folder / name, {**load_json(folder / name), key: steps})
    return folder


def write_provenance(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write `provenance.parquet` anew."""
    table = pa.Table.from_pylist(list(rows), schema=PROVENANCE_SCHEMA)
    (folder / "provenance.parquet").unlink(missing_ok=True)
    write_table(folder / "provenance.parquet", table)


def commit_clones(root: Path, sample: Path, numbers: Sequence[int]) -> None:
    """Commit clones of the sample as trajectories of a task each, without waiting for the disk."""
    folder = Folder((root / "store").absolute())
    rows = read_provenance(sample / "provenance.parquet")
    known: dict[str, FileEntry] = {}
    for path in sample.rglob("*"):
        if path.is_file():
            name = path.relative_to(sample).as_posix()
            known[name] = FileEntry(path=name, **file_digest(path)._asdict())
    for number in numbers:
        pictures = root / "pictures" / str(number // CLONES_OF_A_FILE)
        if not pictures.exists():
            shutil.copytree(sample, pictures)
        draft = root / "draft"
        shutil.copytree(pictures, draft / CONTENT, copy_function=link_picture)
        identity = {"trajectory_id": f"demo_{number:06d}", "split_group": f"task_{number}"}
        write_provenance(draft / CONTENT, [{**row, **identity} for row in rows])
        task = load_json(sample / "task.json")
        task |= {"task_id": f"task_{number}", "instruction": f"{task['instruction']} {number}"}
        dump_json(draft / CONTENT / "task.json", task)
        result = load_json(sample / "result.json")
        dump_json(
            draft / CONTENT / "result.json",
            {**result, "trajectory_id": identity["trajectory_id"]},
        )
        install_clone(folder, draft, identity["trajectory_id"], known)


def install_clone(folder: Folder, draft: Path, name: str, known: Mapping[str, FileEntry]) -> None:
    """Publish a drafted clone; only the files that differ from the sample are read."""
    own = ("provenance.parquet", "task.json", "result.json")
    changed = {
        file: FileEntry(path=file, **file_digest(draft / CONTENT / file)._asdict()) for file in own
    }
    files = sorted({**known, **changed}.values(), key=lambda file: file.path)
    staging = Staging(TRAJECTORIES_STAGE.output(name), draft, lambda *_: "")
    recipe = Recipe(TRAJECTORIES_STAGE.name, "clone", "", {})
    version, data = new_version(staging, recipe, {}, (), files)
    (draft / MANIFEST).write_bytes(data)
    folder.install(staging, version, None)
    folder.point(staging.output, version.place)


def link_picture(source: str, target: str) -> None:
    """A hard link of a picture, a copy of any other file."""
    (os.link if source.endswith(".png") else shutil.copyfile)(source, target)


def build(root: Path, stage: str) -> str:
    """Build one dataset from what is committed."""
    places = {name: str(root / name) for name in ("uploads", "store", "cache")}
    workspace = Workspace.open(Settings(**places, osworld_tasks=str(root / "tasks")))
    graph = Graph(workspace)
    return graph.build(DatasetOutput(graph, dataset_stages_by_name()[stage])).status


def build_all(root: Path, stages: Sequence[str]) -> str:
    """Build datasets one after the other in one process, as every door of the program does."""
    places = {name: str(root / name) for name in ("uploads", "store", "cache")}
    workspace = Workspace.open(Settings(**places, osworld_tasks=str(root / "tasks")))
    graph = Graph(workspace)
    outputs = [DatasetOutput(graph, dataset_stages_by_name()[name]) for name in stages]
    return [graph.build(output).status for output in outputs][-1]


def make_stage(root: Path, stage: str, ids: Sequence[str]) -> str:
    """Build a stage of some demonstrations, one after the other."""
    places = {name: str(root / name) for name in ("uploads", "store", "cache")}
    workspace = Workspace.open(Settings(**places, osworld_tasks=str(root / "tasks")))
    graph = Graph(workspace)
    outputs = [demonstration_output(graph, STAGE_BY_NAME[stage], name) for name in ids]
    return [graph.build(output).status for output in outputs][-1]


def measured(work: Callable[..., str], *arguments: Any) -> Cost:
    """Run a task in a process of its own and measure it."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        return pool.submit(_measure, work, arguments).result()


def _measure(work: Callable[..., str], arguments: tuple[Any, ...]) -> Cost:
    save_memory()  # as every process of the program does
    wall = time.perf_counter()
    cpu = time.process_time()
    result = work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, peak, result)


def measure_size(root: Path, sample: Path, size: int, stages: Sequence[str]) -> None:
    """Build from this many trajectories, then again from one more, and print it.

    Then the datasets are built in one process, each time from one more; the row has the mean.
    """
    place = root / str(size)
    commit_clones(place, sample, range(size))
    ids = [f"demo_{number:06d}" for number in range(size)]
    for before in (REDACTIONS, ANNOTATIONS_STAGE.name):
        make_stage(place, before, ids)
    full = [measured(make_stage, place, RECORDS_STAGE.name, ids)]
    full += [measured(build, place, stage) for stage in stages]
    again = [one_more(place, sample, size)]
    again += [measured(build, place, stage) for stage in stages]
    for stage, first, second in zip((RECORDS_STAGE.name, *stages), full, again, strict=True):
        print_line(size, stage, first, second)
    print_line(size, "together", together(full), together(again))
    again = []
    for number in range(size + 1, size + 1 + _BUILDS):
        again += [one_more(place, sample, number), measured(build_all, place, stages)]
    wall, cpu, peak, result = together(again)
    mean = Cost(wall / _BUILDS, cpu / _BUILDS, peak, result)
    print_line(size, "in one process", together(full), mean)
    # The folders stay until the end: a file system without a journal looks through the inodes
    # that were removed within the last minutes for every folder that it makes.


def one_more(place: Path, sample: Path, number: int) -> Cost:
    """Commit another clone and make its records."""
    name = f"demo_{number:06d}"
    commit_clones(place, sample, [number])
    for before in (REDACTIONS, ANNOTATIONS_STAGE.name):
        make_stage(place, before, [name])
    return measured(make_stage, place, RECORDS_STAGE.name, [name])


def together(costs: Sequence[Cost]) -> Cost:
    """The sums of times, and the largest peak."""
    wall, cpu, peak, _ = zip(*costs, strict=True)
    return Cost(sum(wall), sum(cpu), max(peak), "")


def print_line(size: int, name: str, full: Cost, more: Cost) -> None:
    """Print a row of the table."""
    print(
        f"{size:>7} {name:<20}{full.cpu:>9.1f}{1000 * full.cpu / size:>9.2f}{full.peak:>8.0f}"
        f"{more.cpu:>9.1f}{more.peak:>8.0f}{more.cpu / full.cpu:>8.1%}"
        f"  {full.result} {more.result}",
        flush=True,
    )


def main() -> None:
    """Make the trajectories, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--scratch", type=Path, help="folder for the stores; default: temporary")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        root = Path(scratch)
        print("processing the sample …", file=sys.stderr)
        sample = process_sample(root / "sample", arguments.steps)
        print(
            f"{'':>7} {'':<20}{'all cpu s':>9}{'ms each':>9}{'peak MB':>8}"
            f"{'one more':>9}{'peak MB':>8}{'share':>8}"
        )
        for size in map(int, arguments.sizes.split(",")):
            measure_size(root, sample, size, arguments.stages.split(","))


if __name__ == "__main__":
    main()
