"""Cancels a backfill of 1,000 partitions half-way, and launches it again.

`python -m demo_pipeline_tests.faults.cancelled_backfill [--partitions N]` uploads N short
recordings and starts Dagster's daemon. It launches and cancels the backfill like the UI, and then
launches it again. Afterwards no output may be missing or incomplete, no output from before the
cancellation may have been built again, and Dagster must know all outputs. `make backfill` runs this
exercise.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus

from demo_pipeline.cli.console import print_line
from demo_pipeline.defs.partitions import register_partitions
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import LOG, dagster_home, dagster_process, wait_for
from demo_pipeline_tests.distributed.backfill import cancel_backfill, launch_backfill
from demo_pipeline_tests.distributed.processes import adopt_orphans, end_descendants
from demo_pipeline_tests.faults.bad_uploads import environment
from demo_pipeline_tests.faults.daemon import DAEMON
from demo_pipeline_tests.simulator.form import script
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_recording
from demo_pipeline_tests.simulator.script import click
from demo_pipeline_tests.simulator.video import VideoOptions
from demo_pipeline_tests.uploads import upload

_PATIENCE = 3600.0  # maximum time of a backfill, seconds
_PAUSE = 1.0
_PAGE = 1000
Committed = dict[str, str]
"""Output → folder of its committed version. Each commit creates a new folder."""


def write_uploads(folder: Path, count: int) -> list[str]:
    """Uploads `count` short recordings; returns their ids."""
    video = VideoOptions(preset="ultrafast", fps=10)
    small = RecordingOptions(width=320, height=240, video=video, scan_every_s=None)
    write_recording(folder / "example", script(click("Agree"), click("Name")), small)
    ids = [f"demo_{number:05d}" for number in range(count)]
    for demonstration in ids:
        upload(folder / "example", folder / "uploads", demonstration)
    return ids


def committed(workspace: Workspace) -> Committed:
    """Returns the committed versions of all outputs of demonstrations."""
    places = {}
    for stage in STAGES:
        for name in workspace.store.outputs(stage.folder):
            version = workspace.store.current(name)
            if version:
                places[name] = version.place
    return places


class Exercise:
    """Launches a backfill of the demonstrations, cancels it and launches it again."""

    def __init__(self, home: Path, instance: dg.DagsterInstance, ids: list[str]) -> None:
        self._home = home
        self._instance = instance
        self._ids = ids
        self._workspace = Workspace.open(Settings())

    def run(self) -> list[str]:
        """Runs the exercise; returns a sentence for each fault that remains afterwards."""
        store = self._workspace.store
        with dagster_process(DAEMON, self._home) as daemon:
            first = launch_backfill(self._home)
            last = STAGES[-1].folder
            half = len(self._ids) // 2
            wait_for(
                daemon, lambda: len(store.outputs(last)) >= half, "the half", _PATIENCE, _PAUSE
            )
            cancel_backfill(self._home, first)
            wait_for(daemon, lambda: self._ended(first), "the cancelled", _PATIENCE, _PAUSE)
            before = committed(self._workspace)
            print_line(f"cancelled, {len(before)} outputs")
            left = [f"left by the cancelled backfill: {name}" for name in store.remove_leftovers()]
            again = launch_backfill(self._home)
            wait_for(daemon, lambda: self._ended(again), "the second", _PATIENCE, _PAUSE)
            second = self._instance.get_backfill(again)
        if second is None or second.status.value != "COMPLETED_SUCCESS":
            left.append("the second backfill is not COMPLETED_SUCCESS")
        return [*left, *self._problems(before)]

    def _ended(self, backfill: str) -> bool:
        record = self._instance.get_backfill(backfill)
        filters = dg.RunsFilter(tags={"dagster/backfill": backfill})
        open_states = {BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING}
        ended = record is not None and record.status not in open_states
        return ended and all(run.is_finished for run in self._instance.get_runs(filters))

    def _problems(self, before: Committed) -> Iterator[str]:
        """Compares the store and Dagster's records with the expected state; yields the faults.

        Args:
            before: the outputs that were committed when the backfill was cancelled.
        """
        after = committed(self._workspace)
        store = self._workspace.store
        versions = Path(self._workspace.settings.store) / ".versions"
        outputs = [stage.output(key) for stage in STAGES for key in self._ids]
        damage = [f"{name}: {problem}" for name in after for problem in store.verify(name)]
        faults = {
            "missing": [name for name in outputs if name not in after],
            "made again": [
                *(name for name, version in before.items() if after.get(name) != version),
                *(name for name in self._made_again() if name in before),
                *(name for name in after if len(list((versions / name).iterdir())) > 1),
            ],
            "torn": damage,
            "left unfinished": store.remove_leftovers(),
            "not materialised in Dagster": self._unknown(),
        }
        for fault, names in faults.items():
            print_line(f"{fault}: {len(names)}")
            yield from (f"{fault}: {name}" for name in names)

    def _made_again(self) -> Iterator[str]:
        """Yields the outputs that were built more than once, according to Dagster's events."""
        for stage in STAGES:
            times_built = Counter(self._made(stage.name))
            yield from (stage.output(key) for key, count in times_built.items() if count > 1)

    def _made(self, asset: str) -> Iterator[str]:
        cursor = None
        while True:
            page = self._instance.fetch_materializations(
                dg.AssetKey(asset), limit=_PAGE, cursor=cursor
            )
            for record in page.records:
                event = record.asset_materialization
                if event and event.metadata["outcome"].value == "made":
                    yield event.partition or ""
            cursor = page.cursor
            if not page.has_more:
                return

    def _unknown(self) -> list[str]:
        unknown = []
        for stage in STAGES:
            known_ids = self._instance.get_materialized_partitions(dg.AssetKey(stage.name))
            unknown += [f"{stage.name} {key}" for key in set(self._ids) - known_ids]
        return unknown


def main() -> int:
    """Runs the exercise; returns the exit code, which is 0 if there are no faults."""
    parser = argparse.ArgumentParser(prog="make backfill", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    partitions = parser.parse_args().partitions
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="backfill-") as temporary:
        folder = Path(temporary)
        start = time.monotonic()
        ids = write_uploads(folder, partitions)
        home = folder / "home"
        with (
            environment(folder, str(folder / "uploads"), str(folder / "store")),
            dagster_home(home) as instance,
        ):
            # Keeps the sensor from processing the uploads before the backfill.
            os.environ["DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS"] = "86400"
            register_partitions(instance, ids)
            try:
                problems = Exercise(home, instance, ids).run()
            except (TimeoutError, RuntimeError):
                print_line((home / LOG).read_text(errors="replace")[-5000:])
                raise
            finally:
                end_descendants()
        for problem in problems[:20]:
            print_line(f"FAILED: {problem}")
        print_line(f"{time.monotonic() - start:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
