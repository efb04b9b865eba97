"""Reads folders of OSWorld task files, and writes a catalog of their tasks.

Task files are expected where the benchmarks publish them:

- ordinary tasks: `examples/<domain>/`
- tasks for Windows: `examples_windows/<domain>/` or `examples/Windows/<domain>/`
- risk tasks: `evaluation_risk_examples/<domain>/` (published) or
  `evaluation_risk_examples/examples/<domain>/` (documented)

The test lists `test_all.json` and `test_risk.json` next to these folders contain the ids of the
tasks. The catalog consists of catalog.parquet, with a row for each usable task, and
problems.parquet.
"""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.files.base_model import limited
from demo_pipeline.files.json_files import (
    JsonFileError,
    decode_text,
    json_bytes,
    parse_json,
    places_in,
    read_bytes,
)
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
from demo_pipeline.osworld.task import (
    RISK_FOLDER,
    Evaluator,
    OsworldTask,
    RiskTask,
    examine_task,
)
from demo_pipeline.osworld.task_text import one_line
from demo_pipeline.problems import Problem, Severity, warning

EXAMPLES = "examples"
LIST_FILE = "test_all.json"
RISK_LIST_FILE = "test_risk.json"
MAX_TASK_BYTES = 16 * 2**20  # larger files are not read; the largest published task has 20 kB
_WINDOWS_EXAMPLES = "examples_windows"
# Lower-case name of the subfolder of `examples` that contains the domains for Windows.
_WINDOWS = "windows"
# Paths, relative to the given folder, that may contain folders of examples, and whether the tasks
# there are risk tasks.
_BASES = (("", False), ("evaluation_examples/", False), (f"{RISK_FOLDER}/", True))
# Beginning of the names of all test lists, some of which list only a part of the tasks.
_LIST_PREFIX = "test_"
_FOLDERS_OF_DOMAINS = (RISK_FOLDER, EXAMPLES, _WINDOWS_EXAMPLES, _WINDOWS)
_MARKS = (  # a folder with one of these entries contains task files
    EXAMPLES,
    _WINDOWS_EXAMPLES,
    LIST_FILE,
    RISK_LIST_FILE,
    "evaluation_examples/",
    f"{RISK_FOLDER}/",
)


@dataclass(frozen=True, slots=True)
class _TaskFile:
    """A JSON file where a task is expected.

    Attributes:
        file: path in the given folder, separated by `/`.
        domain: name of the file's folder, or `Windows/<name>` in `examples/Windows`; empty if the
            file is not in the folder of a domain.
        risk: whether the file is in a folder of risk tasks.
        listed: whether a test list contains the task.
        unlisted: whether test lists exist and none contains the task. The file may then be notes or
            a template.
    """

    file: str
    domain: str
    risk: bool
    listed: bool
    unlisted: bool
    data: bytes


_TaskName = tuple[str, str]  # domain and id
# Maps each listed task to its test list, and to the task's line in that list.
_List = Mapping[_TaskName, tuple[str, int | None]]


def is_task_folder(root: Path) -> bool:
    """Returns whether the name or the contents of a folder show that it contains task files."""
    return root.name.lower() in _FOLDERS_OF_DOMAINS or any(
        (root / mark).exists() for mark in _MARKS
    )


