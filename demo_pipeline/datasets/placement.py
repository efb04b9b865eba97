"""Places every trajectory in its split, after what is remembered of the last build.

Belongs here: which demonstrations are known, moved or twins. The rules of splits are in `splits`.
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
    """Every trajectory with its group, its split and its twin, and what is to be remembered.

    Nothing is read of the trajectories when nothing changed since the last build.

    Raises:
        ChangedOutput: a file of records is not the one that was committed.
    """
    memory = read_split_memory(store)
    made_of = _made_of(trajectories, settings)
    if memory.made_of != made_of:
        memory = _Placement(store, memory, settings).made(trajectories, made_of)
    known = memory.demonstrations
    return tuple(
        _with(one, known.get(one.id, KnownDemonstration())) for one in trajectories
    ), memory


def splits_fingerprint(trajectories: Sequence[DatasetTrajectory]) -> str:
    """Changes when a demonstration gets another split, another task, or a twin."""
    rows = [(one.id, one.group, one.split, one.duplicate_of) for one in trajectories]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _with(source: DatasetTrajectory, known: KnownDemonstration) -> DatasetTrajectory:
    return replace(source, group=known.group, split=known.split, duplicate_of=known.duplicate_of)


def _made_of(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> str:
    rows = [
        (one.id, one.content, sorted(one.digests.items()), one.review, one.rejected_for)
        for one in trajectories
    ]
    return hashlib.sha256(json.dumps([settings.fingerprint(), rows]).encode()).hexdigest()


@dataclass
class _Placement:
    """Places the trajectories of a build after what is remembered of the last one."""

    store: Store
    before: SplitMemory
    settings: DatasetSettings
    known: dict[str, KnownDemonstration] = field(default_factory=dict)

    def made(self, trajectories: Sequence[DatasetTrajectory], made_of: str) -> SplitMemory:
        """What is to be remembered."""
        placing = json.dumps(self.settings.model_dump(include=set(_PLACING)))
        stays = self.before.placing == placing
        for one in trajectories:
            self.known[one.id] = self._read(one, stays=stays)
        self._find_duplicates(trajectories)
        sources = [_with(one, self.known[one.id]) for one in trajectories]
        _, plan = plan_splits(sources, self.settings)
        moved = {}
        for key, split in plan.splits.items():
            known = self.known[key]
            last = self.known[key].split
            if last and last != split:
                moved[key] = (last, split.value)
            self.known[key] = msgspec.structs.replace(
                known, group=plan.members[key], split=split.value
            )
        return SplitMemory(made_of, placing, self.known, moved)

    def _read(self, source: DatasetTrajectory, *, stays: bool) -> KnownDemonstration:
        """What is known of a demonstration before it is placed."""
        try:
            task = head_of(source).split_groups[0]
        except DemonstrationError:  # the selection reports it
            task = ""
        last = self.before.demonstrations.get(source.id, KnownDemonstration())
        same = last.task == task
        return KnownDemonstration(
            task,
            last.group if same else "",
            last.split if same and stays else "",
            last.files if last.content == source.content else self._files(source.id),
            source.content,
        )

    def _files(self, demonstration: str) -> tuple[str, ...]:
        """SHA-256 of film and log; none when the recording's manifest cannot be read."""
        try:
            folder, _ = self.store.open(RAW_RECORDINGS_STAGE.output(demonstration), MANIFEST_FILE)
            manifest = read_manifest(folder)
        except (MissingOutput, DemonstrationError):
            return ()
        return tuple(manifest.file(name).sha256 for name in (VIDEO_FILE, LOG_FILE))

    def _find_duplicates(self, trajectories: Sequence[DatasetTrajectory]) -> None:
        """Note whose film or log an older demonstration has; of new ones the first id is older."""
        ids = [one.id for one in trajectories]
        seen: dict[str, str] = {}
        for key in sorted(ids, key=lambda key: (not self._was_first(key), key)):
            known = self.known[key]
            older = next((seen[file] for file in known.files if file in seen), "")
            self.known[key] = msgspec.structs.replace(known, duplicate_of=older)
            for file in known.files if not older else ():
                seen[file] = key

    def _was_first(self, key: str) -> bool:
        last = self.before.demonstrations.get(key)
        return last is not None and not last.duplicate_of
