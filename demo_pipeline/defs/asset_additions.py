"""What single dataset assets show or check besides what every dataset asset does.

Belongs here: small functions that read a built output for the UI. The assets themselves are made
in dataset_assets.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.upload_reconciliation import reconcile_uploads
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE, read_statistics
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine_table import QUARANTINE_SCHEMA, QUARANTINE_STAGE, TABLE_FILE
from demo_pipeline.pipeline.task_catalog import TASKS_STAGE
from demo_pipeline.problems import errors
from demo_pipeline.storage.store.version_manifest import CheckOutcome

ACCOUNTED = "uploads_accounted"
_SHOWN = ("demonstration", "stage", "code", "file", "line", "message", "remedy", "attempts")
_Read = tuple[dict[str, dg.MetadataValue], list[CheckOutcome]]


def _nothing(_instance: dg.DagsterInstance, _workspace: Workspace, _folder: Path) -> _Read:
    return {}, []


@dataclass(frozen=True)
class Addition:
    """What one asset adds.

    Attributes:
        read: from the instance, the workspace and the built folder: metadata, and the outcomes of
            the added checks.
        checks: name → description of each added check; none of them blocks.
    """

    read: Callable[[dg.DagsterInstance, Workspace, Path], _Read] = _nothing
    checks: Mapping[str, str] = field(default_factory=dict)


def _statistics(_instance: dg.DagsterInstance, _workspace: Workspace, folder: Path) -> _Read:
    tables = read_statistics(folder)
    return {name: reporting.records(rows) for name, rows in tables.items()}, []


def _task_files(_instance: dg.DagsterInstance, workspace: Workspace, _folder: Path) -> _Read:
    return {
        "task_files": dg.MetadataValue.path(str(workspace.tasks)),
        "task_files_found": dg.MetadataValue.bool(workspace.tasks.is_dir()),
    }, []


def _quarantine(instance: dg.DagsterInstance, workspace: Workspace, folder: Path) -> _Read:
    rows = read_rows(folder / TABLE_FILE, QUARANTINE_SCHEMA, _SHOWN)
    counts = reconcile_uploads(instance, workspace)
    problems = tuple(counts.problems)
    passed = counts.balanced and not errors(problems)
    uploads = {
        "listed": counts.listed,
        "accepted": counts.accepted,
        "quarantined": counts.quarantined,
        "pending": counts.pending,
        "gone": counts.gone,
    }
    return {
        "table": reporting.records(rows),
        "uploads": dg.MetadataValue.json(uploads),
    }, [CheckOutcome(ACCOUNTED, passed, problems, {"uploads": counts.listed}, blocking=False)]


ADDITIONS: Mapping[str, Addition] = {
    STATISTICS_STAGE.name: Addition(_statistics),
    TASKS_STAGE.name: Addition(_task_files),
    QUARANTINE_STAGE.name: Addition(
        _quarantine,
        {ACCOUNTED: "Uploads in a new listing = accepted + quarantined + pending + gone."},
    ),
}
