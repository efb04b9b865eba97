"""What the code of a stage receives: roots, settings and opened inputs.

Belongs here: `Workspace` and the two context types. What a stage is: see stage_types.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.index import ExportState
from demo_pipeline.datasets.selection import DatasetTrajectory, counted_provenance
from demo_pipeline.datasets.views import View
from demo_pipeline.exports.dataset_stats import Provenance
from demo_pipeline.osworld.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.recording import manifest
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.settings import Settings
from demo_pipeline.storage.objects.urls import local_path
from demo_pipeline.storage.store.store import Store, open_store
from demo_pipeline.storage.store.version_manifest import Version, VersionName
from demo_pipeline.storage.uploads.uploads import Uploads, open_uploads

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Workspace:
    """The roots and the settings: everything that a stage may access.

    `tasks` is the folder of OSWorld task files, which may be missing.
    """

    settings: Settings
    uploads: Uploads
    store: Store
    tasks: Path

    @classmethod
    def open(cls, settings: Settings) -> "Workspace":
        """Open the roots. Raises `StorageError` for a root of a kind that is not supported."""
        uploads = open_uploads(settings.uploads, local_path(settings.cache), settings.limits)
        store = open_store(settings.store, local_path(settings.cache))
        return cls(settings, uploads, store, local_path(settings.osworld_tasks))


@dataclass(frozen=True)
class StageContext:
    """What the code of a demonstration's stage receives.

    Attributes:
        demonstration: safe id.
        upload_name: name of the uploaded folder, which the id was derived from.
        upload: folder with the uploaded files, for the stages that read them.
        manifest: of the recording; None in the first stage, which writes it.
        folders: stage → folder with its output, for every input of the stage.
        settings: every threshold.
        task_match: which OSWorld task the demonstration is of, for the stages that ask.
        downloaded: the uploads are downloads. Then `raw_recordings` keeps the files in its output,
            which is the `upload` of every later stage.
    """

    demonstration: str
    upload_name: str
    upload: Path
    manifest: RecordingManifest | None
    folders: Mapping[str, Path]
    settings: Settings
    task_match: TaskMatch = NO_CATALOG
    downloaded: bool = False

    @property
    def recording(self) -> RecordingManifest:
        """The committed manifest, which every stage but the first has."""
        if self.manifest is None:
            raise ValueError("raw_recordings has no manifest yet")
        return self.manifest

    def file(self, name: str) -> Path:
        """An uploaded file, verified against its hash in the manifest."""
        if self.downloaded:  # committed with the manifest: the store has verified it
            return manifest.kept_file(self.upload, name, self.recording)
        return manifest.verified_file(self.upload, name, self.recording)


@dataclass(frozen=True)
class CommittedTrajectories:
    """The committed trajectories that a dataset is built from.

    Attributes:
        trajectories: sorted by id.
        versions: id → the version that is read.
        left_out: reason → number of demonstrations without a usable trajectory.
        damaged: the outputs that `left_out` counts as broken.
    """

    trajectories: tuple[DatasetTrajectory, ...] = ()
    versions: Mapping[str, VersionName] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @cached_property  # for the card and for the check
    def provenance(self) -> Provenance:
        """What their statistics are counted from: kept rows, else the files that exist."""
        kept = counted_provenance(self.trajectories)
        if kept is not None:
            return kept
        files = [trajectory.provenance for trajectory in self.trajectories]
        return [file for file in files if file.is_file()]


@dataclass(frozen=True)
class DatasetContext:
    """What the code of a dataset stage receives.

    Attributes:
        settings: every threshold.
        committed: the trajectories, for a stage with the input `trajectories`.
        folders: output → folder with its content, for every input that is a dataset stage and has
            been built.
        views: over every output of the store, for the stage that writes them down.
        source: the value that `DatasetStage.source` read; None without one.
        published: the stage's published outputs by name, for a stage with several.
        code_version: of the stage.
        exports: the state of every training export, for a stage that follows them.
    """

    settings: Settings
    committed: CommittedTrajectories = field(default_factory=CommittedTrajectories)
    folders: Mapping[str, Path] = field(default_factory=dict)
    views: tuple[View, ...] = ()
    source: Any = None
    published: Mapping[str, Version] = field(default_factory=dict)
    code_version: str = ""
    exports: tuple[ExportState, ...] = ()
