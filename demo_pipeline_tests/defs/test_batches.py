"""Several demonstrations in one run, a bad one in the middle: of a range, and of any ids."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from demo_pipeline.defs.demonstration_runs import BatchMember, batch_tags
from demo_pipeline.defs.jobs import DEMONSTRATIONS
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stage_runs import run_stage
from demo_pipeline.runs.stages import STAGES
from demo_pipeline_tests.defs.bench import Bench, Result, bench, failures, materialized
from demo_pipeline_tests.defs.bench import values as shown
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload

KEYS = ["one", "three", "two"]
GOOD = {"one", "two"}
FIRST = "raw_recordings"


@dataclass(frozen=True)
class Batch:
    bench: Bench
    result: Result


def of_any_ids(made: Bench, keys: list[str]) -> Result:
    made.catalogue()
    return made.run("process_batch", None, **batch_tags([BatchMember(key) for key in keys]))


@pytest.fixture(scope="module", params=["range", "ids"])
def batch(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recording: Path
) -> Iterator[Batch]:
    root = tmp_path_factory.mktemp("batch")
    with bench(root, kept=True, partitions_per_run=25, batch_from=2, workers=2) as made:
        for key in KEYS:
            upload(recording, made.uploads, key)
        spoil_log(made.uploads / "three")
        assert made.run("register_uploads").success
        ranged = request.param != "ids"
        yield Batch(made, made.process_range("one", "two") if ranged else of_any_ids(made, KEYS))


def states(instance: dg.DagsterInstance, asset: str) -> tuple[set[str], set[str]]:
    """(materialized partitions, failed partitions) as the UI shows them."""
    found = get_and_update_asset_status_cache_value(instance, dg.AssetKey(asset), DEMONSTRATIONS)
    assert found is not None
    made = found.deserialize_materialized_partition_subsets(DEMONSTRATIONS)
    failed = found.deserialize_failed_partition_subsets(DEMONSTRATIONS)
    return set(made.get_partition_keys()), set(failed.get_partition_keys())


def verdicts(batch: Batch) -> dict[str, dg.AssetCheckEvaluation]:
    """Check → its evaluation, as it is kept."""
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    entries = batch.bench.instance.all_logs(batch.result.run_id, of_type=kind)
    events = [entry.get_dagster_event().asset_check_evaluation_data for entry in entries]
    return {evaluation.check_name: evaluation for evaluation in events}


def materialization(batch: Batch, asset: str, key: str) -> dg.AssetMaterialization:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[key])
    [record] = batch.bench.instance.fetch_materializations(wanted, limit=5).records
    assert record.asset_materialization is not None
    return record.asset_materialization


def test_the_good_demonstrations_get_everything_in_the_same_run(batch: Batch) -> None:
    store = batch.bench.workspace.store
    assert store.outputs("contact_sheets") == ["contact_sheets/one", "contact_sheets/two"]
    for stage in STAGES[1:]:
        assert batch.bench.instance.get_materialized_partitions(dg.AssetKey(stage.name)) == GOOD


def test_the_bad_one_is_shown_as_failed_from_its_stage_on(batch: Batch) -> None:
    assert states(batch.bench.instance, FIRST) == (set(KEYS), set())
    for stage in STAGES[1:]:
        assert states(batch.bench.instance, stage.name) == (GOOD, {"three"})


def test_the_run_fails_at_its_end_and_says_how_many_are_done(batch: Batch) -> None:
    assert not batch.result.success
    [said] = failures(batch.result).values()
    assert "2 of 3 demonstrations done, 1 failed" in said.description
    assert "failed in events: three: input_log.jsonl:1" in said.description
    assert {name: said.metadata[name].value for name in ("done", "failed")} == {
        "done": 2,
        "failed": 1,
    }


def test_the_bad_one_is_quarantined_once_with_the_reason_that_was_found_first(
    batch: Batch,
) -> None:
    [record] = list_quarantine(batch.bench.workspace.store)
    assert (record.demonstration, record.stage, record.attempts) == ("three", "events", 1)
    assert record.problems[0]["line"] == 1


def test_the_bad_one_is_named_by_the_checks_of_its_stage_alone(batch: Batch) -> None:
    found = verdicts(batch)
    assert set(found) == {check.name for stage in STAGES for check in stage.checks}
    failed = {name for name, verdict in found.items() if not verdict.passed}
    assert failed == {check.name for check in STAGES[1].checks}
    assert {name for name, verdict in found.items() if "three" in str(verdict)} == failed
    blocking = {check.name for check in STAGES[1].checks if check.blocking}
    assert {name for name in failed if found[name].severity.value == "ERROR"} == blocking
    for name in failed:
        assert "three: input_log.jsonl:1" in (found[name].description or "")
        assert "(upload the log again)" in (found[name].description or "")


def test_each_partition_has_metadata_and_a_version_of_its_own(batch: Batch) -> None:
    for key in sorted(GOOD):
        made = materialization(batch, "trajectories", key)
        assert shown(made)["steps"] == 3
        assert shown(made)["path"].endswith(f"trajectories/{key}")
        current = batch.bench.workspace.store.current(f"trajectories/{key}")
        assert current is not None
        assert shown(made)["summary"]["version"] == current.id
        assert (made.tags or {})["dagster/data_version"] == current.content[:16]


@pytest.mark.parametrize("members", ["range", "ids"])
def test_nothing_of_a_batch_is_stale_until_an_input_has_other_data(
    tmp_path: Path, recording: Path, members: str
) -> None:
    """What the UI calls Unsynced, and the tags that it follows from, as in runs of their own."""
    with bench(tmp_path, partitions_per_run=25, batch_from=2, workers=2) as made:
        for key in ("one", "two"):
            upload(recording, made.uploads, key)
        assert made.run("register_uploads").success
        assert made.run("read_osworld_tasks").success
        if members == "range":
            assert made.process_range("one", "two").success
        else:
            assert of_any_ids(made, ["one", "two"]).success
        batched = {stage.name: tags_of(made, stage.name, "one") for stage in STAGES}
        assert made.run("read_osworld_tasks").success
        assert stale(made) == set()
        assert made.process("one").success
        for name, tags in batched.items():
            assert tags_of(made, name, "one").keys() == tags.keys(), name
            assert without_pointers(tags_of(made, name, "one")) == without_pointers(tags), name
        assert stale(made) == set()
        changed = dg.AssetMaterialization("events", partition="two")
        made.instance.report_runless_asset_event(changed)
        assert stale(made) == {
            (name, "two")
            for name in ("actions", "screenshots", "ui_trees", "trajectories", "triage")
        }


def tags_of(made: Bench, asset: str, key: str) -> dict[str, str]:
    """The tags of the latest materialization."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=[key])
    [record] = made.instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return dict(record.asset_materialization.tags or {})


