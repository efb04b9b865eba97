"""Places every trajectory in its split, after the memory of the last build.

Decides which demonstrations are known, which moved, and which are twins: copies of one recording.
The rules of splits are in `splits`.
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

_PLACING = ("seed", "train_ratio", "val_ratio", "test_ratio", "held_out_applications")


def place(
    store: Store, trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[tuple[DatasetTrajectory, ...], SplitMemory]:
    """Every trajectory with its group, its split and its twin, and the memory of this build.

    No trajectory is read if nothing changed since the last build.

    Raises:
        ChangedOutput: a file of records is not the one that was committed.
    """
    memory = read_split_memory(store)
    made_of = _made_of(trajectories, settings)
    if memory.made_of != made_of:
        memory = _Placement(store, memory, settings).remember(trajectories, made_of)
    demonstrations = memory.demonstrations
    placed = [
        _placed(trajectory, demonstrations.get(trajectory.id, KnownDemonstration()))
        for trajectory in trajectories
    ]
    return tuple(placed), memory


def splits_fingerprint(trajectories: Sequence[DatasetTrajectory]) -> str:
    """A hash that changes when a demonstration gets another split, another task, or a twin."""
    rows = [
        (trajectory.id, trajectory.group, trajectory.split, trajectory.duplicate_of)
        for trajectory in trajectories
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _placed(source: DatasetTrajectory, place: KnownDemonstration) -> DatasetTrajectory:
    """A trajectory with its group, its split and its twin."""
    return replace(source, group=place.group, split=place.split, duplicate_of=place.duplicate_of)


def _made_of(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> str:
    """A hash of everything that decides splits and twins."""
    rows = [
        (
            trajectory.id,
            trajectory.content,
            sorted(trajectory.digests.items()),
            trajectory.review,
            trajectory.rejected_for,
        )
        for trajectory in trajectories
    ]
    return hashlib.sha256(json.dumps([settings.fingerprint(), rows]).encode()).hexdigest()


@dataclass
class _Placement:
    """Places the trajectories of a build after the memory of the last build.

    Attributes:
        store: has the manifests of the recordings.
        before: the memory of the last build.
        settings: the rules of splits.
        demonstrations: id → facts and place of each demonstration.
    """

    store: Store
    before: SplitMemory
    settings: DatasetSettings
    demonstrations: dict[str, KnownDemonstration] = field(default_factory=dict)

    def remember(self, trajectories: Sequence[DatasetTrajectory], made_of: str) -> SplitMemory:
        """Assigns each trajectory to a split and returns the memory for the next build."""
        placing = json.dumps({name: getattr(self.settings, name) for name in _PLACING})
        keeps_splits = self.before.placing == placing
        for trajectory in trajectories:
            self.demonstrations[trajectory.id] = self._read(trajectory, keeps_split=keeps_splits)
        self._find_duplicates(trajectories)
        sources = [
            _placed(trajectory, self.demonstrations[trajectory.id]) for trajectory in trajectories
        ]
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
        """The facts of a demonstration that decide its place, and its place at the last build."""
        try:
            task = head_of(source).split_groups[0]
        except DemonstrationError:  # the selection reports it
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
        """SHA-256 of the video and of the log; empty if the recording's manifest is unreadable."""
        try:
            folder, _ = self.store.open(RAW_RECORDINGS_STAGE.output(demonstration), MANIFEST_FILE)
            manifest = read_manifest(folder)
        except (MissingOutput, DemonstrationError):
            return ()
        return tuple(manifest.file(name).sha256 for name in (VIDEO_FILE, LOG_FILE))

    def _find_duplicates(self, trajectories: Sequence[DatasetTrajectory]) -> None:
        """Note demonstrations whose video or log an older one has; new ones age by their ids."""
        ids = [trajectory.id for trajectory in trajectories]
        owner_of_file: dict[str, str] = {}
        for key in sorted(ids, key=lambda key: (not self._was_first(key), key)):
            files = self.demonstrations[key].files
            older = next((owner_of_file[file] for file in files if file in owner_of_file), "")
            self.demonstrations[key] = msgspec.structs.replace(
                self.demonstrations[key], duplicate_of=older
            )
            if not older:
                owner_of_file.update(dict.fromkeys(files, key))

    def _was_first(self, key: str) -> bool:
        last = self.before.demonstrations.get(key)
        return last is not None and not last.duplicate_of
