"""The quarantine records of demonstrations: one small document each.

Belongs here: writing, reading and deleting the records, also for what no stage can report: crashed
runs and colliding ids. The stages decide which demonstrations are quarantined.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from demo_pipeline import __version__
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_document, is_safe_id
from demo_pipeline.store.store import Store

QUARANTINE_FOLDER = "quarantine"
_SUFFIX = ".json"
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

    def after(self, earlier: "QuarantineRecord | None") -> Self:
        """This record with the counters continued from an earlier one."""
        if earlier is None:
            return self
        same = (earlier.stage, earlier.fingerprint) == (self.stage, self.fingerprint)
        attempts = earlier.attempts + 1 if same else 1
        return self.model_copy(update={"attempts": attempts, "sequence": earlier.sequence + 1})

    def known_problems(self) -> list[Problem]:
        """The problems, each of this demonstration."""
        return [
            Problem.from_dict(values, demonstration=self.demonstration) for values in self.problems
        ]


def problem_dicts(problems: Iterable[Problem]) -> list[dict[str, JsonValue]]:
    """Problems in the form that a record stores."""
    return [problem.as_dict() for problem in problems]


def is_quarantined(workspace: Workspace, demonstration: str) -> bool:
    """Whether its current upload is quarantined, by this version of the package."""
    record = read_quarantine(workspace.store, demonstration)
    if record is None or record.tool_version != __version__:
        return False
    return record.fingerprint == workspace.uploads.identity(demonstration)


def quarantine_demonstration(
    store: Store,
    demonstration: str,
    stage: str,
    fingerprint: str | None,
    tool_version: str,
    *,
    problems: Sequence[Problem],
) -> QuarantineRecord:
    """Quarantine a demonstration, counting how often this stage failed on these same files.

    Raises:
        StorageError: the id is not safe.
    """
    record = QuarantineRecord(
        demonstration=demonstration,
        stage=stage,
        fingerprint=fingerprint,
        tool_version=tool_version,
        problems=problem_dicts(problems),
    )
    counted = record.after(read_quarantine(store, demonstration))
    write_quarantine(store, counted)
    codes = ", ".join(f"{problem.code} in {problem.file}" for problem in problems)
    _LOG.info(
        "%s: quarantined in %s, attempt %d: %s", demonstration, stage, counted.attempts, codes
    )
    return counted


def write_quarantine(store: Store, record: QuarantineRecord) -> None:
    """Write or replace the record of one demonstration; records of its other uploads are deleted.

    Raises:
        StorageError: the id is not safe.
    """
    values = record.model_dump(mode="json")
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    key = _key(record.demonstration, record.fingerprint)
    _make_room(store, record.demonstration)
    store.put_document(key, f"{text}\n".encode())
    for other in _record_keys(store, record.demonstration):
        if other != key:
            store.delete_document(other)


def _make_room(store: Store, demonstration: str) -> None:
    """Rewrite the old document `a.json` when the folder of the id `a.json` needs its name."""
    other = demonstration.removesuffix(_SUFFIX)
    if other == demonstration or store.get_document(f"{QUARANTINE_FOLDER}/{demonstration}") is None:
        return
    record = read_quarantine(store, other)
    release(store, other)
    if record is not None:
        write_quarantine(store, record)


def read_quarantine(store: Store, demonstration: str) -> QuarantineRecord | None:
    """The newest record of one demonstration, None when it is not quarantined.

    A document that is not a valid record still quarantines: it is returned as a record with one
    problem.

    Raises:
        StorageError: the id is not safe.
    """
    keys = _record_keys(store, demonstration)
    found = (_read(store, demonstration, key) for key in keys)
    records = [record for record in found if record is not None]
    return max(records, key=lambda record: record.sequence, default=None)


def _read(store: Store, demonstration: str, key: str) -> QuarantineRecord | None:
    data = store.get_document(key)
    if data is None:
        return None
    try:
        record = QuarantineRecord.model_validate_json(data)
    except ValidationError:
        return _unreadable(demonstration, key)
    return record if record.demonstration == demonstration else _unreadable(demonstration, key)


def release(store: Store, demonstration: str) -> bool:
    """Delete the records of a demonstration; returns whether it was quarantined."""
    deleted = [store.delete_document(key) for key in _record_keys(store, demonstration)]
    if any(deleted):
        _LOG.info("%s: released from quarantine", demonstration)
    return any(deleted)


def list_quarantine(store: Store) -> list[QuarantineRecord]:
    """The newest record of every quarantined demonstration, sorted by id."""
    ids = sorted({name for key in store.list_documents(QUARANTINE_FOLDER) if (name := _id_of(key))})
    records = (_listed(store, key) for key in ids)
    return [record for record in records if record is not None]


def _listed(store: Store, demonstration: str) -> QuarantineRecord | None:
    """The newest record; one that cannot be read now still quarantines, and hides no other."""
    try:
        return read_quarantine(store, demonstration)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this record's alone
        reason = str(error) if isinstance(error, StorageError) else type(error).__name__
        return _unreadable(demonstration, f"{QUARANTINE_FOLDER}/{demonstration}", reason)


def without_fingerprint(store: Store) -> list[str]:
    """Ids whose record names no upload, sorted; reads no record."""
    last = f"/{_NO_FINGERPRINT}{_SUFFIX}"
    keys = (key for key in store.list_documents(QUARANTINE_FOLDER) if key.endswith(last))
    return sorted(name for key in keys if (name := _id_of(key)))


def _id_of(key: str) -> str | None:
    """The demonstration of a record's key; None for the key of another document."""
    name, _, document = key.removeprefix(f"{QUARANTINE_FOLDER}/").partition("/")
    if not document:  # older stores have one document per demonstration: quarantine/<id>.json
        name, document = name.removesuffix(_SUFFIX), name
    return name if document.endswith(_SUFFIX) and is_safe_id(name) else None


