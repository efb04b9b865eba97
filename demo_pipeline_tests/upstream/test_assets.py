"""How assets with checks, batches and failures are recorded."""

import warnings
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

KEYS = ["one", "two", "three"]
RANGE = {ASSET_PARTITION_RANGE_START_TAG: "one", ASSET_PARTITION_RANGE_END_TAG: "three"}
PARTITIONS = dg.StaticPartitionsDefinition(KEYS)
CHECK = dg.AssetCheckSpec("fits", asset="first", blocking=True)


@dg.asset(deps=["first"])
def second() -> dg.MaterializeResult:
    return dg.MaterializeResult()


def assets_made(result: dg.ExecuteInProcessResult) -> set[str]:
    made = [event.asset_key for event in result.get_asset_materialization_events()]
    return {str(key.path[-1]) for key in made if key}


def test_a_check_result_yielded_before_a_failure_is_stored_and_nothing_is_materialized() -> None:
    @dg.asset(check_specs=[CHECK])
    def first() -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        yield dg.AssetCheckResult(check_name="fits", passed=False)
        raise dg.Failure("it does not fit", allow_retries=False)

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([first, second], instance=instance, raise_on_error=False)
        assert not result.success
        assert assets_made(result) == set()
        [verdict] = result.get_asset_check_evaluations()
        assert not verdict.passed
        [record] = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(dg.AssetKey("first"), "fits"), limit=5
        )
        assert record.status.value == "FAILED"


def test_a_failed_blocking_check_in_the_result_materializes_but_stops_later_assets() -> None:
    @dg.asset(check_specs=[CHECK])
    def first() -> dg.MaterializeResult:
        verdict = dg.AssetCheckResult(check_name="fits", passed=False)
        return dg.MaterializeResult(check_results=[verdict])

    result = dg.materialize([first, second], raise_on_error=False)
    assert not result.success
    assert assets_made(result) == {"first"}


def test_a_failed_check_of_warning_severity_stops_nothing() -> None:
    @dg.asset(check_specs=[CHECK])
    def first() -> dg.MaterializeResult:
        severity = dg.AssetCheckSeverity.WARN
        verdict = dg.AssetCheckResult(check_name="fits", passed=False, severity=severity)
        return dg.MaterializeResult(check_results=[verdict])

    result = dg.materialize([first, second])
    assert result.success
    assert assets_made(result) == {"first", "second"}


@pytest.mark.parametrize(("allowed", "retries"), [(True, 2), (False, 0)])
def test_a_failure_can_forbid_retries(*, allowed: bool, retries: int) -> None:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def first() -> None:
        raise dg.Failure("no", allow_retries=allowed)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = dg.materialize([first], raise_on_error=False)
    assert result.retry_attempts_for_node("first") == retries


def test_the_version_that_an_asset_gives_is_the_version_of_its_data() -> None:
    @dg.asset
    def first() -> dg.MaterializeResult:
        return dg.MaterializeResult(data_version=dg.DataVersion("abc"))

    [event] = dg.materialize([first]).get_asset_materialization_events()
    tags = event.step_materialization_data.materialization.tags or {}
    assert tags["dagster/data_version"] == "abc"


def test_a_batch_materializes_every_partition_with_metadata_of_its_own() -> None:
    @dg.asset(partitions_def=PARTITIONS)
    def first(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        assert list(context.partition_keys) == KEYS
        context.add_asset_metadata({"bad": True}, partition_key="two")
        return dg.MaterializeResult()

    events = dg.materialize([first], tags=RANGE).get_asset_materialization_events()
    made = {
        one.partition: set(one.metadata)
        for one in (event.step_materialization_data.materialization for event in events)
    }
    assert made == {"one": set(), "two": {"bad"}, "three": set()}


def test_without_an_output_later_assets_are_skipped_for_the_whole_batch() -> None:
    @dg.asset(partitions_def=PARTITIONS, output_required=False)
    def first(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        context.log_event(dg.AssetMaterialization("first", partition="one"))
        yield from ()

    @dg.asset(partitions_def=PARTITIONS, deps=[first])
    def follows() -> dg.MaterializeResult:
        return dg.MaterializeResult()

    result = dg.materialize([first, follows], tags=RANGE)
    assert result.success
    assert assets_made(result) == {"first"}


class TestPartitionedChecks:
    def test_a_partition_has_its_own_check_result(self) -> None:
        [verdict] = self.run(partition_key="two").get_asset_check_evaluations()
        assert verdict.partition == "two"

    def run(
        self, partition_key: str | None = None, tags: dict[str, str] | None = None
    ) -> dg.ExecuteInProcessResult:
        with pytest.warns(dg.PreviewWarning):
            spec = dg.AssetCheckSpec("fits", asset="first", partitions_def=PARTITIONS)

        @dg.asset(partitions_def=PARTITIONS, check_specs=[spec])
        def first() -> dg.MaterializeResult:
            return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)])

        return dg.materialize([first], partition_key=partition_key, tags=tags)


def test_the_in_process_executor_runs_every_step_in_the_callers_process() -> None:
    @dg.asset
    def first(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        process = context.op_execution_context.get_step_execution_context().step.key
        return dg.MaterializeResult(metadata={"step": process})

    definitions = dg.Definitions(
        assets=[first, second],
        jobs=[dg.define_asset_job("all")],
        executor=dg.in_process_executor,
    )
    job = definitions.resolve_job_def("all")
    assert job.executor_def is dg.in_process_executor
    assert job.execute_in_process().success
