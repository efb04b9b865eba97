"""Objects in an S3 bucket; a download is one unchanged object or fails.

Belongs here: `Objects` in terms of S3's operations. Connecting and failures are in s3_client.py.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import PAGE, ObjectChangedError, ObjectInfo, Page
from demo_pipeline.storage.objects.s3_client import S3CallError, S3Client
from demo_pipeline.storage.objects.urls import bucket_of
from demo_pipeline.storage.store.disk import stored_file

_PART_BYTES = 32 * 2**20
_MOST_PARTS = 10_000  # S3 accepts no more
_ATTEMPTS = 3


class S3Objects:
    """See `Objects`. Keys that begin with `/` below the root's prefix are left out.

    Args:
        url: `s3://bucket/prefix`, without credentials.
        client: makes the calls; tests pass one that acts between them.
        part_bytes: larger objects are written in parts of this size (S3 wants 5 MiB at least).

    Raises:
        StorageError: the URL carries credentials or names no bucket.
    """

    def __init__(
        self, url: str, client: S3Client | None = None, part_bytes: int = _PART_BYTES
    ) -> None:
        self._bucket = bucket_of(url)
        self._client = client or S3Client(self._bucket.name)
        self._part_bytes = part_bytes

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
            return _info(key, self._call("head_object", key))
        except S3CallError as error:
            if error.status != 404 or error.code == "NoSuchBucket":
                raise
            return None

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """See `Objects`."""
        try:
            answer = self._call("get_object", key)
        except S3CallError as error:
            if error.code != "NoSuchKey":
                raise
            return None
        data = b"".join(self._chunks(key, answer))
        if len(data) != answer["ContentLength"]:
            raise S3CallError(f"{self.url}/{ascii(key)[1:-1]}", "IncompleteRead", 0)
        return data, _info(key, answer)

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """See `Objects`."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._fetch(key, etag, dest)
            except S3CallError as error:
                if error.status or attempt == _ATTEMPTS:
                    raise
            else:
                return

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """See `Objects`.

        When the answer to a conditional call is lost, the next attempt finds what the first attempt
        wrote: `ObjectChangedError` means "read it again", not "nothing was written".
        """
        conditions = {"IfNoneMatch": "*"} if if_none_match else {}
        conditions |= {"IfMatch": f'"{if_match}"'} if if_match else {}
        size = len(data) if isinstance(data, bytes) else _size(data)
        try:
            if size <= self._part_bytes:
                whole = data if isinstance(data, bytes) else b"".join(_parts(data, size or 1))
                answer = self._call("put_object", key, **_body(whole), **conditions)
            else:
                answer = self._put_parts(key, data, size, conditions)
        except S3CallError as error:
            refused = error.status in (409, 412) or error.code == "NoSuchKey"
            if not (conditions and refused):
                raise
            raise ObjectChangedError(f"{error.place}: was written by another process") from None
        return ObjectInfo(key, size, _etag(answer), _answered(answer))

    def delete(self, key: str) -> None:
        """See `Objects`."""
        self._call("delete_object", key)

    def _fetch(self, key: str, etag: str, dest: Path) -> None:
        place = f"{self.url}/{ascii(key)[1:-1]}"
        changed = ObjectChangedError(f"{place}: is not the object that was listed any more")
        try:
            answer = self._call("get_object", key, IfMatch=f'"{etag}"')
        except S3CallError as error:
            if error.status != 412 and error.code != "NoSuchKey":
                raise
            raise changed from None
        md5 = hashlib.md5(usedforsecurity=False)
        with stored_file(dest) as out:
            for chunk in self._chunks(key, answer):
                md5.update(chunk)
                out.write(chunk)
            if _etag(answer) != etag or out.tell() != answer["ContentLength"]:
                raise changed
            if self._is_md5(etag, answer) and md5.hexdigest() != etag:
                raise changed
            # An object that was replaced during the download is not the expected one any more.
            now = self.head(key)
            if now is None or (now.etag, now.size) != (etag, out.tell()):
                raise changed

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
        answer = self._client.call(
            "list_objects_v2", Prefix=root + prefix, MaxKeys=min(limit, PAGE), **more
        )
        objects = [_listed(entry, root) for entry in answer.get("Contents", ())]
        prefixes = [item["Prefix"].removeprefix(root) for item in answer.get("CommonPrefixes", ())]
        return Page(
            tuple(info for info in objects if info.key and not info.key.startswith("/")),
            tuple(prefix for prefix in prefixes if not prefix.startswith("/")),
            answer.get("NextContinuationToken") if answer.get("IsTruncated") else None,
        )

    def _put_parts(
        self, key: str, data: bytes | Path, size: int, conditions: dict[str, str]
    ) -> dict[str, Any]:
        """A multipart upload, which is aborted when anything fails."""
        upload = self._call("create_multipart_upload", key)["UploadId"]
        etags: list[str] = []
        with ExitStack() as undo:
            undo.callback(self._call, "abort_multipart_upload", key, UploadId=upload)
            for part in _parts(data, max(self._part_bytes, -(-size // _MOST_PARTS))):
                number = {"UploadId": upload, "PartNumber": len(etags) + 1}
                etags.append(self._call("upload_part", key, **number, **_body(part))["ETag"])
            parts = [{"ETag": etag, "PartNumber": n} for n, etag in enumerate(etags, 1)]
            answer = self._call(
                "complete_multipart_upload",
                key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **conditions,
            )
            undo.pop_all()
        return answer

    def _call(self, method: str, key: str, **arguments: Any) -> dict[str, Any]:
        return self._client.call(method, self._bucket.prefix + key, **arguments)

    def _chunks(self, key: str, answer: dict[str, Any]) -> Iterator[bytes]:
        return self._client.chunks(self._bucket.prefix + key, answer["Body"])


def _body(data: bytes) -> dict[str, Any]:
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {"Body": data, "ContentMD5": b64encode(digest).decode()}


def _parts(data: bytes | Path, size: int) -> Iterator[bytes]:
    """Parts of `size` bytes, the last one shorter."""
    if isinstance(data, bytes):
        yield from (data[start : start + size] for start in range(0, len(data), size))
        return
    try:
        with data.open("rb") as file:
            while part := file.read(size):
                yield part
    except OSError as error:
        raise StorageError(f"{data.name}: could not be read: {type(error).__name__}") from None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise StorageError(f"{path.name}: could not be read: {type(error).__name__}") from None


def _info(key: str, answer: dict[str, Any]) -> ObjectInfo:
    modified = answer["LastModified"].timestamp()
    return ObjectInfo(key, answer["ContentLength"], _etag(answer), modified)


def _listed(entry: dict[str, Any], root: str) -> ObjectInfo:
    key = entry["Key"].removeprefix(root)
    return ObjectInfo(key, entry["Size"], _etag(entry), entry["LastModified"].timestamp())


def _etag(answer: dict[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def _answered(answer: dict[str, Any]) -> float:
    """When the server answered, epoch seconds by its clock; 0 without a date header."""
    try:
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(date).timestamp()
    except (KeyError, ValueError):
        return 0.0