def _key(demonstration: str, fingerprint: str | None) -> str:
    return f"{_folder(demonstration)}/{(fingerprint or _NO_FINGERPRINT)[:_SHORT]}{_SUFFIX}"


def _record_keys(store: Store, demonstration: str) -> list[str]:
    """Keys of a demonstration's records; more than one only after a crash."""
    folder = _folder(demonstration)
    nested = [key for key in store.list_documents(folder) if key.endswith(_SUFFIX)]
    old = f"{folder}{_SUFFIX}"
    if not is_document(old):  # an earlier version gave ids that end in a dot
        return nested
    return nested if store.get_document(old) is None else [*nested, old]


def _folder(demonstration: str) -> str:
    if not is_safe_id(demonstration):
        raise StorageError(
            f"{demonstration!r} is not a safe id; use `safe_id` on the folder's name"
        )
    return f"{QUARANTINE_FOLDER}/{demonstration}"


def _unreadable(demonstration: str, key: str, reason: str = "") -> QuarantineRecord:
    problem = Problem(
        "unreadable_record",
        key,
        f"cannot be read now: {reason}" if reason else "is not a valid quarantine record",
        remedy="check the store's disk or bucket"
        if reason
        else "delete the document and process the demonstration again",
        demonstration=demonstration,
    )
    return QuarantineRecord(
        demonstration=demonstration,
        stage="",
        tool_version="",
        sequence=0,
        problems=problem_dicts([problem]),
    )


COLLISION, CRASH = "id_collision", "run_crashed"


def record_crash(
    workspace: Workspace, demonstration: str, stage: str, cause: str
) -> QuarantineRecord:
    """Quarantine a demonstration whose run ended without a result.

    Args:
        workspace: roots and settings.
        demonstration: its id.
        stage: in which the run ended.
        cause: what ended it, e.g. the name of an exception; never its message, which may quote the
            upload.
    """
    problem = Problem(
        CRASH,
        ".",
        f"the run ended in {stage}: {cause}",
        remedy="open its newest run in the UI; when the cause is removed, run retry_quarantined",
        demonstration=demonstration,
    )
    uploaded = workspace.uploads.identity(demonstration)
    return quarantine_demonstration(
        workspace.store, demonstration, stage, uploaded, __version__, problems=[problem]
    )


def quarantine_collisions(
    workspace: Workspace, collisions: Mapping[str, Sequence[str]]
) -> tuple[list[str], list[str]]:
    """Quarantine the ids that several folders share, release the ids that no longer collide.

    A record that cannot be read or written keeps no other from it; a later call tries again.

    Args:
        workspace: roots and settings.
        collisions: id → names of the folders that share it, for every collision.

    Returns:
        The released ids; and the messages of errors.
    """
    released: list[str] = []
    errors: list[str] = []
    for key in sorted({*collisions, *without_fingerprint(workspace.store)}):
        try:
            if key in collisions:
                _quarantine_collision(workspace, key, collisions[key])
            elif _has_collided(workspace, key):
                release(workspace.store, key)
                released.append(key)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's alone
            message = str(error) if isinstance(error, StorageError) else type(error).__name__
            errors.append(f"{key}: {message}")
    return released, errors


def _quarantine_collision(workspace: Workspace, key: str, names: Sequence[str]) -> None:
    problem = collision_problem(key, names)
    current = read_quarantine(workspace.store, key)
    if current is None or problem.as_dict() not in current.problems:
        first = RAW_RECORDINGS_STAGE.name
        quarantine_demonstration(workspace.store, key, first, None, __version__, problems=[problem])


def collision_problem(demonstration: str, names: Sequence[str]) -> Problem:
    """Why none of several folders is processed."""
    return Problem(
        COLLISION,
        " and ".join(_printable(name) for name in sorted(names)),
        f"these folders have the same id {demonstration}",
        remedy="rename all but one of them",
        demonstration=demonstration,
    )


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _has_collided(workspace: Workspace, demonstration: str) -> bool:
    record = read_quarantine(workspace.store, demonstration)
    return record is not None and any(
        problem.get("code") == COLLISION for problem in record.problems[:1]
    )
