"""`make ray`: compares a backfill on Ray, whose workers are killed, with a run on one machine.

The command starts SeaweedFS, Postgres, a Ray head and Dagster's daemon on the loopback interface,
with random credentials. It uploads the sample recordings and copies of them. `demo-pipeline run`
processes all of them into a folder. Then a backfill, in which every run is a Ray job, processes
them into a bucket. Meanwhile, a Ray worker and the process of a run are killed. At the end, all
started processes are ended, and their folder is deleted.
"""

import argparse
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from demo_pipeline.cli.console import print_line
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import LOG, ROOT, dagster_home, dagster_process, wait_for
from demo_pipeline_tests.distributed.backfill import Backfill, launch_backfill
from demo_pipeline_tests.distributed.processes import adopt_orphans, end_descendants
from demo_pipeline_tests.distributed.services import (
    MissingProgramError,
    postgres_server,
    ray_head,
    require_programs,
)
from demo_pipeline_tests.simulator.s3_server import seaweed_server
from demo_pipeline_tests.uploads import upload

RECORDINGS = ROOT / "data" / "samples"
_START_SECONDS = 300.0  # maximum time until the first job on Ray is done
_PAUSE = 1.0
_DAEMON = ("dagster-daemon", "run", "-w", "workspace.yaml")
_SETTINGS = {
    # The uploads never count as complete, so that the backfill processes them, not the sensor.
    "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "86400",
    "DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS": "10",
}


@dataclass(frozen=True)
class Outcome:
    """The result of one way of processing.

    Attributes:
        wall: the duration in seconds.
        published: output → (fingerprint of its content, hashes of its files by path).
        quarantined: ids of the quarantined demonstrations.
    """

    wall: float
    published: dict[str, tuple[str, dict[str, str]]]
    quarantined: tuple[str, ...]


def main() -> int:
    """Runs the command. The exit code is 0 if both ways have the same outputs, or else 1."""
    parser = argparse.ArgumentParser(prog="make ray", description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=24)
    parser.add_argument("--slots", type=int, default=3, help="Ray jobs at once; dagster.yaml: 3")
    parser.add_argument("--minutes", type=float, default=30, help="at most, for the backfill")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        print_line("make ray needs Linux: it reads /proc")
        return 1
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(1))
    for name in list(os.environ):
        if name.startswith(("DEMO_PIPELINE_", "RAY_", "DAGSTER_")):
            del os.environ[name]
    adopt_orphans()
    try:
        require_programs()
        with tempfile.TemporaryDirectory(prefix="ray-") as folder:
            try:
                return _exercise(Path(folder), arguments)
            finally:
                for title in end_descendants():
                    print_line(f"ended by force: {title[:100]}")
    except MissingProgramError as error:
        print_line(str(error))
        return 1


def _exercise(folder: Path, chosen: argparse.Namespace) -> int:
    with ExitStack() as stack:
        keys = f"ray-{secrets.token_hex(8)}", secrets.token_urlsafe(30)
        server = stack.enter_context(seaweed_server(folder / "s3", *keys))
        stack.enter_context(server.connected())
        uploads = server.make_bucket("uploads")
        store = server.make_bucket("store")
        _configure(folder / "single", uploads, str(folder / "single" / "store"))
        _upload_copies(folder / "copies", chosen.demonstrations)
        single = _one_machine(folder / "single" / "home")
        _configure(folder / "cache", uploads, store)
        # The number of workers must be `num_cpus` of deploy/ray/dagster.yaml.
        os.environ["DEMO_PIPELINE_EXECUTION__WORKERS"] = "1"
        on_ray = _on_ray(stack, folder, chosen)
    return _compare(single, on_ray)


def _configure(folder: Path, uploads: str, store: str) -> None:
    """Sets the settings of this process and its children."""
    os.environ |= _SETTINGS | {
        "DEMO_PIPELINE_CONFIG": str(folder / "none.toml"),
        "DEMO_PIPELINE_UPLOADS": uploads,
        "DEMO_PIPELINE_STORE": store,
        "DEMO_PIPELINE_CACHE": str(folder / "cache"),
    }


def _upload_copies(folder: Path, count: int) -> None:
    """Uploads `count` demonstrations: the sample recordings, and copies with new ids and tasks."""
    samples = sorted(path.parent for path in RECORDINGS.glob("2*/recording.mp4"))
    folders = samples[:count]
    for number in range(count - len(folders)):
        sample = samples[number % len(samples)]
        folders.append(upload(sample, folder, f"20260401_{number:06d}"))
    objects = Workspace.open(Settings()).uploads.objects
    for source in folders:
        for file in RECORDING_FILES:
            objects.put(f"{source.name}/{file}", source / file)
    shutil.rmtree(folder, ignore_errors=True)
    print_line(f"uploaded {len(folders)} demonstrations")


