"""Committed files against their manifests, and the commands that build an output again.

Belongs here: which demonstration or dataset a damaged file belongs to, and the texts that the
store cannot know, since it knows no asset and no command line.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from demo_pipeline.problems import Problem
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.documents import DamagedDocument
from demo_pipeline.store.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import OutputDamage
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"
_STAGES = {stage.folder: stage.name for stage in STAGES}
# The first folders of the outputs that `run --verify` builds.
_VERIFIED = {*_STAGES, *(stage.folder.partition("/")[0] for stage in DATASET_STAGES)}


@dataclass(frozen=True)
class _Verification:
    """How many outputs were read, each difference once, and whose outputs are damaged by it."""

    outputs: int
    damages: tuple[OutputDamage, ...]
    demonstrations: frozenset[str]
    datasets: bool


def rebuild_command(output: str) -> str:
    """The command that builds `output`, e.g. `events/<id>`."""
    if output == TASKS_STAGE.folder:
        return "demo-pipeline run --verify"  # its asset is observed
    for dataset in DATASET_STAGES:
        if f"{output}/".startswith(f"{dataset.folder}/"):
            return f"{_COMMAND} {dataset.name}"
    folder, _, demonstration = output.partition("/")
    command = f"{_COMMAND} {_STAGES.get(folder, folder)}"
    return f"{command} --partition {demonstration}" if demonstration else command


def _remedy(output: str) -> str:
    """What builds a damaged output again, and first what shares its files."""
    verified = output.partition("/")[0] in _VERIFIED
    command = "demo-pipeline run --verify" if verified else rebuild_command(output)
    return f"`{command}` builds it again"


def storage_message(error: StorageError) -> str:
    """The message of a storage error, with the command that corrects it when there is one."""
    if isinstance(error, MissingOutput):
        return f"{error}; build it with `{rebuild_command(error.output)}`"
    if isinstance(error, DamagedDocument):
        return str(error)
    return f"{error}; {_remedy(error.output)}" if isinstance(error, OutputError) else str(error)


def unusable_output(error: OutputError, demonstration: str = "") -> Problem:
    """The problem of a build whose input is missing or damaged, with the command that rebuilds it.

    `demonstration`: whose build it is; empty for a dataset.
    """
    message = storage_message(error)
    return Problem("unusable_input", error.output, message, demonstration=demonstration)


def damage_problem(damage: OutputDamage) -> Problem:
    """What is wrong with a file of a committed output, with the command that corrects it."""
    return Problem(damage.code, damage.file, damage.message, remedy=_remedy(damage.output))


def verify_outputs(workspace: Workspace, ids: Collection[str] | None = None) -> _Verification:
    """Read every byte of the committed outputs of the datasets and all, or some, demonstrations."""
    wanted = None if ids is None else {*ids, None}
    names = [
        name
        for name in workspace.store.outputs()
        if wanted is None or _demonstration(name) in wanted
    ]
    known: dict[str, list[OutputDamage]] = {}
    read = (workspace.store.verify(name, known) for name in names)
    found = dict.fromkeys(damage for damages in read for damage in damages)
    owners = {_demonstration(damage.output) for damage in found}
    demonstrations = frozenset(owner for owner in owners if owner is not None)
    return _Verification(len(names), tuple(found), demonstrations, None in owners)


def trajectory_damage(
    store: Store, damaged: Sequence[str], unreadable: Sequence[Problem]
) -> Iterator[Problem]:
    """Yield what is wrong with each trajectory that a dataset lacks, with what corrects it.

    Some outputs differ from their manifests; the files of others cannot be read, although they do
    not, for the reasons that are given.
    """
    for output in damaged:
        key = output.rpartition("/")[2]
        unknown = Problem("trajectory", output, "is not a valid trajectory", remedy=_remedy(output))
        own = (damage for damage in store.verify(output) if damage.output == output)
        yield replace(next(map(damage_problem, own), unknown), demonstration=key)
    for problem in unreadable:
        file = f"{TRAJECTORIES_STAGE.output(problem.demonstration)}/{problem.file}"
        remedy = f"`demo-pipeline run --force {problem.demonstration}` builds it again"
        yield replace(problem, file=file, remedy=remedy)


def left_out_damage(summary: Mapping[str, JsonValue]) -> list[Problem]:
    """What `trajectory_damage` yielded when a dataset was built, by the dataset's summary."""
    noted = summary.get("damaged")
    values = noted if isinstance(noted, list) else []
    return [Problem.from_dict(value) for value in values if isinstance(value, dict)]


def damaged_demonstrations(workspace: Workspace) -> set[str]:
    """The demonstrations that a dataset leaves out because of damage that is still there.

    A build that reads a damaged file notices it; the size of the file may be right.
    """
    store = workspace.store
    named: set[str] = set()
    for stage in DATASET_STAGES:
        for output in store.outputs(stage.folder) if stage.reads_trajectories else ():
            version = store.published(output)
            damage = left_out_damage(version.manifest.summary) if version else []
            named.update(problem.demonstration for problem in damage)
    return {key for key in named if _is_damaged(store, key)}


def _is_damaged(store: Store, demonstration: str) -> bool:
    """Whether an output of a demonstration is damaged; outputs that do not exist are not."""
    for stage in STAGES:
        for damage in store.verify(stage.output(demonstration)):
            if damage.code != "missing_output":
                return True
    return False


def _demonstration(output: str) -> str | None:
    """The demonstration that an output belongs to; None for the output of a dataset stage."""
    folder, _, key = output.partition("/")
    return key if folder in _STAGES and key else None
