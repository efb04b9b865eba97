"""Worker processes: what kills one costs its own demonstration; an early end costs nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_pool import KILLED, DemonstrationPool
from demo_pipeline.pipeline.demonstration_run import DemonstrationResult, DemonstrationTask
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.settings import LimitSettings
from demo_pipeline_tests.sample_workspace import (
    contents,
    open_workspace,
    run_all_stages,
    run_catalog,
)
from demo_pipeline_tests.uploads import spoil_log, upload

NAMES = tuple(stage.name for stage in STAGES)


def uploaded(root: Path, recording: Path, *names: str) -> Workspace:
    for name in names:
        upload(recording, root / "uploads", name)
    return open_workspace(root)


def finished(
    workspace: Workspace, names: tuple[str, ...], workers: int = 2
) -> dict[str, DemonstrationResult]:
    with DemonstrationPool(workspace, NAMES, workers) as pool:
        results = list(pool.run([DemonstrationTask(name) for name in names]))
    assert len(results) == len(names)
    return {result.demonstration: result for result in results}


@contextmanager
def killing(pool: DemonstrationPool, demonstration: str, times: int) -> Iterator[list[int]]:
    """Kill -9 the process that works on a demonstration, so many times; yields the killed."""
    killed: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02) and len(killed) < times:
            for worker in list(pool._workers):
                working = worker.task.demonstration == demonstration and not worker.idle
                if working and worker.pid not in killed and worker.stage == "screenshots":
                    killed.append(worker.pid)
                    with suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.mark.no_cover  # other tests run the same lines
def test_workers_give_the_same_bytes_as_the_stages_alone(tmp_path: Path, recording: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "pool").mkdir()
    alone = uploaded(tmp_path / "alone", recording, "one")
    pool = uploaded(tmp_path / "pool", recording, "one")
    run_all_stages(alone, "one")
    run_catalog(pool)
    result = finished(pool, ("one",))["one"]
    assert result.status == "done"
    assert [made.stage for made in result.stages] == list(NAMES)
    assert contents(pool, "one") == contents(alone, "one")


@pytest.mark.no_cover  # other tests run the same lines
def test_a_process_that_is_killed_once_costs_nothing(tmp_path: Path, recording: Path) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad", "z")
    with DemonstrationPool(workspace, NAMES, 2) as pool, killing(pool, "bad", 1) as killed:
        results = list(pool.run([DemonstrationTask(name) for name in ("a", "bad", "z")]))
    assert len(killed) == 1
    assert {result.demonstration: result.status for result in results} == {
        "a": "done",
        "bad": "done",
        "z": "done",
    }
    assert results[-1].demonstration == "bad"  # again, when the others were done
    assert read_quarantine(workspace.store, "bad") is None


def test_one_that_is_killed_again_when_it_is_alone_is_quarantined(
    tmp_path: Path, recording: Path
) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad")
    with DemonstrationPool(workspace, NAMES, 2) as pool, killing(pool, "bad", 2):
        results = {
            result.demonstration: result
            for result in pool.run([DemonstrationTask(name) for name in ("a", "bad")])
        }
    assert results["a"].status == "done"
    assert (results["bad"].status, results["bad"].stage) == ("failed", "screenshots")
    record = read_quarantine(workspace.store, "bad")
    assert record is not None
    assert (record.stage, record.attempts) == ("screenshots", 1)
    assert record.problems[0]["message"] == f"the run ended in screenshots: {KILLED}"


@pytest.mark.no_cover  # other tests run the same lines
def test_one_that_needs_too_much_is_tried_alone_and_then_quarantined(
    tmp_path: Path, recording: Path
) -> None:
    upload(recording, tmp_path / "uploads", "one")
    limits = LimitSettings(
        cpu_seconds=0.05, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0
    )
    workspace = open_workspace(tmp_path, limits=limits)
    result = finished(workspace, ("one",))["one"]
    assert result.status == "failed"
    assert "needs more than 0.05 s of CPU time" in result.problems[0].message
    assert "also alone in a process" in result.problems[0].message


@pytest.mark.no_cover  # other tests run the same lines
def test_a_bad_one_changes_nothing_for_the_others(tmp_path: Path, recording: Path) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad", "z")
    spoil_log(tmp_path / "uploads" / "bad")
    results = finished(workspace, ("a", "bad", "z"))
    assert results["bad"].status == "failed"
    assert (results["bad"].stage, results["bad"].problems[0].line) == ("events", 1)
    assert {results["a"].status, results["z"].status} == {"done"}


@pytest.mark.no_cover  # other tests run the same lines
def test_an_end_in_the_middle_leaves_nothing_unfinished_and_nothing_is_built_twice(
    tmp_path: Path, recording: Path
) -> None:
    names = tuple(f"d{number}" for number in range(6))
    workspace = uploaded(tmp_path, recording, *names)
    with DemonstrationPool(workspace, NAMES, 2) as pool:
        first = next(pool.run([DemonstrationTask(name) for name in names]))
        time.sleep(0.3)  # into the next one
        pids = pool.pids
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert workspace.store.remove_leftovers() == []
    before = modified(tmp_path / "store")
    results = finished(workspace, names)
    assert {result.status for result in results.values()} == {"done"}
    assert results[first.demonstration].unchanged
    after = modified(tmp_path / "store")
    assert {path: after.get(path) for path in before} == before


def modified(store: Path) -> dict[str, int]:
    """Path → time of its last change, of every file of every version."""
    found = (path for path in (store / ".versions").rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in found}


@pytest.mark.no_cover  # other tests run the same lines
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, recording: Path) -> None:
    workspace = uploaded(tmp_path, recording, *(f"d{number}" for number in range(4)))
    code = f"""
