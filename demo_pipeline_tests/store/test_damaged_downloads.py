"""Tests that bytes that change during a download are noticed, and never used."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo_pipeline.runs.failures import transient_reason
from demo_pipeline.store.bucket import Bucket, S3CallError
from demo_pipeline_tests.faults.proxy import Fault, NetworkPlan, network_proxy
from demo_pipeline_tests.simulator.s3_server import S3Server, moto_server, seaweed_server

# Sizes in bytes of objects that are downloaded at once, and in parts of 16 MB.
AT_ONCE = 1000
IN_PARTS = 33 * 2**20 + 17


@pytest.fixture(scope="module", params=[moto_server, seaweed_server], ids=["moto", "seaweed"])
def server(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    is_moto = request.param is moto_server
    with moto_server() if is_moto else seaweed_server(folder) as running, running.connected():
        yield running


class Flips(NetworkPlan):
    """Changes one bit in the bodies of the next `count` answers to GET requests."""

    def __init__(self, count: int) -> None:
        super().__init__(("flip",))
        self.count = count

    def next(self, method: str, path: str = "") -> Fault | None:  # noqa: ARG002
        if method != "GET" or not self.count:
            return None
        self.count -= 1
        return self._count("flip")


@pytest.mark.parametrize("size", [AT_ONCE, IN_PARTS])
def test_a_bit_that_flips_on_the_way_is_noticed_and_the_object_read_again(
    server, size, tmp_path, monkeypatch
):
    url = server.make_bucket()
    data = os.urandom(size)
    source = tmp_path / "source"
    source.write_bytes(data)
    Bucket(url, tmp_path / "cache").put("a/recording.mp4", source)
    fetched = tmp_path / "fetched"
    for flips in (0, 1, 2):
        with network_proxy(server.endpoint, plan := Flips(0)) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            bucket = Bucket(url, tmp_path / "other")
            [info] = bucket.listing("a/")
            plan.count = flips
            if flips == 2:
                with pytest.raises(
                    S3CallError, match=r"do not match the checksum.*network"
                ) as raised:
                    bucket.fetch(info.key, info.etag, fetched)
                assert transient_reason(raised.value)  # so no demonstration is quarantined
            else:
                bucket.fetch(info.key, info.etag, fetched)
                assert fetched.read_bytes() == data
            assert plan.count == 0


def test_parts_of_several_sizes_are_no_damage(server, tmp_path):
    bucket = Bucket(server.make_bucket(), tmp_path / "cache")
    parts = [os.urandom(size) for size in (6 * 2**20, 5 * 2**20, 2**20)]
    upload = bucket.call("create_multipart_upload", "a/x")["UploadId"]
    uploaded_parts = []
    for number, part in enumerate(parts, 1):
        done = bucket.call("upload_part", "a/x", UploadId=upload, PartNumber=number, Body=part)
        uploaded_parts.append({"PartNumber": number, "ETag": done["ETag"]})
    bucket.call(
        "complete_multipart_upload",
        "a/x",
        UploadId=upload,
        MultipartUpload={"Parts": uploaded_parts},
    )
    [info] = bucket.listing("a/")
    bucket.fetch(info.key, info.etag, Path(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("name", ["SHA256", "SHA1", "CRC32"])
def test_a_checksum_that_the_uploader_gave_is_compared(server, tmp_path, name):
    bucket = Bucket(server.make_bucket(), tmp_path / "cache")
    bucket.call("put_object", "a/x", Body=b"some bytes", ChecksumAlgorithm=name)
    [info] = bucket.listing("a/")
    bucket.fetch(info.key, info.etag, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"some bytes"
