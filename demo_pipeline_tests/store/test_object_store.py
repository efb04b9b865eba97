"""The guarantees of `Objects`, in a folder, on moto and on SeaweedFS."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.objects import (
    FolderObjects,
    ObjectChangedError,
    ObjectInfo,
    Objects,
    list_all,
)
from demo_pipeline.store.s3 import S3Objects
from demo_pipeline_tests.store.refusals import refuse_reading

KINDS = ("folder", "moto", "seaweedfs")
PART_BYTES = 5 * 2**20
ODD_KEYS = (
    "a b+c&d=e/ü€, 日本.txt",
    "100%41/%2F.txt",
    "q?x=1#f/;:@$.txt",
    "quote\"'<>&/meta.json",
    "emoji😀/[*]{~}^|`.txt",
)


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """An empty root of each kind; on S3 below a prefix, beside a foreign object."""
    if request.param == "folder":
        root = tmp_path / "root"
        root.mkdir()
        return FolderObjects(root)
    url = request.getfixturevalue(f"{request.param}_url")
    S3Objects(f"{url}/prefixed").put("other/meta.json", b"not ours")
    return S3Objects(f"{url}/prefix/", PART_BYTES)


def listed(objects: Objects, prefix: str = "") -> list[ObjectInfo]:
    return list(list_all(objects, prefix))


def folders(objects: Objects, prefix: str = "") -> tuple[list[str], list[str]]:
    """(prefixes, keys of objects) of a listing of one level, sorted."""
    token, prefixes, keys = None, list[str](), list[str]()
    while True:
        page = objects.list_page(prefix, token, deep=False)
        prefixes += page.prefixes
        keys += [one.key for one in page.objects]
        token = page.token
        if token is None:
            return sorted(prefixes), sorted(keys)


def page_size(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let listings have pages of so many entries."""
    for module in ("objects", "s3"):
        monkeypatch.setattr(f"demo_pipeline.store.{module}.PAGE", most)


