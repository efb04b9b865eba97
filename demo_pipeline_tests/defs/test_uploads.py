"""Tests single evaluations of the sensor `new_uploads`.

The uploads are complete, changed, rejected or still incomplete, or their runs were cancelled.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo_pipeline.defs import upload_sensor
from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline.runs.quarantine import read_quarantine
from demo_pipeline.runs.stages import dataset_stages_by_name
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.damage import flip_byte
from demo_pipeline_tests.defs.bench import Bench, Ticked, cancel, launched, open_bench, ticked


@pytest.fixture
def bench(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A workspace with two built demonstrations.

    An upload counts as complete if the second evaluation of the sensor sees it unchanged.
    """
    monkeypatch.setattr(upload_sensor, "_settled", {})
    with open_bench(tmp_path, source=made_root) as opened:
        opened.catalogue()
        yield opened


def look(bench: Bench, before: Ticked | None = None) -> Ticked:
    return ticked(bench, "new_uploads", before.cursor if before else None)


def copy(bench: Bench, name: str, *files: str) -> None:
    source = bench.uploads / "first"
    folder = bench.uploads / name
    folder.mkdir(exist_ok=True)
    for file in files or ("meta.json", "input_log.jsonl", "recording.mp4"):
        shutil.copyfile(source / file, folder / file)


def test_what_is_built_is_neither_requested_nor_remembered(bench):
    evaluation = look(bench)
    assert (evaluation.keys, json.loads(evaluation.cursor or "")) == ([], {})


def test_an_upload_in_parts_is_requested_once_it_is_whole(bench):
    copy(bench, "third", "meta.json", "recording.mp4")
    evaluation = look(bench)
    assert (evaluation.keys, evaluation.cursor) == ([], "{}")
    copy(bench, "third", "input_log.jsonl")
    evaluation = look(bench, evaluation)
    assert evaluation.keys == ["third"]
    assert evaluation.requests[0].tags["demo_pipeline/reason"] == "new"
    assert bench.instance.get_dynamic_partitions("demonstrations") == ["third"]
    assert launched(bench, evaluation.requests[0]).success
    evaluation = look(bench, evaluation)
    assert (evaluation.keys, evaluation.cursor) == ([], "{}")


def test_an_upload_that_may_still_change_waits(bench, monkeypatch):
    calm = bench.settings.discovery.model_copy(update={"stable_seconds": 60})
    bench.__dict__["settings"] = bench.settings.model_copy(update={"discovery": calm})
    copy(bench, "third")
    evaluation = look(bench)
    assert "1 upload may still change" in evaluation.skipped
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert look(bench, evaluation).keys == ["third"]
    with (bench.uploads / "third" / "input_log.jsonl").open("a") as log:
        log.write("\n")
    assert look(bench, evaluation).keys == []


def test_a_changed_upload_is_requested_again_under_another_key(bench):
    with (bench.uploads / "first" / "input_log.jsonl").open("a") as log:
        log.write("\n")
    evaluation = look(bench)
    assert [
        (request.partition_key, request.tags["demo_pipeline/reason"])
        for request in evaluation.requests
    ] == [("first", "changed")]
    assert launched(bench, evaluation.requests[0]).success
    assert look(bench, evaluation).cursor == "{}"


def test_a_damaged_record_that_a_dataset_left_out_is_built_again(bench):
    assert look(bench).keys == []
    flip_byte(bench.workspace, "records/first", "messages.jsonl")
    sft_samples = dataset_stages_by_name()["sft_samples"]
    assert run_dataset_stage(bench.workspace, sft_samples, force=True).summary["samples"]
    evaluation = look(bench)
    assert evaluation.keys == ["first"]
    assert launched(bench, evaluation.requests[0]).success
    assert bench.workspace.store.verify("records/first") == []
    assert bench.run("build_datasets").success
    evaluation = look(bench, evaluation)
    assert (evaluation.keys, evaluation.cursor) == ([], "{}")


def test_a_rejected_upload_is_requested_once(bench):
    (bench.uploads / "first" / "input_log.jsonl").write_text("{torn\n")
    evaluation = look(bench)
    assert not launched(bench, evaluation.requests[0]).success
    assert read_quarantine(bench.workspace.store, "first") is not None
    evaluation = look(bench, evaluation)
    assert (evaluation.keys, evaluation.cursor) == ([], "{}")


def test_an_upload_that_was_not_built_is_requested_again_as_a_new_attempt(bench, monkeypatch):
    copy(bench, "third")
    evaluation = look(bench)
    [first] = evaluation.requests
    assert first.run_key is not None
    assert first.run_key.endswith("#1")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    [again] = look(bench, evaluation).requests
    assert again.run_key == first.run_key.replace("#1", "#2")


def test_a_run_that_a_person_cancelled_is_not_requested_again(bench, monkeypatch):
    copy(bench, "third")
    evaluation = look(bench)
    cancel(bench, evaluation.requests[0])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    evaluation = look(bench, evaluation)
    assert (evaluation.keys, look(bench, evaluation).keys) == ([], [])


def test_an_upload_whose_run_failed_after_a_cancelled_run_of_many_is_requested_again(
    bench, monkeypatch
):
    copy(bench, "third")
    evaluation = look(bench)
    config = {"ops": {"demonstrations": {"config": {"ids": ["third"]}}}}
    many = bench.definitions.resolve_job_def("process_many")
    bench.instance.report_run_canceled(bench.instance.create_run_for_job(many, run_config=config))
    single = bench.definitions.resolve_job_def("process_demonstration")
    bench.instance.report_run_failed(
        bench.instance.create_run_for_job(single, tags={PARTITION_TAG: "third"})
    )
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert look(bench, evaluation).keys == ["third"]


def test_more_uploads_than_one_evaluation_may_request_are_a_single_run(bench, monkeypatch):
    monkeypatch.setattr(upload_sensor, "MANY", 2)
    monkeypatch.setattr(upload_sensor, "runs_here", lambda _: True)
    for name in ("third", "fourth", "fifth"):
        copy(bench, name)
    evaluation = look(bench)
    [request] = evaluation.requests
    ids = request.run_config["ops"]["demonstrations"]["config"]["ids"]
    assert (request.job_name, sorted(ids)) == ("process_many", ["fifth", "fourth", "third"])
    partitions = bench.instance.get_dynamic_partitions("demonstrations")
    assert sorted(partitions) == ["fifth", "fourth", "third"]
    job = bench.definitions.resolve_job_def("process_many")
    bench.instance.create_run_for_job(job, run_config=request.run_config)
    monkeypatch.setattr(upload_sensor, "MANY", 25)
    assert look(bench, evaluation).keys == []  # a queued run contains them


def test_a_folder_whose_name_is_no_id_is_refused_and_the_tick_says_so(bench):
    for name in ("a b", "third", "Third"):
        copy(bench, name)
    evaluation = look(bench)
    assert evaluation.keys == []
    assert "refused: 3 folders of the uploads" in evaluation.skipped
