"""A folder of OSWorld task files: `examples/<domain>/<id>.json` and `test_all.json`.

Belongs here: finding the task files, ordinary and risk, and the problems of the folder. Not here:
the content of a task (task.py).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.common.deep_json import line_numbers
from demo_pipeline.common.json_files import JsonFileError, decode_text, parse_json, read_bytes
from demo_pipeline.formats.base_model import limited, line_of
from demo_pipeline.formats.osworld.task import RISK_FOLDER, OsworldTask, RiskTask, examine_task
from demo_pipeline.problems import Problem, Severity

EXAMPLES = "examples"
LIST_FILE = "test_all.json"
MAX_TASK_BYTES = 16 * 2**20  # the largest published task has 20 kB
_SETS = (("", False), ("evaluation_examples/", False), (f"{RISK_FOLDER}/", True))


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file that should be a task.

    Attributes:
        file: path in the folder, `/`-separated.
        domain: name of its folder; empty if it is directly in `examples`.
        risk: whether it is in a folder of risk tasks.
        listed: whether `test_all.json` lists it.
        data: its bytes.
    """

    file: str
    domain: str
    risk: bool
    listed: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The content of a folder: the files, sorted by path, and the problems of the whole folder."""

    files: tuple[TaskFile, ...]
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

    source: TaskFile
    task: OsworldTask | RiskTask | None
    problems: tuple[Problem, ...]


def read_task_folder(root: Path) -> TaskFolder:
    """Read every task file under `root`, ordinary and risk.

    Ordinary tasks are in `examples/` or `evaluation_examples/examples/`, risk tasks in
    `evaluation_risk_examples/examples/`, or in `examples/` if `root` is `evaluation_risk_examples`.
    Nothing is raised: what cannot be read is a problem. A missing folder counts as empty.
    """
    files: list[TaskFile] = []
    problems: list[Problem] = []
    for prefix, risk in _SETS:
        is_risk = risk or (not prefix and root.name == RISK_FOLDER)
        try:
            if not prefix and root.exists() and not root.is_dir():
                problems.append(_not_a_folder())
            _read_set(root, prefix, is_risk, files, problems)
        except OSError as error:
            problems.append(_unreadable(prefix.rstrip("/") or ".", error))
    return TaskFolder(tuple(sorted(files, key=lambda task: task.file)), tuple(problems))


def entries(folder: TaskFolder) -> list[TaskEntry]:
    """The tasks of a folder, sorted by path; a file with the id of an earlier one has a warning."""
    first: dict[str, str] = {}
    found = []
    for source in folder.files:
        task, problems = examine_task(source.data, source.file, risk=source.risk)
        if task is not None:
            other = first.setdefault(task.id, source.file)
            if other != source.file:
                message = f"id: is not unique, first in {other}"
                problems.append(_warning("duplicate_id", source.file, message, "change one id"))
        found.append(TaskEntry(source, task, tuple(problems)))
    return found


def validate_task_folder(root: Path) -> list[Problem]:
    """The problems of a folder of task files, and of each file."""
    folder = read_task_folder(root)
    problems = [*folder.problems]
    if not folder.files and not problems:
        message = "contains no task file"
        remedy = f"put tasks in {EXAMPLES}/<domain>/<id>.json"
        problems.append(Problem("no_tasks", ".", message, remedy=remedy))
    return problems + [problem for entry in entries(folder) for problem in entry.problems]


def _read_set(
    root: Path, prefix: str, risk: bool, files: list[TaskFile], problems: list[Problem]
) -> None:
    """Add the tasks of one `examples` folder to `files` and its problems to `problems`."""
    base = root / prefix
    listed, found = _read_list(base / LIST_FILE, prefix + LIST_FILE)
    problems += found
    read = list(_task_files(base / EXAMPLES, f"{prefix}{EXAMPLES}/", problems))
    existing = {(domain, Path(file).stem) for file, domain, _ in read}
    for file, domain, data in read:
        name = (domain, Path(file).stem)
        files.append(TaskFile(file, domain, risk, name in (listed or {}), data))
        if listed is not None and name not in listed:
            problems.append(_warning("unlisted_task", file, f"is not listed in {LIST_FILE}"))
    if listed is None and not found and read:
        message = "is missing; all task files in the folder are used"
        problems.append(_warning("missing_list", prefix + LIST_FILE, message))
    absent = [
        Problem(
            "missing_task",
            prefix + LIST_FILE,
            f"{domain}/{task}: is listed, but has no file",
            line,
            remedy="add the task file, or remove its id from the list",
        )
        for (domain, task), line in (listed or {}).items()
        if (domain, task) not in existing
    ]
    problems += limited(absent)


def _task_files(
    examples: Path, prefix: str, problems: list[Problem]
) -> Iterator[tuple[str, str, bytes]]:
    """Yield (file, domain, bytes) of each `.json` file directly in `examples` or a domain."""
    for entry in _children(examples, prefix, problems):
        name = _printable(entry.name)
        if entry.suffix == ".json":
            yield from _task_file(entry, f"{prefix}{name}", "", problems)
        elif entry.is_dir():
            for path in _children(entry, f"{prefix}{name}/", problems):
                file = f"{prefix}{name}/{_printable(path.name)}"
                if path.suffix == ".json":
                    yield from _task_file(path, file, name, problems)
                elif path.is_dir():
                    problems.append(
                        _warning(
                            "nested_folder", file, "is ignored: tasks are in examples/<domain>/"
                        )
                    )


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


def _read_list(
    path: Path, file: str
) -> tuple[Mapping[tuple[str, str], int | None] | None, list[Problem]]:
    """(domain, id) → line in test_all.json; None if the list is missing or invalid."""
    if not path.exists():
        return None, []
    try:
        text = decode_text(read_bytes(path, file), file)
        value = parse_json(text, file)
    except JsonFileError as error:
        remedy = "restore the list: domain → ids"
        return None, [Problem("invalid_json", file, error.message, error.line, remedy=remedy)]
    lines = line_numbers(text)
    if not isinstance(value, dict):
        message = "expected an object: domain → list of ids"
        return None, [Problem("invalid_list", file, message, 1, remedy="restore the list")]
    listed: dict[tuple[str, str], int | None] = {}
    problems = []
    for domain, ids in value.items():
        if not isinstance(ids, list) or not all(isinstance(task, str) for task in ids):
            line = line_of(lines, (domain,))
            message = f"{_printable(domain)}: expected a list of ids"
            problems.append(Problem("invalid_list", file, message, line, remedy="correct the list"))
            continue
        for number, task in enumerate(ids):
            name = (_printable(domain), _printable(task))
            listed.setdefault(name, line_of(lines, (domain, number)))
    return listed, problems


def _printable(name: str) -> str:
    r"""A name in which bytes that are not UTF-8 are written `\udcNN`."""
    return name.encode("utf-8", "backslashreplace").decode()


def _not_a_folder() -> Problem:
    message = "is not a folder; task files are in examples/<domain>/<id>.json"
    return Problem("not_a_folder", ".", message, remedy="give a folder")


def _unreadable(folder: str, error: OSError) -> Problem:
    message = f"cannot be read: {error.strerror}"
    remedy = "give the pipeline permission to read this folder"
    return Problem("unreadable_folder", folder, message, remedy=remedy)


def _warning(code: str, file: str, message: str, remedy: str = "") -> Problem:
    return Problem(code, file, message, remedy=remedy, severity=Severity.WARNING)
