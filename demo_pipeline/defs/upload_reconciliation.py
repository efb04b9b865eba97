"""Whether every upload is accounted for: a new listing against ledger, runs and quarantine.

Belongs here: collecting what discovery/reconciliation.py compares.
"""

import time

import dagster as dg

from demo_pipeline.defs.instance_runs import InstanceRuns, open_ledger
from demo_pipeline.discovery.decisions import UploadState
from demo_pipeline.discovery.reconciliation import Reconciliation, reconcile, unfinished_uploads
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.pipeline.stages import STAGES

_RECENT_SECONDS = 900.0  # longer than a tick of new_uploads and the pause after it


def reconcile_uploads(instance: dg.DagsterInstance, workspace: Workspace) -> Reconciliation:
    """Count every upload once.

    The uploads are listed before the ledger is read, so that the ledger can only know more.

    Raises:
        StorageError: the uploads, the store or the ledger cannot be read.
    """
    listed = {upload.id for upload in workspace.uploads.list_demonstrations()}
    listed |= set(workspace.uploads.collisions())
    quarantined = {record.demonstration for record in list_quarantine(workspace.store)}
    finished = _finished(workspace)
    runs = InstanceRuns(instance, workspace)
    failed = runs.failed()
    with open_ledger(instance, workspace) as ledger:
        accepted = {key for key, state in ledger.states().items() if state is UploadState.ACCEPTED}
        uncertain = sorted(accepted - finished | accepted & failed)
        unfinished = unfinished_uploads(uncertain, finished, runs)
        last_tick = ledger.last_tick()
        recent = last_tick is not None and time.time() - last_tick < _RECENT_SECONDS
        return reconcile(ledger, quarantined, listed, unfinished, recent_tick=recent)


def _finished(workspace: Workspace) -> set[str]:
    """Ids with an output of the last stage."""
    folder = STAGES[-1].folder
    return {name.removeprefix(f"{folder}/") for name in workspace.store.outputs(folder)}
