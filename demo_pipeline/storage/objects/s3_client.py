"""Calls to one S3 bucket, through the part of s3fs that does not cache.

Belongs here: connecting, timeouts, and turning every failure into a `StorageError` that
quotes neither the server nor the environment. Credentials and endpoint come from the environment
(`AWS_…`, `AWS_ENDPOINT_URL`) and are not read here.
"""

import os
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.core import S3_RETRYABLE_ERRORS

from demo_pipeline.storage.errors import StorageError

_CHUNK = 2**20  # bytes
# A malformed endpoint is a ValueError; other failures are errors of botocore or the system.
_FAILURES = (OSError, BotoCoreError, ValueError, *S3_RETRYABLE_ERRORS)
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_inherited: list[Any] = []  # sessions that this process got from its parent by a fork
_REMEDIES = {
    "NoSuchBucket": "the bucket does not exist; create it or correct the URL",
    "AccessDenied": "access denied; check the policy of the bucket and the credentials",
    "403": "access denied; check the policy of the bucket and the credentials",
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
        self.place, self.code, self.status = place, code, status
        super().__init__(f"{place}: {_REMEDIES.get(code, f'S3 failed with {code}; try again')}")

    def __reduce__(self) -> tuple[type["S3CallError"], tuple[str, str, int]]:
        return (type(self), (self.place, self.code, self.status))


class S3Client:
    """One bucket. It connects at the first call, and again after a fork."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket
        self._connected: tuple[int, Any] | None = None

    def call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        """One operation of the S3 API, e.g. `head_object`.

        Args:
            method: botocore's name of it.
            key: the object's full key, empty for operations on the bucket.
            arguments: the operation's further parameters.

        Raises:
            S3CallError: when it fails; nothing is tried again here (s3_retry.py).
        """
        if key:
            arguments["Key"] = key
        try:
            answer: dict[str, Any] = self._system().call_s3(
                method, Bucket=self._bucket, **arguments
            )
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

    def _system(self) -> Any:
        """The file system of this process: a connection does not survive a fork."""
        if self._connected is None or self._connected[0] != os.getpid():
            self._connected = (os.getpid(), _connect())
        return self._connected[1]

    def _failed(self, key: str, error: BaseException) -> S3CallError:
        answer = getattr(error.__cause__, "response", None) or {}
        code = str(answer.get("Error", {}).get("Code", type(error).__name__))
        status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        place = f"s3://{self._bucket}/{ascii(key)[1:-1]}"
        return S3CallError(place, code if _CODE.fullmatch(code) else "an unknown error", status)


def _connect() -> Any:
    own_server = "AWS_ENDPOINT_URL" in os.environ or "AWS_ENDPOINT_URL_S3" in os.environ
    system = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": 10,
            "read_timeout": 60,
            "retries": {"total_max_attempts": 1, "mode": "standard"},  # s3_retry.py does that
            # Other servers' names rarely resolve with a bucket name before them.
            "s3": {"addressing_style": "path" if own_server else "auto"},
            # Servers other than Amazon's do not know checksums in trailers; MD5 is sent instead.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = 1
    system.close_session = partial(_close_session, os.getpid())
    return system


def _close_session(process: int, loop: Any, session: Any) -> None:
    """Close the connections of a file system that is not used any more.

    A forked child shares the sockets and the event loop of its parent: it must not touch them, and
    an attempt of s3fs ends with a traceback. So it keeps them until it ends.
    """
    if process == os.getpid():
        S3FileSystem.close_session(loop, session)
    else:
        _inherited.append(session)
