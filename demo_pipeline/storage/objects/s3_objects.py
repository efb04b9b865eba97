"""Objects in an S3 bucket; a download is one unchanged object or fails.

Belongs here: `Objects` in terms of S3's operations, each of which can be repeated without harm.
Connecting and failures are in s3_client.py, when to repeat is in s3_retry.py.
"""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import PAGE, ObjectChangedError, ObjectInfo, Page
from demo_pipeline.storage.objects.s3_answers import (
    answered_at,
    as_answer,
    described_object,
    etag_of,
    is_refused,
    listed_object,
)
from demo_pipeline.storage.objects.s3_bodies import body_arguments, joint_etag, parts_of, size_of
from demo_pipeline.storage.objects.s3_client import S3CallError, S3Client
from demo_pipeline.storage.objects.s3_retry import S3_RETRY_POLICY, S3RetryPolicy
from demo_pipeline.storage.objects.urls import bucket_of
from demo_pipeline.storage.store.disk import stored_file

_PART_BYTES = 32 * 2**20
_MOST_PARTS = 10_000  # S3 accepts no more
_OTHER_BYTES = "OtherBytes"  # code of a body that is not as long as announced, or not of its ETag
_MOST_COMPARED = 2**20  # bytes of an object that is read to see whether it was written


class S3Objects:
    """See `Objects`. Keys that begin with `/` below the root's prefix are left out.

    Args:
        url: `s3://bucket/prefix`, without credentials.
        client: makes the calls; tests pass one that acts between them.
        part_bytes: larger objects are written in parts of this size (S3 wants 5 MiB at least).
        policy: how often failed calls are repeated.

    Raises:
        StorageError: the URL carries credentials or names no bucket.
    """

    def __init__(
        self,
        url: str,
        client: S3Client | None = None,
        part_bytes: int = _PART_BYTES,
        policy: S3RetryPolicy = S3_RETRY_POLICY,
    ) -> None:
        self._bucket = bucket_of(url)
        self._client = client or S3Client(self._bucket.name)
        self._part_bytes = part_bytes
        self._policy = policy

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`."""
        return self._bucket.url

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`."""
        return self._listed(prefix, token, limit)

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`."""
        return self._listed(prefix, token, limit, Delimiter="/")

    def head(self, key: str) -> ObjectInfo | None:
        """See `Objects`."""
        try:
            return described_object(key, self._call("head_object", key))
        except S3CallError as error:
            if error.status != 404 or error.code == "NoSuchBucket":
                raise
            return None

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """See `Objects`."""
        return self._policy.run(lambda _: self._read(key))

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """See `Objects`."""
        try:
            self._policy.run(lambda _: self._fetch(key, etag, dest))
        except S3CallError as error:
            if error.code != _OTHER_BYTES:
                raise
            raise self._changed(key) from None

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """See `Objects`.

        When the answer to a conditional call is lost, the object is compared with `data`: equal
        bytes are taken for its effect.
        """
        conditions = {"IfNoneMatch": "*"} if if_none_match else {}
        conditions |= {"IfMatch": f'"{if_match}"'} if if_match else {}
        size = len(data) if isinstance(data, bytes) else size_of(data)
        try:
            if size <= self._part_bytes:
                whole = data if isinstance(data, bytes) else b"".join(parts_of(data, size or 1))
                answer = self._put_whole(key, whole, conditions)
            else:
                answer = self._put_parts(key, data, size, conditions)
        except S3CallError as error:
            if not (conditions and is_refused(error)):
                raise
            raise ObjectChangedError(f"{error.place}: was written by another process") from None
        return ObjectInfo(key, size, etag_of(answer), answered_at(answer))

    def delete(self, key: str) -> None:
        """See `Objects`."""
        self._call("delete_object", key)

    def _read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        try:
            answer = self._client.call("get_object", self._full(key))
        except S3CallError as error:
            if error.code != "NoSuchKey":
                raise
            return None
        data = b"".join(self._chunks(key, answer))
        self._require_body(key, answer, len(data), hashlib.md5(data, usedforsecurity=False))
        return data, described_object(key, answer)

    def _fetch(self, key: str, etag: str, dest: Path) -> None:
        try:
            answer = self._client.call("get_object", self._full(key), IfMatch=f'"{etag}"')
        except S3CallError as error:
            if error.status != 412 and error.code != "NoSuchKey":
                raise
            raise self._changed(key) from None
        if etag_of(answer) != etag:
            raise self._changed(key)
        md5 = hashlib.md5(usedforsecurity=False)
        with stored_file(dest) as out:
            for chunk in self._chunks(key, answer):
                md5.update(chunk)
                out.write(chunk)
            self._require_body(key, answer, out.tell(), md5)
            # An object that was replaced during the download is not the expected one any more.
            now = self.head(key)
            if now is None or (now.etag, now.size) != (etag, out.tell()):
                raise self._changed(key)

    def _require_body(self, key: str, answer: dict[str, Any], size: int, md5: Any) -> None:
        """Refuse a body that was cut or changed on its way; reading it again may help."""
        etag = etag_of(answer)
        changed = self._is_md5(etag, answer) and md5.hexdigest() != etag
        if changed or size != answer["ContentLength"]:
            raise S3CallError(self._place(key), _OTHER_BYTES, 0)

    def _changed(self, key: str) -> ObjectChangedError:
        return ObjectChangedError(f"{self._place(key)}: is not the object that was listed any more")

    def _place(self, key: str) -> str:
        return f"{self.url}/{ascii(key)[1:-1]}"

    def _full(self, key: str) -> str:
        return self._bucket.prefix + key

    def _is_md5(self, etag: str, answer: dict[str, Any]) -> bool:
        """Whether the ETag is the MD5 of the bytes; not after multipart uploads or KMS encryption.

        https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html (ETag); in directory
        buckets, whose names end in `--x-s3`, it never is.
        """
        encrypted = str(answer.get("ServerSideEncryption", "")).startswith("aws:")
        encrypted = encrypted or "SSECustomerAlgorithm" in answer
        return len(etag) == 32 and not encrypted and not self._bucket.name.endswith("--x-s3")

    def _listed(self, prefix: str, token: str | None, limit: int, **more: str) -> Page:
        root = self._bucket.prefix
        if token is not None:
            more["ContinuationToken"] = token
        answer = self._policy.run(
            lambda _: self._client.call(
                "list_objects_v2", Prefix=root + prefix, MaxKeys=min(limit, PAGE), **more
            )
        )
        objects = [listed_object(entry, root) for entry in answer.get("Contents", ())]
        prefixes = [item["Prefix"].removeprefix(root) for item in answer.get("CommonPrefixes", ())]
        return Page(
            tuple(info for info in objects if info.key and not info.key.startswith("/")),
            tuple(prefix for prefix in prefixes if not prefix.startswith("/")),
            answer.get("NextContinuationToken") if answer.get("IsTruncated") else None,
        )

    def _put_whole(self, key: str, data: bytes, conditions: dict[str, str]) -> dict[str, Any]:
        body = body_arguments(data)

        def put(repeated: bool) -> dict[str, Any]:
            try:
                return self._client.call("put_object", self._full(key), **body, **conditions)
            except S3CallError as error:
                written = self._written(key, data) if repeated and is_refused(error) else None
                if written is None:
                    raise
                return written

        return self._policy.run(put)

    def _written(self, key: str, data: bytes) -> dict[str, Any] | None:
        """The present object as an answer to a put, when it has these bytes.

        Pointers and leases are told apart by their bytes: another process's lease has others.
        """
        now = self.head(key)
        if now is None or now.size != len(data) or now.size > _MOST_COMPARED:
            return None
        stored = self.read(key)
        return as_answer(stored[1]) if stored and stored[0] == data else None

    def _put_parts(
        self, key: str, data: bytes | Path, size: int, conditions: dict[str, str]
    ) -> dict[str, Any]:
        """A multipart upload, which is aborted when anything fails."""
        upload = self._call("create_multipart_upload", key)["UploadId"]
        etags: list[str] = []
        with ExitStack() as undo:
            undo.callback(self._abort, key, upload)
            for part in parts_of(data, max(self._part_bytes, -(-size // _MOST_PARTS))):
                number = {"UploadId": upload, "PartNumber": len(etags) + 1}
                etags.append(
                    self._call("upload_part", key, **number, **body_arguments(part))["ETag"]
                )
            parts = [{"ETag": etag, "PartNumber": n} for n, etag in enumerate(etags, 1)]
            whole = {"UploadId": upload, "MultipartUpload": {"Parts": parts}, **conditions}
            answer = self._complete(key, whole, size, joint_etag(etags))
            undo.pop_all()
        return answer

    def _complete(self, key: str, whole: dict[str, Any], size: int, etag: str) -> dict[str, Any]:
        """End a multipart upload; one that ended although its answer was lost is recognised."""

        def complete(repeated: bool) -> dict[str, Any]:
            try:
                return self._client.call("complete_multipart_upload", self._full(key), **whole)
            except S3CallError as error:
                refused = is_refused(error) or error.code == "NoSuchUpload"
                now = self.head(key) if repeated and refused else None
                if now is None or (now.size, now.etag) != (size, etag):
                    raise
                return as_answer(now)

        return self._policy.run(complete)

    def _abort(self, key: str, upload: str) -> None:
        with suppress(StorageError):  # the error that led here is the one to report
            self._call("abort_multipart_upload", key, UploadId=upload)

    def _call(self, method: str, key: str, **arguments: Any) -> dict[str, Any]:
        """A call that may be repeated as it is."""
        return self._policy.run(lambda _: self._client.call(method, self._full(key), **arguments))

    def _chunks(self, key: str, answer: dict[str, Any]) -> Iterator[bytes]:
        return self._client.chunks(self._full(key), answer["Body"])
