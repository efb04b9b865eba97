"""What every stage shares: roots and settings, what its code gets, how it is described.

Belongs here: types only. The stages themselves are in chain.py, running one in stages.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.problems import Problem
from demo_pipeline.recording import manifest
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.settings import Section, Settings
from demo_pipeline.storage.objects.urls import local_path
from demo_pipeline.storage.store.store import Store, open_store
from demo_pipeline.storage.uploads.uploads import Uploads, open_uploads

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Workspace:
    """The roots and the settings: all that a stage may reach.

    `tasks` is the folder of OSWorld task files, which need not be there.
    """

    settings: Settings
    uploads: Uploads
    store: Store
    tasks: Path

    @classmethod
    def open(cls, settings: Settings) -> "Workspace":
        """Open the roots. Raises `StorageError` for a root of a kind that is not supported."""
        uploads = open_uploads(settings.uploads, local_path(settings.cache))
        store = open_store(settings.store, local_path(settings.cache))
        return cls(settings, uploads, store, local_path(settings.osworld_tasks))


@dataclass(frozen=True)
class StageContext:
    """What a stage's code gets: its demonstration, its inputs, its settings.

    Attributes:
        upload: folder with the uploaded files, for the stages that read them.
        copies: the uploads are downloads: `raw_recordings` keeps them in its output, and that is
            the `upload` of every later stage.
    """

    demonstration: str
    name: str
    upload: Path
    manifest: RecordingManifest | None
    folders: Mapping[str, Path]
    settings: Settings
    link: TaskMatch = NO_CATALOG
    copies: bool = False

    @property
    def recording(self) -> RecordingManifest:
        """The committed manifest; every stage but the first has it."""
        if self.manifest is None:
            raise ValueError("raw_recordings has no manifest yet")
        return self.manifest

    def file(self, name: str) -> Path:
        """An uploaded file, proven to be the one the manifest speaks of."""
        if self.copies:  # committed with the manifest: the store has verified them
            return manifest.kept_file(self.upload, name, self.recording)
        return manifest.verified_file(self.upload, name, self.recording)


@dataclass(frozen=True)
class Check:
    """One check: its name, what it makes sure of, and the function that looks at the files."""

    name: str
    description: str
    run: Callable[[StageContext, Path], Sequence[Problem]]
    blocking: bool = True


@dataclass(frozen=True)
class Stage:
    """One stage of the chain.

    Attributes:
        name: of the asset.
        folder: of its outputs in the store: `<folder>/<demonstration>`.
        inputs: names of the stages whose outputs it reads.
        uploads: it reads the uploaded files too.
        linked: it is told which OSWorld task the demonstration is of.
        build: writes into a folder, returns a summary.
    """

    name: str
    folder: str
    code_version: str
    inputs: tuple[str, ...]
    section: Callable[[Settings], Section]
    build: Callable[[StageContext, Path], Summary]
    checks: tuple[Check, ...]
    uploads: bool = False
    linked: bool = False

    def output(self, demonstration: str) -> str:
        """Name of the stage's output in the store."""
        return f"{self.folder}/{demonstration}"
