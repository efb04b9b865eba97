"""One dataset for the Hugging Face Hub, made of the committed training exports.

Belongs here: `demo-pipeline export --hub-layout`. What the files hold is decided in
exports/hub_layout.py.
"""

from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.exports.cards import CARD
from demo_pipeline.exports.dataset_stats import SplitStats, table_stats
from demo_pipeline.exports.hub_layout import HubConfig, hub_card, write_hub_config
from demo_pipeline.pipeline.committed_trajectories import committed_trajectories
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.export import folder_draft, require_undamaged
from demo_pipeline.pipeline.stages import training_exports
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.trajectories.provenance import Provenance


def export_hub_layout(workspace: Workspace, dest: Path) -> tuple[HubConfig, ...]:
    """Write the exports that have tables, with their pictures, and a card; nothing else.

    Args:
        workspace: holds the exports. Those that `datasets.exports` does not name are left out.
        dest: a folder that does not exist or is empty; it gets all of them, or stays as it was.

    Raises:
        StorageError: `datasets.license` or `hub.language` is not set, `dest` is not empty, or a
            file of an export was changed.
        MissingOutput: an export was never built.
    """
    settings = workspace.settings
    _require_named(settings)
    stages = [
        stage
        for stage in training_exports()
        if stage.export and stage.export.hub_tables and stage.is_built(settings)
    ]
    if not stages:
        raise StorageError("datasets.exports names no export with tables, such as messages")
    configs: list[HubConfig] = []
    splits: dict[str, Mapping[str, SplitStats]] = {}
    with committed_trajectories(workspace) as committed, folder_draft(dest) as draft:
        for stage in stages:
            written, found = _write(workspace, stage, draft, committed.provenance)
            configs += written
            splits |= found
        if not any(config.rows for config in configs):
            raise StorageError("nothing was exported: no export has a row")
        text = hub_card(configs, splits, (settings.datasets, settings.hub), draft)
        (draft / CARD).write_text(text, encoding="utf-8")
    return tuple(configs)


def _require_named(settings: Settings) -> None:
    """Refuse to guess what only the owner of the recordings knows."""
    if settings.datasets.license == "unknown":
        raise StorageError(
            "datasets.license is not set (DEMO_PIPELINE_DATASETS__LICENSE): a shared dataset needs "
            "the license that the people in the recordings agreed to, as the Hub names it, e.g. "
            "cc-by-4.0 or other; ask the owner of the recordings, and do not share it before"
        )
    if not settings.hub.language:
        raise StorageError(
            "hub.language is not set (DEMO_PIPELINE_HUB__LANGUAGE): name the languages of the "
            'tasks by their ISO 639-1 codes, e.g. ["en"]'
        )


def _write(
    workspace: Workspace, stage: Stage[DatasetInputs], draft: Path, provenance: Provenance
) -> tuple[list[HubConfig], dict[str, Mapping[str, SplitStats]]]:
    tables = stage.export.hub_tables if stage.export else ()
    if workspace.store.current(stage.folder) is None:
        raise MissingOutput(stage.folder)
    require_undamaged(workspace.store, stage.folder)
    max_bytes = workspace.settings.hub.max_shard_bytes
    configs: list[HubConfig] = []
    splits: dict[str, Mapping[str, SplitStats]] = {}
    with workspace.store.open(stage.folder) as (export, _):
        for table in tables:
            configs.append(write_hub_config(table, export, draft, max_bytes))
            stats, _ = table_stats(export / table.folder, provenance, "trajectory_id")
            splits[table.config] = stats.splits
    return configs, splits
