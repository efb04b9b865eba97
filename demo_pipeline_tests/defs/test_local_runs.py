"""Tests how Dagster records runs of a command's workers: done, rejected, killed, interrupted."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.defs.dead_runs import close_dead_runs
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.runs.failures import TransientError
from demo_pipeline.runs.local_runs import LocalRuns
from demo_pipeline.runs.pool import Pool, WorkersError
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.run_locks import dead_runs, held, lock_folder
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import Bench, open_bench
from demo_pipeline_tests.defs.daemon import open_runs

WORK = "demo_pipeline_tests.defs.pool_work"


@pytest.fixture
def bench(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A workspace with two built demonstrations, and a DAGSTER_HOME that workers can open."""
    home = tmp_path / "home"
    with open_bench(tmp_path, source=made_root, kept=True) as opened:
        (home / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        opened.catalogue()
        yield opened


def local_runs(bench: Bench, workers: int) -> LocalRuns:
    return LocalRuns(
        bench.workspace, Path(bench.instance.root_directory), workers, command="a command"
    )


def test_each_demonstration_has_a_run_and_the_datasets_follow(bench):
    (bench.uploads / "second" / "input_log.jsonl").write_text("{torn\n")
    ids = ["first", "second"]
    with closing(local_runs(bench, 2)) as runs:
        assert runs.prepare(ids) == set()
        results = {result.demonstration: result for result in runs.process(ids)}
        built = runs.build_datasets()
    assert results["first"].status is Status.BUILT
    assert results["first"].summary["outcome"] == "done"
    refused = results["second"]
    assert (refused.status, refused.stage) == (Status.REJECTED, "events")
    assert refused.problems[0].file == "input_log.jsonl"
    recorded = {run.tags.get("dagster/partition"): run for run in bench.instance.get_runs()}
    assert {key: run.is_success for key, run in recorded.items()} == {
        "first": True,
        "second": False,
        None: True,
    }
    assert recorded["first"].job_name == "process_demonstration"
    assert recorded[None].job_name == "build_datasets"
    assert {run.tags["user"] for run in recorded.values()} == {"a command"}
    assert built.errors == []
    assert "sft_samples" in {outcome.name for outcome in built.outcomes}
    assert open_runs(bench.instance) == 0
    assert list(lock_folder(Path(bench.instance.root_directory)).iterdir()) == []


def test_five_modules_lie_between_a_command_and_the_build_function_of_a_stage(bench, tmp_path):
    """Together with the modules of command and stage, a reader has to open seven files."""
    seen = tmp_path / "modules"
    original = RAW_RECORDINGS_STAGE.build

    def build(_inputs: Any, _out: Path) -> Any:
        paths = [frame.filename for frame in traceback.extract_stack()]
        ours = [path.partition("/demo_pipeline/")[2] for path in paths]
        seen.write_text("\n".join(dict.fromkeys(filter(None, ours))))
        raise DemonstrationError(Problem("seen", ".", "the way was seen"))

    object.__setattr__(RAW_RECORDINGS_STAGE, "build", build)  # forked workers have it, too
    try:
        with closing(local_runs(bench, 1)) as runs:
            runs.prepare(["first"])
            [result] = runs.process(["first"], force=True)
    finally:
        object.__setattr__(RAW_RECORDINGS_STAGE, "build", original)
    assert [problem.code for problem in result.problems] == ["seen"]
    assert seen.read_text().splitlines() == [
        "runs/local_runs.py",
        "runs/pool.py",
        "defs/worker.py",
        "defs/demonstrations.py",
        "runs/graph.py",
    ]


def test_an_interrupted_command_leaves_no_run_open(bench):
    ids = ["first", "second"]
    with closing(local_runs(bench, 1)) as runs:
        runs.prepare(ids)
        with closing(runs.process(ids, force=True)) as running:
            assert next(running).status is Status.BUILT
    ended = bench.instance.get_runs(dg.RunsFilter(tags={"dagster/partition": "second"}))
    assert {run.status for run in ended} <= {dg.DagsterRunStatus.CANCELED}
    assert open_runs(bench.instance) == 0
    assert dead_runs(lock_folder(Path(bench.instance.root_directory))) == {}


def test_the_run_of_a_killed_command_is_closed_by_the_next(bench):
    folder = lock_folder(Path(bench.instance.root_directory))
    job = bench.definitions.resolve_job_def("process_demonstration")
    run = bench.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    if (child := os.fork()) == 0:
        with held(folder, run.run_id, "first"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with held(folder, "living", "second"):
        assert close_dead_runs(bench.instance) == ["first"]
    closed = bench.instance.get_run_by_id(run.run_id)
    assert closed is not None
    assert closed.status is dg.DagsterRunStatus.FAILURE
    assert close_dead_runs(bench.instance) == []


def test_the_workers_of_a_killed_process_end_amid_their_tasks(tmp_path):
    begin = f"{WORK}:begin_long"
    folder = str(tmp_path)
    script = (
        "from demo_pipeline.runs.pool import Pool; "
        f"list(Pool({begin!r}, ({folder!r},), 2).process(['a', 'b']))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        while len(workers := [path.name for path in tmp_path.iterdir()]) < 2:
            time.sleep(0.1)
        command.kill()
    while any(Path("/proc", worker).exists() for worker in workers):
        time.sleep(0.1)


def test_a_database_that_cannot_be_opened_in_a_worker_is_one_sentence(tmp_path, capfd):
    begin = f"{WORK}:begin_without_database"
    with (
        closing(Pool[str, None](begin, (str(tmp_path),), 1)) as pool,
        pytest.raises(TransientError, match="unable to open database file"),
    ):
        list(pool.process(["a"]))
    assert "Traceback" not in capfd.readouterr().err


def test_a_task_whose_worker_died_is_done_by_another_and_given_up_after_three(tmp_path):
    with closing(Pool[str, int](f"{WORK}:begin", (str(tmp_path),), 2)) as pool:
        assert dict(pool.process(["bad", "good", "once"])) == {"bad": None, "good": 1, "once": 2}
        assert pool.ask("another") == 1
        with pytest.raises(WorkersError):
            pool.ask("bad")


def test_workers_outlive_the_process_that_forked_them_and_no_other_is_started(tmp_path):
    with closing(Pool[str, int](f"{WORK}:begin", (str(tmp_path),), 1)) as pool:
        assert pool.ask("good") == 1
        [forker] = multiprocessing.active_children()
        forker.kill()
        forker.join()
        assert pool.ask("another") == 1
        with pytest.raises(WorkersError, match="starts the workers has ended"):
            pool.ask("bad")
