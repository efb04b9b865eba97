"""Worker processes: what kills one costs its own demonstration; an early end costs nothing."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.observation.frames.video_reader import HAS_SPARE_PROCESSOR
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs import batch
from demo_pipeline.runs.batch import KILLED, DemonstrationTask, process, run_demonstration
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.results import BuildResult, DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import AStage, StageLimit
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Summary
from demo_pipeline.store.uploads import upload_listing_fingerprint
from demo_pipeline_tests.sample_workspace import (
    contents,
    copy_of,
    open_workspace,
    run_all_stages,
    run_catalog,
)
from demo_pipeline_tests.uploads import spoil_log, upload

NAMES = tuple(stage.name for stage in STAGES)
MB = 2**20


def uploaded(root: Path, recording: Path, *names: str) -> Workspace:
    for name in names:
        upload(recording, root / "uploads", name)
    return open_workspace(root)


def tasks_of(*names: str) -> list[DemonstrationTask]:
    return list(map(DemonstrationTask, names))


def ended(found: Iterator[BuildResult | DemonstrationResult]) -> Iterator[DemonstrationResult]:
    return (one for one in found if isinstance(one, DemonstrationResult))


def finished(
    workspace: Workspace,
    names: tuple[str, ...],
    workers: int = 2,
    stages: tuple[AStage, ...] = STAGES,
) -> dict[str, DemonstrationResult]:
    results = list(ended(process(workspace, tasks_of(*names), stages, workers=workers)))
    assert len(results) == len(names)
    return {result.demonstration: result for result in results}


def with_build(name: str, work: Callable[[RecordingInputs], object]) -> tuple[AStage, ...]:
    """The stages, of which one does something else first."""

    def changed(stage: AStage) -> AStage:
        def build(inputs: RecordingInputs, out: Path) -> Summary:
            work(inputs)
            return stage.build(inputs, out)

        return replace(stage, build=build) if stage.name == name else stage

    return tuple(map(changed, STAGES))


def killing(demonstration: str, times: int, notes: Path) -> tuple[AStage, ...]:
    """Stages whose process is killed, so many times, when it works on a demonstration."""

    def die(inputs: RecordingInputs) -> None:
        killed = len(list(notes.glob("killed*")))
        if inputs.demonstration == demonstration and killed < times:
            (notes / f"killed{killed}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return with_build("screenshots", die)


@pytest.mark.no_cover  # other tests run the same lines
def test_workers_give_the_same_bytes_as_the_stages_alone(tmp_path: Path, recording: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "pool").mkdir()
    alone = uploaded(tmp_path / "alone", recording, "one")
    pool = uploaded(tmp_path / "pool", recording, "one")
    run_all_stages(alone, "one")
    run_catalog(pool)
    result = finished(pool, ("one",))["one"]
    assert result.status is Status.BUILT
    assert [made.stage for made in result.stages] == list(NAMES)
    assert contents(pool, "one") == contents(alone, "one")


@pytest.mark.no_cover  # in other processes
@pytest.mark.parametrize(
    ("names", "workers", "ahead"), [("a", 2, True), ("a", 1, False), ("ab", 2, False)]
)
def test_a_demonstration_alone_with_workers_to_spare_is_decoded_ahead(
    tmp_path: Path, recording: Path, names: str, workers: int, ahead: bool
) -> None:
    workspace = uploaded(tmp_path, recording, *names)

    def note(inputs: RecordingInputs) -> None:
        (tmp_path / inputs.demonstration).write_text(str(HAS_SPARE_PROCESSOR.get()))

    finished(workspace, tuple(names), workers, with_build("raw_recordings", note)[:1])
    assert {(tmp_path / name).read_text() for name in names} == {str(ahead)}
    assert not HAS_SPARE_PROCESSOR.get()


@pytest.mark.no_cover  # other tests run the same lines
def test_a_process_that_is_killed_once_costs_nothing(tmp_path: Path, recording: Path) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad", "z")
    results = finished(workspace, ("a", "bad", "z"), 2, killing("bad", 1, tmp_path))
    assert len(list(tmp_path.glob("killed*"))) == 1
    assert {key: result.status for key, result in results.items()} == dict.fromkeys(
        ("a", "bad", "z"), Status.BUILT
    )
    assert list(results)[-1] == "bad"  # again, when the others were done
    assert read_quarantine(workspace.store, "bad") is None


def test_one_that_is_killed_again_when_it_is_alone_is_quarantined(
    tmp_path: Path, recording: Path
) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad")
    results = finished(workspace, ("a", "bad"), 2, killing("bad", 2, tmp_path))
    assert results["a"].status is Status.BUILT
    assert (results["bad"].status, results["bad"].stage) == (Status.REJECTED, "screenshots")
    record = read_quarantine(workspace.store, "bad")
    assert record is not None
    assert (record.stage, record.attempts) == ("screenshots", 1)
    assert record.problems[0]["message"] == f"the run ended in screenshots: {KILLED}"


def test_one_that_is_killed_after_its_last_stage_costs_no_other(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*given: Any) -> DemonstrationResult:
        result = run_demonstration(*given)
        if result.demonstration == "bad":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(batch, "run_demonstration", die)
    workspace = uploaded(tmp_path, recording, "bad", "z")
    results = finished(workspace, ("bad", "z"), 1, STAGES[:2])
    assert (results["bad"].status, results["bad"].stage) == (Status.REJECTED, "events")
    assert results["z"].status is Status.BUILT


def test_an_upload_that_came_meanwhile_is_not_quarantined_for_what_the_one_before_did(
    tmp_path: Path, recording: Path
) -> None:
    def die(_: RecordingInputs) -> None:
        if (tmp_path / "killed").exists():
            (tmp_path / "uploads/one/input_log.jsonl").write_bytes(b"{}\n")
        (tmp_path / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    workspace = uploaded(tmp_path, recording, "one")
    listed = upload_listing_fingerprint(workspace.uploads, "one")
    tasks, stages = [DemonstrationTask("one", listed)], with_build("actions", die)
    [result] = ended(process(workspace, tasks, stages))
    assert (result.status, result.stage) == (Status.SUPERSEDED, "actions")
    assert read_quarantine(workspace.store, "one") is None


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
    assert result.status is Status.REJECTED
    assert "needs more than 0.05 s of CPU time" in result.problems[0].message
    assert "also alone in a process" in result.problems[0].message


@pytest.mark.no_cover  # other tests run the same lines
def test_a_bad_one_changes_nothing_for_the_others(tmp_path: Path, recording: Path) -> None:
    workspace = uploaded(tmp_path, recording, "a", "bad", "z")
    spoil_log(tmp_path / "uploads" / "bad")
    results = finished(workspace, ("a", "bad", "z"))
    assert results["bad"].status is Status.REJECTED
    assert (results["bad"].stage, results["bad"].problems[0].line) == ("events", 1)
    assert {results["a"].status, results["z"].status} == {Status.BUILT}


@pytest.mark.no_cover  # other tests run the same lines
def test_an_end_in_the_middle_leaves_nothing_unfinished_and_nothing_is_built_twice(
    tmp_path: Path, recording: Path
) -> None:
    names = tuple(f"d{number}" for number in range(6))
    workspace = uploaded(tmp_path, recording, *names)
    running = process(workspace, tasks_of(*names), workers=2)
    first = next(ended(running))
    time.sleep(0.3)  # into the next one
    pids = [child.pid for child in multiprocessing.active_children()]
    assert len(pids) == 2
    running.close()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert workspace.store.remove_leftovers() == []
    before = modified(tmp_path / "store")
    results = finished(workspace, names)
    assert all(result.status.is_done for result in results.values())
    assert results[first.demonstration].status is Status.CACHED
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
import multiprocessing
from demo_pipeline.runs.batch import DemonstrationTask, process
from demo_pipeline_tests.sample_workspace import open_workspace
from pathlib import Path
workspace = open_workspace(Path({str(tmp_path)!r}))
tasks = [DemonstrationTask(f"d{{number}}") for number in range(4)]
for result in (one for one in process(workspace, tasks) if not hasattr(one, "output")):
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
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


def test_a_worker_knows_nothing_of_dagster() -> None:
    code = "import sys, demo_pipeline.runs.batch; sys.exit('dagster' in sys.modules)"
    assert subprocess.run((sys.executable, "-c", code), check=False).returncode == 0


def fill(megabytes: int) -> list[bytes]:
    """Memory that is really used, in small pieces."""
    return [b"x" * MB for _ in range(megabytes)]


def compute(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def stubborn() -> None:
    for _ in range(120):
        with suppress(Exception):  # the careless code that is meant
            compute(0.5)


class TestLimits:
    """A stage that needs too much is ended with its process, whatever it does."""

    @pytest.mark.parametrize(
        ("work", "limits", "words"),
        [
            (lambda: compute(len(fill(3_000))), {"max_memory_bytes": 900 * MB}, "GB of memory"),
            (lambda: compute(60), {"cpu_seconds": 1}, "more than 1 s of CPU time"),
            (stubborn, {"cpu_seconds": 1}, "more than 1 s of CPU time"),
            (
                lambda: re.match("(a+)+$", "a" * 60 + "b"),  # no other thread runs
                {"cpu_seconds": 1},
                "more than 1 s of CPU time (limits.cpu_seconds)",
            ),
        ],
        ids=["memory", "time", "stubborn", "in C"],
    )
    def test_it_is_tried_again_alone_and_then_quarantined(
        self,
        tmp_path: Path,
        made_root: Path,
        work: Callable[[], object],
        limits: dict[str, Any],
        words: str,
    ) -> None:
        few = {"cpu_seconds_per_video_second": 0, "cpu_seconds_per_action": 0}
        settings = LimitSettings(**(few | limits))
        workspace = open_workspace(copy_of(made_root, tmp_path / "root"), limits=settings)
        workspace.store.remove("events/first")

        def begin(inputs: RecordingInputs) -> None:
            with (tmp_path / "attempts").open("a") as attempts:
                attempts.write(f"{inputs.demonstration}\n")
            work()

        result = finished(workspace, ("first",), 2, with_build("events", begin)[:2])["first"]
        assert (result.status, result.stage) == (Status.REJECTED, "events")
        assert (tmp_path / "attempts").read_text() == "first\nfirst\n"
        record = read_quarantine(workspace.store, "first")
        assert record is not None
        [problem] = record.problems
        assert (record.stage, problem["code"]) == ("events", "too_expensive")
        assert words in str(problem["message"])
        assert str(problem["message"]).endswith(", also alone in a process")
        assert "--retry" in str(problem["remedy"])
        assert workspace.store.remove_leftovers() == []

    def test_the_checks_are_limited_too(self, tmp_path: Path, made_root: Path) -> None:
        def endless(_inputs: RecordingInputs, _out: Path) -> list[Problem]:
            compute(60)
            return []

        limits = LimitSettings(
            cpu_seconds=1, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0
        )
        workspace = open_workspace(copy_of(made_root, tmp_path / "root"), limits=limits)
        workspace.store.remove("events/first")
        check = replace(STAGES[1].checks[0], run=endless)
        stages = (STAGES[0], replace(STAGES[1], checks=(check,)))
        result = finished(workspace, ("first",), 1, stages)["first"]
        assert (result.status, result.problems[0].code) == (Status.REJECTED, "too_expensive")

    def test_the_cpu_time_grows_with_the_video_and_the_actions(self) -> None:
        limits = LimitSettings(
            max_memory_bytes=2**30,
            cpu_seconds=10,
            cpu_seconds_per_video_second=2,
            cpu_seconds_per_action=3,
        )
        assert StageLimit.of(limits, 0, 0) == StageLimit(2**30, 10)
        assert StageLimit.of(limits, 5, 7) == StageLimit(2**30, 10 + 10 + 21)
