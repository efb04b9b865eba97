"""How what is known of a folder is written as a row of the ledger.

Belongs here: columns and their conversion, both ways.
"""

from typing import Any

import msgspec

from demo_pipeline.common.recording_files import RECORDING_FILES
from demo_pipeline.discovery.decisions import File, UploadRecord, UploadState

COLUMNS = (
    "name, id, state, files, fingerprint, since, changed, run_key, accepted, missing, "
    "missing_sweep, due"
)
_FILES = msgspec.json.Decoder(tuple[File, ...])
BIT = {name: 1 << place for place, name in enumerate(RECORDING_FILES)}


def read_entry(row: tuple[Any, ...]) -> UploadRecord:
    """The entry that a row of `COLUMNS` holds."""
    name, key, state, files, *rest = row
    return UploadRecord(read_text(name), key, UploadState(state), _FILES.decode(files), *rest)


def write_entry(entry: UploadRecord) -> tuple[Any, ...]:
    """Values for `COLUMNS` and, last, the bits of the files that are there."""
    return (
        write_text(entry.name),
        entry.id,
        entry.state,
        msgspec.json.encode(entry.files).decode(),
        entry.fingerprint,
        entry.since,
        entry.changed,
        entry.run_key,
        entry.accepted,
        entry.missing,
        entry.missing_sweep,
        entry.due,
        sum(BIT[name] for name, *_ in entry.files),
    )


def write_text(text: str) -> bytes:
    """Bytes, for a folder's name may have lone surrogates, which SQLite's text may not."""
    return text.encode("utf-8", "surrogatepass")


def read_text(data: bytes) -> str:
    """The inverse of `write_text`."""
    return data.decode("utf-8", "surrogatepass")
