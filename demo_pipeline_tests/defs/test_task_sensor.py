"""The catalog of OSWorld tasks as an asset, its sensor, and matched demonstrations."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    materialized,
    ticked,
    values,
    verdicts,
)
from demo_pipeline_tests.simulator.s3_server import S3Server
from demo_pipeline_tests.task_folders import RISKY, put_tasks, put_text, risk_task, task
from demo_pipeline_tests.uploads import upload


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        yield one


def tasks(made: Bench) -> Path:
    return Path(made.settings.osworld_tasks)


def read(made: Bench, **tags: str) -> Result:
    return made.run("read_osworld_tasks", **tags)


def test_the_asset_shows_the_tasks_and_is_built_once(made: Bench) -> None:
    put_tasks(tasks(made), {"os": [task("a"), task("b")]})
    put_tasks(tasks(made) / RISKY, {"mail": [risk_task("c")]})
    first, again = read(made), read(made)
    shown = values(materialized(first)["osworld_tasks", None])
    assert (shown["tasks"], shown["ordinary"], shown["risk"]) == (3, 2, 1)
    assert (shown["outcome"], shown["task_files_found"]) == ("made", True)
    assert {name for name, verdict in verdicts(first).items() if verdict.passed} == {
        "catalog_schema",
        "task_files",
    }
    assert values(materialized(again)["osworld_tasks", None])["outcome"] == "unchanged"
    forced = values(
        materialized(read(made, **{"demo_pipeline/force": "true"}))["osworld_tasks", None]
    )
    assert (forced["outcome"], forced["version"]) == ("made", shown["version"])


def test_without_a_folder_the_catalog_asset_succeeds_empty(made: Bench) -> None:
    result = read(made)
    assert result.success
    shown = values(materialized(result)["osworld_tasks", None])
    assert (shown["tasks"], shown["task_files_found"]) == (0, False)


def test_a_bad_file_is_a_warning_that_names_it(made: Bench) -> None:
    put_tasks(tasks(made), {"os": [task("a"), task("bad")]})
    put_text(tasks(made), "examples/os/bad.json", "{")
    result = read(made)
    assert result.success
    verdict = verdicts(result)["task_files"]
    assert (verdict.passed, verdict.severity.value) == (False, "WARN")
    assert "examples/os/bad.json:1" in (verdict.description or "")


@pytest.mark.no_cover  # other tests run the same lines
def test_a_matched_demonstration_shows_its_task_and_is_left_out_of_training(
    made: Bench, recording: Path
) -> None:
    put_tasks(tasks(made), {"os": [task("t-1", "please do what ONE says")]})
    assert read(made).success
    for key in ("one", "two"):
        upload(recording, made.uploads, key)
    linked = values(materialized(made.process("one"))["trajectories", "one"])
    assert linked["osworld_task_id"] == "t-1"
    free = made.process("two")
    assert "osworld_task_id" not in values(materialized(free)["trajectories", "two"])
    assert verdicts(free)["osworld_compared"].passed
    datasets = materialized(made.run("build_datasets"))
    excluded = values(datasets["sft_samples", None])["excluded_trajectories"]
    assert excluded["contaminated"] == 1
    assert values(datasets["osworld_quests", None])["tasks"] == 2


@pytest.mark.no_cover  # other tests run the same lines
def test_a_demonstration_without_a_catalog_is_built_with_a_warning(
    made: Bench, recording: Path
) -> None:
    upload(recording, made.uploads, "one")
    made.instance.add_dynamic_partitions("demonstrations", ["one"])
    result = made.run("process_demonstration", "one")
    assert result.success
    verdict = verdicts(result)["osworld_compared"]
    assert (verdict.passed, verdict.severity.value) == (False, "WARN")
    assert "build the catalog of OSWorld tasks" in (verdict.description or "")


def test_the_catalog_is_requested_when_missing_and_when_the_files_changed(made: Bench) -> None:
    put_tasks(tasks(made), {"os": [task("a")]})
    first = ticked(made, "tasks_changed")
    assert len(first.requests) == 1
    read(made)
    assert ticked(made, "tasks_changed", first.cursor).requests == ()
    put_tasks(tasks(made), {"os": [task("a"), task("b")]})
    changed = ticked(made, "tasks_changed", first.cursor)
    assert changed.requests[0].run_key != first.requests[0].run_key


def test_without_the_bucket_the_sensors_skip_with_a_sentence(made: Bench, moto: S3Server) -> None:
    settings = made.settings.model_copy(update={"store": "s3://not-there/store"})
    lost = replace(made, settings=settings, definitions=build_defs(settings))
    with moto.connected():
        for name in ("tasks_changed", "new_uploads", "quarantine_changed", "new_evaluations"):
            assert "not-there" in ticked(lost, name).skipped


def test_no_demonstration_is_launched_before_it_can_be_compared(made: Bench) -> None:
    """A benchmark task that was not read yet must not become training data."""
    put_tasks(tasks(made), {"os": [task("a")]})
    folder = made.uploads / "one"
    folder.mkdir()
    for name in RECORDING_FILES:
        (folder / name).write_bytes(b"x")
    looks = [ticked(made, "new_uploads") for _ in range(3)]
    assert {one.requests for one in looks} == {()}
    assert "read_osworld_tasks" in looks[-1].skipped
    read(made)
    looks = [ticked(made, "new_uploads") for _ in range(3)]
    assert next(one.keys for one in looks if one.requests) == ["one"]


def test_without_task_files_no_upload_waits(made: Bench) -> None:
    assert "read_osworld_tasks" not in ticked(made, "new_uploads").skipped


def test_after_a_failed_run_the_catalog_is_requested_under_another_key(made: Bench) -> None:
    """Dagster launches a key once: the same one would be the last attempt for ever."""
    put_tasks(tasks(made), {"os": [task("a")]})
    first = ticked(made, "tasks_changed")
    [request] = first.requests
    job = made.definitions.resolve_job_def("read_osworld_tasks")
    run = made.instance.create_run_for_job(job, tags=dict(request.tags))
    made.instance.report_run_failed(run)
    ended = made.instance.get_run_records()[0].end_time or time.time()
    assert "attempt 1 failed" in ticked(made, "tasks_changed", first.cursor).skipped
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: ended + 3600)
        [again] = ticked(made, "tasks_changed", first.cursor).requests
    assert again.run_key != request.run_key
    read(made, **again.tags)
    assert "did not change" in ticked(made, "tasks_changed", first.cursor).skipped
