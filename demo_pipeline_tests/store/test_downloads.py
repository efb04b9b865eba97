"""Downloads from S3 and from folders: one unchanged object, complete, or no file at all."""

import asyncio
import gc
import hashlib
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from fsspec.asyn import get_loop, sync

from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.objects import FolderObjects, ObjectChangedError
from demo_pipeline.store.s3 import S3CallError, S3Objects
from demo_pipeline_tests.simulator.s3_server import SECRET_KEY, S3Server

OLD, NEW = (Random(seed).randbytes(3 * 2**20 + 5) for seed in (1, 2))
KEY = "a/recording.mp4"


class Interrupted(S3Objects):
    """Objects that call `between` after the first chunk of a download."""

    between: Callable[[], object] = staticmethod(lambda: None)
    lost: frozenset[str] = frozenset()

    def call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        kept = {name: value for name, value in arguments.items() if name not in self.lost}
        return super().call(method, key, **kept)

    def chunks(self, key: str, body: Any) -> Iterator[bytes]:
        for n, chunk in enumerate(super().chunks(key, body)):
            if n == 1:
                self.between()
            yield chunk


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two downloads of one object; those of the client stay."""
    monkeypatch.setattr("demo_pipeline.store.s3.time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture(params=["moto", "seaweedfs"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def objects(url: str) -> Interrupted:
    return Interrupted(url)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for downloads."""
    (tmp_path / "downloads").mkdir()
    return tmp_path / "downloads"


def refuse(objects: S3Objects | FolderObjects, etag: str, folder: Path) -> None:
    """The download is refused and leaves nothing, also when the file existed before."""
    with pytest.raises(ObjectChangedError):
        objects.fetch(KEY, etag, folder / "got")
    assert list(folder.iterdir()) == []


def test_an_object_swapped_after_the_first_chunk_is_noticed(
    objects: Interrupted, folder: Path
) -> None:
    for data in (NEW, NEW[:100], OLD[:-1] + b"!"):
        etag = objects.put(KEY, OLD)
        objects.between = lambda data=data: objects.put(KEY, data)  # type: ignore[misc]
        refuse(objects, etag, folder)


def test_an_object_deleted_after_the_first_chunk_is_noticed(
    objects: Interrupted, folder: Path
) -> None:
    etag = objects.put(KEY, OLD)
    objects.between = lambda: objects.delete(KEY)
    refuse(objects, etag, folder)


def test_a_server_that_ignores_if_match_is_noticed(objects: Interrupted, folder: Path) -> None:
    """The answer has another ETag than the request."""
    etag = objects.put(KEY, OLD)
    objects.put(KEY, NEW)
    objects.lost = frozenset({"IfMatch"})
    refuse(objects, etag, folder)


@pytest.mark.parametrize(
    "sent", [OLD[:10], OLD[: 2**20] + NEW[2**20 :], OLD + b"more"], ids=["torn", "mixed", "longer"]
)
def test_a_torn_or_mixed_body_is_noticed(moto_url: str, folder: Path, sent: bytes) -> None:
    """Even when every header is right."""

    class Mixing(S3Objects):
        def chunks(self, key: str, body: Any) -> Iterator[bytes]:
            list(super().chunks(key, body))
            yield sent

    objects = Mixing(moto_url)
    refuse(objects, objects.put(KEY, OLD), folder)


def test_a_failed_multipart_upload_is_aborted(moto_url: str, tmp_path: Path) -> None:
    class Failing(S3Objects):
        def call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
            if method == "upload_part" and arguments["PartNumber"] == 2:
                raise S3CallError(key, "InternalError", 500)
            return super().call(method, key, **arguments)

    (tmp_path / "large").write_bytes(bytes(11 * 2**20))
    objects = Failing(moto_url, 5 * 2**20)
    with pytest.raises(S3CallError, match="InternalError"):
        objects.put(KEY, tmp_path / "large")
    assert objects.head(KEY) is None
    assert "Uploads" not in objects.call("list_multipart_uploads")


