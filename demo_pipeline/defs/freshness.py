"""How far the datasets are behind the trajectories, by what Dagster recorded.

Belongs here: a few queries, none of which grows with the number of demonstrations. What follows
from the answers is decided in dataset_sensor.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import dagster as dg

from demo_pipeline.defs.jobs import DEMONSTRATION_JOBS
from demo_pipeline.defs.tags import OUTCOME_TAG, STATE_TAG, WAITING_OUTCOME
from demo_pipeline.discovery.retry_pauses import retry_pause
from demo_pipeline.pipeline.stages import DATASET_STAGES
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

SEEN = "trajectories_seen"
MOST_ATTEMPTS = 5
_TRAJECTORIES = dg.AssetKey(TRAJECTORIES_STAGE.name)
_MANUAL_JOB = "__ASSET_JOB"  # Dagster's name for what people materialize by hand
_UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
_FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@dataclass(frozen=True)
class Attempts:
    """The failed runs for one state.

    Attributes:
        failed: number of runs that failed or were cancelled.
        ended: when the last of them ended, epoch seconds.
        waited: how many of them something passing stopped, such as a full disk; these are tried
            again without end.
    """

    failed: int = 0
    ended: float = 0.0
    waited: int = 0

    def postponed(self, now: float, interval_s: float) -> str | None:
        """Why the next attempt has to wait; None when it may start.

        The pause after a failed attempt doubles with each, starting at `interval_s` seconds, up to
        half an hour.
        """
        if not self.failed:
            return None
        if self.failed - self.waited >= MOST_ATTEMPTS:
            return f"{self.failed} attempts failed: open the last run, then launch the job by hand"
        left = self.ended + retry_pause(self.failed, interval_s) - now
        return f"attempt {self.failed} failed; the next is in {left:.0f} s" if left > 0 else None


@dataclass(frozen=True)
class Progress:
    """How far the datasets are.

    Attributes:
        latest: storage id of the newest materialization of a trajectory; 0: none exists.
        built: the newest materialization that every dataset contains.
        waiting_since: when the oldest trajectory after `built` was materialized, epoch seconds.
        processing: a demonstration is queued or being processed.
        building: the datasets are queued or being built.
        attempts: the failed runs that should have built `latest`.
    """

    latest: int
    built: int
    waiting_since: float
    processing: bool
    building: bool
    attempts: Attempts = field(default_factory=Attempts)


def latest_trajectory(instance: dg.DagsterInstance) -> int:
    """Storage id of the newest materialization of any trajectory; 0 without one."""
    records = instance.get_asset_records([_TRAJECTORIES])
    return (records[0].asset_entry.last_materialization_storage_id or 0) if records else 0


def followed_datasets(settings: Settings) -> list[dg.AssetKey]:
    """The datasets that have to contain every trajectory."""
    return [
        dg.AssetKey(stage.name)
        for stage in DATASET_STAGES
        if stage.reads_trajectories and stage.is_built(settings)
    ]


def progress(instance: dg.DagsterInstance, settings: Settings) -> Progress:
    """Query the instance."""
    latest = latest_trajectory(instance)
    built = _built(instance, followed_datasets(settings))
    return Progress(
        latest=latest,
        built=built,
        waiting_since=_first_after(instance, built) if latest > built else 0.0,
        processing=unfinished(instance, (*DEMONSTRATION_JOBS, _MANUAL_JOB)),
        building=unfinished(instance, (DATASETS_JOB,)),
        attempts=attempts(instance, DATASETS_JOB, str(latest)),
    )


def attempts(instance: dg.DagsterInstance, job: str, state: str) -> Attempts:
    """The failed runs of a job for this state."""
    filters = dg.RunsFilter(job_name=job, tags={STATE_TAG: state}, statuses=_FAILED)
    records = instance.get_run_records(filters, limit=1)
    ends = [record.end_time or record.update_timestamp.timestamp() for record in records]
    tags = {STATE_TAG: state, OUTCOME_TAG: WAITING_OUTCOME}
    waiting = dg.RunsFilter(job_name=job, tags=tags, statuses=_FAILED)
    return Attempts(
        instance.get_runs_count(filters),
        max(ends, default=0.0),
        instance.get_runs_count(waiting),
    )


def last_failed(instance: dg.DagsterInstance, job: str, state: str) -> bool:
    """Whether the newest run of a job for this state failed or was cancelled."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, tags={STATE_TAG: state}), limit=1)
    return bool(runs) and runs[0].status in _FAILED


def unfinished(instance: dg.DagsterInstance, jobs: Sequence[str]) -> bool:
    """Whether a run of one of these jobs is queued or running."""
    filters = [dg.RunsFilter(job_name=job, statuses=_UNFINISHED) for job in jobs]
    return any(instance.get_run_ids(filter_, limit=1) for filter_ in filters)


def _built(instance: dg.DagsterInstance, datasets: Sequence[dg.AssetKey]) -> int:
    """The newest trajectory that every dataset has seen; 0 while a dataset is missing."""
    seen = []
    for record in instance.get_asset_records(datasets):
        entry = record.asset_entry.last_materialization
        built = entry.asset_materialization if entry else None
        value = built.metadata[SEEN].value if built and SEEN in built.metadata else 0
        seen.append(value if isinstance(value, int) else 0)
    return min(seen) if len(seen) == len(datasets) else 0


def _first_after(instance: dg.DagsterInstance, storage_id: int) -> float:
    newer = dg.AssetRecordsFilter(asset_key=_TRAJECTORIES, after_storage_id=storage_id)
    records = instance.fetch_materializations(newer, limit=1, ascending=True).records
    return records[0].timestamp if records else 0.0
