"""S3 calls are repeated while their failure is one that passes; a repeated call does no harm.

A proxy before the server breaks connections, answers with 500 and 503, cuts and changes bodies, and
loses answers.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from demo_pipeline.store import s3
from demo_pipeline.store.bucket import BucketStore
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.objects import ObjectChangedError
from demo_pipeline.store.s3 import S3CallError, S3Objects
from demo_pipeline_tests.faults.proxy import Fault, NetworkPlan, network_proxy
from demo_pipeline_tests.simulator.s3_server import S3Server
from demo_pipeline_tests.store.making_outputs import put, seen

BIG = os.urandom(6 * 2**20)
PASSING: tuple[Fault, ...] = ("reset", "storm")


class Script(NetworkPlan):
    """The next requests of a method go wrong, after some that do not."""

    fault: Fault = "reset"
    method, after, left = "", 0, 0

    def set(self, method: str, fault: Fault, left: int, after: int = 0) -> None:
        self.method, self.fault, self.left, self.after = method, fault, left, after

    def next(self, method: str) -> Fault | None:
        if method != self.method or not self.left:
            return None
        self.after -= 1
        if self.after >= 0:
            return None
        self.left -= 1
        return self._count(self.fault)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo_pipeline.store.s3.time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture
def script() -> Script:
    return Script(())


@pytest.fixture
def url(
    moto: S3Server, moto_url: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """URL of a bucket behind the proxy."""
    with network_proxy(moto.endpoint, script) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setattr(s3, "_CALLS", 4)
        yield moto_url


@pytest.fixture
def objects(url: str) -> S3Objects:
    made = S3Objects(url, part_bytes=5 * 2**20)
    made.put("a", b"bytes")
    return made


def fetched(objects: S3Objects, folder: Path) -> bytes:
    info = objects.head("a")
    assert info is not None
    objects.fetch("a", info.etag, folder / "got")
    return (folder / "got").read_bytes()


def read(objects: S3Objects, _: Path) -> bytes:
    found = objects.read("a")
    return found[0] if found else b""


CALLS: dict[str, tuple[str, Callable[[S3Objects, Path], object]]] = {
    "head": ("HEAD", lambda objects, _: objects.head("a")),
    "read": ("GET", read),
    "fetch": ("GET", fetched),
    "list": ("GET", lambda objects, _: objects.list_page()),
    "put": ("PUT", lambda objects, _: objects.put("b", b"x")),
    "first put": ("PUT", lambda objects, _: objects.put("b", b"x", replaces="")),
    "delete": ("DELETE", lambda objects, _: objects.delete("a")),
    "parts": ("PUT", lambda objects, _: objects.put("b", BIG)),
    "whole of parts": ("POST", lambda objects, _: objects.put("b", BIG)),
}


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("name", CALLS)
def test_trouble_that_passes_is_not_noticed(
    objects: S3Objects, script: Script, tmp_path: Path, name: str, fault: Fault
) -> None:
    method, work = CALLS[name]
    wanted = work(objects, tmp_path)
    objects.delete("b")
    script.set(method, fault, 3)
    assert work(objects, tmp_path) == wanted
    assert script.left == 0


@pytest.mark.parametrize("name", ["head", "read", "list", "put", "delete"])
def test_trouble_that_stays_is_reported(
    objects: S3Objects, script: Script, tmp_path: Path, name: str
) -> None:
    method, work = CALLS[name]
    script.set(method, "storm", 99)
    with pytest.raises(S3CallError, match="try again"):
        work(objects, tmp_path)
    assert script.done["storm"] == 4


def test_a_refusal_is_not_repeated(url: str, script: Script) -> None:
    requests: list[str] = []
    script.on_request = lambda method, _: requests.append(method)
    with pytest.raises(S3CallError, match="the bucket does not exist"):
        S3Objects(f"{url}-none").list_page()
    assert requests == ["GET"]


@pytest.mark.parametrize("name", ["put", "delete", "parts"])
def test_a_call_whose_answer_was_lost_is_made_again(
    objects: S3Objects, script: Script, tmp_path: Path, name: str
) -> None:
    method, work = CALLS[name]
    wanted = work(objects, tmp_path)
    script.set(method, "lost", 1)
    assert work(objects, tmp_path) == wanted
    assert script.left == 0


@pytest.mark.parametrize("fault", ["cut", "flip"])
@pytest.mark.parametrize("work", [read, fetched])
def test_a_body_that_was_changed_on_its_way_is_read_again(
    objects: S3Objects,
    script: Script,
    tmp_path: Path,
    work: Callable[[S3Objects, Path], bytes],
    fault: Fault,
) -> None:
    script.set("GET", fault, 3)
    assert work(objects, tmp_path) == b"bytes"
    assert script.left == 0
    script.set("GET", fault, 99)
    with pytest.raises((S3CallError, ObjectChangedError)):
        work(objects, tmp_path)
    assert fault == "cut" or list(tmp_path.glob("*.draft")) == []


def test_an_object_that_was_there_before_is_not_taken_for_the_own_effect(
    objects: S3Objects,
) -> None:
    with pytest.raises(ObjectChangedError):
        objects.put("a", b"bytes", replaces="")


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_commit_and_a_collection_do_without_any_one_answer(
    url: str, script: Script, tmp_path: Path, method: str
) -> None:
    """Of each request in turn the answer is lost, also of those that move the pointer."""
    store = BucketStore(tmp_path / "cache", S3Objects(url))
    put(store, "sft", {"a.txt": "first"})
    for after in range(12):
        script.set(method, "lost", 1, after)
        put(store, "sft", {"a.txt": f"{after}"})
        assert seen(store, "sft") == {"a.txt": f"{after}"}
        try:
            store.collect(0, now=4e9)
        except StorageError as error:
            raise AssertionError(after) from error
        if script.left:
            break
    script.set("", "lost", 0)
    assert store.verify("sft") == []
    store.collect(0, now=8e9)
    manifests = [i.key for i in S3Objects(url).list_page("versions/").objects]
    assert len([key for key in manifests if key.endswith("manifest.json")]) == 1
