"""The quarantined demonstrations as one table, for the UI and for SQL.

Belongs here: reading the records of a store and writing them as one Parquet file. The records
themselves are defined in quarantine.py.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import JsonValue

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.parquet import (
    COUNT,
    TEXT,
    between,
    described_schema,
    one_of,
    read_table,
    schema_problems,
    write_rows,
)
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.quarantine import QuarantineRecord, list_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, SourceInput, Stage, Summary

TABLE_FILE = "quarantine.parquet"
QUARANTINE_SCHEMA = described_schema(
    [
        ("demonstration", pa.string(), False, "safe id"),
        ("stage", pa.string(), False, "the stage that failed"),
        ("code", pa.string(), False, "stable name of the kind of problem"),
        ("file", pa.string(), False, "in the upload or the stage's output; `.` for the whole"),
        ("line", pa.int64(), True, "1-based line number in the file"),
        ("byte", pa.int64(), True, "0-based offset in the file"),
        ("frame", pa.int64(), True, "0-based frame number in presentation order"),
        ("message", pa.string(), False, "what is wrong; never contains typed text"),
        ("remedy", pa.string(), False, "what to do about it"),
        ("severity", pa.string(), False, "error or warning"),
        ("fingerprint", pa.string(), True, "of the upload with the problem"),
        ("tool_version", pa.string(), False, "of this package"),
        ("attempts", pa.int64(), False, "how often the stage failed on these same files"),
    ],
    {
        "demonstration stage code file message tool_version": TEXT,
        "line": between(1),
        "byte frame attempts": COUNT,
        "severity": one_of(*Severity),
    },
)
_OF_RECORD = ("demonstration", "stage", "fingerprint", "tool_version", "attempts")
_NO_REASON: dict[str, JsonValue] = {"code": "unknown", "message": "no reason was given"}


def read_quarantine_records(workspace: Workspace) -> SourceInput:
    """All quarantine records of the store."""
    records = list_quarantine(workspace.store)
    text = "\n".join(record.model_dump_json() for record in records)
    return SourceInput(records, {"records": hashlib.sha256(text.encode()).hexdigest()})


def rows_of(records: Iterable[QuarantineRecord]) -> list[dict[str, Any]]:
    """One row per problem, in the order of the records; a record without a problem has one row."""
    return [
        {
            **Problem.from_dict(problem).as_dict(),
            **{name: getattr(record, name) for name in _OF_RECORD},
        }
        for record in records
        for problem in record.problems or [_NO_REASON]
    ]


def write_quarantine_table(records: Sequence[QuarantineRecord], out: Path) -> Summary:
    """Write `out`/quarantine.parquet; returns the numbers of records and problems."""
    rows = rows_of(records)
    write_rows(out / TABLE_FILE, rows, QUARANTINE_SCHEMA)
    return {
        "quarantined": len(records),
        "problems": len(rows),
        "by_stage": dict(Counter(sorted(record.stage for record in records))),
        "by_code": dict(Counter(sorted(row["code"] for row in rows))),
    }


def _build(inputs: DatasetInputs, out: Path) -> Summary:
    return write_quarantine_table(inputs.source, out)


def _check_table(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """The table has its columns, and a row for each problem of the records."""
    problems = schema_problems(out / TABLE_FILE, QUARANTINE_SCHEMA)
    problems = problems or differing_files(out, {}, {TABLE_FILE})
    if problems:
        return problems
    expected = pa.Table.from_pylist(rows_of(inputs.source), schema=QUARANTINE_SCHEMA)
    if not read_table(out / TABLE_FILE, QUARANTINE_SCHEMA).equals(expected):
        message = "differs from the quarantine records"
        problems.append(Problem("quarantine_table", TABLE_FILE, message, remedy="build it again"))
    return problems


QUARANTINE_STAGE: Stage[DatasetInputs] = Stage(
    name="quarantine",
    folder="quarantine_table",
    description="Every quarantined demonstration: the stage, the reason, the file and line, and "
    "what to do. A corrected upload releases it.",
    kinds=frozenset({"parquet"}),
    code_version="1",
    inputs=(),
    source=read_quarantine_records,
    build=_build,
    checks=(
        Check(
            "quarantine_schema",
            "The table has exactly the declared columns, types and nulls, and a row for every "
            "problem.",
            _check_table,
            compared=("quarantined",),
        ),
    ),
    columns=QUARANTINE_SCHEMA,
)
