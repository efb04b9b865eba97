"""`make demo-s3`: uploads into one bucket become datasets in another while you watch.

Everything it starts listens on the loopback interface only and is gone when it ends: SeaweedFS with
credentials made up for the occasion, Dagster's UI and daemon, and the folder that they write to.
"""

import argparse
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
from demo_pipeline.common.recording_files import RECORDING_FILES
from demo_pipeline.defs.freshness import progress
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import (
    LOG,
    ROOT,
    Run,
    dagster_home,
    dagster_process,
    runs_of,
    wait_for,
)
from demo_pipeline_tests.simulator.s3_server import is_free, seaweed_server
from demo_pipeline_tests.uploads import tear_meta, upload

RECORDINGS = ROOT / "data" / "recordings"
GOOD = tuple(sorted(path.parent.name for path in RECORDINGS.glob("2*/recording.mp4")))
BROKEN = "20260107_100000"
DATASETS = ("dataset", "sft", "messages", "datasets")
_PATIENCE = 240.0  # seconds for all of it; two idle cores need a third


@dataclass
class Story:
    """What is still to be uploaded, and what has been told, so that it is told once."""

    instance: Any
    workspace: Workspace
    files: list[tuple[str, Path]]
    begun: float = field(default_factory=time.monotonic)
    told: set[str] = field(default_factory=set)

    def step(self) -> bool:
        """Upload one more file, tell what happened, and say whether that was all."""
        if self.files:
            self._upload(*self.files.pop())
        runs = runs_of(self.instance)
        for run in runs:
            self._tell_run(run)
        self._tell_quarantined()
        return not self.files and self._is_settled(runs)

    def tell(self, line: str) -> None:
        if line not in self.told:
            self.told.add(line)
            print_line(f"{time.monotonic() - self.begun:4.0f} s  {line}")

    def _upload(self, key: str, path: Path) -> None:
        self.workspace.uploads.objects.put(key, path)
        name = key.partition("/")[0]
        missing = sum(other.startswith(f"{name}/") for other, _ in self.files)
        self.tell(f"upload  {key} ({len(RECORDING_FILES) - missing} of {len(RECORDING_FILES)})")

    def _tell_run(self, run: Run) -> None:
        subject = f"run     {run.id[:8]} {run.job} {run.key}".rstrip()
        if run.started:
            self.tell(f"{subject}: started")
        if run.ended:
            self.tell(f"{subject}: {run.status.lower()}")

    def _tell_quarantined(self) -> None:
        for record in list_quarantine(self.workspace.store):
            for one in record.problems:
                where = ":".join(str(one[name]) for name in ("file", "line") if one.get(name))
                self.tell(f"held    {record.demonstration}: {where}: {one['message']}")

    def _is_settled(self, runs: list[Run]) -> bool:
        processed = {run.key for run in runs if run.key and run.ended}
        state = progress(self.instance)
        built = 0 < state.latest <= state.built and not state.building
        return built and not state.processing and processed == {*GOOD, BROKEN}


def main() -> int:
    """0 when everything became what it should, 1 when not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=3000, help="of the UI")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")
    asked = parser.parse_args()
    if not is_free(asked.port):
        print_line(f"Port {asked.port} is taken; name another: make demo-s3 PORT=3001")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="demo-s3-") as folder, suppress(KeyboardInterrupt):
        return demonstrate(Path(folder), asked.port, keep=asked.keep)
    return 1


def demonstrate(folder: Path, port: int, *, keep: bool) -> int:
    """The whole story, below `folder`; its exit code."""
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
        story = Story(instance, Workspace.open(Settings()), files_of(folder / "recordings"))
        try:
            wait_for(dagster, story.step, "the datasets", _PATIENCE)
        except TimeoutError as error:
            print_line(f"{error}\n{(folder / 'home' / LOG).read_text(errors='replace')[-3000:]}")
            return 1
        failed = judge(story, folder / "exported")
        for line in failed:
            print_line(f"NOT AS IT SHOULD BE: {line}")
        if keep:
            print_line(f"Still running: {ui} (Ctrl-C ends it)")
            with suppress(KeyboardInterrupt):
                dagster.wait()
    return 1 if failed else 0


def configure(folder: Path, uploads: str, store: str) -> None:
    """Settings by environment, for this process and those it starts; nobody else's remain."""
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
    """(key, file) of the sample recordings and of a broken copy, in random order."""
    tear_meta(upload(RECORDINGS / GOOD[0], folder, BROKEN))
    folders = [*(RECORDINGS / name for name in GOOD), folder / BROKEN]
    files = [(f"{one.name}/{file}", one / file) for one in folders for file in RECORDING_FILES]
    random.shuffle(files)
    return files


def judge(story: Story, exported: Path) -> list[str]:
    """Tell what was made, export it, validate the export; what is not as it should be."""
    wrong = [
        f"{run.job} {run.key}: {run.status}"
        for run in runs_of(story.instance)
        if run.failed and run.key != BROKEN
    ]
    held = [record.demonstration for record in list_quarantine(story.workspace.store)]
    if held != [BROKEN]:
        wrong.append(f"quarantined: {held}")
    store = story.workspace.store
    outputs = [name for root in DATASETS for name in store.outputs(root)]
    for name in outputs:
        print_line(f"        {store.url}/{name}")
    wrong += [line for line in (command("export", str(exported)),) if line]
    wrong += [line for name in outputs if (line := command("validate", str(exported / name)))]
    return wrong


def command(*arguments: str) -> str:
    """Run `demo-pipeline`; empty when it ends well."""
    print_line(f"$ demo-pipeline {arguments[0]} {Path(arguments[1]).name}")
    script = f"{sysconfig.get_path('scripts')}/demo-pipeline"
    ended = subprocess.run((script, *arguments), check=False, cwd=ROOT)
    return f"demo-pipeline {arguments[0]}: exit code {ended.returncode}" * bool(ended.returncode)


if __name__ == "__main__":
    sys.exit(main())
