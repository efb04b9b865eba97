"""What a batch's materialisations were made from, in the tags that Dagster gives those of a run.

Belongs here: the code version and the versions of the inputs. Without them Dagster compares times,
and calls whatever is older than an input "Unsynced", though nothing changed.
"""

import hashlib
from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    get_input_data_version_tag,
)

from demo_pipeline.pipeline.stages import STAGE_BY_NAME
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS
from demo_pipeline.stage import Stage

_MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION
_Versions = Mapping[str, str]


def parents_of(stage: Stage) -> list[str]:
    """The assets that a stage's asset depends on."""
    return [*stage.inputs, *([OSWORLD_TASKS] if stage.matches_task else [])]


class InputVersions:
    """The data versions that Dagster shows when a run begins.

    Args:
        instance: to ask.
        stages: of the run.
        ids: its demonstrations.

    Attributes:
        shown: stage → demonstration of the run → data version of its latest materialisation.
        events: asset → storage id of its latest materialisation.
    """

    def __init__(
        self, instance: dg.DagsterInstance, stages: Sequence[Stage], ids: Sequence[str]
    ) -> None:
        names = dict.fromkeys(name for stage in stages for name in (*parents_of(stage), stage.name))
        records = [
            record.asset_entry.last_materialization_record
            for record in instance.get_asset_records([dg.AssetKey(name) for name in names])
        ]
        latest = {
            record.asset_key.path[-1]: record for record in records if record and record.asset_key
        }
        self.events = {name: record.storage_id for name, record in latest.items()}
        tasks = latest.get(OSWORLD_TASKS)
        materialized = tasks.asset_materialization if tasks else None
        tags = (materialized.tags if materialized else None) or {}
        self._tasks = tags.get(DATA_VERSION_TAG, DEFAULT_DATA_VERSION.value)
        self.shown = {name: _shown(instance, name, ids) for name in names if name in STAGE_BY_NAME}

    def tags(self, stage: Stage, demonstration: str, made: _Versions) -> dict[str, str]:
        """The tags of a materialisation, as Dagster computes them in a run of one partition.

        Args:
            stage: that was built.
            demonstration: that it was built for.
            made: stage → data version, of every stage of the run so far.
        """
        tags = {
            CODE_VERSION_TAG: stage.code_version,
            DATA_VERSION_TAG: made[stage.name],
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        }
        for name in parents_of(stage):
            version = self._tasks
            if name in STAGE_BY_NAME:  # of a partitioned input, the hash over its partitions
                one = made.get(name) or self.shown[name].get(demonstration, "")
                version = hashlib.sha256(one.encode()).hexdigest()
            tags[get_input_data_version_tag(dg.AssetKey(name))] = version
        return tags


def _shown(instance: dg.DagsterInstance, stage: str, ids: Sequence[str]) -> _Versions:
    """Demonstration → data version that Dagster shows."""
    latest = instance.event_log_storage.get_latest_tags_by_partition
    found = latest(dg.AssetKey(stage), _MATERIALIZATION, [DATA_VERSION_TAG], ids)
    return {key: tags[DATA_VERSION_TAG] for key, tags in found.items()}
