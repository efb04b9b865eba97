"""Reads and writes the quarantine records of demonstrations: `quarantine/<id>/<upload>.json`.

A demonstration is quarantined if a stage rejects it, or if its runs crash.
"""

import logging
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from demo_pipeline import __version__
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import error_words
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.store import Store

QUARANTINE_FOLDER = "quarantine"
CRASH = "run_crashed"  # problem code
# Stands for the fingerprint in a record's name if the upload could not be read.
_NO_FINGERPRINT = "none"
_SHORT = 16  # length of the shortened fingerprint in the name of a record
_LOG = logging.getLogger(__package__)


class QuarantineRecord(BaseModel):
    """Why a demonstration is quarantined.

    Attributes:
        fingerprint: the fingerprint of the rejected upload; None if the upload could not be read.
        tool_version: the version of this package.
        attempts: how many times in a row `stage` failed on the same files.
        sequence: the number of the record; a demonstration's newest record has the highest number.
        problems: `Problem.as_dict` of each problem.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    demonstration: str
    stage: str
    fingerprint: str | None = None
    tool_version: str
    attempts: int = Field(1, ge=1)
    sequence: int = Field(1, ge=0)
    problems: list[dict[str, JsonValue]] = Field(default_factory=list)

    def known_problems(self) -> list[Problem]:
        """Returns the problems, with the id of this demonstration added to each."""
        return [
            Problem.from_dict(problem, demonstration=self.demonstration)
            for problem in self.problems
        ]


def quarantine_demonstration(
    store: Store,
    demonstration: str,
    stage: str,
    fingerprint: str | None,
    problems: Sequence[Problem],
) -> QuarantineRecord:
    """Quarantines a demonstration; returns the record.

    Args:
        fingerprint: the fingerprint of the upload; None if it could not be read.
        problems: why the stage failed.

    Raises:
        StorageError: the id is not valid; see `is_safe_id`.
    """
    earlier = read_quarantine(store, demonstration)
    attempts = 1
    sequence = 1
    if earlier is not None:
        sequence = earlier.sequence + 1
        if (earlier.stage, earlier.fingerprint) == (stage, fingerprint):
            attempts = earlier.attempts + 1
    record = QuarantineRecord(
        demonstration=demonstration,
        stage=stage,
        fingerprint=fingerprint,
        tool_version=__version__,
        attempts=attempts,
        sequence=sequence,
        problems=[problem.as_dict() for problem in problems],
    )
    write_quarantine(store, record)
    codes = ", ".join(f"{problem.code} in {problem.file}" for problem in problems)
    message = "%s: quarantined in %s, attempt %d: %s"
    _LOG.info(message, demonstration, stage, attempts, codes)
    return record


def write_quarantine(store: Store, record: QuarantineRecord) -> None:
    """Writes the record of a demonstration, and deletes the records of its earlier uploads.

    Raises:
        StorageError: the id is not valid; see `is_safe_id`.
    """
    values = record.model_dump(mode="json")
    name = (record.fingerprint or _NO_FINGERPRINT)[:_SHORT]
    key = f"{_folder(record.demonstration)}/{name}.json"
    store.put_document(key, sealed(dict(sorted(values.items()))))
    for other in _keys(store, record.demonstration):
        if other != key:
            store.delete_document(other)


def read_quarantine(store: Store, demonstration: str) -> QuarantineRecord | None:
    """Returns the newest record of a demonstration; None if it is not quarantined.

    If the stored record is damaged, the returned record reports the damage.

    Raises:
        StorageError: the id is not valid; see `is_safe_id`.
    """
    records = []
    for key in _keys(store, demonstration):
        data = store.get_document(key)
        if data is None:
            continue
        try:
            record = QuarantineRecord.model_validate(unsealed(data, key))
        except (DamagedDocument, ValidationError):
            record = _unreadable(demonstration, key)
        if record.demonstration != demonstration:
            record = _unreadable(demonstration, key)
        records.append(record)
    return max(records, key=lambda record: record.sequence, default=None)


def release(store: Store, demonstration: str) -> bool:
    """Deletes the records of a demonstration; returns whether it was quarantined."""
    deleted = [store.delete_document(key) for key in _keys(store, demonstration)]
    if any(deleted):
        _LOG.info("%s: released from quarantine", demonstration)
    return any(deleted)


def list_quarantine(store: Store) -> list[QuarantineRecord]:
    """Returns the newest record of every quarantined demonstration, sorted by id.

    If a stored record cannot be read, the returned record gives the reason.
    """
    records = []
    for demonstration in sorted(_quarantined_ids(store)):
        try:
            record = read_quarantine(store, demonstration)
        except Exception as error:  # noqa: BLE001 - the other records are still listed
            record = _unreadable(demonstration, _folder(demonstration), error_words(error))
        if record is not None:
            records.append(record)
    return records


def _quarantined_ids(store: Store) -> set[str]:
    """Returns the ids of the demonstrations with a record."""
    ids: set[str] = set()
    for key in store.list_documents(QUARANTINE_FOLDER):
        match key.split("/"):
            case [_, demonstration, file] if file.endswith(".json") and is_safe_id(demonstration):
                ids.add(demonstration)
    return ids


def _keys(store: Store, demonstration: str) -> list[str]:
    """Returns the keys of the records of a demonstration.

    There is more than one key only if a process was killed before it deleted the older records.
    """
    keys = store.list_documents(_folder(demonstration))
    return [key for key in keys if key.endswith(".json")]


def _folder(demonstration: str) -> str:
    if not is_safe_id(demonstration):
        raise StorageError(f"{demonstration!r} is not a demonstration id")
    return f"{QUARANTINE_FOLDER}/{demonstration}"


def _unreadable(demonstration: str, key: str, reason: str = "") -> QuarantineRecord:
    message = f"cannot be read now: {reason}"
    remedy = "check the store's disk or bucket"
    if not reason:
        message = "is not a valid quarantine record"
        remedy = "delete the document and process the demonstration again"
    problem = Problem("unreadable_record", key, message, remedy=remedy, demonstration=demonstration)
    return QuarantineRecord(
        demonstration=demonstration,
        stage="",
        tool_version="",
        sequence=0,
        problems=[problem.as_dict()],
    )


def record_crash(
    workspace: Workspace, demonstration: str, stage: str, cause: str
) -> QuarantineRecord:
    """Quarantines a demonstration after a defect of this package, or after its processes died.

    Args:
        cause: the cause to show to users, such as the name of an exception. It must not contain the
            exception's message, which may quote the recording.
    """
    problem = Problem(
        CRASH,
        ".",
        cause,
        remedy="report it; then run it again with `demo-pipeline run --retry`",
        demonstration=demonstration,
    )
    identity = workspace.uploads.identity(demonstration)
    return quarantine_demonstration(workspace.store, demonstration, stage, identity, [problem])
