"""Many events about partitions, written to Dagster's storage a few seconds' worth at a time.

Belongs here: building such events and writing them in few transactions. One by one, the seven
events of a short demonstration would cost a tenth of the work that they are about.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

import dagster as dg
from dagster._core.definitions.data_version import NULL_EVENT_POINTER, get_input_event_pointer_tag
from dagster._core.events import (
    AssetMaterializationPlannedData,
    AssetObservationData,
    DagsterEvent,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from demo_pipeline.pipeline.stages import STAGE_BY_NAME

_FLUSH_SECONDS, _FLUSH_EVENTS = 2.0, 200
_DEBUG = 10
_LAST_ID = f"SELECT max(id) FROM {SqlEventLogStorageTable.name}"  # noqa: S608 - a constant
_Data = StepMaterializationData | AssetMaterializationPlannedData | AssetObservationData
_Type = dg.DagsterEventType
_Place = tuple[str, str]  # asset and partition


class EventWriter:
    """Writes the events of one run; what is written last has to be followed by `flush`.

    Args:
        instance: that gets them.
        run: that they belong to.
        step: key of the step that they belong to.
        before: asset → storage id of its latest materialization when the run began.
    """

    def __init__(
        self, instance: dg.DagsterInstance, run: dg.DagsterRun, step: str, before: Mapping[str, int]
    ) -> None:
        self._instance, self._run, self._step = instance, run, step
        self._waiting: list[EventLogEntry] = []
        self._pointers = _Pointers(before)
        self._flushed = time.monotonic()

    def materialized(self, made: dg.AssetMaterialization, inputs: Sequence[str] = ()) -> None:
        """An asset was materialized from the assets `inputs`, whose events were given before."""
        self._pointers.wait(made, inputs)
        self._add(_Type.ASSET_MATERIALIZATION, StepMaterializationData(made), "Materialized")

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
            _write_to_sqlite(storage, self._run.run_id, entries, self._pointers)
            return
        for stage in STAGE_BY_NAME:  # an input before what is made from it
            some = [entry for entry in entries if _asset(entry)[0] == stage]
            self._pointers.complete(some)
            storage.store_event_batch(some)
            latest = storage.get_maximum_record_id() or 0
            self._pointers.note((entry, latest) for entry in some)

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


class _Pointers:
    """Which event of each input a materialization was made from, which its tags have to name.

    Args:
        before: asset → storage id of its latest materialization when the run began.
    """

    def __init__(self, before: Mapping[str, int]) -> None:
        self._before = before
        self._waiting: dict[_Place, tuple[dict[str, str], Sequence[str]]] = {}
        self._ids: dict[_Place, int] = {}

    def wait(self, made: dg.AssetMaterialization, inputs: Sequence[str]) -> None:
        """Take in a materialization whose tags lack them."""
        if isinstance(made.tags, dict):
            self._waiting[made.asset_key.path[-1], made.partition or ""] = (made.tags, inputs)

    def complete(self, entries: Iterable[EventLogEntry]) -> None:
        """Write them into the tags of the materializations, whose inputs' ids are known."""
        for entry in entries:
            place = _asset(entry)
            tags, inputs = self._waiting.pop(place, ({}, ()))
            for name in inputs:
                found = self._ids.get((name, place[1]), self._before.get(name))
                tag = get_input_event_pointer_tag(dg.AssetKey(name))
                tags[tag] = NULL_EVENT_POINTER if found is None else str(found)

    def note(self, stored: Iterable[tuple[EventLogEntry, int]]) -> None:
        """Take in the storage ids of events, or later ones."""
        self._ids.update({_asset(entry): number for entry, number in stored})


def _write_to_sqlite(
    storage: SqliteEventLogStorage,
    run_id: str,
    entries: Sequence[EventLogEntry],
    pointers: _Pointers,
) -> None:
    """What `store_event` does for each, in one transaction for each of its two databases."""
    insert = SqlEventLogStorageTable.insert()
    newest = {
        (*_asset(entry)[:1], entry.dagster_event_type): place for place, entry in enumerate(entries)
    }
    with storage.index_transaction() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # from here on nobody else can write
        [last] = connection.exec_driver_sql(_LAST_ID).one()
        ids = range((last or 0) + 1, (last or 0) + len(entries) + 1)
        for numbered in zip(entries, ids, strict=True):  # an input before what is made from it
            pointers.complete(numbered[:1])
            pointers.note([numbered])
        rows = [storage._event_to_row(entry) for entry in entries]  # noqa: SLF001
        connection.execute(insert, rows)
        storage._store_asset_event_tags(connection, entries, ids)  # noqa: SLF001
        for place in newest.values():  # of several events, only the last stays in this table
            storage._store_asset_event(connection, entries[place], ids[place])  # noqa: SLF001
    with storage.run_connection(run_id) as connection:
        connection.execute(insert, rows)


def _asset(entry: EventLogEntry) -> _Place:
    event = entry.get_dagster_event()
    return event.asset_key.path[-1] if event.asset_key else "", event.partition or ""
