"""Tests that uploads in a bucket give the same outputs, with no unnecessary downloads."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.failures import UploadChangedError
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.store.uploads import Uploads
from demo_pipeline_tests.building import build_stage, is_up_to_date
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages
from demo_pipeline_tests.store.making_outputs import Counting

FIRST = STAGES[0]


class Place:
    """A workspace with a local store and uploads on S3, whose downloads are counted."""

    def __init__(self, url: str, root: Path, uploads: Path) -> None:
        self.bucket = Counting(url, root / "cache")
        self.upload(uploads / "first")
        opened = open_workspace(root, uploads=url)
        self.pipeline = replace(opened, uploads=Uploads(self.bucket, root / "cache"))

    def upload(self, folder: Path) -> None:
        for file in RECORDING_FILES:
            self.bucket.put(f"{folder.name}/{file}", folder / file)

    def redone(self) -> list[str]:
        statuses = run_all_stages(self.pipeline, "first")
        return [name for name, status in statuses.items() if status == "made"]

    def fetched(self) -> int:
        return len(self.bucket.downloads())


@pytest.fixture
def place(moto_url: str, tmp_path: Path, made_root: Path) -> Place:
    return Place(f"{moto_url}/recordings", tmp_path, made_root / "uploads")


def change_task(place: Place, content: str) -> None:
    read = place.bucket.read("first/meta.json")
    assert read is not None
    meta = json.loads(read)
    meta["quest"]["content"] = content
    place.bucket.put("first/meta.json", json.dumps(meta).encode())


def test_nothing_is_downloaded_when_nothing_changed(place):
    place.redone()
    place.fetched()
    assert is_up_to_date(place.pipeline, "first")
    assert place.redone() == []
    assert (
        build_stage(place.pipeline, STAGE_BY_NAME["events"], "first", force=True).status == "made"
    )
    assert (
        build_stage(place.pipeline, STAGE_BY_NAME["screenshots"], "first", force=True).status
        == "made"
    )
    assert place.fetched() == 0


def test_a_changed_upload_is_detected_without_a_download_and_processed_again(place):
    place.redone()
    change_task(place, "Please do something else.")
    place.fetched()
    assert not is_up_to_date(place.pipeline, "first")
    assert place.fetched() == 0
    assert place.redone()[0] == "raw_recordings"
    assert place.fetched() == 3
    assert is_up_to_date(place.pipeline, "first")
    folder = place.pipeline.store.open("trajectories/first")[0]
    task = json.loads((folder / "task.json").read_bytes())
    assert task["instruction"] == "Please do something else."


def test_a_missing_or_incomplete_upload_is_reported(place):
    place.bucket.delete("first/recording.mp4")
    with pytest.raises(DemonstrationError, match=r"recording\.mp4: is missing"):
        build_stage(place.pipeline, FIRST, "first")
    (record,) = list_quarantine(place.pipeline.store)
    assert record.fingerprint == place.pipeline.uploads.identity("first")
    for file in RECORDING_FILES:
        place.bucket.delete(f"first/{file}")
    with pytest.raises(DemonstrationError, match="no folder of the uploads has this id"):
        build_stage(place.pipeline, FIRST, "first")
    assert not is_up_to_date(place.pipeline, "first")


def test_an_upload_replaced_during_its_download_supersedes_the_run_without_a_quarantine(
    moto_url, tmp_path, made_root
):
    """The second of three files is replaced during the download; the next run uses the new one."""
    place = Place(moto_url, tmp_path, made_root / "uploads")
    place.bucket.swapped = "first/meta.json"
    with pytest.raises(UploadChangedError):
        build_stage(place.pipeline, FIRST, "first")
    assert place.pipeline.store.outputs() == []
    assert list_quarantine(place.pipeline.store) == []
    place.bucket.swapped = ""
    place.upload(made_root / "uploads" / "first")
    assert place.redone()[0] == "raw_recordings"


def test_files_are_copied_where_hard_links_are_impossible(place, made_root, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refused)
    assert build_stage(place.pipeline, FIRST, "first").status == "made"
    folder = place.pipeline.store.open("recordings/first")[0]
    for file in RECORDING_FILES:
        uploaded = (made_root / "uploads/first" / file).read_bytes()
        assert (folder / file).read_bytes() == uploaded


def test_outputs_from_a_local_folder_have_to_be_built_again_for_a_bucket(
    place, made_root, tmp_path
):
    """For a local folder, the stage `raw_recordings` keeps no copies of the files."""
    copy_of(made_root / "store", tmp_path / "store")
    assert not is_up_to_date(place.pipeline, "first")
    with pytest.raises(DemonstrationError, match="process this demonstration again"):
        build_stage(place.pipeline, STAGE_BY_NAME["events"], "first", force=True)
    assert place.redone()[0] == "raw_recordings"
    assert is_up_to_date(place.pipeline, "first")
