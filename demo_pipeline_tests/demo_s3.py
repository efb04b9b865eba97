"""`make demo-s3`: uploads into one bucket become datasets in another while you watch.

It starts SeaweedFS with random credentials, and Dagster's UI and daemon. These servers listen on
the loopback interface only. At the end, they are stopped and their folder is deleted.
"""

import argparse
import math
import os
import random
import secrets
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_pipeline.cli.console import print_line
from demo_pipeline.defs.dataset_assets import built_from_event, newest_records_event
from demo_pipeline.exports.dataset_stages import INDEX_STAGE, QUESTS_STAGE
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import (
    LOG,
    ROOT,
    Run,
    dagster_home,
    dagster_process,
    open_runs,
    runs_of,
    wait_for,
)
from demo_pipeline_tests.simulator.s3_server import is_free, seaweed_server
from demo_pipeline_tests.uploads import tear_meta, upload

RECORDINGS = ROOT / "data" / "samples"
GOOD = tuple(sorted(path.parent.name for path in RECORDINGS.glob("2*/recording.mp4")))
BROKEN = "20260107_100000"
# The demo fails if neither a new line is printed nor a new output is in the store for this time. A
# stage of the longest sample takes 8 s on an idle core.
_STALLED_SECONDS = 180.0


@dataclass
class Demo:
    """The state of the demo.

    Attributes:
        files: key and path of the files that are still to be uploaded.
        start: time at which the demo began, in seconds of `time.monotonic`.
        printed: all printed lines.
        progressed: time of the last new line or output, in seconds of `time.monotonic`.
        outputs: number of outputs in the store at that time.
    """

    instance: Any
    workspace: Workspace
    files: list[tuple[str, Path]]
    start: float = field(default_factory=time.monotonic)
    printed: set[str] = field(default_factory=set)
    progressed: float = field(default_factory=time.monotonic)
    outputs: int = 0

    def step(self) -> bool:
        """Uploads one more file, prints what happened, and returns whether everything is done.

        Raises:
            TimeoutError: nothing happened for `_STALLED_SECONDS`.
        """
        if self.files:
            self._upload(*self.files.pop())
        runs = runs_of(self.instance)
        for run in runs:
            self._print_run(run)
        self._print_quarantined()
        self._require_progress()
        return not self.files and self._is_done(runs)

    def print_once(self, line: str) -> None:
        if line not in self.printed:
            self.printed.add(line)
            self.progressed = time.monotonic()
            print_line(f"{time.monotonic() - self.start:4.0f} s  {line}")

    def _require_progress(self) -> None:
        outputs = len(self.workspace.store.outputs())
        if outputs != self.outputs:
            self.outputs = outputs
            self.progressed = time.monotonic()
        if time.monotonic() - self.progressed > _STALLED_SECONDS:
            raise TimeoutError(f"nothing new for {_STALLED_SECONDS:.0f} s")

    def _upload(self, key: str, path: Path) -> None:
        self.workspace.uploads.objects.put(key, path)
        name = key.partition("/")[0]
        missing = sum(other.startswith(f"{name}/") for other, _ in self.files)
        self.print_once(
            f"upload  {key} ({len(RECORDING_FILES) - missing} of {len(RECORDING_FILES)})"
        )

    def _print_run(self, run: Run) -> None:
        subject = f"run     {run.id[:8]} {run.job} {run.key}".rstrip()
        if run.started:
            self.print_once(f"{subject}: started")
        if run.ended:
            self.print_once(f"{subject}: {run.status.lower()}")

    def _print_quarantined(self) -> None:
        for record in list_quarantine(self.workspace.store):
            for problem in record.problems:
                names = [name for name in ("file", "line") if problem.get(name)]
                where = ":".join(str(problem[name]) for name in names)
                message = f"{record.demonstration}: {where}: {problem['message']}"
                self.print_once(f"quarantined  {message}")

    def _is_done(self, runs: list[Run]) -> bool:
        processed = {run.key for run in runs if run.key and run.ended}
        newest = newest_records_event(self.instance)
        built = 0 < newest <= built_from_event(self.instance, self.workspace.settings)
        rest = open_runs(self.instance)
        return built and not rest and processed == {*GOOD, BROKEN}


