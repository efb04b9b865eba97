import json
import os
import pickle
import re

import pytest

from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.store.making_outputs import (
    elsewhere,
    put,
    recipe,
    recorded_calls,
    seen,
    spoil,
    write,
)

OUTPUT = "events/d1"
FILES = {"a.txt": "alpha", "deep/b.txt": "beta"}


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "store"))


def test_a_commit_is_what_readers_see(store, tmp_path):
    version = put(store, "events/d1", FILES)
    assert seen(store, "events/d1") == FILES
    assert store.current("events/d1") == version
    assert (tmp_path / "store/events/d1/deep/b.txt").read_text() == "beta"
    assert (tmp_path / "store/events/d1").readlink().parts[0] == ".."
    assert store.verify("events/d1") == []


def test_the_manifest_records_the_recipe_and_the_files(store, tmp_path):
    with store.stage("events/d1") as staging:
        write(staging.path, {"a.txt": "alpha"})
        version = store.commit(staging, recipe("7", log="abc"), {"rows": 3})
    path = tmp_path / "store/.versions/events/d1" / version.place / "manifest.json"
    manifest = json.loads(path.read_bytes())
    digest = manifest["files"][0].pop("sha256")
    assert digest == "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
    assert manifest.pop("content") == version.content
    assert manifest == {
        "output": "events/d1",
        "stage": "events",
        "code_version": "7",
        "settings": "settings",
        "inputs": {"log": "abc"},
        "files": [{"path": "a.txt", "size": 5}],
        "links": {},
        "summary": {"rows": 3},
        "checks": [],
    }


def test_equal_content_has_equal_fingerprints_whatever_built_it(either):
    first = put(either, "events/d1", FILES)
    second = put(either, "events/d2", FILES)
    assert first.content == second.content
    assert first.id != second.id
    assert put(either, "events/d2", FILES | {"a.txt": "other"}).content != first.content


def test_versions_that_the_caller_has_checked_are_not_checked_again(store):
    version = put(store, OUTPUT, FILES)
    spoil(store, version, f"content/{next(iter(FILES))}", None)
    assert store.open(OUTPUT, whole={version.key})[1] == version
    assert store.current(OUTPUT, whole={(OUTPUT, "0" * 16)}) is None


def test_a_version_whose_manifest_or_folder_was_replaced_is_not_current(store, tmp_path):
    folder = tmp_path / "store/.versions" / OUTPUT / put(store, OUTPUT, FILES).place
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(
        text.replace('"code_version": "1"', '"code_version": "2"')
    )
    assert store.current(OUTPUT) is None
    folder.rename(tmp_path / "elsewhere")
    assert store.current(OUTPUT) is None
    put(store, OUTPUT, FILES)
    assert seen(store, OUTPUT) == FILES


def test_a_missing_output_is_named(either):
    for output in ("recordings/d1", "dataset"):
        with pytest.raises(MissingOutput, match=f"^{output}: not committed") as caught:
            either.open(output)
        assert pickle.loads(pickle.dumps(caught.value)).output == output  # noqa: S301
        assert [problem.code for problem in either.verify(output)] == ["missing_output"]


def test_links_are_readable_while_staged_and_after_the_commit(store, tmp_path):
    trajectory = put(store, "trajectories/d1", {"task.json": "one"})
    with store.stage("dataset") as staging:
        staging.link("trajectories/d1", trajectory)
        write(staging.path, {"index.json": "[]"})
        assert (staging.path / "trajectories/d1/task.json").read_text() == "one"
        store.commit(staging, recipe(), {})
    put(store, "trajectories/d1", {"task.json": "two"})
    assert seen(store, "dataset") == {"index.json": "[]", "trajectories/d1/task.json": "one"}
    assert (tmp_path / "store/dataset/trajectories/d1/task.json").read_text() == "one"
    (tmp_path / "store").rename(tmp_path / "moved")
    moved = open_store(str(tmp_path / "moved"))
    assert seen(moved, "dataset")["trajectories/d1/task.json"] == "one"
    assert moved.verify("dataset") == []


def test_a_link_to_a_version_removed_meanwhile_is_not_committed(either):
    trajectory = put(either, "trajectories/d1", {"task.json": "one"})
    with either.stage("dataset") as staging:
        staging.link("trajectories/d1", trajectory)
        spoil(either, trajectory, "manifest.json", None)
        with pytest.raises(StorageError, match="trajectories/d1 was removed or replaced meanwhile"):
            either.commit(staging, recipe(), {})
    assert either.outputs("dataset") == []


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", ".", "", "taken.txt"])
def test_links_stay_inside_and_replace_nothing(either, path):
    version = put(either, "trajectories/d1", {"task.json": "one"})
    with either.stage("dataset") as staging:
        write(staging.path, {"taken.txt": ""})
        with pytest.raises(StorageError):
            staging.link(path, version)


