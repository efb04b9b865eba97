"""The quarantined demonstrations as one table, for the UI and for SQL.

Belongs here: the wiring between the records in the store and one Parquet file. What a record is,
storage/quarantine.py says.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import JsonValue

from demo_pipeline.common.parquet import TableWriter, described_schema, schema_problems
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Summary, Workspace
from demo_pipeline.pipeline.quarantine import QuarantineRecord, list_quarantine
from demo_pipeline.problems import Problem, errors
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe

QUARANTINE = "quarantine"
QUARANTINE_OUTPUT = "quarantine_table"
TABLE_FILE = "quarantine.parquet"
SCHEMA_CHECK = "quarantine_schema"
CODE_VERSION = "1"

QUARANTINE_SCHEMA = described_schema(
    [
        ("demonstration", pa.string(), False, "safe id"),
        ("stage", pa.string(), False, "which stage gave it up"),
        ("code", pa.string(), False, "stable name of the kind of problem"),
        ("file", pa.string(), False, "in the upload or the stage's output; `.` for the whole"),
        ("line", pa.int64(), True, "1-based line number in the file"),
        ("byte", pa.int64(), True, "0-based offset in the file"),
        ("frame", pa.int64(), True, "0-based frame number in presentation order"),
        ("message", pa.string(), False, "what is wrong; never carries what was typed"),
        ("remedy", pa.string(), False, "what to do about it"),
        ("severity", pa.string(), False, "error or warning"),
        ("fingerprint", pa.string(), True, "of the upload it was found in"),
        ("tool_version", pa.string(), False, "of this package"),
        ("attempts", pa.int64(), False, "how often the stage gave up these very files"),
    ]
)
_OF_RECORD = ("demonstration", "stage", "fingerprint", "tool_version", "attempts")
_NO_REASON: dict[str, JsonValue] = {"code": "unknown", "message": "no reason was given"}


def rows_of(records: Iterable[QuarantineRecord]) -> list[dict[str, Any]]:
    """One row a problem, in the order of the records; a record without one has one row still."""
    return [
        {
            **Problem.from_dict(problem).as_dict(),
            **{name: getattr(record, name) for name in _OF_RECORD},
        }
        for record in records
        for problem in record.problems or [_NO_REASON]
    ]


def run_quarantine_table(pipeline: Workspace, *, force: bool = False) -> BuildResult:
    """Write the table of what is quarantined now, unless nothing changed."""
    records = list_quarantine(pipeline.store)
    recipe = recipe_of(records)

    def build(staging: Staging) -> Summary:
        return build_table(records, staging.path)

    def check(out: Path) -> list[CheckOutcome]:
        problems = tuple(check_table(out))
        return [CheckOutcome(SCHEMA_CHECK, not errors(problems), problems)]

    return build_if_stale(pipeline.store, QUARANTINE_OUTPUT, recipe, build, check, force=force)


def recipe_of(records: Iterable[QuarantineRecord]) -> Recipe:
    """All that the table depends on."""
    said = "\n".join(record.model_dump_json() for record in records)
    inputs = {"records": hashlib.sha256(said.encode()).hexdigest()}
    return Recipe(QUARANTINE, CODE_VERSION, "", inputs)


def build_table(records: Sequence[QuarantineRecord], out: Path) -> Summary:
    """Write `out`/quarantine.parquet; how many demonstrations and problems by stage and code."""
    rows = rows_of(records)
    with TableWriter(out / TABLE_FILE, QUARANTINE_SCHEMA) as table:
        for row in rows:
            table.append_row(row)
    return {
        "quarantined": len(records),
        "problems": len(rows),
        "by_stage": _counted(record.stage for record in records),
        "by_code": _counted(row["code"] for row in rows),
    }


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in sorted(names):
        counts[name] = counts.get(name, 0) + 1
    return counts


def check_table(out: Path) -> list[Problem]:
    """The written table has exactly the declared columns, types and nulls."""
    return schema_problems(out / TABLE_FILE, QUARANTINE_SCHEMA)
