"""Opens the committed trajectories, from which datasets and evaluations are built.

The records of a demonstration are its training examples in several formats. Demonstrations with
damaged records are left out, and their number and names are returned.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories
from demo_pipeline.datasets.placement import place, splits_fingerprint
from demo_pipeline.datasets.selection import CORRECTIONS_FILE, NOTES_FILE, TRAJECTORY_FILE
from demo_pipeline.exports.record_stages import RECORDS_STAGE, record_fingerprints
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.privacy.redaction_stage import hash_of_settings, privacy_sentence
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.store.errors import ChangedOutput, MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version, VersionName
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

SPLITS = "splits"  # key in a recipe's inputs; the value is a fingerprint of all splits


@dataclass(frozen=True, slots=True)
class _CommittedRecords:
    """The facts that datasets need about the records of a demonstration.

    Attributes:
        folder: the folder with the files of the records. A string takes a tenth of the memory of a
            `Path`, and thousands of these objects are in memory.
        name: name and id of the version of the records.
        trajectory: name and id of the version of the trajectory from which the records were made.
        digests: maps the name of each file to its SHA-256. Files that the current code and settings
            would change are left out.
        withheld: why the demonstration must not leave the store; empty if it may.
    """

    folder: str
    name: VersionName
    trajectory: VersionName
    digests: Mapping[str, str]
    withheld: str
    summary: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        folder: str,
        version: Version,
        fingerprints: Mapping[str, str],
        privacy: PrivacySettings,
    ) -> Self:
        """Extracts the needed facts from a version of a demonstration's records.

        Args:
            folder: the folder with the files of the version.
            fingerprints: maps the name of each file of records to a fingerprint of the current code
                and settings for this file.
            privacy: the current privacy settings. If they remove private data, records that were
                searched with other settings are withheld.
        """
        manifest = version.manifest
        link = manifest.links[TRAJECTORIES_STAGE.name]
        stage_of_link = link.output.partition("/")[0]  # `trajectories` or `redactions`
        content = manifest.inputs[stage_of_link]
        in_present_form = _files_in_present_form(version, fingerprints)
        return cls(
            folder=folder,
            name=version.name,
            trajectory=VersionName(link.output, link.version, content),
            digests={
                file.path: file.sha256 for file in manifest.files if file.path in in_present_form
            },
            withheld=_why_withheld(manifest.summary, privacy),
            summary=manifest.summary,
        )

    @property
    def demonstration(self) -> str:
        """The id of the demonstration."""
        return self.name.output.rpartition("/")[2]


def _files_in_present_form(version: Version, fingerprints: Mapping[str, str]) -> set[str]:
    """Returns the files of records that the current code and settings would not change.

    Datasets read these files, and rebuild the rows of all other files from the trajectory.

    `Graph.state` cannot name these files, because it returns a single state for all files. This
    state also depends on the upload, which datasets ignore.
    """
    in_present_form = {CORRECTIONS_FILE, NOTES_FILE}
    manifest = version.manifest
    if manifest.code_version != RECORDS_STAGE.code_version:
        return in_present_form
    in_present_form.add(TRAJECTORY_FILE)
    in_present_form |= {file.path for file in manifest.files if "/" in file.path}
    for name, fingerprint in fingerprints.items():
        if manifest.inputs.get(name) == fingerprint:
            in_present_form.add(name)
    return in_present_form


def _why_withheld(summary: Mapping[str, Any], privacy: PrivacySettings) -> str:
    if summary.get("withheld"):
        return str(summary["withheld"])
    if privacy.reads_pictures and summary.get("privacy") != hash_of_settings(privacy):
        return "not looked at"
    return ""


def committed_trajectories(
    workspace: Workspace, damaged: Collection[str] = ()
) -> CommittedTrajectories:
    """Returns every trajectory with undamaged records, assigned to its split.

    A quarantined demonstration is included if its records were committed before the quarantine.

    Args:
        damaged: names of outputs that are known to be damaged.

    Raises:
        StorageError: the store cannot be read.
    """
    damaged_outputs = set(damaged)
    while True:
        try:
            return _placed(workspace, damaged_outputs)
        except ChangedOutput as error:
            if error.output in damaged_outputs:
                raise
            damaged_outputs.add(error.output)


def damaged_records(committed: CommittedTrajectories) -> Iterator[ChangedOutput]:
    """Reads the tables of all records, and yields the first damaged file of each demonstration.

    Screenshots are not read.
    """
    for trajectory in committed.trajectories:
        output = committed.records[trajectory.id].output
        for name, digest in trajectory.digests.items():
            if "/" in name:
                continue
            file = Path(trajectory.records, name)
            if not file.is_file() or read_digest(file).sha256 != digest:
                yield ChangedOutput(output, name)
                break


def _placed(workspace: Workspace, damaged: Collection[str]) -> CommittedTrajectories:
    store = workspace.store
    privacy = workspace.settings.privacy
    all_records, broken = _open_records(workspace, damaged)
    usable = {records.demonstration: records for records in all_records if not records.withheld}
    trajectories = _trajectories(workspace, usable)
    trajectories, memory = place(store, trajectories, workspace.settings.datasets)
    quarantined = [
        record for record in list_quarantine(store) if record.demonstration not in usable
    ]
    return CommittedTrajectories(
        trajectories=trajectories,
        versions={key: records.trajectory for key, records in usable.items()},
        records={key: records.name for key, records in usable.items()},
        left_out={
            "broken": len(broken),
            "quarantined": len(quarantined),
            "private": len(all_records) - len(usable),
        },
        damaged=tuple(sorted(broken)),
        notices=(*memory.twins(), *memory.moves()),
        privacy=privacy_sentence(privacy, [records.summary for records in usable.values()]),
        memory=memory,
    )


def _open_records(
    workspace: Workspace, damaged: Collection[str]
) -> tuple[list[_CommittedRecords], list[str]]:
    """Opens the records of all demonstrations.

    Returns the undamaged records and, for each other demonstration, the name of a damaged output.
    """
    store = workspace.store
    privacy = workspace.settings.privacy
    fingerprints = record_fingerprints(workspace.settings)
    damaged_ids = {name.rpartition("/")[2] for name in damaged}
    opened: list[_CommittedRecords] = []
    broken: list[str] = []
    for name in store.outputs(RECORDS_STAGE.folder):
        version = store.current(name)
        if version is None or name.rpartition("/")[2] in damaged_ids:
            if not _is_forgotten(store, name):
                broken.append(_damaged_output(store, name))
            continue
        try:
            store.open_version(version, None)
        except MissingOutput:
            broken.append(_damaged_output(store, name))
            continue
        folder = store.local.content(version.path)
        opened.append(_CommittedRecords.of(folder, version, fingerprints, privacy))
    return opened, broken


def _is_forgotten(store: Store, output: str) -> bool:
    """Returns whether `forget` removed an output after it was listed."""
    return [damage.code for damage in store.verify(output)] == ["missing_output"]


def _damaged_output(store: Store, records: str) -> str:
    """Returns the damaged output that makes records unreadable.

    The result is the linked trajectory if it is damaged, otherwise the records.
    """
    trajectory = TRAJECTORIES_STAGE.output(records.rpartition("/")[2])
    return trajectory if store.verify(trajectory) else records


def _trajectories(
    workspace: Workspace, usable: Mapping[str, _CommittedRecords]
) -> tuple[DatasetTrajectory, ...]:
    """Returns the trajectories with reviewers' verdicts, before splits are assigned."""
    versions = {key: records.trajectory for key, records in usable.items()}
    verdicts = workspace.reviews.verdicts(versions)
    trajectories = []
    for key, records in usable.items():
        trajectory = DatasetTrajectory(
            key,
            f"{records.folder}/{TRAJECTORIES_STAGE.name}",
            records.trajectory.content,
            records=records.folder,
            digests=records.digests,
        )
        if key in verdicts:
            verdict = verdicts[key]
            trajectory = replace(
                trajectory, review=verdict.status, rejected_for=verdict.rejected_for
            )
        trajectories.append(trajectory)
    return tuple(trajectories)


def trajectory_fingerprints(
    committed: CommittedTrajectories, files: Sequence[str], required_review: str
) -> dict[str, str]:
    """Maps the id of each trajectory to a fingerprint, and `SPLITS` to a fingerprint of all splits.

    A dataset is out of date if one of these fingerprints has changed.

    Args:
        files: the files of records that the dataset reads.
        required_review: the setting `datasets.require_review`.
    """
    fingerprints = {
        trajectory.id: trajectory_fingerprint(trajectory, files, required_review)
        for trajectory in committed.trajectories
    }
    fingerprints[SPLITS] = splits_fingerprint(committed.trajectories)
    return fingerprints


def trajectory_fingerprint(
    trajectory: DatasetTrajectory, files: Sequence[str], required_review: str
) -> str:
    """Returns a fingerprint of a trajectory and of the given files of its records.

    The reviewers' verdict is covered only if datasets depend on it.
    """
    parts = [trajectory.content, *(trajectory.digests.get(name, "") for name in files)]
    is_rejected = required_review == "not_rejected" and trajectory.rejected_for
    if required_review == "approved" or is_rejected:
        parts += [trajectory.review, trajectory.rejected_for]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