def _one_machine(home: Path) -> Outcome:
    """Processes all demonstrations with `demo-pipeline run`."""
    home.mkdir(parents=True)
    shutil.copyfile(ROOT / "dagster.yaml", home / "dagster.yaml")
    print_line("one machine: demo-pipeline run")
    start = time.monotonic()
    _command(home, "run")
    return _outcome(time.monotonic() - start)


def _on_ray(stack: ExitStack, folder: Path, chosen: argparse.Namespace) -> Outcome:
    """Processes all demonstrations with a backfill whose runs are Ray jobs, and kills two runs."""
    os.environ["DAGSTER_POSTGRES_URL"] = stack.enter_context(postgres_server())
    api = stack.enter_context(ray_head(folder / "ray", chosen.slots))
    os.environ["RAY_API_SERVER_ADDRESS"] = api
    home = folder / "home"
    instance = stack.enter_context(dagster_home(home, "deploy/ray/dagster.yaml"))
    daemon = stack.enter_context(dagster_process(_DAEMON, home))
    workspace = Workspace.open(Settings())
    print_line(f"Ray: a head with {chosen.slots} slots, Postgres, SeaweedFS, Dagster's daemon")
    _command(home, "register")
    try:
        tasks = TASKS_STAGE.folder
        wait_for(daemon, lambda: workspace.store.current(tasks) is not None, tasks, _START_SECONDS)
        start = time.monotonic()
        launched = launch_backfill(home)
        backfill = Backfill(instance, workspace, launched, chosen.demonstrations)
        wait_for(daemon, backfill.step, "the backfill", chosen.minutes * 60, _PAUSE)
    except (TimeoutError, RuntimeError):
        print_line((home / LOG).read_text(errors="replace")[-5000:])
        raise
    wall = time.monotonic() - start
    _print_runs(instance, backfill)
    return _outcome(wall)


def _command(home: Path, *arguments: str) -> None:
    script = f"{sysconfig.get_path('scripts')}/demo-pipeline"
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    subprocess.run((script, *arguments), check=True, cwd=ROOT, env=environment)


def _outcome(wall: float) -> Outcome:
    workspace = Workspace.open(Settings())
    store = workspace.store
    versions = {name: store.current(name) for name in store.outputs()}
    published = {
        name: (version.content, {entry.path: entry.sha256 for entry in version.manifest.files})
        for name, version in versions.items()
        if version
    }
    records = list_quarantine(store)
    return Outcome(wall, published, tuple(record.demonstration for record in records))


def _print_runs(instance: dg.DagsterInstance, backfill: Backfill) -> None:
    """Prints how the runs ended, and which message Dagster recorded for the killed ones."""
    runs = backfill.runs()
    states = Counter(record.dagster_run.status.value.lower() for record in runs)
    every = instance.get_runs_count()
    print_line(f"runs of the backfill: {dict(states)}; {every} Ray jobs with those of the sensors")
    for kill in backfill.kills:
        events = instance.all_logs(kill.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
        noticed = events[0].timestamp - kill.at if events else float("nan")
        event = events[0].dagster_event if events else None
        message = (event.message if event else None) or "nobody said why"
        again = backfill.retry_of(kill)
        result = again.dagster_run.status.value.lower() if again else "not run again"
        print_line(f"killed {kill.kind}: noticed after {noticed:.0f} s; run again: {result}")
        print_line(f"  {' '.join(message.split())[:200]}")


def _compare(single: Outcome, on_ray: Outcome) -> int:
    """Prints both outcomes and their differences, and returns the exit code."""
    print_line(f"{'':22}{'one machine':>12}{'Ray':>8}")
    print_line(f"{'wall seconds':22}{single.wall:12.0f}{on_ray.wall:8.0f}")
    print_line(f"{'outputs':22}{len(single.published):12}{len(on_ray.published):8}")
    names = {*single.published, *on_ray.published}
    differing = sorted(n for n in names if single.published.get(n) != on_ray.published.get(n))
    for name in differing:
        files = [outcome.published.get(name, ("", {}))[1] for outcome in (single, on_ray)]
        paths = sorted(p for p in {*files[0], *files[1]} if files[0].get(p) != files[1].get(p))
        print_line(f"DIFFERENT: {name}: {', '.join(paths)}")
    same_quarantine = on_ray.quarantined == single.quarantined
    if not same_quarantine:
        print_line(f"FAILED: quarantined: {on_ray.quarantined}")
    if differing or not same_quarantine:
        return 1
    lines = "".join(f"{name} {single.published[name][0]}\n" for name in sorted(names))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    print_line(f"the same outputs in both stores: SHA-256 over all {digest[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
