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
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.store.errors import MissingOutput, OutputError, StorageError
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import OutputDamage, document_damage
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_COMMAND = "dagster asset materialize -m demo_pipeline.definitions --select"


def rebuild_command(output: str) -> str:
    """The command that builds `output`, e.g. `events/<id>`."""
    for dataset in DATASET_STAGES:
        if output == dataset.folder or output.startswith(f"{dataset.folder}/"):
            return f"{_COMMAND} {dataset.name}"
    folder, _, demonstration = output.partition("/")
    names = {stage.folder: stage.name for stage in STAGES}
    command = f"{_COMMAND} {names.get(folder, folder)}"
    return f"{command} --partition {demonstration}" if demonstration else command


def mending_command(output: str) -> str:
    """The command that builds a damaged `output` again, and first what shares its files."""
    folder = output.partition("/")[0]
    jobs = {stage.folder.partition("/")[0]: stage.job for stage in DATASET_STAGES}
    jobs |= dict.fromkeys((stage.folder for stage in STAGES), DATASETS_JOB)
    verified = jobs.get(folder) in (DATASETS_JOB, TASKS_STAGE.job)
    return "demo-pipeline run --verify" if verified else rebuild_command(output)


def storage_message(error: StorageError) -> str:
    """The message of a storage error, with the command that corrects it when there is one."""
    if not isinstance(error, OutputError):
        return str(error)
    if isinstance(error, MissingOutput):
        return f"{error}; build it with `{rebuild_command(error.output)}`"
    return f"{error}; `{mending_command(error.output)}` builds it again"


def damage_problem(damage: OutputDamage, demonstration: str = "") -> Problem:
    """What is wrong with a file of a committed output, with the command that corrects it."""
    remedy = f"`{mending_command(damage.output)}` builds it again"
    return Problem(
        damage.code, damage.file, damage.message, remedy=remedy, demonstration=demonstration
    )


_TRAJECTORY = TRAJECTORIES_STAGE.output("")
_FOLDERS = {stage.folder for stage in STAGES}


@dataclass(frozen=True)
class Verification:
    """What differs from its manifest.

    Attributes:
        outputs: how many outputs were read.
        damages: every difference, each once.
        demonstrations: ids whose outputs are damaged.
        datasets: whether an output of a dataset stage is.
    """

    outputs: int
    damages: tuple[OutputDamage, ...]
    demonstrations: frozenset[str]
    datasets: bool


def verify_outputs(workspace: Workspace, ids: Collection[str] | None = None) -> Verification:
    """Read every byte of the committed outputs.

    Args:
        workspace: roots and settings.
        ids: only of these demonstrations, besides the datasets; None: of all.
    """
    names = [
        name
        for name in workspace.store.outputs()
        if ids is None or _demonstration(name) is None or _demonstration(name) in ids
    ]
    found = dict.fromkeys(damage for name in names for damage in workspace.store.verify(name))
    owners = [_demonstration(damage.output) for damage in found]
    return Verification(
        len(names),
        tuple(found),
        frozenset(owner for owner in owners if owner is not None),
        None in owners,
    )


def quick_damage(store: Store) -> Iterator[OutputDamage]:
    """Yield what can be told in a millisecond an output: sizes, and trajectories but pictures.

    Args:
        store: in a folder; of a bucket everything would be downloaded.
    """
    for name in store.outputs():
        try:
            with store.open(name) as (folder, _):
                found = document_damage(folder, name) if name.startswith(_TRAJECTORY) else None
        except MissingOutput:
            found = next(iter(store.verify(name)), None)
        if found is not None:
            yield found


def trajectory_damage(
    store: Store, damaged: Sequence[str], unreadable: Sequence[Problem]
) -> Iterator[Problem]:
    """Yield what is wrong with each trajectory that a dataset lacks, with what corrects it.

    Args:
        store: where they are.
        damaged: outputs that differ from their manifests.
        unreadable: why the files of others cannot be read, although they do not.
    """
    for output in damaged:
        key = output.rpartition("/")[2]
        damages = [damage for damage in store.verify(output) if damage.output == output]
        if damages:
            yield damage_problem(damages[0], key)
        else:
            remedy = f"`{mending_command(output)}` builds it again"
            message = "is not a valid trajectory"
            yield Problem("trajectory", output, message, remedy=remedy, demonstration=key)
    for problem in unreadable:
        file = f"{TRAJECTORIES_STAGE.output(problem.demonstration)}/{problem.file}"
        remedy = f"`demo-pipeline run --force {problem.demonstration}` builds it again"
        yield replace(problem, file=file, remedy=remedy)


def left_out_damage(summary: Mapping[str, JsonValue]) -> list[Problem]:
    """What `trajectory_damage` yielded when a dataset was built, by the dataset's summary."""
    noted = summary.get("damaged")
    values = noted if isinstance(noted, list) else []
    return [Problem.from_dict(value) for value in values if isinstance(value, dict)]


def _demonstration(output: str) -> str | None:
    """The demonstration that an output belongs to; None for the output of a dataset stage."""
    folder, _, key = output.partition("/")
    return key if folder in _FOLDERS and key else None
