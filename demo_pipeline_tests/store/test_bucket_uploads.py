"""Tests of uploads in a bucket: listing, downloading, and removing abandoned downloads."""

import os
from pathlib import Path

import pytest

from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.uploads import (
    UploadedDemonstration,
    Uploads,
    _folder_fingerprint,
    open_uploads,
)
from demo_pipeline_tests.store.making_outputs import Counting


class Place:
    """Uploads in a bucket. Every call to the bucket is recorded."""

    def __init__(self, url: str, cache: Path) -> None:
        self.objects = Counting(url, cache)
        self.cache = cache
        self.uploads = Uploads(self.objects, cache)

    def put(self, name: str, files: tuple[str, ...] = RECORDING_FILES) -> None:
        for file in files:
            self.objects.put(f"{name}/{file}", f"{name} {file}".encode())

    def left(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if path.is_file()]


@pytest.fixture
def place(moto_url: str, tmp_path: Path) -> Place:
    return Place(f"{moto_url}/in", tmp_path / "cache")


def test_other_files_of_newer_recorders_are_downloaded_but_not_in_the_identity(place):
    place.put("a")
    before = place.uploads.identity("a")
    place.put("a", ("input_log_meta.json", "sft.json", "notes.txt"))
    assert place.uploads.identity("a") == before
    uploaded = place.uploads.find("a")
    assert uploaded is not None
    assert uploaded.files == RECORDING_FILES
    with place.uploads.open("a", before) as folder:
        names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([*RECORDING_FILES, "input_log_meta.json", "sft.json"])


def test_complete_and_incomplete_folders_are_listed_and_nothing_else(place):
    place.put("b")
    place.put("a", ("meta.json", "notes.txt", "deep/recording.mp4"))
    place.put("other", ("notes.txt",))
    place.put(".hidden")
    place.objects.put("readme.txt", b"no demonstration")
    place.objects.put("b", b"an object with a folder's name")
    place.objects.put("empty/", b"")
    assert place.uploads.list_demonstrations() == [
        UploadedDemonstration("a", ("meta.json",)),
        UploadedDemonstration("b", RECORDING_FILES),
        UploadedDemonstration("empty", ()),
        UploadedDemonstration("other", ()),
    ]


def test_a_listing_takes_one_request_for_a_thousand_objects(place):
    for n in range(20):
        place.put(f"demo-{n}")
    place.objects.calls.clear()
    assert len(place.uploads.list_demonstrations()) == 20
    assert place.objects.calls == [("list_objects_v2", "")]
    uploaded = place.uploads.find("demo-7")
    assert uploaded == UploadedDemonstration("demo-7", RECORDING_FILES)
    assert len(place.objects.calls) == 2


def test_a_download_is_private_and_removed_afterwards(place):
    place.put("a", ("meta.json", "input_log.jsonl", "notes.txt"))
    with place.uploads.open("a") as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["input_log.jsonl", "meta.json"]
        assert place.cache.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), place.uploads.open("a"):
        raise ZeroDivisionError
    assert place.left() == []


@pytest.mark.parametrize("file", RECORDING_FILES)
def test_a_file_that_changes_before_its_download_is_noticed(place, file):
    place.put("a")
    place.objects.swapped = f"a/{file}"
    with pytest.raises(DemonstrationError) as caught:
        place.uploads.open("a").__enter__()
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("upload_changed", file)
    assert problem.message == "changed while it was read"
    assert problem.demonstration == "a"
    assert place.left() == []


def test_only_the_expected_upload_is_opened(place):
    place.put("a")
    meant = place.uploads.identity("a")
    assert meant is not None
    with place.uploads.open("a", meant):
        pass
    place.objects.put("a/meta.json", b"another")
    place.objects.downloads()
    with pytest.raises(DemonstrationError, match="changed while it was read"):
        place.uploads.open("a", meant).__enter__()
    assert place.objects.downloads() == []


def test_downloads_of_dead_processes_are_removed_and_those_in_use_are_not(place):
    place.put("a")
    with place.uploads.open("a") as read:
        abandoned = read.with_name(".abandoned")
        abandoned.mkdir()
        (abandoned / "recording.mp4").write_bytes(b"1")
        with place.uploads.open("a"):
            pass
        assert not abandoned.exists()
        assert len(list(read.iterdir())) == 3


def test_a_cache_that_cannot_be_written_to_says_what_to_set(moto_url, tmp_path):
    (tmp_path / "file").write_text("")
    place = Place(moto_url, tmp_path / "file")
    place.put("a")
    with pytest.raises(StorageError, match="DEMO_PIPELINE_CACHE"):
        place.uploads.open("a").__enter__()


# --- identities of uploads


def test_identity_changes_with_the_three_files_and_with_nothing_else(place):
    place.put("a", ("meta.json",))
    seen = [place.uploads.identity("a")]
    for key in ("a/input_log.jsonl", "a/meta.json", "a/recording.mp4"):
        place.objects.put(key, b"new")
        seen.append(place.uploads.identity("a"))
    assert len(set(seen)) == 4
    for key in ("a/notes.txt", "a/deep/meta.json", "ab/meta.json", "a"):
        place.objects.put(key, b"new")
        assert place.uploads.identity("a") == seen[-1]
    assert place.objects.downloads() == []


def test_a_local_identity_is_the_fingerprint_in_the_manifest(recording):
    uploads = open_uploads(str(recording.parent))
    digests = [(file, file_digest(recording / file).sha256) for file in RECORDING_FILES]
    assert uploads.identity(recording.name) == combined_digest(digests)
    assert uploads.identity("nobody") is None


def test_a_local_upload_has_a_listing_fingerprint_that_a_rewriting_changes(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    uploads = open_uploads(str(tmp_path))
    key = "demo"
    before = uploads.listed(key)
    assert before == uploads.listed(key) is not None
    os.utime(folder / "meta.json", ns=(1, 1))
    assert uploads.listed(key) not in (None, before)
    assert uploads.listed("nobody") is None
    identity = uploads.identity(key)
    assert identity == _folder_fingerprint(folder)
    with uploads.open(key, identity):
        pass
    with pytest.raises(DemonstrationError, match="changed"):
        uploads.open(key, before).__enter__()
