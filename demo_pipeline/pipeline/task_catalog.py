"""The catalog of OSWorld tasks in the store, and the task of a demonstration.

Belongs here: the wiring of the `osworld_tasks` stage between folder, store and pure code. Not here:
what a task file is (formats/), what a match is (datasets/osworld_links.py).
"""

from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from demo_pipeline.datasets import task_table
from demo_pipeline.datasets.task_matching import NO_CATALOG, TaskIndex, TaskMatch
from demo_pipeline.formats.osworld.task_folder import read_task_folder
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Summary, Workspace
from demo_pipeline.problems import Problem, Severity, errors
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe

OSWORLD_TASKS = "osworld_tasks"
CATALOG_OUTPUT = "osworld/tasks"
CATALOG_CHECK = "catalog_schema"
FILES_CHECK = "task_files"


def run_catalog(pipeline: Workspace, *, force: bool = False) -> BuildResult:
    """Make the catalog of the folder of task files, unless nothing in the folder changed.

    A bad task file is a row of problems.parquet and a failed, non-blocking check; it costs the
    others nothing. Without a folder the catalog is empty.
    """
    folder = read_task_folder(pipeline.tasks)
    inputs = {"task_files": folder.fingerprint()}
    recipe = Recipe(OSWORLD_TASKS, task_table.CODE_VERSION, "", inputs)

    def build(staging: Staging) -> Summary:
        return task_table.build_catalog(folder, staging.path)

    def check(out: Path) -> list[CheckOutcome]:
        schema = tuple(task_table.check_catalog(out))
        if schema:
            return [CheckOutcome(CATALOG_CHECK, False, schema)]
        found = tuple(sorted(task_table.catalog_problems(out), key=_errors_first))
        return [
            CheckOutcome(CATALOG_CHECK, True),
            CheckOutcome(FILES_CHECK, not errors(found), found, blocking=False),
        ]

    return build_if_stale(pipeline.store, CATALOG_OUTPUT, recipe, build, check, force=force)


def _errors_first(problem: Problem) -> bool:
    return problem.severity is not Severity.ERROR


def link_of(pipeline: Workspace, recording: RecordingManifest) -> TaskMatch:
    """The task of a demonstration, by the catalog that is committed.

    Raises:
        MissingOutput: the committed catalog is damaged.
    """
    if pipeline.store.current(CATALOG_OUTPUT) is None:
        return NO_CATALOG
    with pipeline.store.open(CATALOG_OUTPUT) as (folder, version):
        return _index(folder, version.content).link(recording.parsed_meta())


@lru_cache(maxsize=2)
def _index(folder: Path, _content: str) -> TaskIndex:
    """One reading serves every demonstration of a process; a version never changes."""
    try:
        return TaskIndex.read(folder)
    except (OSError, pa.ArrowException):
        raise MissingOutput(CATALOG_OUTPUT) from None