def test_a_foreign_link_is_never_committed(either, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with either.stage("sft") as staging:
        (staging.path / "copy").symlink_to(tmp_path / "secret")
        with pytest.raises(StorageError, match="not a plain file"):
            either.commit(staging, recipe(), {})
    assert either.current("sft") is None


def test_a_staging_directory_commits_once_and_is_removed(either):
    with either.stage("sft") as staging:
        write(staging.path, FILES)
    assert not staging.directory.exists()
    with either.stage("sft") as staging:
        either.commit(staging, recipe(), {})
        with pytest.raises(StorageError, match="stage again"):
            either.commit(staging, recipe(), {})


def test_foreign_links_are_not_outputs(store, tmp_path):
    put(store, "events/d1", FILES)
    (tmp_path / "store/events/foreign").symlink_to(tmp_path)
    assert store.outputs("events") == store.outputs() == ["events/d1"]


def test_outputs_are_listed_by_folder_and_removed_one_by_one(either):
    for output in ("events/d2", "events/d1", "dataset", "datasets/x--y--20250101_000000"):
        put(either, output, FILES)
    either.put_document("quarantine/d3.json", b"{}")
    assert either.outputs("events") == either.outputs("events/") == ["events/d1", "events/d2"]
    assert either.outputs("dataset") == ["dataset"]
    assert len(either.outputs()) == 4
    either.remove("events/d1")
    either.remove("events/d1")
    assert either.outputs("events") == ["events/d2"]
    assert either.current("events/d1") is None


def test_an_empty_store_is_not_an_error(either, tmp_path):
    assert either.outputs() == []
    assert either.current("events/d1") is None
    assert either.list_documents("quarantine") == []
    assert either.prune(0) == []
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", ["", "/", "../x", "events/", "events/../x", ".versions/x", "a b"])
def test_names_that_could_lead_elsewhere_are_refused(either, name):
    with pytest.raises(StorageError, match="cannot be the name of an output"):
        either.current(name)
    with pytest.raises(StorageError, match="cannot be the name of an output"):
        either.stage(name).__enter__()
    with pytest.raises(StorageError, match="cannot be the key of a document"):
        either.put_document(name, b"")


def test_foreign_files_are_not_overwritten(store, tmp_path):
    write(tmp_path / "store/events/d1", {"mine.txt": "mine"})
    with pytest.raises(StorageError, match="move it away"):
        put(store, "events/d1", FILES)
    put(store, "dataset", FILES)
    with pytest.raises(StorageError, match="dataset in the store was not written by the store"):
        put(store, "dataset/part", FILES)
    assert (tmp_path / "store/events/d1/mine.txt").read_text() == "mine"


def test_a_version_that_was_opened_stays_the_same_while_others_are_committed(either):
    put(either, "sft", {"a": "old", "b": "old"})
    path, version = either.open("sft")
    put(either, "sft", {"a": "new", "b": "new"})
    assert (path / "a").read_text() == (path / "b").read_text() == "old"
    assert either.current("sft") != version


def test_everything_is_synced_before_it_is_published(tmp_path, monkeypatch):
    calls = recorded_calls(monkeypatch)
    store = Store(tmp_path)
    version = put(store, "events/d1", FILES)
    link_or_copy = tmp_path / ".versions/events/d1" / version.place
    installed = calls.index(("rename", link_or_copy))
    pointed = calls.index(("rename", tmp_path / "events/d1"))
    before = {path.name for call, path in calls[:installed] if call == "fsync"}
    assert {"a.txt", "b.txt", "deep", "content", "manifest.json"} <= before
    assert ("fsync", link_or_copy.parent) in calls[installed:pointed]
    assert ("fsync", tmp_path / "events") in calls[pointed:]


def test_a_document_is_stored_although_others_create_and_remove_its_folder(store, monkeypatch):
    """Another process creates and removes the same folder, as when four reviewers write at once."""
    mkdir = os.mkdir
    others = list[str]()

    def made_and_removed(path, *args, **options):
        if str(path).endswith("reviews/d1") and not others:
            others.append(path)
            raise FileExistsError(path)
        mkdir(path, *args, **options)

    monkeypatch.setattr(os, "mkdir", made_and_removed)
    assert store.add_document("reviews/d1/a.json", b"1")
    assert (len(others), store.get_document("reviews/d1/a.json")) == (1, b"1")


def test_documents_are_replaced_listed_and_deleted(either):
    either.put_document("quarantine/a.json", b"1")
    either.put_document("quarantine/a.json", b"2")
    either.put_document("quarantine/b.json", b"3")
    assert either.get_document("quarantine/a.json") == b"2"
    either.put_document("quarantine/d1/x.json", b"4")
    assert either.list_documents("quarantine/") == [
        "quarantine/a.json",
        "quarantine/b.json",
        "quarantine/d1/x.json",
    ]
    assert either.list_documents("quarantine/d1") == ["quarantine/d1/x.json"]
    assert either.delete_document("quarantine/a.json")
    assert not either.delete_document("quarantine/a.json")
    assert either.get_document("quarantine/a.json") is None


def test_equal_outputs_have_the_same_id_in_every_store_but_different_folders(tmp_path):
    first = put(Store(tmp_path / "one"), "sft", FILES)
    second = put(Store(tmp_path / "two"), "sft", FILES)
    again = put(Store(tmp_path / "one"), "sft", dict(reversed(FILES.items())))
    assert first.id == second.id == again.id
    assert len({first.place, second.place, again.place}) == 3
    assert list((tmp_path / "one/.staging").iterdir()) == []


@pytest.mark.parametrize("file", ["content/deep/b.txt", "manifest.json"])
@pytest.mark.parametrize("bytes_there", [None, b"bet"])
def test_a_damaged_output_is_not_current_and_is_replaced_by_a_commit(either, file, bytes_there):
    version = put(either, OUTPUT, FILES)
    spoil(either, version, file, bytes_there)
    reader = elsewhere(either)
    with pytest.raises(OutputError, match=OUTPUT):
        seen(reader, OUTPUT)
    in_bucket = isinstance(either.objects, Bucket)
    assert (reader.current(OUTPUT) is None) == (not in_bucket or file == "manifest.json")
    assert reader.verify(OUTPUT)
    assert put(either, OUTPUT, FILES).id == version.id
    assert seen(reader, OUTPUT) == FILES
    assert reader.verify(OUTPUT) == []


def test_verifying_finds_a_changed_byte_and_a_commit_repairs_it(either):
    version = put(either, OUTPUT, FILES)
    spoil(either, version, "content/a.txt", b"alphA")
    spoil(either, version, "content/new.txt", b"")
    spoil(either, version, "content/deep/b.txt", None)
    assert [(problem.code, problem.file) for problem in either.verify(OUTPUT)] == [
        ("changed_file", "events/d1/a.txt"),
        ("missing_file", "events/d1/deep/b.txt"),
        ("unexpected_file", "events/d1/new.txt"),
    ]
    put(either, OUTPUT, FILES)
    assert either.verify(OUTPUT) == []


def test_damage_behind_a_link_is_reported_until_both_outputs_are_built_again(either):
    trajectory = put(either, "trajectories/d1", {"task.json": "one"})
    put(either, "dataset", {}, {"trajectories/d1": trajectory})
    spoil(either, trajectory, "content/task.json", b"eno")
    damages = [(problem.output, problem.file) for problem in either.verify("dataset")]
    assert damages == [("dataset", "dataset/trajectories/d1/task.json")]
    again = put(either, "trajectories/d1", {"task.json": "one"})
    if not isinstance(either.objects, Bucket):
        assert either.current("dataset") is None  # its link leads to the damaged folder
        assert [problem.code for problem in either.verify("dataset")] == ["broken_link"]
    put(either, "dataset", {}, {"trajectories/d1": again})
    assert seen(either, "dataset") == {"trajectories/d1/task.json": "one"}
    assert either.verify("dataset") == []


def test_a_store_of_the_last_version_is_read(tmp_path):
    store = Store(tmp_path)
    version = put(store, OUTPUT, FILES)
    (tmp_path / ".versions" / version.path).rename(tmp_path / ".versions" / OUTPUT / version.id)
    (tmp_path / OUTPUT).unlink()
    (tmp_path / OUTPUT).symlink_to(f"../.versions/{OUTPUT}/{version.id}/content")
    current = store.current(OUTPUT)
    assert current
    assert (current.id, current.place) == (version.id, version.id)
    assert seen(store, OUTPUT) == FILES
    put(store, OUTPUT, {"a.txt": "new"})
    assert store.prune(-5) == [f"{OUTPUT}@{version.id}"]


def test_erasing_leaves_nothing_that_has_the_name(either, tmp_path):
    put(either, OUTPUT, FILES)
    put(either, OUTPUT, {"a.txt": "new"})
    put(either, "events/d2", FILES)
    seen(either, OUTPUT)
    if not isinstance(either.objects, Bucket):
        write(tmp_path / "store", {".staging/events/d1/.dead/a": "", ".locks/events/d1.lock": ""})
    assert either.erase(OUTPUT)
    assert not either.erase(OUTPUT)
    carries = re.compile(r"(^|/)d1([./]|$)")  # not the names of versions, which are hexadecimal
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert [name for name in names if carries.search(name)] == []
    if isinstance(either.objects, Bucket):
        keys = {info.key for info in either.objects.listing()}
        assert len(keys) == 4
        assert not any(carries.search(key) for key in keys)
    assert seen(either, "events/d2") == FILES
