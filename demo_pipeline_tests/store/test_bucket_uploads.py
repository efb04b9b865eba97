"""Uploads in a bucket: listing, downloading, and removing abandoned downloads."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import ObjectInfo
from demo_pipeline.store.uploads import (
    UploadedDemonstration,
    Uploads,
    _folder_fingerprint,
    listing_fingerprint,
    open_uploads,
)
from demo_pipeline_tests.store.making_outputs import Counting


class Swapping(Counting):
    """A bucket in which another process replaces an object just before it is downloaded."""

    swapped = ""

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        if key == self.swapped:
            self.put(key, b"foreign bytes")
        super().fetch(key, etag, dest)


class Place:
    """Uploads in a bucket, with every call counted."""

    def __init__(self, url: str, cache: Path) -> None:
        self.objects, self.cache = Swapping(url, cache), cache
        self.uploads = Uploads(self.objects, cache)

    def put(self, name: str, files: tuple[str, ...] = RECORDING_FILES) -> None:
        for file in files:
            self.objects.put(f"{name}/{file}", f"{name} {file}".encode())

    def left(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if path.is_file()]


@pytest.fixture
def place(moto_url: str, tmp_path: Path) -> Place:
    return Place(f"{moto_url}/in", tmp_path / "cache")


def test_the_other_files_of_newer_recorders_come_along_and_decide_nothing(place: Place) -> None:
    place.put("a")
    before = place.uploads.identity("a")
    place.put("a", ("input_log_meta.json", "sft.json", "notes.txt"))
    assert place.uploads.identity("a") == before
    found = place.uploads.find("a")
    assert found is not None
    assert found.files == RECORDING_FILES
    with place.uploads.open("a", before) as folder:
        names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([*RECORDING_FILES, "input_log_meta.json", "sft.json"])


def test_every_folder_is_listed_complete_or_not_and_nothing_else(place: Place) -> None:
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


def test_ids_that_differ_only_by_case_are_refused(place: Place) -> None:
    for name in ("Demo", "demo", "other"):
        place.put(name)
    assert [one.id for one in place.uploads.list_demonstrations()] == ["other"]
    assert place.uploads.misnamed() == ["Demo", "demo"]


def test_a_listing_takes_one_request_for_a_thousand_objects(place: Place) -> None:
    for n in range(20):
        place.put(f"demo-{n}")
    place.objects.calls.clear()
    assert len(place.uploads.list_demonstrations()) == 20
    assert place.objects.calls == [("list_objects_v2", "")]
    found = place.uploads.find("demo-7")
    assert found == UploadedDemonstration("demo-7", RECORDING_FILES)
    assert len(place.objects.calls) == 2


def test_a_download_is_private_and_removed_afterwards(place: Place) -> None:
    place.put("a", ("meta.json", "input_log.jsonl", "notes.txt"))
    with place.uploads.open("a") as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["input_log.jsonl", "meta.json"]
        assert place.cache.stat().st_mode & 0o077 == 0
    assert not folder.exists()
    with pytest.raises(ZeroDivisionError), place.uploads.open("a"):
        raise ZeroDivisionError
    assert place.left() == []


@pytest.mark.parametrize("file", RECORDING_FILES)
def test_a_file_that_changes_before_its_download_is_noticed(place: Place, file: str) -> None:
    place.put("a")
    place.objects.swapped = f"a/{file}"
    with pytest.raises(DemonstrationError) as caught:
        place.uploads.open("a").__enter__()
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("upload_changed", file)
    assert problem.message == "changed while it was read"
    assert problem.demonstration == "a"
    assert place.left() == []


def test_only_the_expected_upload_is_opened(place: Place) -> None:
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


def test_downloads_of_dead_processes_are_removed_and_those_in_use_are_not(place: Place) -> None:
    place.put("a")
    with place.uploads.open("a") as read:
        abandoned = read.with_name(".abandoned")
        abandoned.mkdir()
        (abandoned / "recording.mp4").write_bytes(b"1")
        with place.uploads.open("a"):
            pass
        assert not abandoned.exists()
        assert len(list(read.iterdir())) == 3


def test_a_cache_that_cannot_be_written_to_says_what_to_set(moto_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Place(moto_url, tmp_path / "file")
    place.put("a")
    with pytest.raises(StorageError, match="DEMO_PIPELINE_CACHE"):
        place.uploads.open("a").__enter__()


# --- which upload is meant


def test_identity_changes_with_the_three_files_and_with_nothing_else(place: Place) -> None:
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


def test_a_local_identity_is_the_fingerprint_in_the_manifest(recording: Path) -> None:
    uploads = open_uploads(str(recording.parent))
    digests = [(file, file_digest(recording / file).sha256) for file in RECORDING_FILES]
    assert uploads.identity(recording.name) == combined_digest(digests)
    assert uploads.identity("nobody") is None


def test_a_local_upload_has_a_listing_fingerprint_that_a_rewriting_changes(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    uploads, key = open_uploads(str(tmp_path)), "demo"
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


FILES = st.dictionaries(
    st.sampled_from([*RECORDING_FILES, "notes.txt"]),
    st.builds(ObjectInfo, st.just(""), st.integers(0, 9), st.text("0a-", max_size=2), st.just(0.0)),
)


@given(files=FILES, other=FILES)
def test_a_listing_fingerprint_is_of_the_three_files_in_any_order(files, other) -> None:
    turned = dict(reversed(files.items()))
    assert listing_fingerprint(turned) == listing_fingerprint(files)
    equal = all(files.get(name) == other.get(name) for name in RECORDING_FILES)
    assert (listing_fingerprint(files) == listing_fingerprint(other)) == equal


# --- roots


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix", "s3://b", "s3://canary:secret/x"])
def test_an_s3_url_without_a_bucket_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StorageError, match="names a bucket") as caught:
        open_uploads(url)
    assert "canary" not in str(caught.value)
