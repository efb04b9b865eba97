"""Assigns trajectories to splits, mostly as in the last build, and finds duplicates.

The store contains a document, called the memory, with the split of each demonstration at the last
build. Duplicates are demonstrations with the same video or log.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from demo_pipeline.datasets.selection import head_of
from demo_pipeline.datasets.splits import plan_splits
from demo_pipeline.files.recording_files import LOG_FILE, VIDEO_FILE
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.manifest import MANIFEST_FILE, read_manifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.split_memory import KnownDemonstration, SplitMemory, read_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

# Settings that decide the splits. If any of these settings changes, all splits are assigned again.
_PLACING = ("seed", "train_ratio", "val_ratio", "test_ratio", "held_out_applications")


def place(
    store: Store, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[tuple[DatasetTrajectory, ...], SplitMemory]:
    """Assigns group, split and `duplicate_of` to each trajectory.

    No trajectory is read if nothing changed since the last build.

    Returns:
        The trajectories in the given order, and the splits to store for the next build.

    Raises:
        ChangedOutput: a file in an output of the stage `records` differs from the committed file.
    """
    memory = read_split_memory(store)
    made_of = _made_of(trajectories, settings)
    if memory.made_of != made_of:
        memory = _Placement(store, memory, settings).remember(trajectories, made_of)
    placed = []
    for trajectory in trajectories:
        demonstration = memory.demonstrations.get(trajectory.id, KnownDemonstration())
        placed.append(_placed(trajectory, demonstration))
    return tuple(placed), memory


def splits_fingerprint(trajectories: Sequence[DatasetTrajectory]) -> str:
    """Returns a hash that changes if the group, split or `duplicate_of` of a trajectory changes."""
    rows = [
        (trajectory.id, trajectory.group, trajectory.split, trajectory.duplicate_of)
        for trajectory in trajectories
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _placed(source: DatasetTrajectory, demonstration: KnownDemonstration) -> DatasetTrajectory:
    """Returns the trajectory with group, split and `duplicate_of` of a demonstration."""
    return replace(
        source,
        group=demonstration.group,
        split=demonstration.split,
        duplicate_of=demonstration.duplicate_of,
    )


def _made_of(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> str:
    """Returns a hash of all inputs on which splits and duplicates depend."""
    rows = []
    for trajectory in trajectories:
        digests = sorted(trajectory.digests.items())
        rows.append(
            (
                trajectory.id,
                trajectory.content,
                digests,
                trajectory.review,
                trajectory.rejected_for,
            )
        )
    return hashlib.sha256(json.dumps([settings.fingerprint(), rows]).encode()).hexdigest()


@dataclass
class _Placement:
    """Assigns splits for a build, given the splits of the last build.

    Attributes:
        before: the splits of the last build, with the facts that decided them.
        settings: the settings of the datasets, including those in `_PLACING`.
        demonstrations: maps demonstration ids to the split and other facts to store for the next
            build.
    """

    store: Store
    before: SplitMemory
    settings: DatasetSettings
    demonstrations: dict[str, KnownDemonstration] = field(default_factory=dict)

    def remember(self, trajectories: Sequence[DatasetTrajectory], made_of: str) -> SplitMemory:
        """Assigns each trajectory to a split. Returns the splits to store for the next build."""
        placing = json.dumps({name: getattr(self.settings, name) for name in _PLACING})
        keeps_splits = self.before.placing == placing
        for trajectory in trajectories:
            self.demonstrations[trajectory.id] = self._read(trajectory, keeps_split=keeps_splits)
        self._find_duplicates(trajectories)
        sources = []
        for trajectory in trajectories:
            demonstration = self.demonstrations[trajectory.id]
            sources.append(_placed(trajectory, demonstration))
        _, plan = plan_splits(sources, self.settings)
        moved: dict[str, tuple[str, str]] = {}
        for key, split in plan.splits.items():
            split_before = self.demonstrations[key].split
            if split_before and split_before != split:
                moved[key] = (split_before, split.value)
            self.demonstrations[key] = msgspec.structs.replace(
                self.demonstrations[key], group=plan.members[key], split=split.value
            )
        return SplitMemory(made_of, placing, self.demonstrations, moved)

    def _read(self, source: DatasetTrajectory, *, keeps_split: bool) -> KnownDemonstration:
        """Returns the demonstration's new entry in the memory, before its split is assigned.

        If the task is unchanged, the entry keeps the group from the last build and, with
        `keeps_split`, also the split.
        """
        try:
            task = head_of(source).split_groups[0]
        except DemonstrationError:  # `selection.select` reports unreadable trajectories
            task = ""
        before = self.before.demonstrations.get(source.id, KnownDemonstration())
        group = ""
        split = ""
        if before.task == task:
            group = before.group
            if keeps_split:
                split = before.split
        files = before.files
        if before.content != source.content:
            files = self._files(source.id)
        return KnownDemonstration(task, group, split, files, source.content)

    def _files(self, demonstration: str) -> tuple[str, ...]:
        """Returns the SHA-256 hashes of video and log, or () if the manifest is unreadable."""
        try:
            folder, _ = self.store.open(RAW_RECORDINGS_STAGE.output(demonstration), MANIFEST_FILE)
            manifest = read_manifest(folder)
        except (MissingOutput, DemonstrationError):
            return ()
        return tuple(manifest.file(name).sha256 for name in (VIDEO_FILE, LOG_FILE))

    def _find_duplicates(self, trajectories: Sequence[DatasetTrajectory]) -> None:
        """Sets `duplicate_of` if an older demonstration has the same video or log.

        Demonstrations that were in the last build and were no duplicates there count as older than
        all others. Otherwise, the demonstration with the smaller id counts as older.
        """
        ids = [trajectory.id for trajectory in trajectories]
        # Maps the SHA-256 of a file to the id of the oldest demonstration that contains the file
        # and is no duplicate.
        owner_of_file: dict[str, str] = {}
        for key in sorted(ids, key=lambda key: (not self._was_original(key), key)):
            files = self.demonstrations[key].files
            older = next((owner_of_file[file] for file in files if file in owner_of_file), "")
            self.demonstrations[key] = msgspec.structs.replace(
                self.demonstrations[key], duplicate_of=older
            )
            if not older:
                owner_of_file.update(dict.fromkeys(files, key))

    def _was_original(self, key: str) -> bool:
        """Returns whether the demonstration was in the last build and was no duplicate there."""
        before = self.before.demonstrations.get(key)
        return before is not None and not before.duplicate_of
