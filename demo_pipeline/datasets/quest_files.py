"""Writes the quest of every demonstration as an OSWorld task file.

Belongs here: `examples/<application>/<trajectory_id>.json` and `test_all.json`, in the layout that
OSWorld's tools read, and the check of these files.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.selection import head_of
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.osworld.task import OsworldTask, write_task
from demo_pipeline.osworld.task_files import EXAMPLES, LIST_FILE, entries, read_task_folder
from demo_pipeline.osworld.task_text import slug
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, sorted_by_id

_NO_APPLICATION = "unknown"


def build_quests(trajectories: Sequence[DatasetTrajectory], out: Path) -> dict[str, Any]:
    """Write a task file for every demonstration whose instruction came from a quest.

    The task's id is that of the trajectory, its snapshot the application. A quest has neither an
    evaluator nor a setup: `evaluator` is null and `config` is empty. Failed demonstrations give a
    file too, because the quest is the same.

    Returns:
        A summary: numbers of tasks, of tasks by folder, of demonstrations whose instruction came
        from no quest and of unreadable ones, which give no file, and why these are unreadable.
    """
    task_ids: dict[str, list[str]] = defaultdict(list)
    without, problems, unreadable = 0, list[Problem](), 0
    for source in sorted_by_id(trajectories):
        try:
            task = _task(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            unreadable += 1
            continue
        if task is None:
            without += 1
            continue
        domain = slug(task.snapshot or _NO_APPLICATION)
        task_ids[domain].append(task.id)
        write_task(out / EXAMPLES / domain / f"{task.id}.json", task)
    dump_json(out / LIST_FILE, dict(sorted(task_ids.items())))
    counts = {domain: len(ids) for domain, ids in sorted(task_ids.items())}
    return {
        "tasks": sum(counts.values()),
        "domains": counts,
        "without_quest": without,
        "unreadable": unreadable,
        "problems": tuple(problems),
    }


def _task(source: DatasetTrajectory) -> OsworldTask | None:
    head = head_of(source)
    if not head.instruction_source.startswith("quest."):
        return None
    apps = [] if head.application == _NO_APPLICATION else [head.application]
    return OsworldTask(
        id=source.id,
        snapshot=apps[0] if apps else None,
        instruction=head.instruction,
        related_apps=apps,
        trajectory=f"trajectories/{source.id}",
        evaluator=None,
    )


def check_quests(folder: Path) -> list[Problem]:
    """Every file is a valid, listed task whose evaluator is null; there may be none."""
    tasks = read_task_folder(folder)
    problems = [problem for problem in tasks.problems if problem.code != "no_tasks"]
    for entry in entries(tasks):
        problems += entry.problems
        if entry.task is not None and entry.task.evaluator is not None:
            message = "evaluator: expected null, because a quest has no evaluator"
            remedy = "this is a defect of the pipeline: report it"
            problems.append(Problem("quest_evaluator", entry.source.file, message, remedy=remedy))
    return problems
