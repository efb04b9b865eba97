"""The Dagster layer: assets, jobs, sensors and the schedule over the roots of given settings.

They are imported when they are asked for: `doctor` needs one module of this package and no stage.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from demo_pipeline.settings import Settings

_TABLE_INTERVAL = 60  # seconds between two looks at the quarantine


def build_defs(
    settings: Settings, extra_sensors: Sequence[dg.SensorDefinition] = ()
) -> dg.Definitions:
    """Everything that Dagster loads.

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
    from demo_pipeline.defs.dataset_assets import (
        build_dataset_assets,
        dataset_jobs,
        observed_reviews,
    )
    from demo_pipeline.defs.demonstrations import DEMONSTRATION_ASSETS, process_demonstration
    from demo_pipeline.defs.evaluation import evaluation_job, evaluation_scores
    from demo_pipeline.defs.maintenance import MAINTENANCE_JOBS, weekly_prune
    from demo_pipeline.defs.resources import roots_resource
    from demo_pipeline.defs.upload_sensor import process_many

    jobs, roots = dataset_jobs(settings), roots_resource(settings)
    many = process_many(roots)
    return dg.Definitions(
        assets=[
            *DEMONSTRATION_ASSETS,
            *build_dataset_assets(settings),
            evaluation_scores,
            observed_reviews,
        ],
        jobs=[process_demonstration, many, *jobs.values(), evaluation_job, *MAINTENANCE_JOBS],
        schedules=[weekly_prune],
        sensors=[*_sensors(settings.discovery.interval_seconds, jobs, many), *extra_sensors],
        resources={"roots": roots},
        executor=dg.in_process_executor,
    )


def _sensors(
    seconds: int, jobs: Mapping[str, Any], many: dg.JobDefinition
) -> list[dg.SensorDefinition]:
    from demo_pipeline.defs import dataset_assets as datasets
    from demo_pipeline.defs.evaluation import new_evaluations
    from demo_pipeline.defs.upload_sensor import new_uploads
    from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
    from demo_pipeline.runs.stages import job_of
    from demo_pipeline.runs.task_catalog import TASKS_STAGE
    from demo_pipeline.stage import DATASETS_JOB

    return [
        new_uploads(seconds, many),
        datasets.rebuild_datasets(seconds, jobs[DATASETS_JOB]),
        datasets.dataset_changed(
            "tasks_changed",
            seconds,
            TASKS_STAGE,
            jobs[job_of(TASKS_STAGE)],
            "Builds the catalog of OSWorld tasks when it is missing or the task files changed. "
            "Existing trajectories are compared again by the job `reprocess_changed`.",
        ),
        datasets.dataset_changed(
            "quarantine_changed",
            _TABLE_INTERVAL,
            QUARANTINE_STAGE,
            jobs[job_of(QUARANTINE_STAGE)],
            "Builds the table of quarantined demonstrations when a record was added, changed or "
            "deleted.",
        ),
        new_evaluations(seconds),
    ]
