"""All Dagster definitions for given settings: `build_defs`."""

from collections.abc import Sequence

import dagster as dg

from demo_pipeline.defs.dataset_assets import build_dataset_assets, observed_reviews
from demo_pipeline.defs.demonstrations import build_batch_job, build_demonstration_assets
from demo_pipeline.defs.evaluation_assets import (
    build_new_evaluations,
    evaluation_job,
    evaluation_scores,
)
from demo_pipeline.defs.jobs import ASSET_JOBS, build_datasets_job, demonstration_catalog
from demo_pipeline.defs.maintenance_jobs import MAINTENANCE_JOBS, weekly_prune
from demo_pipeline.defs.sensors import (
    build_new_uploads,
    build_rebuild_datasets,
    build_tasks_changed,
    quarantine_changed,
)
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings


def build_defs(
    settings: Settings, extra_sensors: Sequence[dg.SensorDefinition] = ()
) -> dg.Definitions:
    """Assets, checks, jobs, sensors and the schedule over the roots in `settings`.

    Args:
        settings: every path and threshold.
        extra_sensors: more sensors, e.g. to notify people of failures. With `dagster-slack`
            installed, write this in a module of your own, and name that module in
            `workspace.yaml` instead of `demo_pipeline.definitions`::

                defs = build_defs(
                    Settings(),
                    [
                        make_slack_on_run_failure_sensor(
                            "#demonstrations",
                            os.environ["SLACK_TOKEN"],
                            default_status=dg.DefaultSensorStatus.RUNNING,
                        )
                    ],
                )

            `dagster.make_email_on_run_failure_sensor` does the same by mail.
    """
    seconds = settings.discovery.interval_seconds
    workspace = Workspace.open(settings)
    batch_job, datasets_job = build_batch_job(workspace), build_datasets_job(settings)
    return dg.Definitions(
        assets=[
            demonstration_catalog,
            build_demonstration_assets(settings.execution.partitions_per_run),
            *build_dataset_assets(settings),
            evaluation_scores,
            observed_reviews,
        ],
        jobs=[*ASSET_JOBS, batch_job, datasets_job, evaluation_job, *MAINTENANCE_JOBS],
        schedules=[weekly_prune],
        sensors=[
            build_tasks_changed(seconds),
            build_new_uploads(seconds, batch_job),
            build_rebuild_datasets(seconds, datasets_job),
            build_new_evaluations(seconds),
            quarantine_changed,
            *extra_sensors,
        ],
        resources={"workspace": workspace},
        executor=dg.in_process_executor,
    )
