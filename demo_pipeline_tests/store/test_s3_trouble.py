"""Tests that transient errors of an S3 server are retried, and other errors have clear messages.

A proxy in front of the server breaks connections, answers with 500 and 503, truncates bodies, and
drops answers.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.store.bucket import Bucket, S3CallError
from demo_pipeline.store.errors import ChangedOutput, MissingOutput, OutputError, StorageError
from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.faults.proxy import Fault, NetworkPlan, network_proxy
from demo_pipeline_tests.simulator.s3_server import SECRET_KEY, S3Server
from demo_pipeline_tests.store.making_outputs import Counting, elsewhere, put, recipe, seen

PASSING: tuple[Fault, ...] = ("reset", "storm")
BIG = 36 * 2**20  # bytes; uploaded in three parts


class Script(NetworkPlan):
    """Lets `after` requests of a method succeed, and disturbs the next `left` requests."""

    fault: Fault = "reset"
    method = ""
    after = 0
    left = 0

    def set(self, method: str, fault: Fault, left: int, after: int = 0) -> None:
        self.method = method
        self.fault = fault
        self.left = left
        self.after = after

    def next(self, method: str, path: str = "") -> Fault | None:  # noqa: ARG002
        if method != self.method or not self.left:
            return None
        self.after -= 1
        if self.after >= 0:
            return None
        self.left -= 1
        return self._count(self.fault)


@pytest.fixture
def script() -> Script:
    return Script(())


@pytest.fixture
def url(
    moto: S3Server, moto_url: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Yields the URL of a bucket behind the proxy."""
    monkeypatch.setattr("demo_pipeline.store.bucket.time.sleep", lambda _seconds: None)
    with network_proxy(moto.endpoint, script) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield moto_url


def fetched(bucket: Bucket, folder: Path) -> bytes:
    info = bucket.head("a")
    assert info
    bucket.fetch("a", info.etag, folder / "got")
    return (folder / "got").read_bytes()


def put_large(bucket: Bucket, folder: Path) -> object:
    (folder / "large").write_bytes(bytes(BIG))
    bucket.put("b", folder / "large")
    info = bucket.head("b")
    return info and info.size


CALLS: dict[str, tuple[str, Callable[[Bucket, Path], object]]] = {
    "head": ("HEAD", lambda bucket, _: bucket.head("a")),
    "read": ("GET", lambda bucket, _: bucket.read("a")),
    "fetch": ("GET", fetched),
    "list": ("GET", lambda bucket, _: len(list(bucket.listing()))),
    "put": ("PUT", lambda bucket, _: bucket.put("b", b"x")),
    "delete": ("DELETE", lambda bucket, _: bucket.delete("b")),
    "parts": ("PUT", put_large),
    "whole of parts": ("POST", put_large),
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("name", CALLS)
def test_transient_errors_are_retried(url, script, tmp_path, name, fault):
    bucket = Bucket(url, tmp_path / "cache")
    bucket.put("a", b"bytes")
    method, work = CALLS[name]
    wanted = work(bucket, tmp_path)
    bucket.delete("b")
    script.set(method, fault, 3)
    assert work(bucket, tmp_path) == wanted
    assert script.left == 0


def test_a_body_that_was_cut_is_read_again(url, script, tmp_path):
    bucket = Bucket(url, tmp_path / "cache")
    bucket.put("a", b"bytes")
    script.set("GET", "cut", 3)
    assert fetched(bucket, tmp_path) == b"bytes"
    script.set("GET", "cut", 99)
    with pytest.raises(S3CallError):
        bucket.read("a")


def test_a_lasting_error_has_a_clear_message(url, script, tmp_path):
    bucket = Bucket(url, tmp_path)
    script.set("GET", "storm", 99)
    with pytest.raises(S3CallError, match="try again"):
        list(bucket.listing())


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_commit_and_a_prune_survive_the_loss_of_any_answer(url, script, tmp_path, method):
    """The answer of each request is lost in turn, even of the requests that move the pointer."""
    store = Store(Bucket(url, tmp_path))
    put(store, "sft", {"a.txt": "first"})
    for after in range(12):
        script.set(method, "lost", 1, after)
        put(store, "sft", {"a.txt": f"{after}"})
        assert seen(store, "sft") == {"a.txt": f"{after}"}
        store.prune(-5)
        if script.left:
            break
    assert script.left
    assert store.verify("sft") == []
    assert len(list(store.objects.listing("versions/"))) == 2


ENVIRONMENTS: dict[str, tuple[dict[str, str | None], str]] = {
    "no server": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "the server does not answer"),
    "no credentials": (
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "HOME": "/nowhere"},
        "no valid credentials",
    ),
}


