"""Demonstrations that cannot go on, and why: one small document each.

Belongs here: writing, reading and lifting those records. Who is quarantined, the stages decide.
"""

import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from demo_pipeline.problems import Problem
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store import Store

_FOLDER = "quarantine"


class QuarantineRecord(BaseModel):
    """Why a demonstration stands still.

    Attributes:
        demonstration: safe id.
        stage: which stage gave it up.
        fingerprint: of the upload it was found in; None when it could not even be read.
        tool_version: of this package.
        problems: `Problem.as_dict` of each finding, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    demonstration: str
    stage: str
    fingerprint: str | None = None
    tool_version: str
    problems: list[dict[str, JsonValue]] = Field(default_factory=list)


def problem_dicts(problems: Iterable[Problem]) -> list[dict[str, JsonValue]]:
    """Problems in the form that a record carries."""
    return [problem.as_dict() for problem in problems]


def write_quarantine(store: Store, record: QuarantineRecord) -> None:
    """Write or replace the record of one demonstration.

    Raises:
        StorageError: its id is not safe.
    """
    values = record.model_dump(mode="json")
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    store.put_document(_key(record.demonstration), f"{text}\n".encode())


def read_quarantine(store: Store, demonstration: str) -> QuarantineRecord | None:
    """The record of one demonstration, None when it is not quarantined.

    A document that is no record still quarantines: it comes back with one problem that says so.
    """
    data = store.get_document(_key(demonstration))
    if data is None:
        return None
    try:
        record = QuarantineRecord.model_validate_json(data)
    except ValidationError:
        return _unreadable(demonstration)
    return record if record.demonstration == demonstration else _unreadable(demonstration)


def release(store: Store, demonstration: str) -> bool:
    """Lift the quarantine; whether there was one."""
    return store.delete_document(_key(demonstration))


def list_quarantine(store: Store) -> list[QuarantineRecord]:
    """All records, sorted by demonstration."""
    names = (key.removeprefix(f"{_FOLDER}/") for key in store.list_documents(_FOLDER))
    ids = sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
    records = (read_quarantine(store, key) for key in ids if is_safe_id(key))
    return [record for record in records if record is not None]


def _key(demonstration: str) -> str:
    if not is_safe_id(demonstration):
        raise StorageError(f"{demonstration!r} is no safe id; use `safe_id` on the folder's name")
    return f"{_FOLDER}/{demonstration}.json"


def _unreadable(demonstration: str) -> QuarantineRecord:
    problem = Problem(
        "unreadable_record",
        f"{_FOLDER}/{demonstration}.json",
        "is no quarantine record",
        remedy="release the demonstration and make it again",
        demonstration=demonstration,
    )
    return QuarantineRecord(
        demonstration=demonstration,
        stage="",
        tool_version="",
        problems=problem_dicts([problem]),
    )
