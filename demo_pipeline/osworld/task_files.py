"""Finding OSWorld task files, and reading a folder of them with everything that is wrong with it.

Belongs here: where task files and their lists may be, the tasks of the files, and the problems of
the folder. The content of a task is in task.py.

Ordinary tasks are in `examples/<domain>/`, tasks for Windows in `examples_windows/<domain>/` or
`examples/Windows/<domain>/`, risk tasks in `evaluation_risk_examples/<domain>/` as published or in
its `examples/<domain>/` as documented. `test_all.json` and `test_risk.json` beside them list ids.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from demo_pipeline.files.base_model import limited
from demo_pipeline.files.json_files import (
    JsonFileError,
    decode_text,
    parse_json,
    places_in,
    read_bytes,
)
from demo_pipeline.osworld.task import RISK_FOLDER, OsworldTask, RiskTask, examine_task
from demo_pipeline.problems import Problem, Severity, warning

EXAMPLES = "examples"
LIST_FILE, RISK_LIST_FILE = "test_all.json", "test_risk.json"
MAX_TASK_BYTES = 16 * 2**20  # the largest published task has 20 kB
_WINDOWS_EXAMPLES = "examples_windows"
_WINDOWS = "windows"  # in lower case: a folder of domains in `examples`
_BASES = (("", False), ("evaluation_examples/", False), (f"{RISK_FOLDER}/", True))
_LIST_PREFIX = "test_"  # of every list, also of those that name a part of the tasks
_FOLDERS_OF_DOMAINS = (RISK_FOLDER, EXAMPLES, _WINDOWS_EXAMPLES, _WINDOWS)
_MARKS = (EXAMPLES, _WINDOWS_EXAMPLES, LIST_FILE, RISK_LIST_FILE, *(b[0] for b in _BASES[1:]))


@dataclass(frozen=True, slots=True)
class _TaskFile:
    """One file that should be a task.

    Attributes:
        file: path in the folder, `/`-separated.
        domain: name of its folder, `Windows/<name>` in `examples/Windows`; empty if it is in none.
        risk: whether it is in a folder of risk tasks.
        listed: whether a list names it.
        outside: whether there is a list, and it does not name it: it may not be a task.
        data: its bytes.
    """

    file: str
    domain: str
    risk: bool
    listed: bool
    outside: bool
    data: bytes


_TaskName = tuple[str, str]  # domain and id
_List = Mapping[_TaskName, tuple[str, int | None]]  # → list file and line


def is_task_folder(root: Path) -> bool:
    """Whether a folder has a name or a content that only folders of task files have."""
    return root.name.lower() in _FOLDERS_OF_DOMAINS or any(
        (root / mark).exists() for mark in _MARKS
    )


def _read_base(
    root: Path, prefix: str, risk: bool, files: list[_TaskFile], problems: list[Problem]
) -> None:
    """Add the tasks of the folders that share lists: those beside `root`/`prefix`test_all.json."""
    base = root / prefix
    name = "" if prefix else root.name
    only_risk = (base / RISK_LIST_FILE).exists() and not (base / LIST_FILE).exists()
    risk = risk or name == RISK_FOLDER or only_risk
    is_flat = risk or name.lower() in _FOLDERS_OF_DOMAINS
    windows = name.lower() in (_WINDOWS_EXAMPLES, _WINDOWS)
    listed = _read_lists(base, prefix, problems)
    read: list[tuple[str, str, bytes]] = []
    for folder in (f"{EXAMPLES}/", f"{_WINDOWS_EXAMPLES}/", *(("",) if is_flat else ())):
        domains = [*_task_files(base / folder, prefix + folder, problems, flat=not folder)]
        if folder and not domains and (base / folder).is_dir():
            problems.append(_no_tasks(prefix + folder.rstrip("/")))
        read += domains
    if prefix and not read and base.is_dir():
        problems.append(_no_tasks(prefix.rstrip("/")))
    for file, domain, data in read:
        names = _names(domain, file)
        is_listed = listed is not None and any(name in listed for name in names)
        outside = listed is not None and not is_listed and not _is_for_windows(file)
        files.append(_TaskFile(file, domain, risk, is_listed, outside, data))
        if outside:
            lists = RISK_LIST_FILE if (base / RISK_LIST_FILE).exists() else LIST_FILE
            problems.append(warning("unlisted_task", file, f"is not listed in {lists}"))
    ordinary = [] if windows else [file for file, _, _ in read if not _is_for_windows(file)]
    if ordinary and not any((base / name).exists() for name in (LIST_FILE, RISK_LIST_FILE)):
        message = "is missing; all task files in the folder are used"
        problems.append(warning("missing_list", prefix + LIST_FILE, message))
    existing = {name for file, domain, _ in read for name in _names(domain, file)}
    absent = [
        Problem(
            "missing_task",
            file,
            f"{domain}/{task}: is listed, but has no file",
            line,
            remedy="add the task file, or remove its id from the list",
        )
        for (domain, task), (file, line) in (listed or {}).items()
        if (domain, task) not in existing
    ]
    problems += limited(absent)


def _names(domain: str, file: str) -> tuple[_TaskName, _TaskName]:
    """How a list may name a file: by its whole domain, or by the last part of it."""
    stem = PurePosixPath(file).stem
    return (domain, stem), (domain.rpartition("/")[2], stem)


def _is_for_windows(file: str) -> bool:
    """Whether a file is in a folder of tasks for Windows, which are published without a list."""
    folders = [part.lower() for part in PurePosixPath(file).parts[:-1]]
    return _WINDOWS_EXAMPLES in folders or _WINDOWS in folders[:-1]


def _task_files(
    folder: Path, prefix: str, problems: list[Problem], *, flat: bool
) -> Iterator[tuple[str, str, bytes]]:
    """Yield (file, domain, bytes) of each `.json` file in `folder` or in a folder of a domain.

    Args:
        folder: of domains.
        prefix: its path in the root, ending in `/`.
        problems: get what cannot be read.
        flat: the lists and the folders of examples are in this folder too.
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
    """The entries of a folder, sorted by name, without hidden ones."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        problems.append(_unreadable(name.rstrip("/"), error))
        return []


def _read_lists(base: Path, prefix: str, problems: list[Problem]) -> _List | None:
    """The tasks that the lists of a folder name; None if it has no list that can be read."""
    listed: dict[_TaskName, tuple[str, int | None]] = {}
    readable = False
    for name in (LIST_FILE, RISK_LIST_FILE):
        if (base / name).exists():
            tasks, found = _read_list(base / name, prefix + name)
            problems += found
            readable = readable or tasks is not None
            listed |= {task: (prefix + name, line) for task, line in (tasks or {}).items()}
    return listed if readable else None


def _read_list(
    path: Path, file: str
) -> tuple[Mapping[_TaskName, int | None] | None, list[Problem]]:
    """(domain, id) → line in a list; None if the list is invalid."""
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
    r"""A name in which bytes that are not UTF-8 are written `\udcNN`."""
    return name.encode("utf-8", "backslashreplace").decode()


def _no_tasks(folder: str) -> Problem:
    message = "gives no task: no task file is where the benchmarks have them"
    remedy = f"put tasks in {EXAMPLES}/<domain>/<id>.json, or name another folder"
    return warning("no_tasks", folder, message, remedy)


def _unreadable(folder: str, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror}"
    remedy = "give the pipeline permission to read this folder"
    return Problem("unreadable_folder", folder, message, remedy=remedy)


_TEMPLATE = "template.json"


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The content of a folder: the files, sorted by path, and the problems of the whole folder."""

    files: tuple[_TaskFile, ...]
    problems: tuple[Problem, ...]

    def fingerprint(self) -> str:
        """SHA-256 over everything that the catalog of the folder depends on."""
        rows = [
            [task.file, task.domain, task.risk, task.listed, hashlib.sha256(task.data).hexdigest()]
            for task in self.files
        ]
        problems = [problem.as_dict() for problem in self.problems]
        return hashlib.sha256(json.dumps([rows, problems]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A file, its task (None if it is invalid), and its problems and warnings."""

    source: _TaskFile
    task: OsworldTask | RiskTask | None
    problems: tuple[Problem, ...]


def read_task_folder(root: Path) -> TaskFolder:
    """Read every task file under `root`, ordinary ones, those for Windows, and risk tasks.

    `root` may be a checkout of a benchmark, its folder of examples, or a folder of domains. Nothing
    is raised: what cannot be read is a problem. A missing folder counts as empty; a folder that
    exists and gives no task has a warning.
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
    return TaskFolder(tuple(sorted(files, key=lambda task: task.file)), tuple(problems))


def entries(folder: TaskFolder) -> list[TaskEntry]:
    """The tasks of a folder, sorted by path.

    A file with the id of an earlier one has a warning. A file that no list names may not be a task:
    a template, or notes. What is wrong with it is a warning.
    """
    first: dict[str, str] = {}
    found = []
    for source in folder.files:
        task, problems = examine_task(source.data, source.file, risk=source.risk)
        if task is not None:
            other = first.setdefault(task.id, source.file)
            if other != source.file:
                message = f"id: is not unique, first in {other}"
                problems.append(warning("duplicate_id", source.file, message, "change one id"))
        elif source.outside or source.file.endswith(f"/{_TEMPLATE}"):
            problems = [replace(problem, severity=Severity.WARNING) for problem in problems]
        found.append(TaskEntry(source, task, tuple(problems)))
    return found


def validate_task_folder(root: Path) -> list[Problem]:
    """The problems of a folder of task files, and of each file; no task at all is an error."""
    folder = read_task_folder(root)
    problems = [*folder.problems]
    if not folder.files and all(problem.code == "no_tasks" for problem in problems):
        message = "contains no task file"
        remedy = f"put tasks in {EXAMPLES}/<domain>/<id>.json"
        problems = [Problem("no_tasks", ".", message, remedy=remedy)]
    return problems + [problem for entry in entries(folder) for problem in entry.problems]