def main() -> int:
    """Runs the demo. The exit code is 0 if every output is as expected, or else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000, help="of the UI")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    arguments = parser.parse_args()
    if not is_free(arguments.port):
        print_line(f"Port {arguments.port} is taken; name another: make demo-s3 PORT=3001")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="demo-s3-") as folder, suppress(KeyboardInterrupt):
        return demonstrate(Path(folder), arguments.port, keep=arguments.keep)
    return 1


def demonstrate(folder: Path, port: int, *, keep: bool) -> int:
    """Runs the whole demo in a folder, and returns the exit code."""
    with ExitStack() as stack:
        keys = f"demo-{secrets.token_hex(8)}", secrets.token_urlsafe(30)
        server = stack.enter_context(seaweed_server(folder / "server", *keys))
        stack.enter_context(server.connected())
        configure(folder, server.make_bucket("uploads"), server.make_bucket("store"))
        instance = stack.enter_context(dagster_home(folder / "home"))
        ui = f"http://127.0.0.1:{port}"
        print_line(f"SeaweedFS at {server.endpoint} with the buckets uploads and store; UI at {ui}")
        command = ("dagster", "dev", "--host", "127.0.0.1", "--port", str(port))
        dagster = stack.enter_context(dagster_process(command, folder / "home"))
        demo = Demo(instance, Workspace.open(Settings()), files_of(folder / "recordings"))
        try:
            wait_for(dagster, demo.step, "the datasets", math.inf, pause=1)
        except TimeoutError as error:
            print_line(f"{error}\n{(folder / 'home' / LOG).read_text(errors='replace')[-3000:]}")
            return 1
        failed = check_outputs(demo, folder / "exported")
        for line in failed:
            print_line(f"FAILED: {line}")
        if keep:
            print_line(f"Still running: {ui} (Ctrl-C ends it)")
            with suppress(KeyboardInterrupt):
                dagster.wait()
    return 1 if failed else 0


def configure(folder: Path, uploads: str, store: str) -> None:
    """Sets the settings of this process and its children, and removes all other settings."""
    for name in list(os.environ):
        if name.startswith("DEMO_PIPELINE_"):
            del os.environ[name]
    os.environ |= {
        "DEMO_PIPELINE_CONFIG": str(folder / "none.toml"),
        "DEMO_PIPELINE_UPLOADS": uploads,
        "DEMO_PIPELINE_STORE": store,
        "DEMO_PIPELINE_CACHE": str(folder / "cache"),
        "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "3",
        "DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS": "2",
    }


def files_of(folder: Path) -> list[tuple[str, Path]]:
    """Returns key and path of each file of the sample recordings and of a broken copy.

    The order is random.
    """
    tear_meta(upload(RECORDINGS / GOOD[0], folder, BROKEN))
    folders = [*(RECORDINGS / name for name in GOOD), folder / BROKEN]
    files = [
        (f"{source.name}/{file}", source / file) for source in folders for file in RECORDING_FILES
    ]
    random.shuffle(files)
    return files


def check_outputs(demo: Demo, exported: Path) -> list[str]:
    """Prints, exports and validates the outputs, and returns everything that is wrong."""
    wrong = [
        f"{run.job} {run.key}: {run.status}"
        for run in runs_of(demo.instance)
        if run.failed and run.key != BROKEN
    ]
    quarantined = [record.demonstration for record in list_quarantine(demo.workspace.store)]
    if quarantined != [BROKEN]:
        wrong.append(f"quarantined: {quarantined}")
    store = demo.workspace.store
    validated = [export.stage.folder for export in training_exports().values()] + [
        QUESTS_STAGE.folder,
        INDEX_STAGE.folder,
    ]
    outputs = [name for output in validated for name in store.outputs(output)]
    for name in outputs:
        print_line(f"        {store.url}/{name}")
    wrong += [line for line in (command("export", str(exported)),) if line]
    wrong += [line for name in outputs if (line := command("validate", str(exported / name)))]
    return wrong


def command(*arguments: str) -> str:
    """Runs `demo-pipeline`, and returns a message if it fails, or else ""."""
    print_line(f"$ demo-pipeline {arguments[0]} {Path(arguments[1]).name}")
    script = f"{sysconfig.get_path('scripts')}/demo-pipeline"
    done = subprocess.run((script, *arguments), check=False, cwd=ROOT)
    return f"demo-pipeline {arguments[0]}: exit code {done.returncode}" * bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