def _read_base(
    root: Path, prefix: str, risk: bool, files: list[_TaskFile], problems: list[Problem]
) -> None:
    """Reads the task files and the test lists in `root`/`prefix`.

    Args:
        prefix: path in `root`, empty or ending in `/`.
        risk: whether all tasks there are risk tasks.
        files: task files are added to this list.
        problems: problems are added to this list.
    """
    base = root / prefix
    name = "" if prefix else root.name
    has_only_risk_list = (base / RISK_LIST_FILE).exists() and not (base / LIST_FILE).exists()
    risk = risk or name == RISK_FOLDER or has_only_risk_list
    is_flat = risk or name.lower() in _FOLDERS_OF_DOMAINS
    is_windows_folder = name.lower() in (_WINDOWS_EXAMPLES, _WINDOWS)
    listed = _read_lists(base, prefix, problems)
    read: list[tuple[str, str, bytes]] = []
    folders = [f"{EXAMPLES}/", f"{_WINDOWS_EXAMPLES}/"]
    if is_flat:
        folders.append("")
    for folder in folders:
        domains = [*_task_files(base / folder, prefix + folder, problems, flat=not folder)]
        if folder and not domains and (base / folder).is_dir():
            problems.append(_no_tasks(prefix + folder.rstrip("/")))
        read += domains
    if prefix and not read and base.is_dir():
        problems.append(_no_tasks(prefix.rstrip("/")))
    existing: set[_TaskName] = set()
    needs_list = False
    for file, domain, data in read:
        names = _names(domain, file)
        existing.update(names)
        is_for_windows = _is_for_windows(file)
        needs_list = needs_list or not (is_for_windows or is_windows_folder)
        is_listed = listed is not None and not listed.keys().isdisjoint(names)
        is_unlisted = listed is not None and not is_listed and not is_for_windows
        files.append(_TaskFile(file, domain, risk, is_listed, is_unlisted, data))
        if is_unlisted:
            lists = RISK_LIST_FILE if (base / RISK_LIST_FILE).exists() else LIST_FILE
            problems.append(warning("unlisted_task", file, f"is not listed in {lists}"))
    has_list = (base / LIST_FILE).exists() or (base / RISK_LIST_FILE).exists()
    if needs_list and not has_list:
        message = "is missing; all task files in the folder are used"
        problems.append(warning("missing_list", prefix + LIST_FILE, message))
    problems += limited(_missing_tasks(listed or {}, existing))


def _missing_tasks(listed: _List, existing: Collection[_TaskName]) -> list[Problem]:
    """Returns a problem for each listed task without a file."""
    problems = []
    for task, (file, line) in listed.items():
        if task not in existing:
            message = f"{'/'.join(task)}: is listed, but has no file"
            remedy = "add the task file, or remove its id from the list"
            problems.append(Problem("missing_task", file, message, line, remedy=remedy))
    return problems


def _names(domain: str, file: str) -> tuple[_TaskName, _TaskName]:
    """Returns a task's two possible names in test lists.

    One has the full domain, and the other has only the last part of the domain.
    """
    stem = PurePosixPath(file).stem
    return (domain, stem), (domain.rpartition("/")[2], stem)


def _is_for_windows(file: str) -> bool:
    """Returns whether a file is a task for Windows, which OSWorld publishes without a test list."""
    folders = [part.lower() for part in PurePosixPath(file).parts[:-1]]
    return _WINDOWS_EXAMPLES in folders or _WINDOWS in folders[:-1]


def _task_files(
    folder: Path, prefix: str, problems: list[Problem], *, flat: bool
) -> Iterator[tuple[str, str, bytes]]:
    """Yields (file, domain, content) of each `.json` file in a folder and in its domains.

    Args:
        folder: the folder that contains the domains.
        prefix: the path of `folder` relative to the root, ending in `/`.
        problems: problems of unreadable files are added to this list.
        flat: whether to ignore test lists and folders of examples in `folder`.
    """
    for entry in _children(folder, prefix, problems):
        name = _printable(entry.name)
        if flat and (name.startswith(_LIST_PREFIX) or name in (EXAMPLES, _WINDOWS_EXAMPLES)):
            continue
        if entry.suffix == ".json":
            yield from _task_file(entry, f"{prefix}{name}", "", problems)
        elif entry.is_dir() and name.lower() == _WINDOWS:
            for domain in _children(entry, f"{prefix}{name}/", problems):
                yield from _domain_files(domain, prefix, f"{name}/{domain.name}", problems)
        else:
            yield from _domain_files(entry, prefix, name, problems)


def _domain_files(
    folder: Path, prefix: str, domain: str, problems: list[Problem]
) -> Iterator[tuple[str, str, bytes]]:
    """Yields (file, domain, content) of each `.json` file in the folder of a domain."""
    if not folder.is_dir():
        return
    for path in _children(folder, f"{prefix}{domain}/", problems):
        file = f"{prefix}{_printable(domain)}/{_printable(path.name)}"
        if path.suffix == ".json":
            yield from _task_file(path, file, _printable(domain), problems)
        elif path.is_dir():
            message = "is ignored: tasks are in examples/<domain>/"
            problems.append(warning("nested_folder", file, message))


def _task_file(
    path: Path, file: str, domain: str, problems: list[Problem]
) -> Iterator[tuple[str, str, bytes]]:
    """Yields (file, domain, content) of a task file, or nothing if it cannot be read."""
    try:
        if not path.is_file():
            message = "is not a regular file"
        elif path.stat().st_size > MAX_TASK_BYTES:
            message = f"is larger than {MAX_TASK_BYTES} bytes"
        else:
            yield file, domain, path.read_bytes()
            return
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    problems.append(Problem("unreadable_file", file, message, remedy="restore the task file"))


