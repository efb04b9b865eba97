"""Comparing every committed file with its manifest, and finding what has to be built again for it.

Belongs here: which demonstration or dataset a damaged file belongs to.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.rebuild import damage_problem, mending_command
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.problems import Problem
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.integrity import OutputDamage, document_damage
from demo_pipeline.storage.store.store import Store
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

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
