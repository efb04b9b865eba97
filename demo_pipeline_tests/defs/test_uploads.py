"""Tests single evaluations of the sensor `new_uploads`.

Uploads are complete, changed, many, rejected, waiting or cancelled.
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
from demo_pipeline_tests.defs.bench import Bench, Ticked, bench, cancel, launched, ticked


@pytest.fixture
def made(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A workspace with two built demonstrations.

    An upload counts as complete if the second evaluation of the sensor sees it unchanged.
    """
    monkeypatch.setattr(upload_sensor, "_settled", {})
    with bench(tmp_path, source=made_root) as opened:
        opened.catalogue()
        yield opened


def look(made: Bench, before: Ticked | None = None) -> Ticked:
    return ticked(made, "new_uploads", before.cursor if before else None)


def copy(made: Bench, name: str, *files: str) -> None:
    source = made.uploads / "first"
    folder = made.uploads / name
    folder.mkdir(exist_ok=True)
    for file in files or ("meta.json", "input_log.jsonl", "recording.mp4"):
        shutil.copyfile(source / file, folder / file)


def test_what_is_built_is_neither_requested_nor_remembered(made):
    found = look(made)
    assert (found.keys, json.loads(found.cursor or "")) == ([], {})


def test_an_upload_in_parts_is_requested_once_it_is_whole(made):
    copy(made, "third", "meta.json", "recording.mp4")
    found = look(made)
    assert (found.keys, found.cursor) == ([], "{}")
    copy(made, "third", "input_log.jsonl")
    found = look(made, found)
    assert found.keys == ["third"]
    assert found.requests[0].tags["demo_pipeline/reason"] == "new"
    assert made.instance.get_dynamic_partitions("demonstrations") == ["third"]
    assert launched(made, found.requests[0]).success
    found = look(made, found)
    assert (found.keys, found.cursor) == ([], "{}")


def test_an_upload_that_is_not_still_waits(made, monkeypatch):
    calm = made.settings.discovery.model_copy(update={"stable_seconds": 60})
    made.__dict__["settings"] = made.settings.model_copy(update={"discovery": calm})
    copy(made, "third")
    found = look(made)
    assert "1 upload may still change" in found.skipped
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    assert look(made, found).keys == ["third"]
    with (made.uploads / "third" / "input_log.jsonl").open("a") as log:
        log.write("\n")
    assert look(made, found).keys == []


def test_a_changed_upload_is_requested_again_under_another_key(made):
    with (made.uploads / "first" / "input_log.jsonl").open("a") as log:
        log.write("\n")
    found = look(made)
    assert [(one.partition_key, one.tags["demo_pipeline/reason"]) for one in found.requests] == [
        ("first", "changed")
    ]
    assert launched(made, found.requests[0]).success
    assert look(made, found).cursor == "{}"


def test_a_damaged_record_that_a_dataset_left_out_is_built_again(made):
    assert look(made).keys == []
    flip_byte(made.workspace, "records/first", "messages.jsonl")
    sft_samples = dataset_stages_by_name()["sft_samples"]
    assert run_dataset_stage(made.workspace, sft_samples, force=True).summary["samples"]
    found = look(made)
    assert found.keys == ["first"]
    assert launched(made, found.requests[0]).success
    assert made.workspace.store.verify("records/first") == []
    assert made.run("build_datasets").success
    found = look(made, found)
    assert (found.keys, found.cursor) == ([], "{}")


def test_a_refused_upload_is_asked_for_once(made):
    (made.uploads / "first" / "input_log.jsonl").write_text("{torn\n")
    found = look(made)
    assert not launched(made, found.requests[0]).success
    assert read_quarantine(made.workspace.store, "first") is not None
    found = look(made, found)
    assert (found.keys, found.cursor) == ([], "{}")


def test_what_did_not_pass_is_requested_again_with_its_attempt_in_the_key(made, monkeypatch):
    copy(made, "third")
    found = look(made)
    [first] = found.requests
    assert first.run_key is not None
    assert first.run_key.endswith("#1")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    [again] = look(made, found).requests
    assert again.run_key == first.run_key.replace("#1", "#2")


def test_a_run_that_a_person_cancelled_is_not_requested_again(made, monkeypatch):
    copy(made, "third")
    found = look(made)
    cancel(made, found.requests[0])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    found = look(made, found)
    assert (found.keys, look(made, found).keys) == ([], [])


def test_an_upload_whose_run_failed_after_a_cancelled_run_of_many_is_requested_again(
    made, monkeypatch
):
    copy(made, "third")
    found = look(made)
    config = {"ops": {"demonstrations": {"config": {"ids": ["third"]}}}}
    many = made.definitions.resolve_job_def("process_many")
    made.instance.report_run_canceled(made.instance.create_run_for_job(many, run_config=config))
    single = made.definitions.resolve_job_def("process_demonstration")
    made.instance.report_run_failed(
        made.instance.create_run_for_job(single, tags={PARTITION_TAG: "third"})
    )
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert look(made, found).keys == ["third"]


def test_more_than_a_tick_may_request_are_one_run_of_many(made, monkeypatch):
    monkeypatch.setattr(upload_sensor, "MANY", 2)
    monkeypatch.setattr(upload_sensor, "runs_here", lambda _: True)
    for name in ("third", "fourth", "fifth"):
        copy(made, name)
    found = look(made)
    [request] = found.requests
    ids = request.run_config["ops"]["demonstrations"]["config"]["ids"]
    assert (request.job_name, sorted(ids)) == ("process_many", ["fifth", "fourth", "third"])
    partitions = made.instance.get_dynamic_partitions("demonstrations")
    assert sorted(partitions) == ["fifth", "fourth", "third"]
    job = made.definitions.resolve_job_def("process_many")
    made.instance.create_run_for_job(job, run_config=request.run_config)
    monkeypatch.setattr(upload_sensor, "MANY", 25)
    assert look(made, found).keys == []  # a queued run contains them


def test_a_folder_whose_name_is_no_id_is_refused_and_the_tick_says_so(made):
    for name in ("a b", "third", "Third"):
        copy(made, name)
    found = look(made)
    assert found.keys == []
    assert "refused: 3 folders of the uploads" in found.skipped
