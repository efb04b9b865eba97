"""The committed trajectories of a store, and which of them can be read.

Belongs here: opening them for the dataset stages.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from demo_pipeline.datasets.selection import DatasetTrajectory, load
from demo_pipeline.formats.desktopd.validator import validate_trajectory
from demo_pipeline.pipeline.context import CommittedTrajectories, Workspace
from demo_pipeline.pipeline.demonstration_stages import TRAJECTORIES_STAGE
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.problems import DemonstrationError, errors
from demo_pipeline.storage.ids import is_former_id, safe_id
from demo_pipeline.storage.store.store import Store


@contextmanager
def committed_trajectories(workspace: Workspace) -> Iterator[CommittedTrajectories]:
    """Every committed trajectory as a local folder; broken and missing ones are counted.

    A trajectory under the id that an earlier version gave its folder is left out and counted when
    there is one under the present id, so that no demonstration is in a dataset twice.
    A quarantined demonstration whose last good trajectory is still committed is included with it.
    """
    left_out: Counter[str] = Counter(broken=0, quarantined=0)
    names, renamed = _present_names(workspace.store)
    if renamed:
        left_out["renamed"] = renamed
    with workspace.store.open_all(names) as opened:
        left_out["broken"] = len(names) - len(opened)
        versions = {version.output.rpartition("/")[2]: version for _, version in opened}
        trajectories = tuple(
            DatasetTrajectory(key, folder, version.content)
            for key, (folder, version) in zip(versions, opened, strict=True)
        )
        del names, opened  # thousands of texts
        for record in list_quarantine(workspace.store):
            left_out["quarantined"] += record.demonstration not in versions
        yield CommittedTrajectories(trajectories, versions, left_out)


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
    kept = [trajectory for trajectory in committed.trajectories if _is_valid(trajectory)]
    broken = committed.left_out["broken"] + len(committed.trajectories) - len(kept)
    versions = {trajectory.id: committed.versions[trajectory.id] for trajectory in kept}
    return CommittedTrajectories(tuple(kept), versions, {**committed.left_out, "broken": broken})


def without_output(committed: CommittedTrajectories, output: str) -> CommittedTrajectories:
    """The trajectories but the one of this output, which is counted as broken."""
    gone = {key for key, version in committed.versions.items() if version.output == output}
    kept = tuple(one for one in committed.trajectories if one.id not in gone)
    versions = {key: version for key, version in committed.versions.items() if key not in gone}
    broken = committed.left_out["broken"] + len(gone)
    return CommittedTrajectories(kept, versions, {**committed.left_out, "broken": broken})


def _is_valid(trajectory: DatasetTrajectory) -> bool:
    try:
        load(trajectory)
    except DemonstrationError:
        return False
    return not errors(validate_trajectory(trajectory.path, trajectory.id))
