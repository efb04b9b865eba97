"""Many events about partitions, written to Dagster's storage a few seconds' worth at a time.

Belongs here: building such events and writing them in few transactions. One by one, the seven
events of a short demonstration would cost a tenth of the work that they are about.
"""

import time
from collections.abc import Sequence

import dagster as dg
from dagster._core.events import (
    AssetMaterializationPlannedData,
    AssetObservationData,
    DagsterEvent,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

_FLUSH_SECONDS, _FLUSH_EVENTS = 2.0, 200
_DEBUG = 10
_LAST_ID = f"SELECT max(id) FROM {SqlEventLogStorageTable.name}"  # noqa: S608 - a constant
_Data = StepMaterializationData | AssetMaterializationPlannedData | AssetObservationData
_Type = dg.DagsterEventType


class EventWriter:
    """Writes the events of one run; what is written last has to be followed by `flush`.

    Args:
        instance: that gets them.
        run: that they belong to.
        step: key of the step that they belong to.
    """

    def __init__(self, instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> None:
        self._instance, self._run, self._step = instance, run, step
        self._waiting: list[EventLogEntry] = []
        self._flushed = time.monotonic()

    def materialized(self, materialization: dg.AssetMaterialization) -> None:
        """An asset was materialized."""
        data = StepMaterializationData(materialization)
        self._add(_Type.ASSET_MATERIALIZATION, data, "Materialized")

    def observed(self, observation: dg.AssetObservation) -> None:
        """An asset was observed."""
        self._add(_Type.ASSET_OBSERVATION, AssetObservationData(observation), "Observed")

    def planned(self, asset: str, partition: str) -> None:
        """A partition of an asset was to be materialized; when its run fails, it failed."""
        data = AssetMaterializationPlannedData(dg.AssetKey(asset), partition=partition)
        self._add(_Type.ASSET_MATERIALIZATION_PLANNED, data, "Planned")

    def flush(self) -> None:
        """Write what is not written yet."""
        entries, self._waiting = self._waiting, []
        self._flushed = time.monotonic()
        if not entries:
            return
        storage = self._instance.event_log_storage
        if isinstance(storage, SqliteEventLogStorage):
            _write_to_sqlite(storage, self._run.run_id, entries)
        else:
            storage.store_event_batch(entries)

    def flush_when_due(self) -> None:
        """Write every few seconds, or when there is much."""
        late = time.monotonic() - self._flushed >= _FLUSH_SECONDS
        if late or len(self._waiting) >= _FLUSH_EVENTS:
            self.flush()

    def _add(self, kind: dg.DagsterEventType, data: _Data, message: str) -> None:
        event = DagsterEvent(
            event_type_value=kind.value,
            job_name=self._run.job_name,
            step_key=self._step,
            event_specific_data=data,
        )
        self._waiting.append(
            EventLogEntry(  # type: ignore[no-untyped-call]
                error_info=None,
                level=_DEBUG,
                user_message=message,
                run_id=self._run.run_id,
                timestamp=time.time(),
                step_key=self._step,
                job_name=self._run.job_name,
                dagster_event=event,
            )
        )


def _write_to_sqlite(
    storage: SqliteEventLogStorage, run_id: str, entries: Sequence[EventLogEntry]
) -> None:
    """What `store_event` does for each, in one transaction for each of its two databases."""
    insert = SqlEventLogStorageTable.insert()
    rows = [storage._event_to_row(entry) for entry in entries]  # noqa: SLF001
    with storage.run_connection(run_id) as connection:
        connection.execute(insert, rows)
    newest = {_asset(entry): place for place, entry in enumerate(entries)}
    with storage.index_transaction() as connection:
        connection.execute(insert, rows)  # from here on nobody else can write: ids are consecutive
        [last] = connection.exec_driver_sql(_LAST_ID).one()
        ids = range(last - len(rows) + 1, last + 1)
        storage._store_asset_event_tags(connection, entries, ids)  # noqa: SLF001
        for place in newest.values():  # of several events, only the last stays in this table
            storage._store_asset_event(connection, entries[place], ids[place])  # noqa: SLF001


def _asset(entry: EventLogEntry) -> tuple[str, str]:
    event = entry.get_dagster_event()
    return str(event.asset_key), event.event_type_value