def without_pointers(tags: dict[str, str]) -> dict[str, str]:
    """In a run of its own they name the latest event of any partition."""
    return {name: value for name, value in tags.items() if "event_pointer" not in name}


def stale(made: Bench) -> set[tuple[str, str]]:
    """(asset, partition) that the UI calls Unsynced for a cause of its own."""
    graph = made.definitions.resolve_asset_graph()
    context = LoadingContextForTest(made.instance)
    resolver = CachingStaleStatusResolver(made.instance, graph, context)
    return {
        (stage.name, key)
        for stage in STAGES
        for key in ("one", "two")
        if resolver.get_stale_causes(dg.AssetKey(stage.name), key)
    }


@pytest.mark.no_cover  # other tests run the same lines
def test_of_a_few_as_much_is_said_as_in_runs_of_their_own(tmp_path: Path, recording: Path) -> None:
    with bench(tmp_path, partitions_per_run=25, batch_from=3, workers=2) as made:
        for key in ("one", "two"):
            upload(recording, made.uploads, key)
        assert made.run("register_uploads").success
        result = of_any_ids(made, ["one", "two"])
        assert result.success
        for stage in STAGES:
            wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(stage.name))
            records = made.instance.fetch_materializations(wanted, limit=10).records
            assert sorted(record.partition_key or "" for record in records) == ["one", "two"]
            for record in records:
                assert record.asset_materialization is not None
                told = shown(record.asset_materialization)
                assert told["outcome"] == "made"
                assert ("review" in told) == (stage.name == "trajectories")
        said = [entry.user_message for entry in made.instance.all_logs(result.run_id)]
        for key in ("one", "two"):
            line = f"trajectories: trajectories/{key} made in "
            assert sum(message.startswith(line) for message in said) == 1


def test_the_log_says_how_far_it_is(batch: Batch) -> None:
    entries = batch.bench.instance.all_logs(batch.result.run_id)
    said = [entry.user_message for entry in entries if entry.dagster_event is None]
    assert "3 demonstrations, 2 processes" in said
    assert any(line.startswith("three: failed in events: ") for line in said)
    assert any(line.startswith("2 of 3 demonstrations done, 1 failed, ") for line in said)


@pytest.mark.no_cover  # other tests run the same lines
def test_the_datasets_are_built_without_the_bad_one(batch: Batch) -> None:
    datasets = batch.bench.run("build_datasets")
    assert datasets.success
    index = shown(materialized(datasets)["trajectory_index", None])
    assert index["trajectories"] == 2
    assert index["left_out"]["quarantined"] == 1


