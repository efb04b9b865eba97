"""Runs of a command's own workers: done, refused, killed and interrupted, as Dagster has them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.local_runs import build_datasets, close_dead_runs, process
from demo_pipeline.defs.partitions import register_partitions
from demo_pipeline.runs.failures import TransientError
from demo_pipeline.runs.pool import Pool
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.run_locks import dead_runs, held, lock_folder
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import Bench, bench
from demo_pipeline_tests.defs.daemon import open_runs
from demo_pipeline_tests.defs.pool_work import (
    begin,
    begin_long,
    begin_without_database,
    nothing_lost,
)


@pytest.fixture
def made(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Two demonstrations that are built, and a home that workers open by themselves."""
    home = tmp_path / "home"
    with bench(tmp_path, source=made_root, kept=True) as opened:
        (home / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        opened.catalogue()
        yield opened


def test_each_demonstration_has_a_run_and_the_datasets_follow(made):
    (made.uploads / "second" / "input_log.jsonl").write_text("{torn\n")
    ids = ["first", "second"]
    register_partitions(made.instance, ids)
    results = {
        one.demonstration: one
        for one in process(made.workspace, made.instance, ids, 2, command="a command")
    }
    assert results["first"].status is Status.BUILT
    assert results["first"].summary["outcome"] == "done"
    refused = results["second"]
    assert (refused.status, refused.stage) == (Status.REJECTED, "events")
    assert refused.problems[0].file == "input_log.jsonl"
    runs = made.instance.get_runs()
    assert {run.tags["dagster/partition"]: run.is_success for run in runs} == {
        "first": True,
        "second": False,
    }
    assert {run.job_name for run in runs} == {"process_demonstration"}
    assert {run.tags["user"] for run in runs} == {"a command"}
    built = build_datasets(made.workspace, made.instance, command="a command")
    assert built.errors == []
    assert "sft_samples" in {one.name for one in built.outcomes}
    assert open_runs(made.instance) == 0
    assert list(lock_folder(Path(made.instance.root_directory)).iterdir()) == []


def test_an_interrupted_command_leaves_no_run_open(made):
    ids = ["first", "second"]
    register_partitions(made.instance, ids)
    running = process(made.workspace, made.instance, ids, 1, command="a command", force=True)
    with closing(running):
        assert next(running).status is Status.BUILT
    assert open_runs(made.instance) == 0
    assert dead_runs(lock_folder(Path(made.instance.root_directory))) == {}


def test_the_run_of_a_killed_command_is_closed_by_the_next(made):
    register_partitions(made.instance, ["first"])
    folder = lock_folder(Path(made.instance.root_directory))
    job = made.definitions.resolve_job_def("process_demonstration")
    run = made.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    if (child := os.fork()) == 0:
        with held(folder, run.run_id, "first"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with held(folder, "living", "second"):
        assert close_dead_runs(made.instance) == ["first"]
    closed = made.instance.get_run_by_id(run.run_id)
    assert closed is not None
    assert closed.status is dg.DagsterRunStatus.FAILURE
    assert close_dead_runs(made.instance) == []


def test_the_workers_of_a_killed_process_end_amid_their_tasks(tmp_path):
    if (child := os.fork()) == 0:
        list(Pool[None](begin_long, (str(tmp_path),), 2, nothing_lost).process(["a", "b"]))
        os._exit(1)
    while len(workers := [path.name for path in tmp_path.iterdir()]) < 2:
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while any(Path("/proc", worker).exists() for worker in workers):
        time.sleep(0.1)


def test_a_database_that_cannot_be_opened_in_a_worker_is_one_sentence(tmp_path, capfd):
    pool = Pool[None](begin_without_database, (str(tmp_path),), 1, nothing_lost)
    with pytest.raises(TransientError, match="unable to open database file"):
        list(pool.process(["a"]))
    assert "Traceback" not in capfd.readouterr().err


def test_a_task_whose_worker_died_is_done_by_another_and_given_up_after_three(tmp_path):
    lost: list[tuple[str, bool]] = []
    pool = Pool[int](begin, (str(tmp_path),), 2, lambda task, _, died: lost.append((task, died)))
    answers = dict(pool.process(["bad", "good", "once"]))
    assert answers == {"bad": None, "good": 1, "once": 2}
    assert sorted(lost) == [("bad", True)] * 3 + [("once", True)]
