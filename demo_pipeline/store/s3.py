"""Objects in an S3 bucket, through the part of s3fs that does not cache.

Belongs here: connecting, and `Objects` in terms of S3's operations, each of which can be repeated
without harm; s3fs repeats calls whose failure passes. Failures become `StorageError`s that quote
neither the server nor the environment. Credentials and endpoint come from the environment
(`AWS_…`, `AWS_ENDPOINT_URL`) and are not read here.
"""

import hashlib
import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from botocore.exceptions import BotoCoreError, ClientError
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.core import S3_RETRYABLE_ERRORS, set_custom_error_handler

from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import bucket_of
from demo_pipeline.store.objects import (
    PAGE,
    ObjectChangedError,
    ObjectInfo,
    Page,
    opened_data,
    stored_file,
)

_CHUNK = 2**20  # bytes
_PART_BYTES = 32 * 2**20
_MOST_PARTS = 10_000  # S3 accepts no more
_CALLS = 7  # of one operation; s3fs waits 0.1 s after the first, then 1.7 times as long each time
_BODIES = 4  # downloads of one object whose bytes do not arrive as they were sent
_OTHER_BYTES = "OtherBytes"  # code of a body that is not as long as announced, or not of its ETag
# A malformed endpoint is a ValueError; other failures are errors of botocore or the system.
_FAILURES = (OSError, BotoCoreError, ValueError, *S3_RETRYABLE_ERRORS)
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html: what passes by itself
_PASSING = {"RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody", 429, 500, 502, 503, 504}
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_inherited: list[Any] = []  # sessions that this process got from its parent by a fork
_DENIED = "access denied; check the policy of the bucket and the credentials"
_REMEDIES = {
    "NoSuchBucket": "the bucket does not exist; create it or correct the URL",
    "AccessDenied": _DENIED,
    "403": _DENIED,
    "InvalidAccessKeyId": "the server does not know the access key; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired; renew them",
    "NoCredentialsError": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "PartialCredentialsError": "the credentials are incomplete; check the AWS_… variables",
    "EndpointConnectionError": "the server cannot be reached; check AWS_ENDPOINT_URL",
    "ConnectTimeoutError": "the server does not answer; check AWS_ENDPOINT_URL",
    "ValueError": "the endpoint or a key is malformed; check AWS_ENDPOINT_URL",
}


class S3CallError(StorageError):
    """A call that S3 refused, or that did not reach it.

    Attributes:
        place: the object's URL, printable.
        code: S3's error code, else the name of the network error.
        status: of the HTTP answer; 0 without an answer.
    """

    def __init__(self, place: str, code: str, status: int) -> None:
        super().__init__(place, code, status)
        self.place, self.code, self.status = place, code, status

    def __str__(self) -> str:
        return f"{self.place}: {_REMEDIES.get(self.code, f'S3 failed with {self.code}; try again')}"


def _reason(error: BaseException) -> tuple[str, int]:
    answer = getattr(error, "response", None) or {}
    code = str(answer.get("Error", {}).get("Code", type(error).__name__))
    return code, int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _passes(error: Exception) -> bool:
    """Whether the same call may succeed a little later; s3fs knows the errors of the network."""
    return isinstance(error, ClientError) and not _PASSING.isdisjoint(_reason(error))


def _connect() -> Any:
    own_server = "AWS_ENDPOINT_URL" in os.environ or "AWS_ENDPOINT_URL_S3" in os.environ
    system = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"total_max_attempts": 1, "mode": "standard"},  # s3fs does that
            # Other servers' names rarely resolve with a bucket name before them.
            "s3": {"addressing_style": "path" if own_server else "auto"},
            # Servers other than Amazon's do not know checksums in trailers; MD5 is sent instead.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = _CALLS
    set_custom_error_handler(_passes)
    system.close_session = partial(_close_session, os.getpid())
    return system


