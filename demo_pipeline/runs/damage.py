"""Finds damaged outputs, their demonstrations, and the commands that rebuild them.

Messages that name a command are written here, because the store knows no commands.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from pydantic import JsonValue

from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.privacy.redaction_stage import REDACTIONS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.runs.stages import STAGES, built_stages, dataset_stages, export_of_stage
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.documents import DamagedDocument
from demo_pipeline.store.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.store.names import is_bucket
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import OutputDamage
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

RECORDS_AND_SOURCES = (RECORDS_STAGE.folder, TRAJECTORIES_STAGE.folder, REDACTIONS_STAGE.folder)
"""The store's folders of demonstration outputs that datasets read."""

_MATERIALIZE = "dagster asset materialize -m demo_pipeline.definitions --select"
_RUN = "demo-pipeline run"
_RUN_VERIFY = "demo-pipeline run --verify"
_STAGES = {stage.folder: stage.name for stage in STAGES}


@dataclass(frozen=True)
class Verification:
    """The result of comparing outputs with their manifests.

    Attributes:
        outputs: the number of outputs that were read.
        damages: all differences, without duplicates.
        demonstrations: the ids of the demonstrations with a damaged output.
        datasets: whether a dataset, or another output that covers all demonstrations, is damaged.
    """

    outputs: int
    damages: tuple[OutputDamage, ...]
    demonstrations: frozenset[str]
    datasets: bool


# Commands and sentences


def rebuild_command(output: str) -> str:
    """Returns the command that builds an output, such as `events/<id>`."""
    if output == TASKS_STAGE.folder:
        return _RUN_VERIFY  # no asset builds the catalog of tasks
    for dataset in dataset_stages():
        if f"{output}/".startswith(f"{dataset.folder}/"):
            return f"{_MATERIALIZE} {dataset.name}"
    folder, _, demonstration = output.partition("/")
    command = f"{_MATERIALIZE} {_STAGES.get(folder, folder)}"
    return f"{command} --partition {demonstration}" if demonstration else command


def _remedy(output: str) -> str:
    """Returns a sentence with the command that rebuilds a damaged output.

    Outputs that share files with the damaged output are rebuilt, too.
    """
    top = output.partition("/")[0]
    is_verified = top in _STAGES or any(
        stage.folder.partition("/")[0] == top for stage in dataset_stages()
    )
    return _builds_again(_RUN_VERIFY if is_verified else rebuild_command(output))


def _builds_again(command: str) -> str:
    return f"`{command}` builds it again"


def storage_message(error: StorageError) -> str:
    """Returns the message of a storage error, with the command that repairs the output if known."""
    if isinstance(error, MissingOutput):
        return f"{error}; build it with `{rebuild_command(error.output)}`"
    if isinstance(error, OutputError) and not isinstance(error, DamagedDocument):
        return f"{error}; {_remedy(error.output)}"
    return str(error)


def unusable_output(error: OutputError, demonstration: str = "") -> Problem:
    """Returns a problem for an unusable input of a build, with the command that rebuilds it.

    Args:
        demonstration: the id of the demonstration that was being built; empty for a dataset.
    """
    message = storage_message(error)
    return Problem("unusable_input", error.output, message, demonstration=demonstration)


def damage_problem(damage: OutputDamage) -> Problem:
    """Returns a problem for a damaged file, with the command that rebuilds its output."""
    return Problem(damage.code, damage.file, damage.message, remedy=_remedy(damage.output))


# Searching for damage


def verify_outputs(workspace: Workspace, ids: Collection[str] | None = None) -> Verification:
    """Reads all files of outputs, and compares them with the outputs' manifests.

    Args:
        ids: ids of the demonstrations to compare; None means all. Datasets are always compared.
    """
    store = workspace.store
    read: dict[str, list[OutputDamage]] = {}
    damages: dict[OutputDamage, None] = {}
    outputs = 0
    for name in store.outputs():
        owner = _demonstration(name)
        if ids is None or owner is None or owner in ids:
            outputs += 1
            damages |= dict.fromkeys(store.verify(name, read))
    owners = {_demonstration(damage.output) for damage in damages}
    demonstrations = frozenset(owner for owner in owners if owner is not None)
    return Verification(outputs, tuple(damages), demonstrations, None in owners)


