"""Operations on an S3 bucket that holds a store or uploads.

The pointer of an output is a small object that names its published version.

No call is cached. s3fs and botocore read credentials and endpoint from `AWS_…` variables. Error
messages quote neither the server nor the environment.

Versions are stored under `versions/`. A store in a folder uses `.versions/`, but SeaweedFS does not
list names that begin with a dot.
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

_CHUNK = 2**20  # bytes per read of a download or a file
_PART_BYTES = 16 * 2**20  # bytes of a part of a multipart upload
_CALLS = 6  # maximum attempts for an operation; botocore waits up to 1, 2, 4, … s in between
_BODIES = 4  # maximum attempts for a download whose connection breaks
_FETCHES = 2  # maximum attempts for a download whose bytes do not match the checksum
_WORKERS = 16  # threads of `in_parallel`
_PAGE = 1000  # objects per answer to a listing; S3 allows no more
# Matches the path of an object in a version. The groups are the path of the version and the path
# inside the version.
_INSIDE = re.compile(
    rf"(.+?/[0-9a-f]{{{VERSION_LENGTH}}}(?:-[0-9a-f]{{8}})?)/({MANIFEST}|{CONTENT}/.+)", re.DOTALL
)
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")
_MD5 = re.compile(r"[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile(r"([0-9a-f]{32})-([0-9]{1,5})")
_DIRECTORY_BUCKET = "--x-s3"  # the end of the names of directory buckets of Amazon S3
_OTHER_BYTES = "OtherBytes"  # our own error code for a download with a wrong checksum
_SENTENCES = {  # messages for users, each with the error codes that it explains
    "the bytes that arrive do not match the checksum of the object; check the network, or upload "
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
_SENTENCE_OF: dict[str, str] = {}
for _sentence, _codes in _SENTENCES.items():
    _SENTENCE_OF |= dict.fromkeys(_codes, _sentence)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class S3CallError(StorageError):
    """Raised for a call that failed at S3 or did not reach S3.

    Attributes:
        place: the URL of the object, in printable ASCII.
        code: the error code of S3, or the class name of a network error.
        status: the HTTP status of the answer; 0 if there was no answer.
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

    # Few servers other than Amazon's have a DNS name for each bucket, `<bucket>.<server>`.
    has_own_server = "AWS_ENDPOINT_URL" in os.environ or "AWS_ENDPOINT_URL_S3" in os.environ
    addressing_style = "path" if has_own_server else "auto"
    system = S3FileSystem(
        skip_instance_cache=True,
        use_listings_cache=False,
        config_kwargs={
            "connect_timeout": 10,
            "read_timeout": 60,
            "max_pool_connections": 2 * _WORKERS,
            "retries": {"total_max_attempts": _CALLS, "mode": "standard"},
            "s3": {"addressing_style": addressing_style},
            # Only Amazon's servers support checksums in trailers.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        },
    )
    system.retries = 1  # no retries by s3fs, because botocore already retries
    return system


class Bucket:
    """Reads and writes the objects, versions and pointers at `s3://bucket/prefix`.

    Objects whose key has a `/` directly after the prefix are ignored.

    Args:
        cache: the local folder in which outputs are built and read. It may be removed while no
            command runs.

    Attributes:
        tops, pointers: see `Folder`.
    """

    tops = (VERSIONS, "retired/")  # only earlier versions of the package wrote `retired/`
    pointers = POINTERS

    def __init__(self, url: str, cache: Path) -> None:
        self._bucket, self._prefix = bucket_of(url)
        self.url = f"s3://{self._bucket}/{self._prefix}".rstrip("/")
        self.cache = Folder(cache)
        self._connected: tuple[int, Any] | None = None
        self._lock = threading.Lock()
        self._seen = False

    def call(self, method: str, key: str = "", **arguments: Any) -> Any:
        """Calls an operation of the S3 API, such as `head_object`.

        Args:
            key: the object's key below the prefix. Empty for an operation on the bucket.

        Raises:
            S3CallError: the operation failed, after the retries of botocore.
        """
        arguments["Bucket"] = self._bucket
        if key:
            arguments["Key"] = self._prefix + key
        return self._call(key, self._system().call_s3, method, **arguments)

    def _call(self, key: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls a function of s3fs, and converts its errors to `S3CallError`."""
        try:
            return function(*arguments, **options)
        except Exception as error:  # s3fs, botocore and aiohttp have no common class of errors
            if isinstance(error, TypeError | AttributeError | KeyError):
                raise  # a defect of this program, not a failed call
            code, status = _reason(error.__cause__ or error)
            if not _CODE.fullmatch(code):
                code = "an unknown error"
            place = f"s3://{self._bucket}/{ascii_path(self._prefix + key)}"
            raise S3CallError(place, code, status) from None

    def _system(self) -> Any:
        """Returns the file system object of s3fs, one for each process."""
        with self._lock:
            if self._connected is None or self._connected[0] != os.getpid():
                self._connected = (os.getpid(), _connect())
            return self._connected[1]

    def require(self) -> None:
        """Raises `S3CallError` if the bucket does not exist.

        Needed because S3 may give the same answer for a missing object and a missing bucket.
        """
        if not self._seen:
            self.call("list_objects_v2", MaxKeys=1)
            self._seen = True

    # Access to objects by key

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields the objects whose key begins with `prefix`, in no particular order."""
        for page in self._pages(prefix):
            for entry in page.get("Contents", ()):
                key = entry["Key"].removeprefix(self._prefix)
                if key and key[0] != "/":
                    yield _object_info(key, entry, entry["Size"])

    def folders(self, prefix: str = "") -> list[str]:
        """Returns the names of the visible folders directly below `prefix`."""
        names = []
        for page in self._pages(prefix, Delimiter="/"):
            for entry in page.get("CommonPrefixes", ()):
                name = entry["Prefix"].removeprefix(self._prefix + prefix)[:-1]
                if name and name[0] != ".":
                    names.append(name)
        return names

    def files(self, folder: str) -> dict[str, ObjectInfo] | None:
        """Returns all objects in a folder, at any depth.

        The keys are the paths of the objects below the folder. Returns None if the folder has no
        objects.
        """
        prefix = f"{folder}/"
        return {info.key.removeprefix(prefix): info for info in self.listing(prefix)} or None

    def by_folder(self) -> dict[str, dict[str, ObjectInfo]]:
        """Returns the objects of all visible folders directly below the prefix.

        The keys are the names of the folders. Each value is a dictionary from paths in the folder
        to objects. The bucket is listed only once.
        """
        files = defaultdict[str, dict[str, ObjectInfo]](dict)
        for info in self.listing():
            name, slash, file = info.key.partition("/")
            if slash and name[0] != ".":
                files[name][file] = info
        return files

    def _pages(self, prefix: str, **more: str) -> Iterator[dict[str, Any]]:
        """Yields the answers of S3 to a listing."""
        while True:
            root = self._prefix + prefix
            answer = self.call("list_objects_v2", Prefix=root, MaxKeys=_PAGE, **more)
            yield answer
            if not answer.get("IsTruncated"):
                return
            more["ContinuationToken"] = answer["NextContinuationToken"]

    def head(self, key: str) -> ObjectInfo | None:
        """Returns the current size and ETag of an object; None if it does not exist."""
        try:
            answer = self.call("head_object", key)
        except S3CallError as error:
            if self._is_missing(error):
                return None
            raise
        return _object_info(key, answer, answer["ContentLength"])

    def read(self, key: str) -> bytes | None:
        """Returns the bytes of a small object; None if it does not exist."""
        out = BytesIO()
        try:
            self._get(key, out)
        except S3CallError as error:
            if self._is_missing(error):
                return None
            raise
        return out.getvalue()

    def _is_missing(self, error: S3CallError) -> bool:
        """Returns whether a call failed because the object does not exist.

        Raises:
            S3CallError: the bucket does not exist.
        """
        if error.status != 404 or error.code == "NoSuchBucket":
            return False
        self.require()
        return True

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Downloads an object to `dest` if it still has this ETag, and verifies its checksum.

        Raises:
            ObjectChangedError: the object was removed or replaced.
            S3CallError: the call failed, or two downloads did not match the checksum.
        """
        changed = ObjectChangedError(f"{key!r} was replaced or removed by another process")
        for _ in range(_FETCHES):
            try:
                with dest.open("w+b") as out:
                    answer = self._get(key, out, IfMatch=f'"{etag}"', ChecksumMode="ENABLED")
                    matches = self._matches_checksum(key, answer, out)
            except S3CallError as error:
                if error.status not in (404, 412) or error.code == "NoSuchBucket":
                    raise
                raise changed from None
            if _etag(answer) != etag:
                raise changed
            if matches:
                return
        raise S3CallError(f"{self.url}/{ascii_path(key)}", _OTHER_BYTES, 0)

    def _matches_checksum(self, key: str, answer: dict[str, Any], out: BinaryIO) -> bool:
        """Returns whether downloaded bytes match the checksum of the object.

        If S3 states no checksum, the ETag is compared. It is the MD5 of the object or, after a
        multipart upload, the MD5 of the parts' MD5s, followed by `-` and the number of parts.
        Returns True if the ETag is no checksum either, as in directory buckets and for objects
        encrypted with KMS or customer keys.
        """
        for name, checksum_of in _CHECKSUMS.items():
            checksum = answer.get(f"Checksum{name}", "")
            if checksum and "-" not in checksum:
                return bool(checksum_of(out) == checksum)
        encryption = answer.get("ServerSideEncryption") or ""
        has_own_keys = encryption.startswith("aws:kms") or answer.get("SSECustomerAlgorithm")
        if has_own_keys or self._bucket.endswith(_DIRECTORY_BUCKET):
            return True
        etag = _etag(answer)
        if _MD5.fullmatch(etag):
            return bool(_md5(out).hexdigest() == etag)
        parts = _MD5_OF_PARTS.fullmatch(etag)
        if parts is None:
            return True
        digest = parts[1]
        count = int(parts[2])
        size = answer["ContentLength"]
        first_size = size
        if count > 1:
            first_size = self._part_size(key, 1)
        if _md5_of_parts(out, [first_size] * count) == digest:
            return True
        # The parts may have different sizes.
        sizes = in_parallel(partial(self._part_size, key), range(1, count + 1))
        return sum(sizes) != size or _md5_of_parts(out, sizes) == digest

    def _part_size(self, key: str, number: int) -> int:
        """Returns the size of a part of an object in bytes; 0 if the server does not report it."""
        try:
            answer = self.call("head_object", key, PartNumber=number)
        except S3CallError:
            return 0
        size: int = answer["ContentLength"]
        return size

    def _get(self, key: str, out: BinaryIO, **conditions: str) -> Any:
        """Writes the bytes of an object to `out`, and retries if the connection breaks.

        Returns the answer of S3 with the headers.
        """
        for attempt in range(_BODIES):
            if attempt:
                time.sleep(0.1 * 3**attempt)
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
            while chunk := self._call(key, sync, loop, body.read, _CHUNK):
                yield chunk
        finally:
            body.close()

    def put(self, key: str, data: bytes | Path, **condition: str) -> None:
        """Writes or replaces an object, atomically."""
        self.require()  # otherwise some servers would create a missing bucket
        if isinstance(data, bytes):
            self.call("put_object", key, Body=data, **condition)
            return
        place = f"{self._bucket}/{self._prefix}{key}"
        parts = {"chunksize": _PART_BYTES, "max_concurrency": 1}
        self._call(key, self._system().put_file, str(data), place, **parts)

    def add(self, key: str, data: bytes) -> bool:
        """Writes an object if it does not exist; returns whether this call wrote it."""
        if self.head(key):
            return False
        try:
            self.put(key, data, IfNoneMatch="*")
        except S3CallError as error:
            if error.status not in (400, 403, 409, 412, 501):
                raise
            # The object exists, or the server does not support conditions. This call may itself
            # have written the object, if the answer to botocore's first attempt was lost.
            stored = self.read(key)
            if stored is None:  # the server does not support conditions
                self.put(key, data)
            return stored in (None, data)
        return True

    def delete(self, key: str) -> None:
        """Removes an object if it exists."""
        self.call("delete_object", key)

    # Versions. The argument `version_path` is `<output>/<place>`, where the place is the name of
    # the version's folder.

    def pointer(self, output: str) -> str | None:
        """Returns the folder name of the published version; None if the output has no pointer.

        The version itself may be missing.
        """
        data = self.read(f"{POINTERS}{output}") or b""
        place = data.decode("ascii", "replace").rstrip("\n")
        return place if is_place(place) else None

    def point(self, output: str, place: str) -> None:
        """Publishes the version of an output in the folder `place`."""
        self.put(f"{POINTERS}{output}", f"{place}\n".encode())

    def outputs(self, folder: str) -> set[str]:
        """Returns the names of the published outputs.

        Args:
            folder: an output, or a folder of outputs; empty for all outputs.
        """
        names = (info.key.removeprefix(POINTERS) for info in self.listing(f"{POINTERS}{folder}"))
        return {name for name in names if not folder or f"{name}/".startswith(f"{folder}/")}

    def ages(self, within: str = "") -> dict[str, float]:
        """Returns the start of each version's grace period, in epoch seconds.

        The keys are the paths of the versions. The grace period starts when the version is written,
        and again when it is superseded or removed. Incomplete versions are included.

        Args:
            within: an output, or a folder of outputs; empty for all outputs.
        """
        prefix = VERSIONS
        if within:
            prefix = f"{VERSIONS}{within}/"
        ages: dict[str, float] = {}
        for info in self.listing(prefix):
            if inside := _INSIDE.fullmatch(info.key.removeprefix(VERSIONS)):
                version_path = inside[1]
                ages[version_path] = max(info.modified, ages.get(version_path, 0.0))
        return ages

    def manifest(self, version_path: str) -> bytes | None:
        """Returns the bytes of the manifest of a version; None if it is missing."""
        return self.read(f"{VERSIONS}{version_path}/{MANIFEST}")

    def sizes(self, version_path: str) -> dict[str, int | None]:
        """Returns a dictionary from the paths of a version's files to their sizes in bytes."""
        prefix = f"{VERSIONS}{version_path}/{CONTENT}/"
        return {info.key.removeprefix(prefix): info.size for info in self.listing(prefix)}

    def digests(self, version: Version) -> Sequence[str | None]:
        """Returns the SHA-256 of each file in a version's manifest; None for a missing file."""

        def digest(file: FileEntry) -> str | None:
            with TemporaryFile() as out:
                return self.download(version, file, out)

        return in_parallel(digest, version.manifest.files)

    def download(self, version: Version, file: FileEntry, out: BinaryIO) -> str | None:
        """Writes a file of a version to `out`; returns its SHA-256, or None if it is missing."""
        try:
            self._get(f"{VERSIONS}{version.path}/{CONTENT}/{file.path}", out)
        except S3CallError as error:
            if self._is_missing(error):
                return None
            raise
        out.seek(0)
        return hashlib.file_digest(out, "sha256").hexdigest()  # type: ignore[arg-type]

    def upload(self, staging: Staging, version: Version) -> None:
        """Uploads the files of a staged directory, then its manifest."""
        self.require()

        def put(path: str) -> None:
            self.put(f"{VERSIONS}{version.path}/{path}", staging.directory / path)

        in_parallel(put, [f"{CONTENT}/{file.path}" for file in version.manifest.files])
        put(MANIFEST)

    def renew(self, version_path: str) -> None:
        """Restarts the grace period of a version."""
        data = self.read(f"{VERSIONS}{version_path}/{MANIFEST}")
        if data is not None:
            self.put(f"{VERSIONS}{version_path}/{MANIFEST}", data)

    def discard(self, version_path: str) -> None:
        """Removes a version.

        The manifest is removed first, so that no reader uses a version with missing files.
        """
        self.delete(f"{VERSIONS}{version_path}/{MANIFEST}")
        self.delete_all(f"{VERSIONS}{version_path}/{CONTENT}")

    def delete_all(self, key: str) -> bool:
        """Removes all objects in a folder; returns whether there were any."""
        keys = [info.key for info in self.listing(f"{key}/")]
        in_parallel(self.delete, keys)
        return bool(keys)

    def keeps_old(self) -> bool:
        """Returns whether versioning is or was on, so that the bucket keeps deleted objects.

        Returns False if the server does not report the versioning status.
        """
        with suppress(S3CallError):
            return "Status" in self.call("get_bucket_versioning")
        return False

    def now(self) -> float:
        """Returns the time of the server's clock in epoch seconds."""
        answer = self.call("list_objects_v2", MaxKeys=1)
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(date).timestamp()

    def abort_uploads(self, before: float) -> None:
        """Aborts multipart uploads of versions that dead processes left unfinished.

        Args:
            before: epoch seconds. Only uploads that began earlier are aborted.
        """
        answer = {}
        with suppress(S3CallError):  # some servers cannot list multipart uploads
            answer = self.call("list_multipart_uploads", Prefix=f"{self._prefix}{VERSIONS}")
        for upload in answer.get("Uploads", ()):
            key = upload["Key"].removeprefix(self._prefix)
            inside = _INSIDE.fullmatch(key.removeprefix(VERSIONS))
            if inside and upload["Initiated"].timestamp() < before:
                self.call("abort_multipart_upload", key, UploadId=upload["UploadId"])


Objects = Folder | Bucket
"""The place of a store or of uploads: a local folder or a bucket."""


def _md5(file: BinaryIO, start: int = 0, size: int = sys.maxsize) -> Any:
    """Returns the MD5 of the part of a file that begins at byte `start` and has `size` bytes."""
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(start)
    while size > 0 and (chunk := file.read(min(_CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest


def _md5_of_parts(file: BinaryIO, sizes: Sequence[int]) -> str:
    """Returns the MD5, in hex, of the MD5s of the parts of a file.

    Args:
        sizes: the size of each part in bytes. The last size may be larger than the last part.
    """
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


# Maps S3's name of each checksum that Python can compute to a function that computes it.
_CHECKSUMS = {"SHA256": _sha("sha256"), "SHA1": _sha("sha1"), "CRC32": _crc32}


def _reason(error: BaseException) -> tuple[str, int]:
    """Returns the error code and the HTTP status of a failed call.

    Without an answer from S3, returns the class name of the error, and 0.
    """
    answer = getattr(error, "response", None) or {}
    code = str(answer.get("Error", {}).get("Code", type(error).__name__))
    return code, int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _object_info(key: str, answer: dict[str, Any], size: int) -> ObjectInfo:
    return ObjectInfo(key, size, _etag(answer), answer["LastModified"].timestamp())


def _etag(answer: dict[str, Any]) -> str:
    return str(answer["ETag"]).strip('"')


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Calls a function for every item in threads; returns the results in the order of the items.

    After an error, no further calls start, and the error is raised when the running calls have
    ended.
    """
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(_WORKERS, len(items))) as pool:
        return list(pool.map(function, items))