def test_every_method_describes_an_object_in_the_same_way(objects: Objects, tmp_path: Path) -> None:
    etag = objects.put("a/meta.json", b"bytes")
    head = objects.head("a/meta.json")
    assert head is not None
    assert (head.key, head.size, head.etag) == ("a/meta.json", 5, etag)
    assert listed(objects) == [head]
    assert objects.read("a/meta.json") == (b"bytes", head)
    objects.fetch("a/meta.json", head.etag, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"bytes"


def test_an_empty_object_is_listed(objects: Objects, tmp_path: Path) -> None:
    etag = objects.put("a/input_log.jsonl", b"")
    objects.fetch("a/input_log.jsonl", etag, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b""


def test_a_missing_object_is_none_and_can_be_deleted(objects: Objects, tmp_path: Path) -> None:
    objects.put("a/b/c", b"")
    for key in ("nothing", "a", "a/b", "a/b/c/d"):
        assert objects.head(key) is None
        assert objects.read(key) is None
        with pytest.raises(ObjectChangedError):
            objects.fetch(key, "0" * 32, tmp_path / "got")
    objects.delete("nothing")
    objects.delete("a/b/c")
    objects.delete("a/b/c")
    assert listed(objects) == []
    assert not (tmp_path / "got").exists()


def test_keys_with_odd_characters_work(objects: Objects) -> None:
    for key in ODD_KEYS:
        objects.put(key, key.encode())
    assert sorted(one.key for one in listed(objects)) == sorted(ODD_KEYS)
    assert folders(objects)[0] == sorted(f"{key.partition('/')[0]}/" for key in ODD_KEYS)
    for key in ODD_KEYS:
        read = objects.read(key)
        assert read is not None
        assert read[0] == key.encode()
        assert [one.key for one in listed(objects, f"{key.partition('/')[0]}/")] == [key]


def test_a_listing_that_is_not_deep_shows_one_level(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("readme.txt", "a/meta.json", "a/deep/er.txt", "ab/meta.json", "b/meta.json"):
        objects.put(key, b"")
    assert folders(objects) == (["a/", "ab/", "b/"], ["readme.txt"])
    with monkeypatch.context() as patch:
        page_size(patch, 1)
        assert folders(objects) == (["a/", "ab/", "b/"], ["readme.txt"])
    assert folders(objects, "a/") == (["a/deep/"], ["a/meta.json"])
    assert {one.key for one in listed(objects, "a/")} == {"a/meta.json", "a/deep/er.txt"}
    assert {one.key for one in listed(objects, "a")} == {
        "a/meta.json",
        "a/deep/er.txt",
        "ab/meta.json",
    }


def test_pages_hold_every_key_once(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {f"d{n:02}/{name}" for n in range(9) for name in ("meta.json", "recording.mp4")}
    for key in keys:
        objects.put(key, b"")
    for limit in (1, 4, 18, 1000):
        page_size(monkeypatch, limit)
        found = [one.key for one in listed(objects)]
        assert (len(found), set(found)) == (len(keys), keys)


def test_a_replaced_object_has_another_etag(objects: Objects, tmp_path: Path) -> None:
    before = objects.put("a/meta.json", b"before")
    assert objects.put("a/meta.json", b"after!") != before
    with pytest.raises(ObjectChangedError):
        objects.fetch("a/meta.json", before, tmp_path / "got")
    assert not list(tmp_path.glob("*got*"))


def test_conditions_of_a_put_hold(objects: Objects) -> None:
    first = objects.put("pointer", b"1", replaces="")
    with pytest.raises(ObjectChangedError):
        objects.put("pointer", b"2", replaces="")
    second = objects.put("pointer", b"3", replaces=first)
    with pytest.raises(ObjectChangedError):
        objects.put("pointer", b"4", replaces=first)
    with pytest.raises(ObjectChangedError):
        objects.put("never", b"5", replaces=second)
    assert objects.head("never") is None
    read = objects.read("pointer")
    assert read is not None
    assert read[0] == b"3"


def test_a_large_file_is_written_and_read_back(objects: Objects, tmp_path: Path) -> None:
    data = os.urandom(2 * PART_BYTES + 7)
    (tmp_path / "large").write_bytes(data)
    etag = objects.put("a/recording.mp4", tmp_path / "large")
    objects.fetch("a/recording.mp4", etag, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == data


def test_a_file_that_cannot_be_read_is_not_put(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be read"):
        objects.put("a/recording.mp4", tmp_path / "missing")
    assert listed(objects) == []


@pytest.mark.parametrize("objects", ["folder", "seaweedfs"], indirect=True)
def test_one_of_many_simultaneous_first_writes_succeeds(objects: Objects) -> None:
    def won(n: int) -> bool:
        try:
            objects.put("pointer", str(n).encode(), replaces="")
        except ObjectChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [n for n, first in enumerate(pool.map(won, range(16))) if first]
    read = objects.read("pointer")
    assert read is not None
    assert [read[0]] == [str(n).encode() for n in winners]


def _fill(kind: str, objects: Objects, keys: list[str]) -> None:
    """Many empty objects, put into moto without its slow server."""
    if kind == "moto":
        bucket, _, prefix = objects.url.removeprefix("s3://").partition("/")
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for key in keys:
            backend.put_object(bucket, f"{prefix}/{key}", b"")
        return
    for key in keys:
        objects.put(key, b"")


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("objects", ["folder", "moto"], indirect=True)
def test_a_listing_of_three_pages_has_all_objects(
    objects: Objects, request: pytest.FixtureRequest
) -> None:
    keys = [f"{n:04}/meta.json" for n in range(2001)]
    _fill(request.node.callspec.params["objects"], objects, keys)
    found = [one.key for one in listed(objects)]
    assert len(found) == len(keys)
    assert set(found) == set(keys)
    assert folders(objects) == ([f"{n:04}/" for n in range(2001)], [])
    assert [one.key for one in listed(objects, "1999/")] == ["1999/meta.json"]


@pytest.mark.parametrize("kind", ["moto", "seaweedfs"])
def test_a_folder_and_an_object_may_have_the_same_name(
    kind: str, request: pytest.FixtureRequest
) -> None:
    objects = S3Objects(request.getfixturevalue(f"{kind}_url"))
    for key in ("a/meta.json", "a", "a.txt"):
        objects.put(key, key.encode())
    assert {one.key for one in listed(objects)} == {"a", "a.txt", "a/meta.json"}
    assert folders(objects) == (["a/"], ["a", "a.txt"])
    assert [one.key for one in listed(objects, "a/")] == ["a/meta.json"]


# --- only folders


def test_hidden_names_and_files_outside_the_root_are_ignored(tmp_path: Path) -> None:
    root = tmp_path / "root"
    objects = FolderObjects(root)
    objects.put("a/meta.json", b"in")
    (tmp_path / "secret").write_text("out")
    (root / ".hidden").write_text("hidden")
    (root / "a" / "link").symlink_to(tmp_path / "secret")
    (root / "out").symlink_to(tmp_path)
    (root / "inside").symlink_to("a")
    (root / "a" / "up").symlink_to(root)
    (root / "self").symlink_to(".")
    (root / "loop").symlink_to("loop")
    assert [one.key for one in listed(objects)] == ["a/meta.json", "inside/meta.json"]
    for key in (".hidden", "a/link", "out/secret", "../secret", "/etc/hostname", "a//meta.json"):
        assert objects.read(key) is None
        assert objects.head(key) is None
    assert listed(objects, "out/") == listed(objects, "../") == []
    for key in (".hidden", "../x", "/x", "a/", ""):
        with pytest.raises(StorageError, match="cannot be a key"):
            objects.put(key, b"")


def test_links_between_neighbouring_folders_list_no_file_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way through the links would be a key of its own, and their number grows without end."""
    names = [f"demo_{number}" for number in range(4)]
    objects = FolderObjects(tmp_path)
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        objects.put(f"{name}/meta.json", b"")
        objects.put(f"{name}/notes/a.txt", b"")
        (tmp_path / name / "next").symlink_to(f"../{following}")
        (tmp_path / name / "notes" / "next").symlink_to(f"../../{following}")
        (tmp_path / name / "link.json").symlink_to(f"../{following}/meta.json")
    (tmp_path / "again").symlink_to("demo_0")
    files = ("link.json", "meta.json", "notes/a.txt")
    keys = [f"{name}/{file}" for name in ["again", *names] for file in files]
    assert [one.key for one in objects.list_page().objects] == keys
    page_size(monkeypatch, 2)
    assert [one.key for one in listed(objects)] == keys
    assert [one.key for one in listed(objects, "again/")] == keys[:3]


@pytest.mark.parametrize("private", ["a", "a/meta.json"])
def test_a_refused_file_or_folder_is_an_error_that_names_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, private: str
) -> None:
    objects = FolderObjects(tmp_path)
    etag = objects.put("a/meta.json", b"")
    objects.put("b/meta.json", b"")
    with monkeypatch.context() as patched:
        refuse_reading(patched, tmp_path / private)
        for call in (objects.head, objects.read, lambda key: objects.fetch(key, etag, Path("x"))):
            with pytest.raises(StorageError, match=r"'a/meta\.json': .* check its permissions"):
                call("a/meta.json")
        assert objects.head("b/meta.json")
    assert objects.head("a/meta.json")


def test_a_link_to_itself_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert FolderObjects(tmp_path).head("loop") is None
    assert FolderObjects(tmp_path).read("loop/meta.json") is None


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="DEMO_PIPELINE_UPLOADS"):
        FolderObjects(tmp_path / "none").list_page()
    with pytest.raises(StorageError, match="DEMO_PIPELINE_UPLOADS"):
        FolderObjects(tmp_path / "none").list_page("a/", deep=False)


def test_a_token_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="start a new listing"):
        FolderObjects(tmp_path).list_page(token="from S3")  # noqa: S106


KEYS = st.sets(
    st.lists(st.sampled_from(["a", "b", "a b", "a-", "ü"]), min_size=1, max_size=3)
    .map("/".join)
    .map(lambda key: f"{key}.txt"),
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(keys=KEYS, limit=st.integers(1, 5), removed=st.integers(0, 11))
def test_pages_of_a_folder_miss_no_file_that_stays(
    keys: set[str], limit: int, removed: int
) -> None:
    """Files that stay are listed once and in order, whichever files are removed between pages."""
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        page_size(patch, limit)
        objects = FolderObjects(Path(root))
        for key in keys:
            objects.put(key, b"")
        whole = [one.key for one in listed(objects)]
        assert set(whole) == keys
        first = objects.list_page()
        found = [one.key for one in first.objects]
        gone = set(sorted(keys)[removed : removed + 1])
        for key in gone:
            objects.delete(key)
        token = first.token
        while token is not None:
            page = objects.list_page(token=token)
            found += [one.key for one in page.objects]
            token = page.token
        assert [key for key in found if key not in gone] == [k for k in whole if k not in gone]
