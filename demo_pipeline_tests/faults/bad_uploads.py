"""Processes 60 bad uploads of all kinds beside 4 good ones, in a folder or a bucket.

`python -m demo_pipeline_tests.faults.bad_uploads [--bucket] [--daemon]` processes the uploads with
1 GB of resident memory per worker. All good uploads must be processed, each bad upload must be
reported with its name and a reason, and no worker may die. `make faults` runs all four variants.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.runs.health import incomplete_uploads
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.uploads import NAME_RULE
from demo_pipeline_tests.defs.daemon import ROOT, dagster_home, dagster_process, runs_of, wait_for
from demo_pipeline_tests.sample_workspace import variables_of
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.hostile import HOSTILE, hostile_upload
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.s3_server import seaweed_server
from demo_pipeline_tests.simulator.script import click

GOOD = ("good-1", "good-2", "good-3", "good-4")
MEMORY = 2**30  # maximum resident memory of a worker, bytes
PATIENCE = 3600  # maximum time for the daemon, seconds
_MEASURE = """
import os, subprocess, sys
running = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
_, status, usage = os.wait4(running.pid, 0)
running.returncode = os.waitstatus_to_exitcode(status)
print(running.returncode, usage.ru_maxrss)
"""


def _named(name: str) -> Callable[[Path], None]:
    """Returns a function that removes the video from an upload and gives its folder this name."""

    def spoil(folder: Path) -> None:
        (folder / "recording.mp4").unlink()
        folder.rename(folder.parent / name)

    return spoil


NAMES: dict[str, Callable[[Path], None]] = {
    "name-dot": _named("upload."),
    "name-json": _named("upload.json"),
    "name-lock": _named("upload.lock"),
    "name-space": _named("two words"),
    "name-umlaut": _named("Übung"),
    "name-long": _named("n" * 200),
    "name-plus": _named("a+b"),
    "name-percent": _named("100%41"),
    "name-quote": _named("it's"),
    "name-dash": _named("-upload"),
    "name-dots": _named("a..b"),
    "name-comma": _named("a,b"),
    "name-case": _named("TWIN"),
    "name-other-case": _named("twin"),  # neither name is usable, because they differ only by case
    "name-hash": _named("#1"),
}


def _link_to_itself(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.name)


def _link_outside(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("/etc")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "folder-loop": _link_to_itself,
    "folder-outside": _link_outside,
}
"""Kinds of bad uploads that are possible in a folder but not in a bucket."""


@dataclass(frozen=True)
class Found:
    """The results of processing the uploads.

    Attributes:
        done: ids of demonstrations with a trajectory.
        reported: id of a rejected upload → reason.
        missing: bad uploads that were not reported.
        largest: peak resident memory of the largest process of the command line, bytes; 0 if not
            measured.
        seconds: duration.
    """

    done: list[str]
    reported: dict[str, str]
    missing: list[str]
    largest: int
    seconds: float


def write_uploads(root: Path, good: Sequence[str], kinds: Sequence[str]) -> dict[str, str]:
    """Writes the good uploads and one bad upload per kind; returns kind → id of the bad upload."""
    write_recording(root.parent / "intact", script(click("Agree")), SMALL)
    for name in good:
        shutil.copytree(root.parent / "intact", root / name)
        meta = json.loads((root / name / "meta.json").read_text(encoding="utf-8"))
        meta |= {"id": name}
        (root / name / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    ids: dict[str, str] = {}
    for kind in kinds:
        folder = root / kind
        if kind in HOSTILE:
            hostile_upload(root.parent / "intact", folder, kind)
            ids[kind] = kind
            continue
        shutil.copytree(root.parent / "intact", folder)
        before = set(os.listdir(root))
        (NAMES | FOLDERS)[kind](folder)
        [name] = (set(os.listdir(root)) - before) or {kind}
        ids[kind] = name
    return ids


def every_kind(*, bucket: bool) -> list[str]:
    """Returns all kinds of bad uploads that can exist in a bucket, or in a folder."""
    if not bucket:
        return [*NAMES, *FOLDERS, *HOSTILE]
    impossible = ("-pipe", "-loop", "-folder", "-sparse")
    return [kind for kind in (*NAMES, *HOSTILE) if not kind.endswith(impossible)]


@contextmanager
def environment(folder: Path, uploads: str, store: str) -> Iterator[None]:
    """Sets environment variables with settings for all processes started in the block."""
    values = variables_of(folder) | {
        "DEMO_PIPELINE_UPLOADS": uploads,
        "DEMO_PIPELINE_STORE": store,
        "DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS": "0",
        "DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS": "2",
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def process(
    folder: Path,
    kinds: Sequence[str],
    good: Sequence[str] = GOOD,
    *,
    bucket: bool = False,
    daemon: bool = False,
) -> Found:
    """Writes the uploads below `folder`, processes them, and returns the results.

    Uploads that the daemon did not process within `PATIENCE` seconds count as missing.
    """
    (folder / "uploads").mkdir(parents=True)
    # A separate process, because writing a hostile video takes more memory than processing the
    # video may take.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        ids = pool.submit(write_uploads, folder / "uploads", good, kinds).result()
    start = time.monotonic()
    with ExitStack() as stack:
        uploads = str(folder / "uploads")
        store = str(folder / "store")
        if bucket:
            server = stack.enter_context(seaweed_server(folder / "server"))
            stack.enter_context(server.connected())
            uploads = server.make_bucket()
            store = server.make_bucket()
        stack.enter_context(environment(folder, uploads, store))
        instance = stack.enter_context(dagster_home(folder / "home"))
        workspace = Workspace.open(Settings())
        if bucket:
            _upload(folder / "uploads", workspace)
        if daemon:
            wanted = set(ids.values()) | set(good)
            command = ("dagster-daemon", "run", "-w", "workspace.yaml")
            running = stack.enter_context(dagster_process(command, folder / "home"))

            def over() -> bool:
                if not all(run.ended for run in runs_of(instance)):
                    return False
                return wanted <= {*_done(workspace), *_reported(workspace, incomplete=True)}

            with suppress(TimeoutError):
                wait_for(running, over, "every upload", PATIENCE)
            text = ""
            largest = 0
        else:
            text, largest = _run(folder)
        return _found(workspace, ids, text, largest, time.monotonic() - start)


def _upload(folder: Path, workspace: Workspace) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            workspace.uploads.objects.put(key, path)


def run_measured(command: Sequence[str], log: Path) -> tuple[int, int]:
    """Runs a command and writes its output to `log`.

    The command is started by a small helper process, because the peak memory of a process includes
    that of the process that started it.

    Returns:
        The exit code, and the peak resident memory of the command's largest process in bytes.
    """
    with log.open("wb") as output:
        measured = subprocess.run(
            [sys.executable, "-c", _MEASURE, *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=output,
            check=True,
        )
    code, kilobytes = map(int, measured.stdout.split())
    return code, kilobytes * 1024


def _run(folder: Path) -> tuple[str, int]:
    """Runs `demo-pipeline run`.

    Returns:
        The output followed by the exit code, and the peak resident memory of the largest process in
        bytes.
    """
    command = [sys.executable, "-m", "demo_pipeline.cli.app", "run", "--workers", "2"]
    code, largest = run_measured(command, folder / "command.log")
    text = (folder / "command.log").read_text(encoding="utf-8")
    return f"{text}\nexit code {code}", largest


def _done(workspace: Workspace) -> list[str]:
    return [output.partition("/")[2] for output in workspace.store.outputs("trajectories")]


def _reported(workspace: Workspace, *, incomplete: bool) -> dict[str, str]:
    """Returns id → reason for all uploads that `demo-pipeline quarantine` shows.

    Args:
        workspace: the workspace.
        incomplete: whether to include uploads with missing files. The daemon waits for such files.
    """
    reasons: dict[str, str] = {}
    if incomplete:
        reasons |= incomplete_uploads(workspace)
    reasons |= dict.fromkeys(workspace.uploads.misnamed(), NAME_RULE)
    for record in list_quarantine(workspace.store):
        message = record.problems[0]["message"]
        reasons[record.demonstration] = f"{record.stage}: {message}"
    return reasons


def _found(
    workspace: Workspace, ids: dict[str, str], text: str, largest: int, seconds: float
) -> Found:
    done = _done(workspace)
    reported = _reported(workspace, incomplete=not text)
    missing = sorted(
        f"{kind} ({key})"
        for kind, key in ids.items()
        if key not in reported or (text and key not in text)
    )
    if text and not text.endswith("exit code 0"):
        missing.append(text[-2000:])
    return Found(sorted(done), reported, missing, largest, seconds)


def main() -> int:
    """Processes all uploads; returns the exit code.

    The exit code is 0 if the 4 good uploads are processed and each bad upload is reported.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bucket", action="store_true")
    parser.add_argument("--daemon", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bad-uploads-") as folder:
        kinds = every_kind(bucket=chosen.bucket)
        results = process(Path(folder), kinds, bucket=chosen.bucket, daemon=chosen.daemon)
    for key, reason in sorted(results.reported.items()):
        print(f"{key} {reason}")
    for line in results.missing:
        print(f"MISSING: {line}")
    print(
        f"{len(results.done)} done, {len(results.reported)} reported, "
        f"{len(results.missing)} missing, largest process {results.largest / 2**20:.0f} MB, "
        f"{results.seconds:.0f} s"
    )
    return 0 if results.done == list(GOOD) and not results.missing else 1


if __name__ == "__main__":
    sys.exit(main())