def _demonstration(output: str) -> str | None:
    """Returns the demonstration of an output, or None for a dataset or another shared output."""
    folder, _, key = output.partition("/")
    return key if folder in _STAGES and key else None


# Damage that made datasets leave demonstrations out


def trajectory_damage(
    store: Store, damaged: Sequence[str], unreadable: Sequence[Problem]
) -> Iterator[Problem]:
    """Yields a problem for each demonstration that a dataset leaves out because of damage.

    Args:
        damaged: outputs that differ from their manifests. The next `run` rebuilds them.
        unreadable: problems with files that match their manifests but cannot be read.
    """
    for output in damaged:
        yield _first_damage(store, output)
    for problem in unreadable:
        file = f"{TRAJECTORIES_STAGE.output(problem.demonstration)}/{problem.file}"
        remedy = _builds_again(f"{_RUN} --force {problem.demonstration}")
        yield replace(problem, file=file, remedy=remedy)


def _first_damage(store: Store, output: str) -> Problem:
    """Returns a problem for the first damaged file in an output of a demonstration."""
    damages = [damage for damage in store.verify(output) if damage.output == output]
    if damages:
        problem = noted_problem(damages[0])
    else:
        message = "is not a valid trajectory"
        problem = Problem("trajectory", output, message, remedy=_builds_again(_RUN))
    return replace(problem, demonstration=output.rpartition("/")[2])


def noted_problem(damage: OutputDamage) -> Problem:
    """Returns a problem for a damaged output whose demonstration was left out of a dataset.

    The remedy is `demo-pipeline run` without options.
    """
    return replace(
        damage_problem(damage),
        remedy=_builds_again(_RUN),
        demonstration=_demonstration(damage.output) or "",
    )


def left_out_damage(summary: Mapping[str, JsonValue]) -> list[Problem]:
    """Returns a problem for each damaged file that the summary of a dataset lists."""
    noted = summary.get("damaged")
    values = noted if isinstance(noted, list) else []
    return [Problem.from_dict(value) for value in values if isinstance(value, dict)]


def noted_demonstrations(workspace: Workspace) -> set[str]:
    """Returns the ids of demonstrations that a published dataset left out because of damage.

    The damaged outputs may have been rebuilt in the meantime.
    """
    return {problem.demonstration for problem in damage_in_datasets(workspace)}


def damage_in_datasets(workspace: Workspace) -> list[Problem]:
    """Returns a problem for each damaged file that made a published dataset incomplete.

    Datasets that the settings switch off are not read, because the next run does not rebuild them.
    """
    store = workspace.store
    outputs: list[str] = []
    for stage in built_stages(workspace.settings):
        if not stage.reads_trajectories:
            continue
        export = export_of_stage(stage)
        if export is not None and export.subfolder is not None:
            outputs += store.outputs(stage.folder)
        else:
            outputs.append(stage.folder)
    damage_of = partial(_damage_in_dataset, store)
    if is_bucket(store.url):
        damage_by_output = in_parallel(damage_of, outputs)
    else:
        damage_by_output = list(map(damage_of, outputs))
    problems: dict[Problem, None] = {}
    for damage in damage_by_output:
        problems |= dict.fromkeys(damage)
    return list(problems)


def _damage_in_dataset(store: Store, output: str) -> tuple[Problem, ...]:
    place = store.objects.pointer(output)
    return _damage_in_version(store, output, place) if place else ()


@lru_cache(maxsize=256)
def _damage_in_version(store: Store, output: str, _place: str) -> tuple[Problem, ...]:
    """Returns a problem for each damaged file that the summary of a dataset version lists."""
    version = store.published(output)
    return tuple(left_out_damage(version.manifest.summary)) if version else ()
