"""An asset that succeeds without an output, and what Dagster requires of its checks."""

from collections.abc import Iterator

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG

CHECK = dg.AssetCheckSpec("fits", asset="first", blocking=True)
SAID = dg.AssetCheckResult(check_name="fits", passed=False, severity=dg.AssetCheckSeverity.WARN)


@dg.asset(deps=["first"])
def second() -> dg.MaterializeResult:
    return dg.MaterializeResult()


def kinds(result: dg.ExecuteInProcessResult) -> list[tuple[str | None, str]]:
    wanted = {"ASSET_MATERIALIZATION", "STEP_SUCCESS", "STEP_SKIPPED", "STEP_FAILURE"}
    events = result.all_events
    return [(e.step_key, e.event_type_value) for e in events if e.event_type_value in wanted]


def test_a_missing_optional_output_skips_later_assets() -> None:
    @dg.asset(output_required=False, check_specs=[CHECK])
    def first() -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield SAID

    result = dg.materialize([first, second])
    assert result.success
    assert kinds(result) == [("first", "STEP_SUCCESS"), ("second", "STEP_SKIPPED")]


def test_a_check_needs_a_result_even_without_an_output() -> None:
    @dg.asset(output_required=False, check_specs=[CHECK])
    def first() -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield from ()

    result = dg.materialize([first, second], raise_on_error=False)
    assert kinds(result) == [("first", "STEP_FAILURE")]


def test_nothing_else_changes_when_the_output_is_given() -> None:
    @dg.asset(output_required=False, check_specs=[CHECK])
    def first() -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield dg.MaterializeResult(
            check_results=[dg.AssetCheckResult(check_name="fits", passed=True)]
        )

    result = dg.materialize([first, second])
    assert [kind for kind in kinds(result) if kind[1] == "ASSET_MATERIALIZATION"] == [
        ("first", "ASSET_MATERIALIZATION"),
        ("second", "ASSET_MATERIALIZATION"),
    ]


def test_a_run_can_tag_itself_and_be_found_by_it() -> None:
    @dg.asset
    def tagged(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        context.instance.add_run_tags(context.run.run_id, {"outcome": "odd"})
        return dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([tagged], instance=instance, tags={RUN_KEY_TAG: "key"})
        found = instance.get_run_ids(dg.RunsFilter(tags={"outcome": "odd", RUN_KEY_TAG: "key"}))
        assert found == [result.run_id]


def test_materialisations_of_all_assets_are_numbered_in_one_order(tmp_path) -> None:
    @dg.asset
    def first() -> dg.MaterializeResult:
        return dg.MaterializeResult()

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        ids = []
        for asset in (first, second, first):
            dg.materialize([asset], instance=instance)
            [record] = instance.get_asset_records([asset.key])
            ids.append(record.asset_entry.last_materialization_storage_id or 0)
        assert ids == sorted(set(ids))
        newer = dg.AssetRecordsFilter(asset_key=first.key, after_storage_id=ids[0])
        [event] = instance.fetch_materializations(newer, limit=1, ascending=True).records
        assert event.storage_id == ids[2]


def test_a_deleted_run_takes_its_materialisation_with_it(tmp_path) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def first() -> dg.MaterializeResult:
        return dg.MaterializeResult()

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        result = dg.materialize([first], instance=instance, partition_key="a")
        assert instance.get_materialized_partitions(first.key) == {"a"}
        instance.delete_run(result.run_id)
        assert instance.get_materialized_partitions(first.key) == set()
