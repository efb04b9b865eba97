"""Writes plain copies of the built datasets, or a dataset for the Hugging Face Hub.

The content of the files for the Hub is defined in `exports/hub_layout.py`.
"""

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo_pipeline.datasets.card_files import CARD
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.dataset_statistics import SplitStats, table_stats
from demo_pipeline.exports.hub_layout import HubConfig, hub_card, write_hub_config
from demo_pipeline.files.atomic_write import (
    FileId,
    file_id,
    link_or_copy,
    read_digest,
    replace_synced,
    sync_tree,
)
from demo_pipeline.files.comparison import files_below
from demo_pipeline.privacy.redaction_stage import REDACTIONS, hash_of_settings
from demo_pipeline.runs.committed_trajectories import committed_trajectories
from demo_pipeline.runs.damage import damage_problem
from demo_pipeline.runs.dataset_outputs import LOOKED_FOR
from demo_pipeline.runs.stages import built_stages, datasets_job_stages, export_of_stage
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings, Settings
from demo_pipeline.stage import TrainingExport
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import lock_if_free, make_locked_folder
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version
from demo_pipeline.trajectories.provenance import Provenance
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

_EXPORTED = (
    *(stage.folder for stage in datasets_job_stages()),
    CONTACT_SHEETS_STAGE.folder,
)
# Suffixes of files that may be hard-linked, because nobody edits images in place.
_PICTURES = frozenset({".png", ".jpg", ".jpeg"})
_DRAFT_DIGITS = 16  # number of random hex digits in the name of a draft folder


def export_datasets(
    store: Store,
    dest: Path,
    disabled: Collection[str] = (),
    privacy: PrivacySettings | None = None,
) -> dict[str, int]:
    """Copies the datasets to a folder, as files without symbolic links.

    Identical images are hard-linked if the file system supports this. A contact sheet is copied
    only if its demonstration is in the index, which excludes private demonstrations.

    Args:
        dest: the folder to write, which must be missing or empty. If the export fails, the folder
            stays unchanged.
        disabled: folders of the store whose outputs are not copied.
        privacy: the privacy settings with which the datasets must have been built. If None, the
            settings are not checked.

    Returns:
        A dictionary from the name of each copied output to the number of bytes written.

    Raises:
        StorageError: `dest` is not empty, a dataset was built with other privacy settings, a file
            of an output was changed, or the disk is full.
        MissingOutput: the store has nothing to export.
    """
    wanted = [prefix for prefix in _EXPORTED if prefix not in disabled]
    names: list[str] = []
    for prefix in wanted:
        names += store.outputs(prefix)
    if not names:
        raise MissingOutput(INDEX_STAGE.folder)
    indexed = store.open(INDEX_STAGE.folder)[0] if INDEX_STAGE.folder in names else None
    names = [name for name in names if _may_leave(name, indexed)]
    _require_same_privacy(store, names, privacy)
    copier = _Copier()
    sizes: dict[str, int] = {}
    with folder_draft(dest) as draft:
        for name in names:
            before = copier.written
            target = draft / name
            require_undamaged(store, name)
            content = store.open(name)[0]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(content, target, copy_function=copier)
            sizes[name] = copier.written - before
    return sizes


def _may_leave(name: str, index: Path | None) -> bool:
    """Returns whether an output may be exported.

    A contact sheet may be exported only if its demonstration is in the index.
    """
    folder, _, demonstration = name.rpartition("/")
    if folder != CONTACT_SHEETS_STAGE.folder:
        return True
    return index is not None and Path(index, TRAJECTORIES_STAGE.folder, demonstration).is_dir()


def _require_same_privacy(
    store: Store, names: Iterable[str], privacy: PrivacySettings | None
) -> None:
    """Raises `StorageError` if an output was built with other privacy settings.

    An outdated output passes if it was built with the same privacy settings.
    """
    if privacy is None or not privacy.reads_pictures:
        return
    for name in names:
        version = store.current(name)
        if version is not None and not _was_searched(store, version, privacy):
            raise StorageError(
                f"nothing was exported: {name} was built with other settings of `privacy`; "
                "`demo-pipeline run` builds it again"
            )


def _was_searched(store: Store, version: Version, privacy: PrivacySettings) -> bool:
    """Returns whether an output was searched for private data with these privacy settings.

    The summary of a dataset contains a hash of the settings. A contact sheet has no hash. It passes
    if it was built from the demonstration's current redactions, and if the redactions were made
    with these settings. A dataset that does not read the trajectories always passes.
    """
    folder, _, demonstration = version.output.rpartition("/")
    searched_with = hash_of_settings(privacy)
    if folder == CONTACT_SHEETS_STAGE.folder:
        redactions = store.current(f"{REDACTIONS}/{demonstration}")
        if redactions is None or redactions.manifest.summary.get("privacy") != searched_with:
            return False
        return version.manifest.inputs.get(REDACTIONS) == redactions.content
    summary = version.manifest.summary
    return "left_out" not in summary or summary.get(LOOKED_FOR) == searched_with


