"""Defines the assets, jobs, sensors and the schedule of Dagster.

The other modules are imported inside `build_defs`, so that the command `doctor` need not import all
stages.
"""

from collections.abc import Sequence

import dagster as dg

from demo_pipeline.settings import Settings


def build_defs(
    settings: Settings, extra_sensors: Sequence[dg.SensorDefinition] = ()
) -> dg.Definitions:
    """Builds all definitions that Dagster loads.

    Args:
        extra_sensors: additional sensors, for example to notify people of failures. With
            `dagster-slack` installed, write this in your own module, and name your module in
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

            `dagster.make_email_on_run_failure_sensor` sends emails instead.
    """
    from demo_pipeline.defs.dataset_assets import build_dataset_assets, datasets_job
    from demo_pipeline.defs.dataset_sensors import rebuild_datasets, tasks_changed
    from demo_pipeline.defs.demonstrations import DEMONSTRATION_ASSETS, process_demonstration
    from demo_pipeline.defs.maintenance import MAINTENANCE_JOBS, weekly_prune
    from demo_pipeline.defs.observed_assets import observed_reviews, observed_tasks, tasks_job
    from demo_pipeline.defs.resources import roots_resource
    from demo_pipeline.defs.upload_sensor import new_uploads, process_many

    interval = settings.discovery.interval_seconds
    roots = roots_resource(settings)
    build_datasets = datasets_job(settings)
    many_job = process_many(roots)
    return dg.Definitions(
        assets=[
            *DEMONSTRATION_ASSETS,
            *build_dataset_assets(settings),
            observed_tasks,
            observed_reviews,
        ],
        jobs=[process_demonstration, many_job, build_datasets, tasks_job, *MAINTENANCE_JOBS],
        schedules=[weekly_prune],
        sensors=[
            new_uploads(interval, many_job),
            rebuild_datasets(interval, build_datasets),
            tasks_changed(interval, tasks_job),
            *extra_sensors,
        ],
        resources={"roots": roots},
        executor=dg.in_process_executor,
    )
