"""Which runs were launched for which upload, by their tags, whoever launched them.

Belongs here: discovery's `Launched` over a Dagster instance, and where discovery's ledger lies.
"""

import hashlib
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.tags import (
    FINGERPRINT_TAG,
    OUTCOME_TAG,
    PARTITION_NAME_TAG,
    RUN_KEY_TAG,
    SUPERSEDED,
)
from demo_pipeline.discovery.decisions import Launch
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.pipeline import Pipeline

_LOOKED_AT = 50  # newest runs of a demonstration; people's own runs bear no fingerprint


class LaunchedRuns:
    """See `discovery.decisions.Launched`."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the protocol's word
        """The newest run of this partition that bears a fingerprint."""
        run = newest_launch(self._instance, id)
        if run is None:
            return None
        return Launch(run.tags[FINGERPRINT_TAG], run.tags.get(OUTCOME_TAG) == SUPERSEDED)

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """Runs of this partition with this fingerprint, retries by Dagster included."""
        tags = {PARTITION_NAME_TAG: id, FINGERPRINT_TAG: fingerprint}
        return self._instance.get_runs_count(dg.RunsFilter(tags=tags))

    def has_run(self, run_key: str) -> bool:
        """Whether there is a run with this key."""
        return bool(self._instance.get_run_ids(dg.RunsFilter(tags={RUN_KEY_TAG: run_key}), limit=1))


def newest_launch(instance: dg.DagsterInstance, demonstration: str) -> dg.DagsterRun | None:
    """The newest run that was launched for an upload, by the sensor or the command line."""
    of_it = dg.RunsFilter(tags={PARTITION_NAME_TAG: demonstration})
    runs = (record.dagster_run for record in instance.get_run_records(of_it, limit=_LOOKED_AT))
    return next((run for run in runs if FINGERPRINT_TAG in run.tags), None)


def ledger_path(instance: dg.DagsterInstance, pipeline: Pipeline) -> Path:
    """The ledger of these uploads: `<instance>/storage/discovery/<hash of their URL>.sqlite`."""
    name = hashlib.sha256(pipeline.uploads.url.encode()).hexdigest()[:12]
    return Path(instance.storage_directory()) / "discovery" / f"{name}.sqlite"


def open_ledger(instance: dg.DagsterInstance, pipeline: Pipeline) -> Ledger:
    """The ledger of these uploads, made when there is none; to be closed."""
    return Ledger.open(ledger_path(instance, pipeline))