@contextmanager
def folder_draft(dest: Path) -> Iterator[Path]:
    """Creates a draft folder next to `dest`, and renames it to `dest` if the block succeeds.

    Drafts that a killed process left next to `dest` are removed first.

    Raises:
        StorageError: `dest` is not empty, or a file could not be written.
    """
    dest = dest.resolve()
    _require_empty(dest)
    draft = dest.with_name(f".{dest.name}.{secrets.token_hex(_DRAFT_DIGITS // 2)}")
    handle = None
    try:
        dest.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned_drafts(dest)
        handle = make_locked_folder(draft)
        yield draft
        sync_tree(draft, [Path(draft, name) for name, _ in files_below(draft)])
        replace_synced(draft, dest)
    except (OSError, shutil.Error) as error:
        reason = os.strerror(error.errno) if error.errno else "a file could not be copied"
        raise StorageError(f"{dest}: nothing was exported: {reason}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _remove_abandoned_drafts(dest: Path) -> None:
    """Removes the drafts of `dest` whose processes have died."""
    draft_name = re.compile(rf"\.{re.escape(dest.name)}\.[0-9a-f]{{{_DRAFT_DIGITS}}}")
    for path in dest.parent.iterdir():
        if draft_name.fullmatch(path.name):
            with lock_if_free(path) as is_free:
                if is_free:
                    shutil.rmtree(path, ignore_errors=True)


class _Copier:
    """Copies files, and hard-links an image to the first copy of the same image.

    Attributes:
        written: number of bytes copied so far, without hard links.
    """

    def __init__(self) -> None:
        self.written = 0
        self._files: dict[FileId, Path] = {}
        self._pictures: dict[str, Path] = {}

    def __call__(self, source: str, target: str) -> None:
        first = self._first_copy(Path(source), Path(target))
        if first is None:
            shutil.copyfile(source, target)
        else:
            link_or_copy(first, Path(target))
        status = Path(target).stat()
        if status.st_nlink == 1:
            self.written += status.st_size

    def _first_copy(self, source: Path, target: Path) -> Path | None:
        """Returns the first copy of the same image.

        Returns None if `target` is the first copy, or if `source` is not an image.
        """
        if source.suffix not in _PICTURES:
            return None
        identity = file_id(source)
        if identity is None or identity not in self._files:
            first = self._pictures.setdefault(read_digest(source).sha256, target)
            if identity is not None:
                self._files[identity] = first
            return None if first == target else first
        return self._files[identity]


def require_undamaged(store: Store, name: str) -> None:
    """Compares all files of an output with its manifest.

    Raises:
        StorageError: a file is missing or was changed.
    """
    damages = store.verify(name)
    if damages:
        first = damage_problem(damages[0])
        raise StorageError(f"nothing was exported: {first} ({len(damages)} problems in all)")


def _require_empty(dest: Path) -> None:
    try:
        with os.scandir(dest) as entries:
            taken = any(entries)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        taken = True
    if taken:
        raise StorageError(f"{dest}: is not empty; give a folder that does not exist or is empty")


def export_hub_layout(workspace: Workspace, dest: Path) -> tuple[HubConfig, ...]:
    """Writes a dataset for the Hugging Face Hub: tables, images and a card.

    It contains the exports in `datasets.exports` that consist of tables.

    Raises:
        StorageError: `datasets.license` or `hub.language` is not set, `dest` is not empty, or a
            file of an export was changed.
        MissingOutput: an export was never built.
    """
    settings = workspace.settings
    _require_named(settings)
    built = map(export_of_stage, built_stages(settings))
    exports = [export for export in built if export and export.hub_tables]
    if not exports:
        raise StorageError("datasets.exports names no export with tables, such as messages")
    configs: list[HubConfig] = []
    splits: dict[str, Mapping[str, SplitStats]] = {}
    committed = committed_trajectories(workspace)
    folders = [export.stage.folder for export in exports]
    _require_same_privacy(workspace.store, folders, settings.privacy)
    with folder_draft(dest) as draft:
        for export in exports:
            configs_of_export, splits_of_export = _write(
                workspace, export, draft, committed.provenance
            )
            configs += configs_of_export
            splits |= splits_of_export
        if not any(config.rows for config in configs):
            raise StorageError("nothing was exported: no export has a row")
        text = hub_card(
            configs, splits, (settings.datasets, settings.hub), draft, privacy=committed.privacy
        )
        (draft / CARD).write_text(text, encoding="utf-8")
    return tuple(configs)


def _require_named(settings: Settings) -> None:
    """Raises `StorageError` unless the license and the language of the dataset are set."""
    missing = []
    if settings.datasets.license == "unknown":
        missing.append(
            "datasets.license (DEMO_PIPELINE_DATASETS__LICENSE), the license that the people in "
            "the recordings agreed to, as the Hub names it, e.g. cc-by-4.0 or other"
        )
    if not settings.hub.language:
        missing.append(
            "hub.language (DEMO_PIPELINE_HUB__LANGUAGE), the languages of the tasks by their "
            'ISO 639-1 codes, e.g. ["en"]'
        )
    if missing:
        raise StorageError(
            f"a shared dataset needs {' and '.join(missing)}; ask the owner of the recordings, "
            "and do not share it before"
        )


def _write(
    workspace: Workspace,
    export: TrainingExport[DatasetInputs],
    draft: Path,
    provenance: Provenance,
) -> tuple[list[HubConfig], dict[str, Mapping[str, SplitStats]]]:
    folder = export.stage.folder
    if workspace.store.current(folder) is None:
        raise MissingOutput(folder)
    require_undamaged(workspace.store, folder)
    max_bytes = workspace.settings.hub.max_shard_bytes
    configs: list[HubConfig] = []
    splits: dict[str, Mapping[str, SplitStats]] = {}
    opened = workspace.store.open(folder)[0]
    for table in export.hub_tables:
        configs.append(write_hub_config(table, opened, draft, max_bytes))
        stats = table_stats(opened / table.folder, provenance, "trajectory_id")
        splits[table.config] = stats.splits
    return configs, splits
