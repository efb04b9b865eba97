"""Documents: small JSON files in a store that contain their own digest.

The last member is the SHA-256 of the other members. Documents of earlier versions of the package
have no digest and are not checked.
"""

import hashlib
import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from demo_pipeline.files.json_files import JsonFileError, json_bytes, parse_json
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import OutputError
from demo_pipeline.store.store import Store

_DIGEST = "sha256"
# Matches a digest as the last member. The pattern accepts any key, because the key may be damaged.
_DIGEST_AT_END = re.compile(rb'"[0-9a-f]{64}"\s*\}\s*$')
# Maps the folder of a damaged document to the consequence of deleting the document.
_WITHOUT = {
    "annotations": "then it can be asked for again",
    "failed_exports": "then the export is built again",
    "quarantine": "then the demonstration is tried again",
    "reviews": "then that decision is lost, and the others hold",
    "settings": "it only names settings in `--dry-run`",
    "split_memory": "then splits are drawn anew, and demonstrations may move between them",
}


class DamagedDocument(OutputError):  # noqa: N818 - the name states what is wrong
    """Raised for a document that does not match its digest or is not JSON.

    Attributes:
        output: the key of the document.
    """

    def __str__(self) -> str:
        remedy = "restore it from a backup, or delete it"
        result = _WITHOUT.get(self.output.partition("/")[0])
        if result:
            remedy += f": {result}"
        return f"{self.output} was damaged after it was written; {remedy}"


def sealed(value: BaseModel | Mapping[str, Any]) -> bytes:
    """Returns the bytes of a document with this value and its digest.

    Equal values give equal bytes.
    """
    text = json_bytes(value)
    members = parse_json(text, "")
    return json_bytes({**members, _DIGEST: _digest_of(members)})


def unsealed(data: bytes, key: str) -> dict[str, Any]:
    """Verifies the digest of a document; returns the other members.

    Raises:
        DamagedDocument: the document is not JSON, or does not match its digest.
    """
    try:
        members = parse_json(data, key)
    except JsonFileError:
        raise DamagedDocument(key) from None
    if not isinstance(members, dict):
        raise DamagedDocument(key)
    digest = members.pop(_DIGEST, None)
    if digest is None and not _DIGEST_AT_END.search(data):
        return members  # documents of earlier versions have no digest
    if digest != _digest_of(members):
        raise DamagedDocument(key)
    return members


def _digest_of(members: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_bytes(members, compact=True)).hexdigest()


def damaged_documents(store: Store) -> list[DamagedDocument]:
    """Returns an error for each damaged document, sorted by key."""
    keys = list[str]()
    for folder in _WITHOUT:
        keys += [key for key in store.list_documents(folder) if key.endswith(".json")]
    damaged = list[DamagedDocument]()
    for key, data in zip(keys, in_parallel(store.get_document, keys), strict=True):
        try:
            if data is not None:  # None if another process has removed the document
                unsealed(data, key)
        except DamagedDocument as error:
            damaged.append(error)
    return sorted(damaged, key=attrgetter("output"))
