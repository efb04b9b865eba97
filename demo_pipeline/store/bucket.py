"""A bucket as the store and the uploads use it: objects by their keys, versions with pointers.

Belongs here: S3's operations of a single object and pages of listings, through the part of s3fs
that does not cache. Errors become sentences that quote neither the server nor the environment;
credentials and endpoint come from the environment (`AWS_…`) and are not read here. `versions/` is
not hidden there: SeaweedFS does not list `.versions`.
"""

import hashlib
import os
import re
import sys
import threading
import time
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, TypeVar

from demo_pipeline.store.errors import ObjectChangedError, StorageError
from demo_pipeline.store.folder import Folder, ObjectInfo
from demo_pipeline.store.names import POINTERS, VERSIONS, bucket_of
from demo_pipeline.store.versions import (
    CONTENT,
    MANIFEST,
    VERSION_LENGTH,
    FileEntry,
    Staging,
    Version,
    ascii_path,
    is_place,
)

_CHUNK = 2**20  # bytes
_PART_BYTES = 16 * 2**20
_CALLS = 6  # of one operation, by botocore, which waits up to 1, 2, 4, … seconds between them
_BODIES = 4  # downloads of one object whose connection breaks amid it
_FETCHES = 2  # downloads of an object whose bytes do not fit its checksum
_WORKERS = 16
_PAGE = 1000  # S3 lists no more at once
_INSIDE = re.compile(
    rf"(.+?/[0-9a-f]{{{VERSION_LENGTH}}}(?:-[0-9a-f]{{8}})?)/({MANIFEST}|{CONTENT}/.+)", re.DOTALL
)
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_MD5 = re.compile(r"[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile(r"([0-9a-f]{32})-([0-9]{1,5})")
_DIRECTORY_BUCKET = "--x-s3"
_OTHER_BYTES = "OtherBytes"  # a code of our own
_SENTENCES = {
    "the bytes that arrive do not fit the checksum of the object; check the network, or upload "
    "the file again": (_OTHER_BYTES,),
    "the bucket does not exist; create it or correct the URL": ("NoSuchBucket",),
    "access denied; check the policy of the bucket and the credentials": ("AccessDenied", "403"),
    "no valid credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE": (
        *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
        *("NoCredentialsError", "PartialCredentialsError"),
    ),
    "the bucket is in another region; set AWS_DEFAULT_REGION to it": (
        *("PermanentRedirect", "301"),
        *("AuthorizationHeaderMalformed", "IllegalLocationConstraint"),
    ),
    "the server does not answer; check the network and AWS_ENDPOINT_URL": (
        *("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "TimeoutError"),
        *("ConnectionClosedError", "FSTimeoutError", "HTTPClientError"),
    ),
}
_SENTENCE_OF = {code: sentence for sentence, codes in _SENTENCES.items() for code in codes}
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class S3CallError(StorageError):
    """A call that S3 refused, or that did not reach it.

    Attributes:
        place: the object's URL, printable.
        code: S3's error code, else the name of the network error.
        status: of the HTTP answer; 0 without an answer.
    """

    def __init__(self, place: str, code: str, status: int) -> None:
        super().__init__(place, code, status, trouble=f"S3 {code}")
        self.place = place
        self.code = code
        self.status = status

    def __str__(self) -> str:
        sentence = _SENTENCE_OF.get(self.code, f"S3 failed with {self.code}; try again")
        return f"{self.place}: {sentence}"


def _connect() -> Any:
    from s3fs import S3FileSystem  # noqa: PLC0415 - costs 0.6 s

    own_server = "AWS_ENDPOINT_URL" in os.environ or "AWS_ENDPOINT_URL_S3" in os.environ
    system = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": 10,
            "read_timeout": 60,
            "max_pool_connections": 2 * _WORKERS,
            "retries": {"total_max_attempts": _CALLS, "mode": "standard"},
            # Other servers' names rarely resolve with a bucket name before them.
            "s3": {"addressing_style": "path" if own_server else "auto"},
            # Servers other than Amazon's do not know checksums in trailers.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = 1  # botocore repeats
    return system


class Bucket:
    """Everything at `s3://bucket/prefix`. Keys that begin with `/` below it are left out.

    It connects at the first call, and again after a fork.

    Args:
        url: of the bucket and the prefix.
        cache: the folder that outputs of this bucket are built and read in, laid out like a store
            in a folder; it may be removed whenever nothing runs.

    Attributes:
        url: `s3://bucket/prefix`.
        tops, pointers: as of a `Folder`.
    """

    tops, pointers = (VERSIONS, "retired/"), POINTERS  # of `retired/` are older versions

    def __init__(self, url: str, cache: Path) -> None:
        self._bucket, self._prefix = bucket_of(url)
        self.url = f"s3://{self._bucket}/{self._prefix}".rstrip("/")
        self.cache = Folder(cache)
        self._connected: tuple[int, Any] | None = None
        self._lock = threading.Lock()
        self._seen = False

    def call(self, method: str, key: str = "", **arguments: Any) -> Any:
        """One operation of the S3 API, e.g. `head_object`, of the bucket or one of the objects.

        Raises:
            S3CallError: when it fails, after as many calls as are sensible.
        """
        given = {"Bucket": self._bucket, **arguments} | ({"Key": self._prefix + key} if key else {})
        return self._tried(key, lambda: self._system().call_s3(method, **given))

    def _tried(self, key: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            if isinstance(error, TypeError | AttributeError | KeyError):
                raise  # not one of the many classes of s3fs, botocore and aiohttp
            code, status = _reason(error.__cause__ or error)
            place = f"s3://{self._bucket}/{ascii_path(self._prefix + key)}"
            code = code if _CODE.fullmatch(code) else "an unknown error"
            raise S3CallError(place, code, status) from None

    def _system(self) -> Any:  # of this process: a connection does not survive a fork
        with self._lock:
            if self._connected is None or self._connected[0] != os.getpid():
                self._connected = (os.getpid(), _connect())
            return self._connected[1]

    def require(self) -> None:
        """Raise `S3CallError` unless the bucket exists: asked before it seems to be empty."""
        if not self._seen:
            self.call("list_objects_v2", MaxKeys=1)
            self._seen = True

    # Objects by their keys

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose key begins with `prefix`, in no order."""
        for page in self._pages(prefix):
            for one in page.get("Contents", ()):
                key = one["Key"].removeprefix(self._prefix)
                if key and key[0] != "/":
                    yield _described(key, one, one["Size"])

    def folders(self, prefix: str = "") -> list[str]:
        """The names that go on with `/`, of those after `prefix` that do not begin with a dot."""
        pages = self._pages(prefix, Delimiter="/")
        found = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        names = (one.removeprefix(self._prefix + prefix)[:-1] for one in found)
        return [name for name in names if name and name[0] != "."]

    def files(self, folder: str) -> dict[str, ObjectInfo] | None:
        """The objects below a folder by the rest of their keys; None when there are none."""
        prefix = f"{folder}/"
        return {one.key.removeprefix(prefix): one for one in self.listing(prefix)} or None

    def by_folder(self) -> dict[str, dict[str, ObjectInfo]]:
        """The `files` of each of `folders`, by one listing of all objects."""
        found = defaultdict[str, dict[str, ObjectInfo]](dict)
        for info in self.listing():
            name, slash, file = info.key.partition("/")
            if slash and name[0] != ".":
                found[name][file] = info
        return found

    def _pages(self, prefix: str, **more: str) -> Iterator[dict[str, Any]]:
        """Yield the answers of a listing."""
        while True:
            root = self._prefix + prefix
            answer = self.call("list_objects_v2", Prefix=root, MaxKeys=_PAGE, **more)
            yield answer
            if not answer.get("IsTruncated"):
                return
            more["ContinuationToken"] = answer["NextContinuationToken"]

    def head(self, key: str) -> ObjectInfo | None:
        """The object as it is now; None when it does not exist."""
        answer = self._unless_missing(lambda: self.call("head_object", key))
        return _described(key, answer, answer["ContentLength"]) if answer else None

    def read(self, key: str) -> bytes | None:
        """A small object's bytes; None when it does not exist."""
        out = BytesIO()
        return out.getvalue() if self._unless_missing(lambda: self._get(key, out)) else None

    def _unless_missing(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            return work()
        except S3CallError as error:
            if error.status != 404 or error.code == "NoSuchBucket":
                raise
        self.require()
        return None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Download the object with this ETag to `dest`, and compare the bytes with it.

        Raises:
            ObjectChangedError: it was removed or replaced.
            S3CallError: twice other bytes arrived than the checksums of S3 are of.
        """
        for _ in range(_FETCHES):
            try:
                with dest.open("w+b") as out:
                    answer = self._get(key, out, IfMatch=f'"{etag}"', ChecksumMode="ENABLED")
                    is_right = self._is_right(key, answer, out)
            except S3CallError as error:
                if error.status not in (404, 412) or error.code == "NoSuchBucket":
                    raise
                answer = {"ETag": ""}
                is_right = True
            if _etag(answer) != etag:
                raise ObjectChangedError(f"{key!r} was replaced or removed by another process")
            if is_right:
                return
        raise S3CallError(f"{self.url}/{ascii_path(key)}", _OTHER_BYTES, 0)

    def _is_right(self, key: str, answer: dict[str, Any], out: BinaryIO) -> bool:
        """Whether the bytes fit what S3 says of the object; also when it says nothing.

        The ETag is the MD5 of an object that was written at once; of one that was written in parts
        it is the MD5 of the MD5s of its parts, and their number. It is neither with keys of KMS or
        of the customer, and in directory buckets.
        """
        for name, digest in _CHECKSUMS.items():
            checksum = answer.get(f"Checksum{name}", "")
            if checksum and "-" not in checksum:
                return bool(digest(out) == checksum)
        encryption = answer.get("ServerSideEncryption") or ""
        is_other = encryption.startswith("aws:kms") or answer.get("SSECustomerAlgorithm")
        etag = _etag(answer)
        if is_other or self._bucket.endswith(_DIRECTORY_BUCKET):
            return True
        if _MD5.fullmatch(etag):
            return bool(_md5(out).hexdigest() == etag)
        if not (in_parts := _MD5_OF_PARTS.fullmatch(etag)):
            return True
        size = answer["ContentLength"]
        count = int(in_parts[2])
        first = size if count == 1 else self._part_size(key, 1)
        if _md5_of_parts(out, [first] * count) == in_parts[1]:
            return True
        # Before the bytes are blamed: the parts may be of several sizes.
        sizes = in_parallel(partial(self._part_size, key), range(1, count + 1))
        return sum(sizes) != size or _md5_of_parts(out, sizes) == in_parts[1]

    def _part_size(self, key: str, number: int) -> int:
        """The size of a part that an object was written in; 0 when the server does not say it."""
        try:
            answer = self.call("head_object", key, PartNumber=number)
        except S3CallError:
            return 0
        size: int = answer["ContentLength"]
        return size

    def _get(self, key: str, out: BinaryIO, **conditions: str) -> Any:
        """Write an object's bytes, again while its connection breaks."""
        for attempt in range(_BODIES):
            time.sleep(0.1 * 3**attempt if attempt else 0)
            answer = self.call("get_object", key, **conditions)
            out.seek(0)
            out.truncate()
            failure = S3CallError(f"{self.url}/{ascii_path(key)}", "IncompleteBody", 0)
            try:
                out.writelines(self._chunks(key, answer["Body"]))
            except S3CallError as error:
                failure = error
            else:
                if out.tell() == answer["ContentLength"]:
                    return answer
        raise failure

    def _chunks(self, key: str, body: Any) -> Iterator[bytes]:
        from fsspec.asyn import sync  # noqa: PLC0415 - costs 0.1 s

        loop = self._system().loop
        try:
            while chunk := self._tried(key, lambda: sync(loop, body.read, _CHUNK)):
                yield chunk
        finally:
            body.close()

    def put(self, key: str, data: bytes | Path, **condition: str) -> None:
        """Write or replace an object; readers see the old bytes or the new."""
        self.require()  # some servers would create the bucket
        if isinstance(data, bytes):
            self.call("put_object", key, Body=data, **condition)
            return
        place = f"{self._bucket}/{self._prefix}{key}"
        parts = {"chunksize": _PART_BYTES, "max_concurrency": 1}
        self._tried(key, lambda: self._system().put_file(str(data), place, **parts))

    def add(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one; returns whether this call wrote it."""
        if self.head(key):
            return False
        try:
            self.put(key, data, IfNoneMatch="*")
        except S3CallError as error:
            if error.status not in (400, 403, 409, 412, 501):
                raise
            stored = self.read(key)  # perhaps by this call, whose first answer was lost
            if stored is None:  # the server knows no conditions
                self.put(key, data)
            return stored in (None, data)
        return True

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        self.call("delete_object", key)

    # Versions. `at` is `<output>/<place>`.

    def pointer(self, output: str) -> str | None:
        """The folder of the version that readers see, even a missing one; None without one."""
        text = (self.read(f"{POINTERS}{output}") or b"").decode("ascii", "replace").rstrip("\n")
        return text if is_place(text) else None

    def point(self, output: str, place: str) -> None:
        """Move the pointer of an output: readers see the version."""
        self.put(f"{POINTERS}{output}", f"{place}\n".encode())

    def outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        names = (info.key.removeprefix(POINTERS) for info in self.listing(f"{POINTERS}{folder}"))
        return {name for name in names if not folder or f"{name}/".startswith(f"{folder}/")}

    def ages(self, within: str = "") -> dict[str, float]:
        """Every version below a folder, published or not, complete or not → when it was needed.

        That is when it was superseded, else when it was made. Only keys of this layout count.
        """
        found = dict[str, float]()
        for info in self.listing(f"{VERSIONS}{within}{'/' if within else ''}"):
            if inside := _INSIDE.fullmatch(info.key.removeprefix(VERSIONS)):
                found[inside[1]] = max(info.modified, found.get(inside[1], 0.0))
        return found

    def manifest(self, at: str) -> bytes | None:
        """The bytes of a version's manifest; None without one."""
        return self.read(f"{VERSIONS}{at}/{MANIFEST}")

    def sizes(self, at: str) -> dict[str, int | None]:
        """Path → bytes of every file in the content of a version."""
        prefix = f"{VERSIONS}{at}/{CONTENT}/"
        return {info.key.removeprefix(prefix): info.size for info in self.listing(prefix)}

    def digests(self, version: Version) -> Sequence[str | None]:
        """SHA-256 of each file of the manifest; None of one that is missing."""

        def digest(file: FileEntry) -> str | None:
            with TemporaryFile() as out:
                return self.download(version, file, out)

        return in_parallel(digest, version.manifest.files)

    def download(self, version: Version, file: FileEntry, out: BinaryIO) -> str | None:
        """Write a file of a version; its SHA-256, None when it is missing."""
        key = f"{VERSIONS}{version.at}/{CONTENT}/{file.path}"
        if not self._unless_missing(lambda: self._get(key, out)):
            return None
        out.seek(0)
        return hashlib.file_digest(out, "sha256").hexdigest()  # type: ignore[arg-type]

    def upload(self, staging: Staging, version: Version) -> None:
        """Upload the files of a staged directory, then its manifest."""
        self.require()

        def put(path: str) -> None:
            self.put(f"{VERSIONS}{version.at}/{path}", staging.directory / path)

        in_parallel(put, [f"{CONTENT}/{file.path}" for file in version.manifest.files])
        put(MANIFEST)

    def renew(self, at: str) -> None:
        """Let the grace period of a version start now."""
        data = self.read(f"{VERSIONS}{at}/{MANIFEST}")
        if data is not None:
            self.put(f"{VERSIONS}{at}/{MANIFEST}", data)

    def discard(self, at: str) -> None:
        """Remove a version, its manifest first."""
        self.delete(f"{VERSIONS}{at}/{MANIFEST}")
        self.delete_all(f"{VERSIONS}{at}/{CONTENT}")

    def delete_all(self, key: str) -> bool:
        """Remove all objects in a folder; returns whether there was any."""
        keys = [info.key for info in self.listing(f"{key}/")]
        in_parallel(self.delete, keys)
        return bool(keys)

    def keeps_old(self) -> bool:
        """Whether the bucket keeps what is deleted as old versions of its objects."""
        with suppress(S3CallError):
            return "Status" in self.call("get_bucket_versioning")
        return False

    def now(self) -> float:
        """Epoch seconds by the clock that gives versions their ages."""
        answer = self.call("list_objects_v2", MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(date).timestamp()

    def abort_uploads(self, before: float) -> None:
        """Abort uploads in parts that began before a time: no process goes on with them."""
        answer = {}
        with suppress(S3CallError):  # some servers do not list them
            answer = self.call("list_multipart_uploads", Prefix=f"{self._prefix}{VERSIONS}")
        for one in answer.get("Uploads", ()):
            key = one["Key"].removeprefix(self._prefix)
            inside = _INSIDE.fullmatch(key.removeprefix(VERSIONS))
            if inside and one["Initiated"].timestamp() < before:
                self.call("abort_multipart_upload", key, UploadId=one["UploadId"])


Objects = Folder | Bucket
"""Files or objects by their keys."""


def _md5(file: BinaryIO, start: int = 0, size: int = sys.maxsize) -> Any:
    """The MD5 of a part of a file."""
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(start)
    while size > 0 and (chunk := file.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest


def _md5_of_parts(file: BinaryIO, sizes: Sequence[int]) -> str:
    """The MD5 of the MD5s of the parts of these sizes; the last one may be smaller."""
    digest = hashlib.md5(usedforsecurity=False)
    start = 0
    for size in sizes:
        digest.update(_md5(file, start, size).digest())
        start += size
    return digest.hexdigest()


def _crc32(file: BinaryIO) -> str:
    checksum = 0
    file.seek(0)
    while chunk := file.read(_CHUNK):
        checksum = zlib.crc32(chunk, checksum)
    return b64encode(checksum.to_bytes(4, "big")).decode()


def _sha(name: str) -> Callable[[BinaryIO], str]:
    def checksum(file: BinaryIO) -> str:
        file.seek(0)
        return b64encode(hashlib.file_digest(file, name).digest()).decode()  # type: ignore[arg-type]

    return checksum


# Those that S3 may keep of a whole object and that Python can compute.
_CHECKSUMS = {"SHA256": _sha("sha256"), "SHA1": _sha("sha1"), "CRC32": _crc32}


def _reason(error: BaseException) -> tuple[str, int]:
    answer = getattr(error, "response", None) or {}
    code = str(answer.get("Error", {}).get("Code", type(error).__name__))
    return code, int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _described(key: str, answer: dict[str, Any], size: int) -> ObjectInfo:
    return ObjectInfo(key, size, _etag(answer), answer["LastModified"].timestamp())


def _etag(answer: dict[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The results of a function that is called for every item in threads, in their order.

    The first error is raised after the calls that had begun have ended.
    """
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_WORKERS, len(items))) as pool:
        return list(pool.map(function, items))
