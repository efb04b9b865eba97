"""What S3 answers, as plain values.

Belongs here: reading the answers that botocore returns, and the failures that are answers.
"""

from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

from demo_pipeline.storage.objects.object_store import ObjectInfo
from demo_pipeline.storage.objects.s3_client import S3CallError


def is_refused(error: S3CallError) -> bool:
    """Whether the condition of a put does not hold."""
    return error.status in (409, 412) or error.code == "NoSuchKey"


def described_object(key: str, answer: dict[str, Any]) -> ObjectInfo:
    """The object of a HEAD or a GET."""
    modified = answer["LastModified"].timestamp()
    return ObjectInfo(key, answer["ContentLength"], etag_of(answer), modified)


def listed_object(entry: dict[str, Any], root: str) -> ObjectInfo:
    """The object of an entry of a listing; `root` is the prefix of all keys."""
    key = entry["Key"].removeprefix(root)
    return ObjectInfo(key, entry["Size"], etag_of(entry), entry["LastModified"].timestamp())


def etag_of(answer: dict[str, Any]) -> str:
    """The ETag, without quotes."""
    return str(answer["ETag"]).strip('"')


def answered_at(answer: dict[str, Any]) -> float:
    """When the server answered, epoch seconds by its clock; 0 without a date header."""
    try:
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return parsedate_to_datetime(date).timestamp()
    except (KeyError, ValueError):
        return 0.0


def as_answer(info: ObjectInfo) -> dict[str, Any]:
    """The answer that S3 gave to the call that wrote the object."""
    date = format_datetime(datetime.fromtimestamp(info.modified, UTC))
    return {"ETag": info.etag, "ResponseMetadata": {"HTTPHeaders": {"date": date}}}
