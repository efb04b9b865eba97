"""The quarantine records of demonstrations: a document `quarantine/<id>/<upload>.json` each.

Belongs here: writing, reading and deleting the records, also for what no stage can report: crashed
runs. The stages decide which demonstrations are quarantined.
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
CRASH = "run_crashed"
_NO_FINGERPRINT = "none"
_SHORT = 16  # characters of a fingerprint in a document's name
_LOG = logging.getLogger(__package__)


class QuarantineRecord(BaseModel):
    """Why a demonstration is quarantined.

    Attributes:
        demonstration: safe id.
        stage: the stage that failed.
        fingerprint: of the upload that it failed on; None when the upload could not be read.
        tool_version: of this package.
        attempts: how often this stage failed on these same files.
        sequence: counts the records of a demonstration; when a crash leaves two of them, the one
            with the higher number is newer.
        problems: `Problem.as_dict` of each problem, in order.
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
        """The problems, each of this demonstration."""
        return [Problem.from_dict(one, demonstration=self.demonstration) for one in self.problems]


def quarantine_demonstration(
    store: Store,
    demonstration: str,
    stage: str,
    fingerprint: str | None,
    problems: Sequence[Problem],
) -> QuarantineRecord:
    """Quarantine a demonstration, counting how often this stage failed on these same files.

    Raises:
        StorageError: the id is not safe.
    """
    earlier = read_quarantine(store, demonstration)
    same = earlier is not None and (earlier.stage, earlier.fingerprint) == (stage, fingerprint)
    record = QuarantineRecord(
        demonstration=demonstration,
        stage=stage,
        fingerprint=fingerprint,
        tool_version=__version__,
        attempts=earlier.attempts + 1 if earlier and same else 1,
        sequence=earlier.sequence + 1 if earlier else 1,
        problems=[problem.as_dict() for problem in problems],
    )
    write_quarantine(store, record)
    codes = ", ".join(f"{problem.code} in {problem.file}" for problem in problems)
    words = demonstration, stage, record.attempts, codes
    _LOG.info("%s: quarantined in %s, attempt %d: %s", *words)
    return record


def write_quarantine(store: Store, record: QuarantineRecord) -> None:
    """Write or replace the record of one demonstration; records of its other uploads are deleted.

    Raises:
        StorageError: the id is not safe.
    """
    values = record.model_dump(mode="json")
    name = (record.fingerprint or _NO_FINGERPRINT)[:_SHORT]
    key = f"{_folder(record.demonstration)}/{name}.json"
    store.put_document(key, sealed(dict(sorted(values.items()))))
    for other in _keys(store, record.demonstration):
        if other != key:
            store.delete_document(other)


def read_quarantine(store: Store, demonstration: str) -> QuarantineRecord | None:
    """The newest record of one demonstration, None when it is not quarantined.

    A document that is not a valid record still quarantines: it is returned as a record with one
    problem.

    Raises:
        StorageError: the id is not safe.
    """
    records = []
    for key in _keys(store, demonstration):
        if (data := store.get_document(key)) is None:
            continue
        try:
            record = QuarantineRecord.model_validate(unsealed(data, key))
        except (DamagedDocument, ValidationError):
            record = None
        is_its = record is not None and record.demonstration == demonstration
        records.append(record if record and is_its else _unreadable(demonstration, key))
    return max(records, key=lambda record: record.sequence, default=None)


def release(store: Store, demonstration: str) -> bool:
    """Delete the records of a demonstration; returns whether it was quarantined."""
    deleted = [store.delete_document(key) for key in _keys(store, demonstration)]
    if any(deleted):
        _LOG.info("%s: released from quarantine", demonstration)
    return any(deleted)


def list_quarantine(store: Store) -> list[QuarantineRecord]:
    """The newest record of every quarantined demonstration, sorted by id.

    One that cannot be read now still quarantines, and hides no other.
    """
    records = []
    for key in sorted({key for key, _ in _documents(store)}):
        try:
            record = read_quarantine(store, key)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this record's alone
            record = _unreadable(key, _folder(key), error_words(error))
        records += [record] if record is not None else []
    return records


def _documents(store: Store) -> list[tuple[str, str]]:
    """(demonstration, name) of each record."""
    paths = [key.split("/")[1:] for key in store.list_documents(QUARANTINE_FOLDER)]
    return [
        (path[0], path[1].removesuffix(".json"))
        for path in paths
        if len(path) == 2 and path[1].endswith(".json") and is_safe_id(path[0])
    ]


def _keys(store: Store, demonstration: str) -> list[str]:
    """Keys of a demonstration's records; more than one only after a crash."""
    found = store.list_documents(_folder(demonstration))
    return [key for key in found if key.endswith(".json")]


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
    """Quarantine a demonstration that a defect of ours, or the death of its processes, stopped.

    `cause`: what ended it, such as the name of an exception, whose message may quote the upload.
    """
    problem = Problem(
        CRASH,
        ".",
        cause,
        remedy="report it; then run it again with `demo-pipeline run --retry`",
        demonstration=demonstration,
    )
    uploaded = workspace.uploads.identity(demonstration)
    return quarantine_demonstration(workspace.store, demonstration, stage, uploaded, [problem])
