"""What single dataset assets show or check besides what every dataset asset does.

Belongs here: small functions that read a built output for the UI. The assets themselves are made
in dataset_assets.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq

from demo_pipeline.defs import reporting
from demo_pipeline.defs.upload_accounting import account_for_uploads
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_stages import QUARANTINE_STAGE, STATISTICS_STAGE, TASKS_STAGE
from demo_pipeline.pipeline.dataset_statistics import read_statistics
from demo_pipeline.pipeline.quarantine_table import TABLE_FILE
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
    rows = pq.read_table(folder / TABLE_FILE, columns=list(_SHOWN)).to_pylist()
    accounting = account_for_uploads(instance, workspace)
    problems = tuple(accounting.problems)
    uploads = {
        "listed": accounting.listed,
        "accepted": accounting.accepted,
        "quarantined": accounting.quarantined,
        "pending": accounting.pending,
        "gone": accounting.gone,
    }
    return {
        "table": reporting.records(rows),
        "uploads": dg.MetadataValue.json(uploads),
    }, [CheckOutcome(ACCOUNTED, not errors(problems), problems, blocking=False)]


ADDITIONS: Mapping[str, Addition] = {
    STATISTICS_STAGE.name: Addition(_statistics),
    TASKS_STAGE.name: Addition(_task_files),
    QUARANTINE_STAGE.name: Addition(
        _quarantine,
        {ACCOUNTED: "Uploads in a new listing = accepted + quarantined + pending + gone."},
    ),
}