@pytest.mark.parametrize("trouble", ENVIRONMENTS)
def test_mistakes_in_the_environment_have_a_clear_message(moto_url, tmp_path, monkeypatch, trouble):
    changed, sentence = ENVIRONMENTS[trouble]
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in changed.items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=sentence) as caught:
        open_store(moto_url, tmp_path).outputs()
    assert SECRET_KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("AccessDenied", "access denied"),
        ("InvalidAccessKeyId", "no valid credentials"),
        ("ExpiredToken", "no valid credentials"),
        ("PermanentRedirect", "the bucket is in another region"),
        ("AuthorizationHeaderMalformed", "the bucket is in another region"),
        ("ConnectTimeoutError", "the server does not answer"),
        ("Strange", "S3 failed with Strange; try again"),
    ],
)
def test_every_error_code_has_its_message(code, sentence):
    assert str(S3CallError("s3://b/k", code, 400)).startswith(f"s3://b/k: {sentence}")


@pytest.mark.parametrize("server", ["moto", "seaweedfs"])
def test_a_mistyped_bucket_is_not_taken_for_an_empty_one_and_never_created(
    request, tmp_path, server
):
    url = request.getfixturevalue(f"{server}_url")
    assert open_store(url, tmp_path).published("events/d1") is None
    mistyped: list[Callable[[Store], object]] = [
        lambda store: store.published("events/d1"),
        lambda store: store.outputs(),
        lambda store: put(store, "events/d1", {"a": "1"}),
        lambda store: store.put_document("quarantine/d1.json", b"{}"),
        lambda store: store.prune(0),
    ]
    for work in mistyped:
        with pytest.raises(StorageError, match="the bucket does not exist"):
            work(open_store(f"{url}-typo", tmp_path / "other"))


def test_a_bucket_that_refuses_conditions_does_everything_else(moto_url, tmp_path, monkeypatch):
    call = Bucket.call

    def refusing(self: Bucket, method: str, key: str = "", **arguments: Any) -> Any:
        if arguments.keys() & {"IfMatch", "IfNoneMatch"} and method != "get_object":
            raise S3CallError(key, "NotImplemented", 501)
        return call(self, method, key, **arguments)

    monkeypatch.setattr(Bucket, "call", refusing)
    store = open_store(moto_url, tmp_path)
    for text in ("old", "new"):
        put(store, "sft", {"a": text})
    assert store.add_document("reviews/d1/a.json", b"1")
    assert not store.add_document("reviews/d1/a.json", b"2")
    assert store.get_document("reviews/d1/a.json") == b"1"
    assert len(store.prune(-5)) == 1
    assert store.erase("sft")


@pytest.mark.parametrize("data", [None, b"bota", b"bot"])
def test_missing_or_changed_files_in_a_bucket_are_never_returned(moto_url, tmp_path, data):
    store = open_store(moto_url, tmp_path)
    version = put(store, "events/d1", {"a.txt": "beta"})
    key = f"versions/{version.path}/content/a.txt"
    if data is None:
        store.objects.delete(key)
    else:
        store.objects.put(key, data)
    with pytest.raises(OutputError) as caught:
        elsewhere(store).open("events/d1")
    assert isinstance(caught.value, MissingOutput if data is None else ChangedOutput)


def test_only_what_is_needed_is_downloaded_and_only_once(moto_url, tmp_path):
    writer = open_store(moto_url, tmp_path / "writer")
    linked = put(writer, "trajectories/d1", {"screenshot.png": "picture"})
    files = {"a.parquet": "alpha", "deep/b.png": "picture", "deep/c.parquet": "gamma"}
    put(writer, "dataset", files, {"d1": linked})
    bucket = Counting(moto_url, tmp_path / "cache")
    reader = Store(bucket)
    folder = reader.open("dataset", "*.parquet")[0]
    assert sorted(path.name for path in folder.rglob("*.*")) == ["a.parquet", "c.parquet"]
    assert len([key for key in bucket.downloads() if "/content/" in key]) == 2
    assert seen(reader, "dataset") == {**files, "d1/screenshot.png": "picture"}
    assert len([key for key in bucket.downloads() if "/content/" in key]) == 2
    for _ in range(2):
        assert seen(reader, "dataset")
        assert bucket.downloads() == ["pointers/dataset"]
    (folder / "a.parquet").write_text("alp")  # left by a dead process
    assert seen(reader, "dataset")["a.parquet"] == "alpha"


def test_checking_an_unchanged_output_costs_one_request(moto_url, tmp_path):
    bucket = Counting(moto_url, tmp_path)
    store = Store(bucket)
    version = put(store, "events/d1", {"a.txt": "1", "b.txt": "2"})
    bucket.calls.clear()
    assert store.current("events/d1") == version
    assert bucket.calls == [("get_object", "pointers/events/d1")]


def test_a_large_file_goes_in_parts_and_comes_back(moto_url, tmp_path):
    store = open_store(moto_url, tmp_path)
    data = os.urandom(BIG)
    with store.stage("recordings/d1") as staging:
        (staging.path / "recording.mp4").write_bytes(data)
        store.commit(staging, recipe(), {})
    folder = elsewhere(store).open("recordings/d1")[0]
    assert (folder / "recording.mp4").read_bytes() == data
    assert store.verify("recordings/d1") == []
