import os

import pytest

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.uploads import UploadedDemonstration, Uploads, open_uploads

NAMES = ("b", "Demo-1_2.c")
MISNAMED = ("My demo", "caf\xe9", "a..b", "upload.json")


def upload(root, name, files=RECORDING_FILES):
    (root / name).mkdir(parents=True)
    for file in files:
        (root / name / file).write_text(file)


def test_complete_and_incomplete_folders_are_listed_and_nothing_else(tmp_path):
    upload(tmp_path, "b")
    upload(tmp_path, "a", ["meta.json"])
    upload(tmp_path, "empty", [])
    upload(tmp_path, ".hidden")
    (tmp_path / "readme.txt").write_text("no demonstration")
    assert open_uploads(str(tmp_path)).list_demonstrations() == [
        UploadedDemonstration("a", ("meta.json",)),
        UploadedDemonstration("b", RECORDING_FILES),
        UploadedDemonstration("empty", ()),
    ]


@pytest.fixture(params=["local", "bucket"])
def uploads(request, tmp_path):
    """Returns uploads in a folder or a bucket: two valid, some with invalid names, one hidden."""
    if request.param == "local":
        for name in (*NAMES, *MISNAMED, ".hidden"):
            upload(tmp_path / "root", name)
        upload(tmp_path, "outside")
        return open_uploads((tmp_path / "root").as_uri())
    objects = Bucket(request.getfixturevalue("moto_url"), tmp_path / "cache")
    for name in (*NAMES, *MISNAMED, ".hidden"):
        for file in RECORDING_FILES:
            objects.put(f"{name}/{file}", file.encode())
    return Uploads(objects, tmp_path / "cache")


def test_a_folder_is_found_by_its_name_and_refused_if_the_name_is_no_id(uploads):
    assert [uploaded.id for uploaded in uploads.list_demonstrations()] == sorted(NAMES)
    assert uploads.misnamed() == sorted(MISNAMED)
    for uploaded in uploads.list_demonstrations():
        assert uploads.find(uploaded.id) == uploaded
        with uploads.open(uploaded.id) as folder:
            texts = {path.name: path.read_text() for path in folder.iterdir()}
        assert texts == {file: file for file in RECORDING_FILES}


@pytest.mark.parametrize("key", ["nobody", "../outside", "", "b/meta.json", ".hidden", *MISNAMED])
def test_an_unknown_id_is_an_error_of_that_demonstration(uploads, key):
    assert uploads.find(key) is None
    assert uploads.identity(key) is None
    with pytest.raises(DemonstrationError, match="no folder of the uploads"):
        uploads.open(key).__enter__()


def test_a_name_that_is_not_utf_8_does_not_stop_the_listing(tmp_path):
    upload(tmp_path, os.fsdecode(b"caf\xe9"))
    upload(tmp_path, "b")
    uploads = open_uploads(str(tmp_path))
    assert [uploaded.id for uploaded in uploads.list_demonstrations()] == ["b"]
    assert uploads.misnamed() == [os.fsdecode(b"caf\xe9")]


def test_ids_that_differ_only_by_case_are_refused_until_one_is_renamed(tmp_path):
    for name in ("Demo", "demo", "other"):
        upload(tmp_path, name)
    uploads = open_uploads(str(tmp_path))
    assert [each.id for each in uploads.list_demonstrations()] == ["other"]
    assert uploads.misnamed() == ["Demo", "demo"]
    uploads.is_stored = {"demo"}.__contains__
    assert [each.id for each in uploads.list_demonstrations()] == ["demo", "other"]
    assert uploads.misnamed() == ["Demo"]
    (tmp_path / "Demo").rename(tmp_path / "second")
    assert uploads.misnamed() == []
    assert [each.id for each in uploads.list_demonstrations()] == ["demo", "other", "second"]


def test_links_out_of_the_root_are_not_followed(tmp_path):
    root = tmp_path / "uploads"
    outside = tmp_path / "outside"
    upload(tmp_path, "outside")
    upload(root, "file", ["meta.json"])
    (root / "file" / "input_log.jsonl").symlink_to(outside / "input_log.jsonl")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    uploads = open_uploads(str(root))
    assert [(each.id, each.files) for each in uploads.list_demonstrations()] == [
        ("file", ("meta.json",)),
        ("folder", ()),
        ("loop", ()),
    ]
    for key in ("file", "folder"):
        with pytest.raises(DemonstrationError, match="outside the uploads"):
            uploads.open(key).__enter__()


def test_links_inside_the_root_and_a_root_that_is_a_link_work(tmp_path):
    upload(tmp_path / "real", "a")
    (tmp_path / "real" / "b").symlink_to("a")
    (tmp_path / "root").symlink_to("real")
    uploads = open_uploads(str(tmp_path / "root"))
    assert [each.files for each in uploads.list_demonstrations()] == [
        RECORDING_FILES,
        RECORDING_FILES,
    ]
    with uploads.open("b") as folder:
        assert (folder / "meta.json").read_text() == "meta.json"


def test_a_missing_root_names_the_remedy(tmp_path):
    with pytest.raises(StorageError, match="DEMO_PIPELINE_UPLOADS"):
        open_uploads(str(tmp_path / "none")).list_demonstrations()


def test_a_file_url_may_be_escaped(tmp_path):
    upload(tmp_path / "my uploads", "a")
    uploads = open_uploads((tmp_path / "my uploads").as_uri())
    assert "%20" in (tmp_path / "my uploads").as_uri()
    assert [each.id for each in uploads.list_demonstrations()] == ["a"]
