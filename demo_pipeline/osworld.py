"""The catalog of OSWorld tasks in the store, and the task of a demonstration.

Belongs here: the wiring of the `osworld_tasks` stage between folder, store and pure code. Not here:
what a task file is (formats/), what a match is (datasets/osworld_links.py).
"""

from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from demo_pipeline.datasets import osworld_catalog
from demo_pipeline.datasets.osworld_links import NO_CATALOG, Link, TaskIndex
from demo_pipeline.formats.osworld_folder import read_task_folder
from demo_pipeline.pipeline import Pipeline, Summary
from demo_pipeline.problems import Problem, Severity, errors
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.storage.making import CheckOutcome, Made, Recipe, make
from demo_pipeline.storage.store import MissingOutput, Staging

OSWORLD_TASKS = "osworld_tasks"
CATALOG_OUTPUT = "osworld/tasks"
CATALOG_CHECK = "catalog_schema"
FILES_CHECK = "task_files"


def run_catalog(pipeline: Pipeline, *, force: bool = False) -> Made:
    """Make the catalog of the folder of task files, unless nothing in the folder changed.

    A bad task file is a row of problems.parquet and a failed, non-blocking check; it costs the
    others nothing. Without a folder the catalog is empty.
    """
    folder = read_task_folder(pipeline.tasks)
    inputs = {"task_files": folder.fingerprint()}
    recipe = Recipe(OSWORLD_TASKS, osworld_catalog.CODE_VERSION, "", inputs)

    def build(staging: Staging) -> Summary:
        return osworld_catalog.build_catalog(folder, staging.path)

    def check(out: Path) -> list[CheckOutcome]:
        schema = tuple(osworld_catalog.check_catalog(out))
        if schema:
            return [CheckOutcome(CATALOG_CHECK, False, schema)]
        found = tuple(sorted(osworld_catalog.found_problems(out), key=_errors_first))
        return [
            CheckOutcome(CATALOG_CHECK, True),
            CheckOutcome(FILES_CHECK, not errors(found), found, blocking=False),
        ]

    return make(pipeline.store, CATALOG_OUTPUT, recipe, build, check, force=force)


def _errors_first(problem: Problem) -> bool:
    return problem.severity is not Severity.ERROR


def link_of(pipeline: Pipeline, recording: RecordingManifest) -> Link:
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
