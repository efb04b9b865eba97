"""The committed trajectories of a store, and which of them can be read.

Belongs here: opening them for the dataset stages.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.problems import DemonstrationError, errors
from demo_pipeline.storage.errors import ChangedOutput
from demo_pipeline.storage.ids import is_former_id, safe_id
from demo_pipeline.storage.store.integrity import document_damage
from demo_pipeline.storage.store.store import Store
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_damaged: set[tuple[str, str]] = set()
"""(store, output) that a build of this process has found damaged: the next ones leave it out, too,
although they may not have to read it."""


@contextmanager
def committed_trajectories(workspace: Workspace) -> Iterator[CommittedTrajectories]:
    """Every committed trajectory as a local folder; damaged and missing ones are counted.

    A trajectory under the id that an earlier version gave its folder is left out and counted when
    there is one under the present id, so that no demonstration is in a dataset twice.
    A quarantined demonstration whose last good trajectory is still committed is included with it.
    """
    left_out: Counter[str] = Counter(broken=0, quarantined=0)
    names, renamed = _present_names(workspace.store)
    if renamed:
        left_out["renamed"] = renamed
    noted = _still_damaged(workspace.store)
    with workspace.store.open_all([name for name in names if name not in noted]) as opened:
        damaged = sorted(set(names) - {version.output for _, version in opened})
        left_out["broken"] = len(damaged)
        versions = {version.output.rpartition("/")[2]: version for _, version in opened}
        trajectories = tuple(
            DatasetTrajectory(key, folder, version.content)
            for key, (folder, version) in zip(versions, opened, strict=True)
        )
        del names, opened  # thousands of texts
        for record in list_quarantine(workspace.store):
            left_out["quarantined"] += record.demonstration not in versions
        yield CommittedTrajectories(trajectories, versions, left_out, tuple(damaged))


def _still_damaged(store: Store) -> set[str]:
    """The outputs that were found damaged and were not built again since."""
    _damaged.difference_update(
        [(url, name) for url, name in _damaged if url == store.url and not store.verify(name)]
    )
    return {name for url, name in _damaged if url == store.url}


def note_damage(store: Store, output: str) -> bool:
    """Note that an output was found damaged, unless only its local copy of a bucket was."""
    if store.verify(output):
        _damaged.add((store.url, output))
    return (store.url, output) in _damaged


class DocumentComparison:
    """Compares the files of trajectories but their pictures with their manifests, each once.

    What a build reads has then the SHA-256 of its commit, at a millisecond a trajectory. Pictures
    are linked, not read: the commit compares those that were written to since.

    Args:
        committed: the trajectories.
    """

    def __init__(self, committed: CommittedTrajectories) -> None:
        self._versions, self._compared = committed.versions, set[str]()

    def __call__(self, source: DatasetTrajectory) -> None:
        """Compare one. Raises `ChangedOutput` for a damaged one."""
        version = self._versions.get(source.id)
        if version is None or source.id in self._compared:
            return
        damage = document_damage(source.path, version.output)
        if damage is not None:
            raise damage.as_error()
        self._compared.add(source.id)


def _present_names(store: Store) -> tuple[list[str], int]:
    """The outputs of trajectories under their present ids, and how many others there are."""
    outputs = store.outputs(TRAJECTORIES_STAGE.folder)
    known = frozenset(outputs)
    names = [output for output in outputs if not _is_renamed(output, known)]
    return names, len(outputs) - len(names)


def _is_renamed(output: str, outputs: frozenset[str]) -> bool:
    """Whether the trajectory stands under its present id, too."""
    key = output.rpartition("/")[2]
    return is_former_id(key) and TRAJECTORIES_STAGE.output(safe_id(key)) in outputs


def without_unreadable(committed: CommittedTrajectories) -> CommittedTrajectories:
    """The trajectories that are still valid; the others are counted as broken."""
    outputs = {key: version.output for key, version in committed.versions.items()}
    gone = {outputs[one.id] for one in committed.trajectories if not _is_valid(one)}
    return without_outputs(committed, gone)


def without_outputs(
    committed: CommittedTrajectories, outputs: Collection[str]
) -> CommittedTrajectories:
    """The trajectories but those of these outputs, which are counted as broken."""
    gone = {key for key, version in committed.versions.items() if version.output in outputs}
    kept = tuple(one for one in committed.trajectories if one.id not in gone)
    versions = {key: version for key, version in committed.versions.items() if key not in gone}
    broken = [committed.versions[key].output for key in gone]
    damaged = tuple(sorted({*committed.damaged, *broken}))
    left_out = {**committed.left_out, "broken": len(damaged)}
    return CommittedTrajectories(kept, versions, left_out, damaged)


def _is_valid(trajectory: DatasetTrajectory) -> bool:
    try:
        load(trajectory)
    except (DemonstrationError, ChangedOutput):
        return False
    return not errors(validate_trajectory(trajectory.path, trajectory.id))
