"""A folder of OSWorld task files as tasks, and everything that is wrong with it.

Belongs here: the tasks of the files, and the problems of the folder. Not here: where the files are
(task_files.py), the content of a task (task.py).
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.formats.osworld.task import OsworldTask, RiskTask, examine_task
from demo_pipeline.formats.osworld.task_files import (
    EXAMPLES,
    TaskFile,
    find_task_files,
    folder_warning,
)
from demo_pipeline.problems import Problem, Severity

_TEMPLATE = "template.json"


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
    """Read every task file under `root`, ordinary ones, those for Windows, and risk tasks.

    `root` may be a checkout of a benchmark, its folder of examples, or a folder of domains. Nothing
    is raised: what cannot be read is a problem. A missing folder counts as empty; a folder that
    exists and gives no task has a warning.
    """
    found = find_task_files(root)
    files = sorted(found.files, key=lambda task: task.file)
    return TaskFolder(tuple(files), tuple(found.problems))


def entries(folder: TaskFolder) -> list[TaskEntry]:
    """The tasks of a folder, sorted by path.

    A file with the id of an earlier one has a warning. A file that no list names may be no task: a
    template, or notes. What is wrong with it is a warning.
    """
    first: dict[str, str] = {}
    found = []
    for source in folder.files:
        task, problems = examine_task(source.data, source.file, risk=source.risk)
        if task is not None:
            other = first.setdefault(task.id, source.file)
            if other != source.file:
                message = f"id: is not unique, first in {other}"
                problems.append(
                    folder_warning("duplicate_id", source.file, message, "change one id")
                )
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
