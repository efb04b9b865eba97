"""Writes the quest of each demonstration as an OSWorld task file, and checks these files.

A quest is the task in meta.json that the person was given. The files have the layout that OSWorld's
tools read: `examples/<application>/<trajectory_id>.json`, and the list `test_all.json`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.selection import head_of
from demo_pipeline.files.json_files import dump_json, json_bytes
from demo_pipeline.osworld.task import OsworldTask, write_task
from demo_pipeline.osworld.task_files import EXAMPLES, LIST_FILE, entries, read_task_folder
from demo_pipeline.osworld.task_text import slug
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, sorted_by_id

_NO_APPLICATION = "unknown"


def build_quests(trajectories: Sequence[DatasetTrajectory], out: Path) -> dict[str, Any]:
    """Writes a task file for each demonstration whose instruction comes from a quest.

    A quest has neither evaluator nor setup, so `evaluator` is null and `config` is empty. Failed
    demonstrations are included.

    Returns the summary of the stage.
    """
    task_ids: dict[str, list[str]] = defaultdict(list)
    without_quest = 0
    problems = list[Problem]()
    unreadable = 0
    for source in sorted_by_id(trajectories):
        try:
            task = _task(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            unreadable += 1
            continue
        if task is None:
            without_quest += 1
            continue
        task_ids[_domain(task)].append(task.id)
        write_task(out / _file_of(task), task)
    dump_json(out / LIST_FILE, dict(sorted(task_ids.items())))
    counts = {domain: len(ids) for domain, ids in sorted(task_ids.items())}
    return {
        "tasks": sum(counts.values()),
        "domains": counts,
        "without_quest": without_quest,
        "unreadable": unreadable,
        "problems": tuple(problems),
    }


def _task(source: DatasetTrajectory) -> OsworldTask | None:
    """Returns the task of a trajectory, or None if its instruction is not from a quest."""
    head = head_of(source)
    if not head.instruction_source.startswith("quest."):
        return None
    application = None if head.application == _NO_APPLICATION else head.application
    return OsworldTask(
        id=source.id,
        snapshot=application,
        instruction=head.instruction,
        related_apps=[application] if application else [],
        trajectory=f"trajectories/{source.id}",
        evaluator=None,
    )


def check_quests(folder: Path, trajectories: Sequence[DatasetTrajectory]) -> list[Problem]:
    """Checks the task file of each quest, and the list of quests. Also reports extra files."""
    tasks = read_task_folder(folder)
    problems = [problem for problem in tasks.problems if problem.code != "no_tasks"]
    expected = {_file_of(task): task for task in _readable_tasks(trajectories)}
    for entry in entries(tasks):
        problems += entry.problems
        if entry.task is not None and entry.task.evaluator is not None:
            message = "evaluator: expected null, because a quest has no evaluator"
            problems.append(_problem(entry.source.file, message, code="quest_evaluator"))
        task = expected.pop(entry.source.file, None)
        if task is None or entry.source.data != json_bytes(task):
            problems.append(_problem(entry.source.file, "is not the quest of its trajectory"))
    for file in expected:
        problems.append(_problem(file, "is missing"))
    ids = _ids_by_domain(_readable_tasks(trajectories))
    is_written = (folder / LIST_FILE).is_file()
    if not is_written or (folder / LIST_FILE).read_bytes() != json_bytes(ids):
        problems.append(_problem(LIST_FILE, "does not list the quests of the trajectories"))
    names = {path.name for path in folder.iterdir()}
    for name in sorted(names - {EXAMPLES, LIST_FILE}):
        problems.append(_problem(name, "does not belong here"))
    return problems


def _readable_tasks(trajectories: Sequence[DatasetTrajectory]) -> Iterator[OsworldTask]:
    for source in sorted_by_id(trajectories):
        with suppress(DemonstrationError):  # `build_quests` counts unreadable trajectories
            task = _task(source)
            if task is not None:
                yield task


def _ids_by_domain(tasks: Iterable[OsworldTask]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        ids[_domain(task)].append(task.id)
    return dict(sorted(ids.items()))


def _domain(task: OsworldTask) -> str:
    """Returns the name of the folder in `examples/` that contains the task."""
    return slug(task.snapshot or _NO_APPLICATION)


def _file_of(task: OsworldTask) -> str:
    return f"{EXAMPLES}/{_domain(task)}/{task.id}.json"


def _problem(file: str, message: str, code: str = "quest") -> Problem:
    return Problem(code, file, message, remedy="this is a defect of the pipeline: report it")
