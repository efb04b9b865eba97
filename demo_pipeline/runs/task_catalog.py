"""Builds the catalog of OSWorld tasks, and finds the task that a demonstration matches."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.osworld import task_files
from demo_pipeline.osworld.task_matching import NO_CATALOG, NO_MATCH, TaskIndex, TaskMatch
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.recording.manifest import MANIFEST_FILE, read_manifest
from demo_pipeline.recording.meta import Meta
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check, SourceInput, Stage, Summary
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.versions import Version

OSWORLD_TASKS = "osworld_tasks"
CATALOG_OUTPUT = "osworld/tasks"


def read_task_files(workspace: Workspace) -> SourceInput:
    """Reads the task files of the catalog. Their folder may be missing."""
    folder = task_files.read_task_folder(workspace.tasks)
    return SourceInput(folder, {"task_files": folder.fingerprint()})


def _build(inputs: DatasetInputs, out: Path) -> Summary:
    """Writes the catalog. An unusable task file becomes a row of problems.parquet."""
    return task_files.build_catalog(inputs.source, out)


def _verify_catalog(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Returns a problem for each difference between the catalog and the task files."""
    problems = task_files.check_catalog(out)
    if problems:
        return problems
    with TemporaryDirectory(prefix="demo_pipeline-") as scratch:
        task_files.build_catalog(inputs.source, Path(scratch))
        return differing_files(out, {path.name: path for path in Path(scratch).iterdir()})


def _verify_task_files(_inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Returns the problems of the task files, errors first."""
    problems = task_files.catalog_problems(out)
    return sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)


def match_task(workspace: Workspace, recording: Version) -> TaskMatch:
    """Returns the task in the committed catalog that a recording matches.

    Raises:
        MissingOutput: the committed catalog is damaged.
    """
    index = _committed_index(workspace)
    if not index:
        return NO_CATALOG if index is None else NO_MATCH
    folder = workspace.store.open_version(recording, MANIFEST_FILE)
    return index.match(read_manifest(folder).parsed_meta())


def match_meta(workspace: Workspace, meta: Meta) -> TaskMatch:
    """Returns the task in the committed catalog that a meta.json matches.

    Raises:
        MissingOutput: the committed catalog is damaged.
    """
    index = _committed_index(workspace)
    return NO_CATALOG if index is None else index.match(meta)


def _committed_index(workspace: Workspace) -> TaskIndex | None:
    """Returns the tasks of the committed catalog; None if no catalog is committed."""
    store = workspace.store
    version = store.published(CATALOG_OUTPUT)
    if version is None:
        return None
    return _index(store.open_version(version), version.content)


def task_instruction(workspace: Workspace, task_id: str) -> str:
    """Returns the instruction of a task; empty if the task is not in the committed catalog.

    Raises:
        MissingOutput: the committed catalog is damaged.
    """
    store = workspace.store
    version = store.published(CATALOG_OUTPUT)
    if version is None:
        return ""
    return _instructions(store.open_version(version), version.content).get(task_id, "")


@lru_cache(maxsize=2)
def _instructions(folder: Path, _content: str) -> Mapping[str, str]:
    """Returns a dictionary from task ids to instructions, for a version of the catalog.

    If several task files have the same id, the first one is used.
    """
    try:
        rows = task_files.read_catalog(folder, ["task_id", "instruction"])
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        raise MissingOutput(CATALOG_OUTPUT) from None
    instructions: dict[str, str] = {}
    for row in rows:
        instructions.setdefault(row["task_id"], row["instruction"])
    return instructions


@lru_cache(maxsize=2)
def _index(folder: Path, _content: str) -> TaskIndex:
    """Returns the tasks of a version of the catalog."""
    try:
        return TaskIndex.read(folder)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        raise MissingOutput(CATALOG_OUTPUT) from None


TASKS_STAGE: Stage[DatasetInputs] = Stage(
    name=OSWORLD_TASKS,
    folder=CATALOG_OUTPUT,
    description="A catalog with a row for each OSWorld task file, ordinary or risk. A "
    "demonstration of one of these tasks is matched with it and left out of "
    "training exports by default.",
    kinds=frozenset({"parquet"}),
    code_version="4",
    inputs=(),
    source=read_task_files,
    build=_build,
    checks=(
        Check(
            "catalog_schema",
            "Both tables have the declared columns and the content of the task files. "
            "Every file occurs once, with its id.",
            _verify_catalog,
            compared=("tasks",),
        ),
        Check(
            "task_files",
            "Every task file can be used, and every listed task has a file.",
            _verify_task_files,
            blocking=False,
            compared=("tasks",),
        ),
    ),
    columns=task_files.CATALOG_SCHEMA,
)
