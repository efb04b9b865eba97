"""Several demonstrations in one run, a bad one in the middle."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline_tests.defs.bench import Bench, Result, bench, failures, materialized, verdicts
from demo_pipeline_tests.defs.bench import values as shown
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload

KEYS = ["one", "three", "two"]


@dataclass(frozen=True)
class Batch:
    bench: Bench
    result: Result
    datasets: Result


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Iterator[Batch]:
    with bench(tmp_path_factory.mktemp("batch"), partitions_per_run=25) as made:
        for key in KEYS:
            upload(recording, made.uploads, key)
        spoil_log(made.uploads / "three")
        assert made.run("register_uploads").success
        yield Batch(made, made.process_range("one", "two"), made.run("build_datasets"))


def test_the_good_demonstrations_get_trajectories_in_the_same_run(batch: Batch) -> None:
    assert batch.result.success
    trajectories = batch.bench.workspace.store.outputs("trajectories")
    assert trajectories == ["trajectories/one", "trajectories/two"]


def test_the_bad_one_is_quarantined_once_with_the_reason_that_was_found_first(
    batch: Batch,
) -> None:
    [record] = list_quarantine(batch.bench.workspace.store)
    assert (record.demonstration, record.stage) == ("three", "events")
    assert record.problems[0]["line"] == 1


def test_the_bad_one_is_named_by_the_checks_of_every_stage_from_there_on(batch: Batch) -> None:
    found = verdicts(batch.result)
    failed = {name for name, verdict in found.items() if not verdict.passed}
    later = {check.name for stage in STAGES[1:] for check in stage.checks}
    assert failed == later
    for name in failed:
        assert "three: input_log.jsonl:1" in (found[name].description or "")
        assert not found[name].blocking or found[name].severity.value == "WARN"


def test_each_partition_has_metadata_of_its_own(batch: Batch) -> None:
    made = materialized(batch.result)
    steps: dict[str, Any] = {key: shown(made["trajectories", key]) for key in KEYS}
    assert steps["one"]["steps"] == steps["two"]["steps"] == 3
    assert steps["one"]["path"].endswith("trajectories/one")
    assert steps["three"]["outcome"] == "quarantined"
    assert "input_log.jsonl:1" in steps["three"]["found"]


def test_the_datasets_are_built_without_the_bad_one(batch: Batch) -> None:
    assert batch.datasets.success
    index = shown(materialized(batch.datasets)["trajectory_index", None])
    assert index["trajectories"] == 2
    assert index["left_out"]["quarantined"] == 1


def test_a_batch_of_only_bad_ones_fails(tmp_path: Path, recording: Path) -> None:
    with bench(tmp_path, partitions_per_run=25) as made:
        for key in ("one", "two"):
            tear_meta(upload(recording, made.uploads, key))
        assert made.run("register_uploads").success
        result = made.process_range("one", "two")
        assert set(failures(result)) == {"raw_recordings"}
        description = failures(result)["raw_recordings"].description
        assert "one: meta.json:" in description
        assert "two: meta.json:" in description
        assert materialized(result) == {}


def test_a_reversed_range_fails_with_an_explanation(batch: Batch) -> None:
    result = batch.bench.process_range("two", "one")
    assert "in the order of their registration" in failures(result)["raw_recordings"].description
    assert materialized(result) == {}


def test_a_range_also_runs_where_backfills_are_one_at_a_time(
    tmp_path: Path, recording: Path
) -> None:
    with bench(tmp_path) as made:
        for key in ("one", "two"):
            upload(recording, made.uploads, key)
        assert made.run("register_uploads").success
        assert made.process_range("one", "two").success
        assert len(made.workspace.store.outputs("trajectories")) == 2