def _children(folder: Path, name: str, problems: list[Problem]) -> list[Path]:
    """Returns the sorted entries of a folder without hidden files; empty if it is missing.

    If the folder cannot be read, a problem about `name` is added to `problems`.
    """
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(_unreadable(name.rstrip("/"), error))
        return []


def _read_lists(base: Path, prefix: str, problems: list[Problem]) -> _List | None:
    """Returns the tasks in the test lists of a folder, or None if no list can be read."""
    listed: dict[_TaskName, tuple[str, int | None]] = {}
    is_readable = False
    for name in (LIST_FILE, RISK_LIST_FILE):
        if (base / name).exists():
            tasks, list_problems = _read_list(base / name, prefix + name)
            problems += list_problems
            if tasks is not None:
                is_readable = True
                listed |= {task: (prefix + name, line) for task, line in tasks.items()}
    return listed if is_readable else None


def _read_list(
    path: Path, file: str
) -> tuple[Mapping[_TaskName, int | None] | None, list[Problem]]:
    """Returns the line of each task in a test list, and the problems of the list.

    Returns None instead of the lines if the list cannot be read or is not a JSON object.
    """
    try:
        text = decode_text(read_bytes(path, file), file)
        value = parse_json(text, file)
    except JsonFileError as error:
        remedy = "restore the list: domain → ids"
        problem = Problem("invalid_json", file, error.message, error.line, remedy=remedy)
        return None, [replace(problem, column=error.column)]
    place_of = places_in(text)
    if not isinstance(value, dict):
        message = "expected an object: domain → list of ids"
        return None, [Problem("invalid_list", file, message, 1, remedy="restore the list")]
    listed: dict[_TaskName, int | None] = {}
    problems = []
    for domain, ids in value.items():
        if not isinstance(ids, list) or not all(isinstance(task, str) for task in ids):
            line, _ = place_of((domain,))
            message = f"{_printable(domain)}: expected a list of ids"
            problems.append(Problem("invalid_list", file, message, line, remedy="correct the list"))
            continue
        for number, task in enumerate(ids):
            name = (_printable(domain), _printable(task))
            listed.setdefault(name, place_of((domain, number))[0])
    return listed, problems


def _printable(name: str) -> str:
    r"""Escapes bytes of a file name that are not UTF-8 as `\udcNN`."""
    return name.encode("utf-8", "backslashreplace").decode()


def _no_tasks(folder: str) -> Problem:
    message = "contains no task file where the benchmarks have them"
    remedy = f"put tasks in {EXAMPLES}/<domain>/<id>.json, or name another folder"
    return warning("no_tasks", folder, message, remedy)


def _unreadable(folder: str, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror}"
    remedy = "give the pipeline permission to read this folder"
    return Problem("unreadable_folder", folder, message, remedy=remedy)


_TEMPLATE = "template.json"  # a file with this name may be a template instead of a task


