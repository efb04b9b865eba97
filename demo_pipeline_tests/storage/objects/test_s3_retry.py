"""S3 calls are repeated while their failure is one that passes; a repeated call does no harm."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from demo_pipeline.store.objects import ObjectChangedError
from demo_pipeline.store.s3 import S3CallError, S3Client, S3Objects
from demo_pipeline.store.store import S3RetryPolicy

QUICK = S3RetryPolicy(attempts=4, pause_s=0.0)
PASSING = [("ConnectionClosedError", 0), ("InternalError", 500), ("SlowDown", 503), ("x", 429)]
PERMANENT = [("AccessDenied", 403), ("NoSuchBucket", 404), ("NoCredentialsError", 0)]
BIG = os.urandom(6 * 2**20)


class Flaky(S3Client):
    """A client whose next calls of one method fail, before their effect or after it."""

    failures: int = 0
    method = ""
    when: Literal["before", "after"] = "before"
    error = PASSING[0]
    between: Callable[[], object] = staticmethod(lambda: None)
    bodies: tuple[Callable[[bytes], bytes], ...] = ()

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.calls: list[str] = []

    def call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        self.calls.append(method)
        fails = method == self.method and self.failures > 0
        self.failures -= fails
        if fails and self.when == "before":
            raise S3CallError(key, *self.error)
        answer = super().call(method, key, **arguments)
        if fails:
            self.between()
            raise S3CallError(key, *self.error)
        return answer

    def chunks(self, key: str, body: Any) -> Iterator[bytes]:
        data = b"".join(super().chunks(key, body))
        if self.bodies:
            change, self.bodies = self.bodies[0], self.bodies[1:]
            data = change(data)
        yield data


@pytest.fixture
def client(moto_url: str) -> Flaky:
    return Flaky(moto_url.removeprefix("s3://"))


@pytest.fixture
def objects(moto_url: str, client: Flaky) -> S3Objects:
    made = S3Objects(moto_url, client, 5 * 2**20, QUICK)
    made.put("a", b"bytes")
    client.calls.clear()
    return made


def fetched(objects: S3Objects, folder: Path) -> bytes:
    info = objects.head("a")
    assert info is not None
    objects.fetch("a", info.etag, folder / "got")
    return (folder / "got").read_bytes()


CALLS: dict[str, tuple[str, Callable[[S3Objects, Path], object]]] = {
    "head": ("head_object", lambda objects, _: objects.head("a")),
    "read": ("get_object", lambda objects, _: objects.read("a")),
    "fetch": ("get_object", fetched),
    "list": ("list_objects_v2", lambda objects, _: objects.list_page()),
    "put": ("put_object", lambda objects, _: objects.put("b", b"x").etag),
    "first put": ("put_object", lambda objects, _: objects.put("b", b"x", if_none_match=True).etag),
    "delete": ("delete_object", lambda objects, _: objects.delete("a")),
    "parts": ("upload_part", lambda objects, _: objects.put("b", BIG).etag),
    "whole of parts": (
        "complete_multipart_upload",
        lambda objects, _: objects.put("b", BIG, if_none_match=True).etag,
    ),
    "beginning of parts": (
        "create_multipart_upload",
        lambda objects, _: objects.put("b", BIG).size,
    ),
}


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", CALLS)
def test_trouble_that_passes_is_not_noticed(
    objects: S3Objects, client: Flaky, tmp_path: Path, name: str, when: Any
) -> None:
    method, work = CALLS[name]
    wanted = work(objects, tmp_path)
    for error in PASSING:
        objects.delete("b")
        client.method, client.when, client.error = method, when, error
        client.failures = QUICK.attempts - 1
        assert work(objects, tmp_path) == wanted
        assert client.failures < QUICK.attempts - 1
        client.failures = 0


@pytest.mark.parametrize("name", CALLS)
def test_trouble_that_stays_is_reported(
    objects: S3Objects, client: Flaky, tmp_path: Path, name: str
) -> None:
    method, work = CALLS[name]
    client.method, client.failures = method, QUICK.attempts
    with pytest.raises(S3CallError, match="try again"):
        work(objects, tmp_path)
    assert client.calls.count(method) == QUICK.attempts


@pytest.mark.parametrize("error", PERMANENT)
@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_is_not_repeated(
    objects: S3Objects, client: Flaky, tmp_path: Path, name: str, error: tuple[str, int]
) -> None:
    method, work = CALLS[name]
    client.method, client.error, client.failures = method, error, 9
    with pytest.raises(S3CallError, match=r"a|b"):
        work(objects, tmp_path)
    assert client.calls.count(method) == 1


@pytest.mark.parametrize("condition", ["first", "replaced"])
def test_a_put_whose_answer_was_lost_is_told_from_another_process_s(
    objects: S3Objects, client: Flaky, moto_url: str, condition: str
) -> None:
    """Equal bytes are its own effect, other bytes are not."""
    other = S3Objects(moto_url)
    before = objects.head("a")
    assert before is not None
    how: dict[str, Any] = {"if_match": before.etag}
    key = "a"
    if condition == "first":
        key, how = "new", {"if_none_match": True}
    client.method, client.when, client.failures = "put_object", "after", 1
    put = objects.put(key, b"mine", **how)
    head = objects.head(key)
    assert head is not None
    assert (put.etag, put.size) == (head.etag, 4)
    assert abs(put.modified - head.modified) < 60
    client.failures, client.between = 1, lambda: other.put(key, b"theirs")
    with pytest.raises(ObjectChangedError):
        objects.put(key, b"mine too", if_match=head.etag)
    found = other.read(key)
    assert found is not None
    assert found[0] == b"theirs"


def test_an_object_that_was_there_before_is_not_taken_for_the_own_effect(
    objects: S3Objects,
) -> None:
    with pytest.raises(ObjectChangedError):
        objects.put("a", b"bytes", if_none_match=True)


@pytest.mark.parametrize(
    "change",
    [lambda data: data[:2], lambda data: data + b"!", lambda data: b"B" + data[1:]],
    ids=["cut", "longer", "flipped"],
)
def test_a_body_that_was_changed_on_its_way_is_read_again(
    objects: S3Objects, client: Flaky, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    for method in (lambda: (objects.read("a") or (b"",))[0], lambda: fetched(objects, tmp_path)):
        client.bodies = (change,) * (QUICK.attempts - 1)
        assert method() == b"bytes"
        client.bodies = (change,) * QUICK.attempts
        with pytest.raises((S3CallError, ObjectChangedError)):
            method()


def test_the_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def fail(_: bool) -> None:
        raise S3CallError("a", "SlowDown", 503)

    with pytest.raises(S3CallError):
        S3RetryPolicy(attempts=4, pause_s=0.5).run(fail)
    assert pauses == [0.5, 1.0, 2.0]