@pytest.mark.no_cover  # other tests run the same lines
def test_a_second_backfill_over_up_to_date_demonstrations_succeeds_for_each(
    tmp_path: Path, recording: Path
) -> None:
    """Dagster takes a partition of a backfill as failed that got no event from its run."""
    with bench(tmp_path, partitions_per_run=25) as made:
        for key in ("one", "two"):
            upload(recording, made.uploads, key)
        assert made.run("register_uploads").success
        for outcome in ("made", "unchanged"):
            result = made.process_range("one", "two")
            assert result.success
            for stage in STAGES:
                wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey(stage.name))
                records = made.instance.fetch_materializations(wanted, limit=10).records
                of_run = [record for record in records if record.run_id == result.run_id]
                found = [record.asset_materialization for record in of_run]
                assert sorted(one.partition or "" for one in found if one) == ["one", "two"]
                outcomes = [shown(one)["outcome"] for one in found if one]
                assert outcomes == [outcome] * 2


@pytest.mark.no_cover  # other tests run the same lines
def test_a_second_run_builds_and_reports_only_what_is_not_up_to_date(batch: Batch) -> None:
    before = batch.bench.files()
    again = of_any_ids(batch.bench, ["one", "two"])
    assert again.success
    entries = batch.bench.instance.all_logs(again.run_id)
    said = [entry.user_message for entry in entries if entry.dagster_event is None]
    assert any(line.startswith("2 of 2 demonstrations done (2 up to date), ") for line in said)
    assert batch.bench.files() == before
    assert materialization(batch, "trajectories", "one")  # still the only one


def test_a_later_run_reports_what_a_killed_run_committed_without_an_event(
    tmp_path: Path, recording: Path
) -> None:
    with bench(tmp_path, partitions_per_run=25, batch_from=2, workers=2) as made:
        for key in ("one", "two"):
            upload(recording, made.uploads, key)
        assert made.run("register_uploads").success
        assert of_any_ids(made, ["one", "two"]).success
        meta = made.uploads / "one" / "meta.json"
        meta.write_text(meta.read_text().replace("Task of one", "Another task"))
        for stage in STAGES:  # as a worker does whose run is killed before it reports
            run_stage(made.workspace, stage, "one")
        again = of_any_ids(made, ["one", "two"])
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("trajectories"))
        records = made.instance.fetch_materializations(wanted, limit=10).records
        newer = [record for record in records if record.run_id == again.run_id]
        [told] = [record.asset_materialization for record in newer]
        current = made.workspace.store.current("trajectories/one")
        assert told is not None
        assert current is not None
        assert told.partition == "one"
        assert (told.tags or {})["dagster/data_version"] == current.content[:16]


@pytest.mark.no_cover  # other tests run the same lines
def test_a_bad_one_in_a_run_of_its_own_is_shown_as_failed_with_the_reason_and_the_remedy(
    tmp_path: Path, recording: Path
) -> None:
    with bench(tmp_path, kept=True) as made:
        spoil_log(upload(recording, made.uploads, "bad"))
        found = Batch(made, made.process("bad"))
        assert states(made.instance, FIRST) == ({"bad"}, set())
        for stage in STAGES[1:]:
            assert states(made.instance, stage.name) == (set(), {"bad"})
        [failed] = [one for one in verdicts(found).values() if not one.passed]
        assert failed.asset_key == dg.AssetKey("events")
        assert "bad: input_log.jsonl:1" in (failed.description or "")
        assert "(upload the log again)" in (failed.description or "")


@pytest.mark.no_cover  # other tests run the same lines
def test_a_batch_of_only_bad_ones_fails(tmp_path: Path, recording: Path) -> None:
    with bench(tmp_path, partitions_per_run=25) as made:
        for key in ("one", "two"):
            tear_meta(upload(recording, made.uploads, key))
        assert made.run("register_uploads").success
        result = made.process_range("one", "two")
        [said] = failures(result).values()
        description = str(said.description)
        assert "one: meta.json:" in description
        assert "two: meta.json:" in description
        assert made.instance.get_materialized_partitions(dg.AssetKey(FIRST)) == set()


def test_a_reversed_range_fails_with_an_explanation(tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        made.instance.add_dynamic_partitions("demonstrations", ["one", "two"])
        result = made.process_range("two", "one")
        [said] = failures(result).values()
        assert "in the order of their registration" in str(said.description)


def test_a_batch_without_ids_says_where_to_name_them(tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        [said] = failures(made.run("process_batch")).values()
        assert "list their `ids`" in said.description