from demo_pipeline.pipeline.demonstration_pool import DemonstrationPool
from demo_pipeline.pipeline.demonstration_run import DemonstrationTask
from demo_pipeline_tests.sample_workspace import open_workspace
from pathlib import Path
workspace = open_workspace(Path({str(tmp_path)!r}))
with DemonstrationPool(workspace, {NAMES!r}, 1) as pool:
    tasks = [DemonstrationTask(f"d{{number}}") for number in range(4)]
    for result in pool.run(tasks):
        print(*pool.pids, flush=True)
"""
    command = (sys.executable, "-c", code)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = parent.stdout.readline().split()
        parent.kill()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert workspace.store.outputs("trajectories")


@pytest.mark.parametrize("module", ["demonstration_worker", "demonstration_pool"])
def test_a_worker_knows_nothing_of_dagster(module: str) -> None:
    code = f"import sys, demo_pipeline.pipeline.{module}; sys.exit('dagster' in sys.modules)"
    assert subprocess.run((sys.executable, "-c", code), check=False).returncode == 0


@pytest.mark.no_cover  # other tests run the same lines
def test_workers_share_what_one_process_imported(tmp_path: Path, recording: Path) -> None:
    """Each would spend more than a CPU second on imports; forked ones spend next to nothing."""
    workspace = uploaded(tmp_path, recording, "a", "b", "c")
    with DemonstrationPool(workspace, NAMES, 3) as pool:
        list(pool.run([DemonstrationTask(name) for name in ("a", "b", "c")]))
        parents = {parent_of(pid) for pid in pool.pids}
        assert len(pool.pids) == 3
    [template] = parents
    assert template != os.getpid()
    assert not Path(f"/proc/{template}").exists()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.no_cover  # other tests run the same lines
def test_a_killed_template_costs_nothing(tmp_path: Path, recording: Path) -> None:
    """The process that workers are forked from is another process that may be killed."""
    names = tuple(f"d{number}" for number in range(6))
    workspace = uploaded(tmp_path, recording, *names)
    with DemonstrationPool(workspace, NAMES, 2) as pool:
        run = pool.run([DemonstrationTask(name) for name in names])
        results = [next(run)]
        first, other = pool.pids
        os.kill(parent_of(first), signal.SIGKILL)
        os.kill(first, signal.SIGKILL)  # the other one works on
        results += run
        pids = {first, other, *pool.pids}
    assert [result.status for result in results] == ["done"] * len(names)
    end = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in pids if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    """Whether it runs; one that ended may wait for its new parent to take notice."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
