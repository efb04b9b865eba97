"""A backfill of 1,000 partitions that is cancelled half-way and launched again.

`python -m demo_pipeline_tests.faults.cancelled_backfill [--partitions N] [--at SHARE] [--keep DIR]`
uploads so many short recordings, starts Dagster's daemon, launches and cancels the backfill
as the UI does, and launches it again. Afterwards no output may be missing or torn, none that was
committed before may have been made again, and Dagster must know all of them. `--broken` breaks one
upload in ten: those must show as failed, and only those. `make backfill` runs it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
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
from demo_pipeline_tests.distributed.processes import CpuMeter, adopt_orphans, end_descendants
from demo_pipeline_tests.simulator.form import script
from demo_pipeline_tests.simulator.recording import RecordingOptions, write_recording
from demo_pipeline_tests.simulator.script import click
from demo_pipeline_tests.simulator.video import VideoOptions
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload

_DAEMON = ("dagster-daemon", "run", "-w", "workspace.yaml")
_PATIENCE = 3600.0  # seconds for a backfill
_PAUSE = 1.0
_PAGE = 1000
Committed = dict[str, str]
"""Output → the folder of its version, which no other commit writes into."""


def lose_video(folder: Path) -> None:
    """There is no video."""
    (folder / "recording.mp4").unlink()


def write_uploads(folder: Path, count: int, *, broken: bool) -> set[str]:
    """Upload recordings of two seconds; returns the ids of the broken ones."""
    video = VideoOptions(preset="ultrafast", fps=10)
    small = RecordingOptions(width=320, height=240, video=video, scan_every_s=None)
    write_recording(folder / "example", script(click("Agree"), click("Name")), small)
    damaged = set[str]()
    for number in range(count):
        made = upload(folder / "example", folder / "uploads", f"demo_{number:05d}")
        if broken and number % 10 == 9:
            (lose_video, spoil_log, tear_meta)[number // 10 % 3](made)
            damaged.add(made.name)
    return damaged


def committed(workspace: Workspace) -> Committed:
    """Every output of a demonstration as it is now."""
    names = (name for stage in STAGES for name in workspace.store.outputs(stage.folder))
    found = ((name, workspace.store.current(name)) for name in names)
    return {name: version.place for name, version in found if version}


class Exercise:
    """A backfill, cancelled and launched again.

    Args:
        home: Dagster's.
        instance: in it.
        count: of the partitions.
        damaged: those of them that are broken.
    """

    def __init__(
        self, home: Path, instance: dg.DagsterInstance, count: int, damaged: set[str]
    ) -> None:
        self._home, self._instance, self._count = home, instance, count
        self._workspace, self._damaged = Workspace.open(Settings()), damaged
        self.problems: list[str] = []

    def run(self, share: float) -> None:
        """Do it, and collect what is wrong afterwards in `problems`."""
        meter = CpuMeter()
        with dagster_process(_DAEMON, self._home) as daemon:
            start = time.monotonic()
            first = launch_backfill(self._home)
            last = STAGES[-1].folder
            wanted = int(self._count * share)
            outputs = self._workspace.store.outputs
            wait_for(daemon, lambda: len(outputs(last)) >= wanted, "the half", _PATIENCE, _PAUSE)
            cancel_backfill(self._home, first)
            wait_for(daemon, lambda: self._ended(first), "the cancelled", _PATIENCE, _PAUSE)
            before = committed(self._workspace)
            self._say(f"cancelled, {len(before)} outputs", first, start, meter)
            half = [key for key in self._ids() if not set(self._outputs(key)) - before.keys()]
            print_line(f"  {len(half)} demonstrations done, {self._materialized()} known")
            for name in self._workspace.store.remove_leftovers():
                self.problems.append(f"left unfinished by the cancelled backfill: {name}")
            again = launch_backfill(self._home)
            wait_for(daemon, lambda: self._ended(again), "the second", _PATIENCE, _PAUSE)
            self._say("launched again", again, start, meter)
            self._require(again)
        meter.stop()
        self._examine(before)

    def _ids(self) -> list[str]:
        return [f"demo_{number:05d}" for number in range(self._count)]

    def _outputs(self, key: str) -> list[str]:
        return [stage.output(key) for stage in STAGES]

    def _ended(self, backfill: str) -> bool:
        found = self._instance.get_backfill(backfill)
        filters = dg.RunsFilter(tags={"dagster/backfill": backfill})
        runs = self._instance.get_runs(filters)
        open_states = {BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING}
        ended = found is not None and found.status not in open_states
        return ended and all(run.is_finished for run in runs)

    def _require(self, backfill: str) -> None:
        """The second backfill succeeded, unless something was broken."""
        found = self._instance.get_backfill(backfill)
        wanted = "COMPLETED_FAILED" if self._damaged else "COMPLETED_SUCCESS"
        if found is None or found.status.value != wanted:
            self.problems.append(f"the second backfill is not {wanted}")

    def _say(self, what: str, backfill: str, start: float, meter: CpuMeter) -> None:
        found = self._instance.get_backfill(backfill)
        runs = self._instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
        states = dict(Counter(run.status.value for run in runs))
        status = found.status.value if found else "?"
        cpu = dict(meter.seconds())
        wall = time.monotonic() - start
        print_line(f"{what}: {status}, runs {states}, {wall:.0f} s, CPU s so far {cpu}")

    def _materialized(self) -> int:
        return len(self._instance.get_materialized_partitions(dg.AssetKey(STAGES[-1].name)))

    def _examine(self, before: Committed) -> None:
        """Compare what is there now with what has to be there."""
        after, store = committed(self._workspace), self._workspace.store
        good = [key for key in self._ids() if key not in self._damaged]
        missing = [name for key in good for name in self._outputs(key) if name not in after]
        redone = [name for name, version in before.items() if after.get(name) != version]
        twice = [name for name in self._made_again() if name in before]
        torn = [f"{name}: {damage}" for name in after for damage in store.verify(name)]
        several = [name for name in after if len(self._versions(name)) > 1]
        found = {
            "missing": missing,
            "made again": [*redone, *twice, *several],
            "torn": torn,
            "left unfinished": store.remove_leftovers(),
            "not materialised in Dagster": self._unknown(good),
            "materialised in Dagster though broken": self._known_broken(),
        }
        for what, names in found.items():
            print_line(f"{what}: {len(names)} {names[:3] if names else ''}")
            self.problems += [f"{what}: {name}" for name in names]

    def _versions(self, output: str) -> list[Path]:
        return list((Path(self._workspace.settings.store) / ".versions" / output).iterdir())

    def _made_again(self) -> Iterator[str]:
        """Outputs with more than one event that says they were made."""
        for stage in STAGES:
            made = Counter(self._made(stage.name))
            yield from (stage.output(key) for key, times in made.items() if times > 1)

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

    def _unknown(self, good: list[str]) -> list[str]:
        partitions = self._instance.get_materialized_partitions
        return [
            f"{stage.name} {key}"
            for stage in STAGES
            for key in set(good) - partitions(dg.AssetKey(stage.name))
        ]

    def _known_broken(self) -> list[str]:
        known = self._instance.get_materialized_partitions(dg.AssetKey(STAGES[-1].name))
        return sorted(self._damaged & known)


def main() -> int:
    """Run the exercise; the exit code is 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(prog="make backfill", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--at", type=float, default=0.45, help="share that is done when cancelled")
    parser.add_argument("--broken", action="store_true", help="one upload in ten")
    parser.add_argument("--keep", type=Path, help="a new folder for everything, which stays")
    chosen = parser.parse_args()
    for name in list(os.environ):
        if name.startswith(("DEMO_PIPELINE_", "DAGSTER_")):
            del os.environ[name]
    adopt_orphans()
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="backfill-"))
        folder = chosen.keep or Path(temporary)
        damaged = write_uploads(folder, chosen.partitions, broken=chosen.broken)
        os.environ |= {
            "DEMO_PIPELINE_CONFIG": str(folder / "none.toml"),
            "DEMO_PIPELINE_UPLOADS": str(folder / "uploads"),
            "DEMO_PIPELINE_STORE": str(folder / "store"),
            "DEMO_PIPELINE_CACHE": str(folder / "cache"),
            "DEMO_PIPELINE_OSWORLD_TASKS": str(folder / "tasks"),
            # The backfill processes them, no sensor.
            "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "86400",
        }
        instance = stack.enter_context(dagster_home(folder / "home"))
        register_partitions(instance, [f"demo_{n:05d}" for n in range(chosen.partitions)])
        exercise = Exercise(folder / "home", instance, chosen.partitions, damaged)
        try:
            exercise.run(chosen.at)
        except (TimeoutError, RuntimeError):
            print_line((folder / "home" / LOG).read_text(errors="replace")[-5000:])
            raise
        finally:
            end_descendants()
    for problem in exercise.problems[:20]:
        print_line(f"FAILED: {problem}")
    return 1 if exercise.problems else 0


if __name__ == "__main__":
    sys.exit(main())
