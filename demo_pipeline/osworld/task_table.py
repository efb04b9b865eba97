"""The catalog of OSWorld tasks: a table of all tasks of a folder and a table of their problems.

Belongs here: the schemas of `catalog.parquet` and `problems.parquet`, their writer, reader and
check, and the key by which two instructions are compared.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import (
    COUNT,
    TEXT,
    Column,
    between,
    described_schema,
    one_of,
    read_rows,
    read_table,
    schema_problems,
    write_rows,
)
from demo_pipeline.osworld.task import Evaluator, OsworldTask, RiskTask
from demo_pipeline.osworld.task_files import TaskEntry, TaskFolder, entries
from demo_pipeline.osworld.task_text import strip_app_tags
from demo_pipeline.problems import Problem, Severity

CATALOG_FILE, PROBLEMS_FILE = "catalog.parquet", "problems.parquet"
ORDINARY, RISK = "ordinary", "risk"
_TEXTS = pa.list_(pa.string())

# name, type, nullable, meaning
_CATALOG: tuple[Column, ...] = (
    ("file", pa.string(), False, "path of the task file in the folder; one row per file"),
    ("kind", pa.string(), False, "ordinary or risk"),
    ("domain", pa.string(), False, "folder of the file; empty directly under examples"),
    ("task_id", pa.string(), False, "id of the task, unchanged"),
    ("listed", pa.bool_(), False, "its test_all.json names it"),
    ("instruction", pa.string(), False, "what the agent is asked to do"),
    ("instruction_key", pa.string(), False, "key by which instructions are compared; may be empty"),
    ("snapshot", pa.string(), True, "initial state of the environment"),
    ("sources", _TEXTS, False, "where the task comes from: URLs and names"),
    ("related_apps", _TEXTS, False, "normalised names, without repetitions"),
    ("related_apps_raw", _TEXTS, False, "the same as in the file"),
    ("config_types", _TEXTS, False, "types of the steps that prepare the initial state"),
    ("halfway_types", _TEXTS, False, "types of the steps of halfway_config; risk only"),
    ("evaluator", pa.string(), False, "object, text (stale files) or none"),
    ("evaluator_functions", _TEXTS, False, "names in evaluator.func"),
    ("risk_evaluator", pa.string(), False, "object, text (stale files) or none"),
    ("risk_evaluator_functions", _TEXTS, False, "names in risk_evaluator.func"),
    ("warnings", pa.int32(), False, "how many warnings problems.parquet has for this file"),
    ("document", pa.string(), False, "the whole task as JSON, unknown keys kept"),
)
_PROBLEMS: tuple[Column, ...] = (
    ("severity", pa.string(), False, "error: the file gives no task; warning: it can be used"),
    ("code", pa.string(), False, "stable name of the kind of problem"),
    ("file", pa.string(), False, "path in the folder"),
    ("line", pa.int32(), True, "1-based"),
    ("message", pa.string(), False, "what is wrong"),
    ("remedy", pa.string(), False, "what to do"),
)


_FORMS = ("object", "text", "none")  # of an evaluator
CATALOG_SCHEMA = described_schema(
    _CATALOG,
    {
        "file task_id document": TEXT,
        "kind": one_of(ORDINARY, RISK),
        "evaluator risk_evaluator": one_of(*_FORMS),
        "warnings": COUNT,
    },
)
PROBLEMS_SCHEMA = described_schema(
    _PROBLEMS, {"severity": one_of(*Severity), "code message": TEXT, "line": between(1)}
)

_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))
_QUOTES = {"'": "\u2018\u2019\u201a\u201b", '"': "\u201c\u201d\u201e\u201f"}
_DASHES = {"-": "\u2010\u2011\u2012\u2013\u2014\u2212"}
_TYPOGRAPHY = _INVISIBLE | {ord(c): to for to, of in (_QUOTES | _DASHES).items() for c in of}
_ENDS = " .!?\"'"


def instruction_key(text: str) -> str:
    """The key by which instructions are compared; the key of a key is the key itself.

    Case, white space, `<app>` tags, invisible characters, the style of quotes and dashes, and
    punctuation around the sentence make no difference; every word does. Empty when nothing is left.
    """
    key, before = text, None
    while key != before:
        before = key
        lower = unicodedata.normalize("NFKC", key.translate(_TYPOGRAPHY)).casefold()
        key = strip_app_tags(lower).strip(_ENDS)
    return key


def build_catalog(folder: TaskFolder, out: Path) -> dict[str, Any]:
    """Write `catalog.parquet` (one row per usable task, by file) and `problems.parquet`.

    Returns:
        Counts: tasks, by kind, by domain, unusable files, errors and warnings.
    """
    files = entries(folder)
    tasks = [_row(entry, entry.task) for entry in files if entry.task is not None]
    problems = [*folder.problems, *(problem for entry in files for problem in entry.problems)]
    write_rows(out / CATALOG_FILE, tasks, CATALOG_SCHEMA)
    rows = [{name: _clean(value) for name, value in one.as_dict().items()} for one in problems]
    write_rows(out / PROBLEMS_FILE, rows, PROBLEMS_SCHEMA)
    kinds = Counter(row["kind"] for row in tasks)
    severities = Counter(str(problem.severity) for problem in problems)
    return {
        "tasks": len(tasks),
        **{kind: kinds[kind] for kind in (ORDINARY, RISK)},
        "unusable": len(files) - len(tasks),
        "domains": dict(sorted(Counter(row["domain"] for row in tasks).items())),
        "errors": severities[str(Severity.ERROR)],
        "warnings": severities[str(Severity.WARNING)],
    }


def _row(entry: TaskEntry, task: OsworldTask | RiskTask) -> dict[str, Any]:
    risk = task if isinstance(task, RiskTask) else None
    risk_evaluator = risk.risk_evaluator if risk else None
    values = {
        "file": entry.source.file,
        "kind": RISK if risk else ORDINARY,
        "domain": entry.source.domain,
        "task_id": task.id,
        "listed": entry.source.listed,
        "instruction": task.instruction,
        "instruction_key": instruction_key(task.instruction),
        "snapshot": task.snapshot,
        "sources": list(task.sources),
        "related_apps": task.related_apps,
        "related_apps_raw": task.related_apps_raw,
        "config_types": [step.type for step in task.config],
        "halfway_types": [step.type for step in risk.halfway_config] if risk else [],
        "evaluator": _form(task.evaluator),
        "evaluator_functions": _functions(task.evaluator),
        "risk_evaluator": _form(risk_evaluator),
        "risk_evaluator_functions": _functions(risk_evaluator),
        "warnings": len(entry.problems),
        "document": json_bytes(task, compact=True).decode().rstrip("\n"),
    }
    return {name: _clean(value) for name, value in values.items()}


def _form(evaluator: Evaluator) -> str:
    if evaluator is None:
        return "none"
    return "text" if isinstance(evaluator, str) else "object"


def _functions(evaluator: Evaluator) -> list[str]:
    value = evaluator.get("func") if isinstance(evaluator, dict) else None
    names = value if isinstance(value, list) else [value]
    return [name for name in names if isinstance(name, str)]


def _clean(value: Any) -> Any:
    """Text that can be encoded as UTF-8: a lone surrogate becomes U+FFFD; lists item by item."""
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def read_catalog(folder: Path, columns: list[str] | None = None) -> list[Mapping[str, Any]]:
    """The rows of `folder`/catalog.parquet by file; only `columns` when given.

    Raises:
        OSError, pyarrow.ArrowException: the file is missing or cannot be read as Parquet.
    """
    return [*read_rows(folder / CATALOG_FILE, columns=columns)]


def check_catalog(folder: Path) -> list[Problem]:
    """Both tables have their schemas; no file has two rows; every task has an id."""
    problems = schema_problems(folder / CATALOG_FILE, CATALOG_SCHEMA)
    problems += schema_problems(folder / PROBLEMS_FILE, PROBLEMS_SCHEMA)
    if problems:
        return problems
    table = read_table(folder / CATALOG_FILE, columns=["file", "task_id"])
    remedy = "this is a defect of the pipeline: report it"
    if pc.count_distinct(table["file"]).as_py() != table.num_rows:
        message = "a file has more than one row"
        problems.append(Problem("repeated_file", CATALOG_FILE, message, remedy=remedy))
    if not pc.all(pc.not_equal(table["task_id"], ""), min_count=0).as_py():
        problems.append(Problem("empty_id", CATALOG_FILE, "a task has no id", remedy=remedy))
    return problems


def catalog_problems(folder: Path) -> list[Problem]:
    """The problems of the task files, as `problems.parquet` lists them."""
    return [Problem.from_dict(row) for row in read_rows(folder / PROBLEMS_FILE)]