def test_a_forked_process_connects_again(moto_url: str) -> None:
    objects = S3Objects(moto_url)
    objects.put(KEY, b"bytes")
    child = os.fork()
    if child == 0:
        read = objects.read(KEY)
        os._exit(0 if read and read[0] == b"bytes" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert objects.head(KEY) is not None


@pytest.mark.no_cover  # other tests run the same lines
def test_a_forked_process_leaves_the_connections_of_its_parent_alone(seaweedfs_url: str) -> None:
    """Closing them in the child's event loop would end with a traceback.

    The server keeps connections open; moto does not.
    """
    inherited = [S3Objects(seaweedfs_url)]
    inherited[0].put(KEY, b"bytes")
    child = os.fork()
    if child == 0:
        own, failures = S3Objects(seaweedfs_url), []
        own.head(KEY)
        loop = get_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))

        async def collect() -> None:
            inherited.clear()
            gc.collect()

        for work in (collect, partial(asyncio.sleep, 0.2), collect):
            sync(loop, work)
        os._exit(len(failures))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert inherited[0].head(KEY) is not None


def test_what_is_put_arrives_with_its_md5(moto_url: str) -> None:
    etag = S3Objects(moto_url).put(KEY, OLD)
    assert etag == hashlib.md5(OLD, usedforsecurity=False).hexdigest()


# --- folders


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("data", [NEW, NEW[:100]], ids=["as long", "shorter"])
def test_a_file_swapped_after_the_first_chunk_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path, data: bytes, *, in_place: bool
) -> None:
    objects = FolderObjects(tmp_path / "root")
    etag, place = objects.put(KEY, OLD), tmp_path / "root" / KEY

    def swapping(source: BinaryIO, out: BinaryIO) -> None:
        out.write(source.read(2**20))
        if not in_place:
            place.unlink()
        place.write_bytes(data)
        out.write(source.read())

    monkeypatch.setattr(shutil, "copyfileobj", swapping)
    refuse(objects, etag, folder)


def test_an_unwritable_destination_is_reported_without_its_path(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path / "root")
    etag = objects.put(KEY, OLD)
    with pytest.raises(StorageError, match="got: could not be written: No such file") as caught:
        objects.fetch(KEY, etag, tmp_path / "nowhere" / "got")
    assert str(tmp_path) not in str(caught.value)


# --- error messages


def logged(work: Callable[[], object]) -> str:
    """Everything that a log shows of the failure, with its causes."""
    with pytest.raises(StorageError) as caught:
        work()
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)


@pytest.mark.no_cover  # other tests run the same lines
def test_errors_name_a_remedy_and_no_secret(
    seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seaweedfs.connected():
        bucket = seaweedfs.make_bucket()
        texts = [logged(lambda: S3Objects("s3://no-such-bucket").list_page())]
        assert "the bucket does not exist" in texts[-1]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{SECRET_KEY}-wrong")
        texts.append(logged(lambda: S3Objects(bucket).list_page()))
        assert "AWS_SECRET_ACCESS_KEY" in texts[-1]
        texts.append(logged(lambda: S3Objects(bucket).put(KEY, b"")))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        texts.append(logged(lambda: S3Objects(bucket).read(KEY)))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{SECRET_KEY}@127.0.0.1:1")
        texts.append(logged(lambda: S3Objects(bucket).list_page()))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"no url {SECRET_KEY}")
        texts.append(logged(lambda: S3Objects(bucket).list_page()))
        assert "AWS_ENDPOINT_URL" in texts[-1]
    texts.append(logged(lambda: S3Objects(f"s3://key:{SECRET_KEY}@bucket/prefix")))
    assert not any(SECRET_KEY in text for text in texts)


def test_missing_credentials_are_reported(monkeypatch: pytest.MonkeyPatch, moto: S3Server) -> None:
    with moto.connected():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        with pytest.raises(StorageError, match="no credentials; set AWS_ACCESS_KEY_ID"):
            S3Objects("s3://bucket").list_page()