def _close_session(process: int, loop: Any, session: Any) -> None:
    """Close connections, unless a forked child shares them and the event loop with its parent.

    An attempt of s3fs to close those ends with a traceback, so the child keeps them until it ends.
    """
    if process == os.getpid():
        S3FileSystem.close_session(loop, session)
    else:
        _inherited.append(session)


class S3Objects:
    """See `Objects`, at `s3://bucket/prefix`. Keys that begin with `/` below it are left out.

    It connects at the first call, and again after a fork. Files of more than `part_bytes` are
    written in parts of this size, 5 MiB at least.
    """

    def __init__(self, url: str, part_bytes: int = _PART_BYTES) -> None:
        self._bucket, self._prefix = bucket_of(url)
        self._part_bytes = part_bytes
        self._connected: tuple[int, Any] | None = None

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        """One operation of the S3 API, e.g. `head_object`, of the bucket or one of the objects.

        Raises:
            S3CallError: when it fails, after as many calls as are sensible.
        """
        given = {"Bucket": self._bucket, **arguments}
        if key:
            given["Key"] = self._prefix + key
        try:
            answer: dict[str, Any] = self._system().call_s3(method, **given)
        except _FAILURES as error:
            raise self._failed(key, error) from None
        return answer

    def chunks(self, key: str, body: Any) -> Iterator[bytes]:
        """The bytes of a `get_object` in chunks as they arrive; closes it at the end."""
        loop = self._system().loop
        try:
            while chunk := sync(loop, body.read, _CHUNK):
                yield chunk
        except _FAILURES as error:
            raise self._failed(key, error) from None
        finally:
            body.close()

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        """See `Objects`."""
        root, more = self._prefix, {} if deep else {"Delimiter": "/"}
        if token is not None:
            more["ContinuationToken"] = token
        answer = self.call("list_objects_v2", Prefix=root + prefix, MaxKeys=PAGE, **more)
        listed = [
            _described(one["Key"].removeprefix(root), one, one["Size"])
            for one in answer.get("Contents", ())
        ]
        folders = [one["Prefix"].removeprefix(root) for one in answer.get("CommonPrefixes", ())]
        return Page(
            tuple(one for one in listed if one.key and one.key[0] != "/"),
            tuple(folder for folder in folders if folder[0] != "/"),
            answer.get("NextContinuationToken") if answer.get("IsTruncated") else None,
        )

    def head(self, key: str) -> ObjectInfo | None:
        """See `Objects`."""
        try:
            answer = self.call("head_object", key)
        except S3CallError as error:
            if error.status != 404 or error.code == "NoSuchBucket":
                raise
            return None
        return _described(key, answer, answer["ContentLength"])

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """See `Objects`."""
        out = BytesIO()
        try:
            answer = self._download(key, out)
        except S3CallError as error:
            if error.code != "NoSuchKey":
                raise
            return None
        return out.getvalue(), _described(key, answer, out.tell())

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """See `Objects`."""
        try:
            with stored_file(dest) as out:
                answer = self._download(key, out, IfMatch=f'"{etag}"')
                # An object that was replaced during the download is not the expected one any more.
                now = self.head(key)
                known = now and (now.etag, now.size) == (_etag(answer), out.tell())
                if _etag(answer) != etag or not known:
                    raise self._changed(key)
        except S3CallError as error:
            if error.status != 412 and error.code not in {"NoSuchKey", _OTHER_BYTES}:
                raise
            raise self._changed(key) from None

    def put(self, key: str, data: bytes | Path, *, replaces: str | None = None) -> str:
        """See `Objects`."""
        condition = {"IfMatch": f'"{replaces}"'} if replaces else {"IfNoneMatch": "*"}
        try:
            with opened_data(data) as source:
                size = source.seek(0, os.SEEK_END)
                source.seek(0)
                if size > self._part_bytes:
                    return _etag(self._put_parts(key, source, size))
                asked = {} if replaces is None else condition
                return _etag(self.call("put_object", key, **_body(source.read()), **asked))
        except S3CallError as error:
            refused = error.status in (409, 412) or error.code == "NoSuchKey"
            if replaces is None or not refused:
                raise
            raise self._changed(key) from None

    def delete(self, key: str) -> None:
        """See `Objects`."""
        self.call("delete_object", key)

    def _download(self, key: str, out: BinaryIO, **conditions: str) -> dict[str, Any]:
        """Write an object's bytes, again while its body breaks or arrives changed."""
        for attempt in range(_BODIES):
            time.sleep(0.1 * 3**attempt if attempt else 0)
            answer = self.call("get_object", key, **conditions)
            md5 = hashlib.md5(usedforsecurity=False)
            out.seek(0)
            out.truncate()
            failure = S3CallError(f"{self.url}/{ascii(key)[1:-1]}", _OTHER_BYTES, 0)
            try:
                for chunk in self.chunks(key, answer["Body"]):
                    md5.update(chunk)
                    out.write(chunk)
            except S3CallError as error:
                if error.status or error.code in _REMEDIES:
                    raise
                failure = error
            else:
                if self._is_whole(answer, out.tell(), md5.hexdigest()):
                    return answer
        raise failure

    def _is_whole(self, answer: dict[str, Any], size: int, md5: str) -> bool:
        """Whether a body was neither cut nor changed on its way.

        The ETag is the MD5 of the bytes but after multipart uploads or KMS encryption
        (https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html) and in directory buckets,
        whose names end in `--x-s3`.
        """
        etag = _etag(answer)
        encrypted = str(answer.get("ServerSideEncryption", "")).startswith("aws:")
        encrypted = encrypted or "SSECustomerAlgorithm" in answer
        is_md5 = len(etag) == 32 and not encrypted and not self._bucket.endswith("--x-s3")
        return size == answer["ContentLength"] and (not is_md5 or md5 == etag)

    def _changed(self, key: str) -> ObjectChangedError:
        place = f"{self.url}/{ascii(key)[1:-1]}"
        return ObjectChangedError(f"{place}: was replaced or removed by another process")

    def _system(self) -> Any:  # of this process: a connection does not survive a fork
        if self._connected is None or self._connected[0] != os.getpid():
            self._connected = (os.getpid(), _connect())
        return self._connected[1]

    def _failed(self, key: str, error: BaseException) -> S3CallError:
        code, status = _reason(error.__cause__ or error)
        place = f"s3://{self._bucket}/{ascii(self._prefix + key)[1:-1]}"
        return S3CallError(place, code if _CODE.fullmatch(code) else "an unknown error", status)

    def _put_parts(self, key: str, data: BinaryIO, size: int) -> dict[str, Any]:
        """A multipart upload, which is aborted when anything fails."""
        upload = self.call("create_multipart_upload", key)["UploadId"]
        parts: list[dict[str, Any]] = []
        try:
            part_bytes = max(self._part_bytes, -(-size // _MOST_PARTS))
            while part := data.read(part_bytes):
                number = {"UploadId": upload, "PartNumber": len(parts) + 1}
                etag = self.call("upload_part", key, **number, **_body(part))["ETag"]
                parts.append({"ETag": etag, "PartNumber": len(parts) + 1})
            whole = {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
            return self.call("complete_multipart_upload", key, **whole)
        except BaseException:
            with suppress(StorageError):  # the error that led here is the one to report
                self.call("abort_multipart_upload", key, UploadId=upload)
            raise


def _body(data: bytes) -> dict[str, Any]:
    """The arguments of a put of these bytes; S3 refuses other bytes than those of the digest."""
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {"Body": data, "ContentMD5": b64encode(digest).decode()}


def _described(key: str, answer: dict[str, Any], size: int) -> ObjectInfo:
    return ObjectInfo(key, size, _etag(answer), answer["LastModified"].timestamp())


def _etag(answer: dict[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')
