"""`build_defs`: all definitions for given settings, so that anybody can make their own."""

from collections.abc import Sequence

import dagster as dg

from demo_pipeline.defs import datasets, demonstrations, osworld, quarantine, statistics
from demo_pipeline.defs.arrivals import build_new_uploads
from demo_pipeline.defs.catalog import demonstration_catalog
from demo_pipeline.defs.failures import quarantine_changed, quarantine_failures
from demo_pipeline.defs.jobs import ASSET_JOBS
from demo_pipeline.defs.rebuilding import build_rebuild_datasets
from demo_pipeline.defs.upkeep import UPKEEP_JOBS, weekly_prune
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.settings import Settings


def build_defs(
    settings: Settings, extra_sensors: Sequence[dg.SensorDefinition] = ()
) -> dg.Definitions:
    """Assets, checks, jobs, sensors and the schedule over the roots that `settings` name.

    Args:
        settings: every path and threshold.
        extra_sensors: more sensors, e.g. to tell people of failures. With `dagster-slack`
            installed, in a module of your own that `workspace.yaml` names instead of
            `demo_pipeline.definitions`::

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
    return dg.Definitions(
        assets=[
            demonstration_catalog,
            quarantine.quarantine_asset,
            osworld.osworld_tasks,
            *demonstrations.build_assets(settings.execution.partitions_per_run),
            *datasets.build_assets(),
            statistics.statistics_asset,
        ],
        jobs=[*ASSET_JOBS, *UPKEEP_JOBS],
        schedules=[weekly_prune],
        sensors=[
            osworld.build_tasks_changed(seconds),
            build_new_uploads(seconds),
            build_rebuild_datasets(seconds),
            quarantine_failures,
            quarantine_changed,
            *extra_sensors,
        ],
        resources={"pipeline": Pipeline.open(settings)},
        executor=dg.in_process_executor,
    )