@dataclass(frozen=True, slots=True)
class _TaskFolder:
    """The task files of a folder, sorted by path, and the problems of the folder and its lists."""

    files: tuple[_TaskFile, ...]
    problems: tuple[Problem, ...]

    def fingerprint(self) -> str:
        """Returns the SHA-256 of everything on which the catalog of the folder depends."""
        rows = []
        for task in self.files:
            digest = hashlib.sha256(task.data).hexdigest()
            rows.append([task.file, task.domain, task.risk, task.listed, digest])
        problems = [problem.as_dict() for problem in self.problems]
        return hashlib.sha256(json.dumps([rows, problems]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _TaskEntry:
    """A task file, the task in it (None if it is invalid), and the file's problems and warnings."""

    source: _TaskFile
    task: OsworldTask | RiskTask | None
    problems: tuple[Problem, ...]


def read_task_folder(root: Path) -> _TaskFolder:
    """Reads all task files below `root`: ordinary tasks, tasks for Windows, and risk tasks.

    `root` may be a checkout of a benchmark, its folder of examples, or a folder of domains.
    Unreadable files are reported as problems. A folder without task files gets a warning.
    """
    files: list[_TaskFile] = []
    problems: list[Problem] = []
    for prefix, risk in _BASES:
        try:
            if not prefix and root.exists() and not root.is_dir():
                message = "is not a folder; task files are in examples/<domain>/<id>.json"
                problems.append(Problem("not_a_folder", ".", message, remedy="give a folder"))
            _read_base(root, prefix, risk, files, problems)
        except OSError as error:
            problems.append(_unreadable(prefix.rstrip("/") or ".", error))
    if root.is_dir() and not files and not problems:
        problems.append(_no_tasks("."))
    return _TaskFolder(tuple(sorted(files, key=lambda task: task.file)), tuple(problems))


def entries(folder: _TaskFolder) -> list[_TaskEntry]:
    """Reads the tasks in the files of a folder, sorted by path.

    A repeated task id causes a warning. The problems of an invalid file are downgraded to warnings
    if its name is template.json, or if test lists exist but do not contain the task.
    """
    first_file: dict[str, str] = {}
    task_entries: list[_TaskEntry] = []
    for source in folder.files:
        task, problems = examine_task(source.data, source.file, risk=source.risk)
        if task is not None:
            first = first_file.setdefault(task.id, source.file)
            if first != source.file:
                message = f"id: is not unique, first in {first}"
                problems.append(warning("duplicate_id", source.file, message, "change one id"))
        elif source.unlisted or source.file.endswith(f"/{_TEMPLATE}"):
            problems = [replace(problem, severity=Severity.WARNING) for problem in problems]
        task_entries.append(_TaskEntry(source, task, tuple(problems)))
    return task_entries


def validate_task_folder(root: Path) -> list[Problem]:
    """Returns the problems of a folder and its task files. A folder without tasks is an error."""
    folder = read_task_folder(root)
    problems = [*folder.problems]
    if not folder.files and all(problem.code == "no_tasks" for problem in problems):
        message = "contains no task file"
        remedy = f"put tasks in {EXAMPLES}/<domain>/<id>.json"
        problems = [Problem("no_tasks", ".", message, remedy=remedy)]
    for entry in entries(folder):
        problems += entry.problems
    return problems


CATALOG_FILE = "catalog.parquet"
PROBLEMS_FILE = "problems.parquet"
ORDINARY = "ordinary"
RISK = "risk"
_TEXTS = pa.list_(pa.string())

# Columns of catalog.parquet: name, type, nullable, meaning.
_CATALOG: tuple[Column, ...] = (
    ("file", pa.string(), False, "path of the task file in the folder of task files"),
    ("kind", pa.string(), False, "kind of the task: ordinary or risk"),
    (
        "domain",
        pa.string(),
        False,
        "name of the folder that contains the file; empty if the file is directly in examples",
    ),
    ("task_id", pa.string(), False, "id of the task, as in the file"),
    (
        "listed",
        pa.bool_(),
        False,
        "whether a test list (test_all.json or test_risk.json) contains the task",
    ),
    ("instruction", pa.string(), False, "instruction for the agent"),
    (
        "instruction_key",
        pa.string(),
        False,
        "normalised instruction, by which instructions are compared; may be empty",
    ),
    (
        "snapshot",
        pa.string(),
        True,
        "name of the initial state of the environment; null if the file names none",
    ),
    ("sources", _TEXTS, False, "origins of the task: URLs and names"),
    (
        "related_apps",
        _TEXTS,
        False,
        "normalised names of the related applications, without repetitions",
    ),
    ("related_apps_raw", _TEXTS, False, "names of the related applications, as in the file"),
    ("config_types", _TEXTS, False, "types of the setup steps that prepare the initial state"),
    (
        "halfway_types",
        _TEXTS,
        False,
        "types of the setup steps in halfway_config; empty for ordinary tasks",
    ),
    (
        "evaluator",
        pa.string(),
        False,
        "form of the evaluator: object, text (name of a folder) or none",
    ),
    ("evaluator_functions", _TEXTS, False, "names of the functions in evaluator.func"),
    (
        "risk_evaluator",
        pa.string(),
        False,
        "form of the risk evaluator: object, text (name of a folder) or none",
    ),
    ("risk_evaluator_functions", _TEXTS, False, "names of the functions in risk_evaluator.func"),
    ("warnings", pa.int32(), False, "number of warnings about this file in problems.parquet"),
    ("document", pa.string(), False, "content of the file as JSON, including unknown keys"),
)
_PROBLEMS: tuple[Column, ...] = (
    (
        "severity",
        pa.string(),
        False,
        "error if the file cannot be used as a task; warning if it can",
    ),
    ("code", pa.string(), False, "stable name of the kind of problem"),
    ("file", pa.string(), False, "path of the file in the folder of task files"),
    ("line", pa.int32(), True, "1-based line number; null if the problem has no line"),
    ("message", pa.string(), False, "description of the problem"),
    ("remedy", pa.string(), False, "advice on how to fix the problem"),
)


_FORMS = ("object", "text", "none")  # results of `_form`
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
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff"  # soft hyphen, zero-width characters, BOM
_VARIANTS = {  # each ASCII character, and its typographic variants
    "'": "\u2018\u2019\u201a\u201b",
    '"': "\u201c\u201d\u201e\u201f",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2212",
}
# Table for `str.translate` that removes invisible characters and replaces typographic variants.
_TYPOGRAPHY: dict[int, str | None] = dict.fromkeys(map(ord, _INVISIBLE))
for _plain, _characters in _VARIANTS.items():
    _TYPOGRAPHY |= dict.fromkeys(map(ord, _characters), _plain)
_ENDS = " .!?\"'"  # characters that are stripped from both ends of an instruction's key


def instruction_key(text: str) -> str:
    """Returns a key for comparing instructions; equal keys mean the same instruction.

    The key ignores case, white space, `<app>` tags, invisible characters, the style of quotes and
    dashes, and punctuation around the sentence. It may be empty.
    """
    key = text
    before = None
    while key != before:
        before = key
        lower = unicodedata.normalize("NFKC", key.translate(_TYPOGRAPHY)).casefold()
        key = one_line(lower).strip(_ENDS)
    return key


def build_catalog(folder: _TaskFolder, out: Path) -> dict[str, Any]:
    """Writes `catalog.parquet` (a row for each usable task, sorted by file) and `problems.parquet`.

    Returns:
        The counts for the summary: all tasks, the tasks of each kind and domain, unusable files,
        errors, and warnings.
    """
    files = entries(folder)
    tasks = [_row(entry, entry.task) for entry in files if entry.task is not None]
    problems = list(folder.problems)
    for entry in files:
        problems += entry.problems
    write_rows(out / CATALOG_FILE, tasks, CATALOG_SCHEMA)
    rows = []
    severities = Counter[str]()
    for problem in problems:
        rows.append(_clean_row(problem.as_dict()))
        severities[str(problem.severity)] += 1
    write_rows(out / PROBLEMS_FILE, rows, PROBLEMS_SCHEMA)
    kinds = Counter[str]()
    domains = Counter[str]()
    for row in tasks:
        kinds[row["kind"]] += 1
        domains[row["domain"]] += 1
    return {
        "tasks": len(tasks),
        ORDINARY: kinds[ORDINARY],
        RISK: kinds[RISK],
        "unusable": len(files) - len(tasks),
        "domains": dict(sorted(domains.items())),
        "errors": severities[str(Severity.ERROR)],
        "warnings": severities[str(Severity.WARNING)],
    }


def _row(entry: _TaskEntry, task: OsworldTask | RiskTask) -> dict[str, Any]:
    """Returns the row of a usable task in the catalog."""
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
    return _clean_row(values)


def _clean_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces lone surrogates in a row, because Parquet cannot contain them."""
    return {name: _clean(value) for name, value in row.items()}


def _form(evaluator: Evaluator) -> str:
    """Returns the type of an evaluator: `object`, `text`, or `none` for null."""
    if evaluator is None:
        return "none"
    return "text" if isinstance(evaluator, str) else "object"


def _functions(evaluator: Evaluator) -> list[str]:
    """Returns the function names in an evaluator's `func`, which is a single name or a list."""
    if not isinstance(evaluator, dict):
        return []
    names = evaluator.get("func")
    if not isinstance(names, list):
        names = [names]
    return [name for name in names if isinstance(name, str)]


def _clean(value: Any) -> Any:
    """Replaces lone surrogates with U+FFFD in a text or a list; returns other values unchanged."""
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def read_catalog(folder: Path, columns: list[str] | None = None) -> list[Mapping[str, Any]]:
    """Reads the rows of `folder`/catalog.parquet, sorted by file.

    Args:
        columns: names of the columns to read; None reads all.

    Raises:
        OSError, pyarrow.ArrowException: the file is missing or not Parquet.
    """
    return [*read_rows(folder / CATALOG_FILE, columns=columns)]


def check_catalog(folder: Path) -> list[Problem]:
    """Checks both table schemas, and that each file has one row and each task has an id."""
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
    """Reads the problems of the task files from `problems.parquet`."""
    return [Problem.from_dict(row) for row in read_rows(folder / PROBLEMS_FILE)]
