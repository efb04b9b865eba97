"""Comparing every committed file with its manifest, and finding what has to be built again for it.

Belongs here: which demonstration or dataset a damaged file belongs to.
"""

from collections.abc import Collection
from dataclasses import dataclass

from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.storage.store.integrity import OutputDamage

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


def _demonstration(output: str) -> str | None:
    """The demonstration that an output belongs to; None for the output of a dataset stage."""
    folder, _, key = output.partition("/")
    return key if folder in _FOLDERS and key else None
