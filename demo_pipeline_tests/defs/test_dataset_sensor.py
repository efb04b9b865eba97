"""The datasets are rebuilt after the trajectories changed: after a batch, or during a long one."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.defs import dataset_assets
from demo_pipeline.defs.sensors import (
    Progress,
    postponed,
    progress,
    should_rebuild,
    unbuilt_decisions,
)
from demo_pipeline.defs.tags import REASON_TAG
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.failures import DATASET_ATTEMPTS
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.defs.bench import Bench, bench, launched, ticked

SETTLED = Progress(latest=9, built=5, waiting_since=100.0, processing=False)


class TestDecision:
    def test_without_a_change_nothing_is_built(self) -> None:
        assert not should_rebuild(replace(SETTLED, built=9), 10_000.0, 900)[0]

    def test_a_batch_is_built_once_at_its_end_and_not_once_per_demonstration(self) -> None:
        during = replace(SETTLED, processing=True)
        assert not should_rebuild(during, 999.0, 900)[0]
        assert should_rebuild(during, 1000.0, 900)[0]

    def test_a_failed_build_is_retried_after_doubling_pauses_up_to_a_limit(self) -> None:
        pauses = [
            next(seconds for seconds in range(0, 1000, 10) if not postponed(failed, 0, seconds, 30))
            for failed in range(1, DATASET_ATTEMPTS)
        ]
        assert pauses == [30, 60, 120, 240]
        assert "by hand" in str(postponed(DATASET_ATTEMPTS, 0, 1e9, 30))
        assert postponed(DATASET_ATTEMPTS, 1, 1e9, 30) is None

    @given(st.integers(0, 5), st.integers(0, 5), st.floats(0, 2000), st.booleans())
    def test_a_change_is_built_within_the_maximal_age(
        self, latest: int, built: int, now: float, processing: bool
    ) -> None:
        rebuild, why = should_rebuild(Progress(latest, built, 0.0, processing), now, 900)
        assert why
        assert rebuild == (latest > built and (not processing or now >= 900))


@pytest.fixture
def made(tmp_path: Path, made_root: Path) -> Iterator[Bench]:
    """Two demonstrations are committed, and Dagster knows of neither."""
    with bench(tmp_path, kept=True, source=made_root) as one:
        yield one


def came(made: Bench, key: str = "first") -> None:
    """A trajectory was materialized."""
    event = dg.AssetMaterialization("records", partition=key)
    made.instance.report_runless_asset_event(event)


def under_way(made: Bench, job: str) -> dg.DagsterRun:
    definition = made.definitions.resolve_job_def(job)
    return made.instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED)


@pytest.mark.no_cover  # other tests run the same lines
def test_the_datasets_are_requested_once_a_change_and_what_is_built_is_not_built_again(
    made: Bench,
) -> None:
    assert ticked(made, "rebuild_datasets").requests == ()
    came(made)
    came(made, "second")
    [request] = ticked(made, "rebuild_datasets").requests
    assert [one.run_key for one in ticked(made, "rebuild_datasets").requests] == [request.run_key]
    assert launched(made, request, "build_datasets").success
    assert "contain every trajectory" in ticked(made, "rebuild_datasets").skipped
    made.run("register_uploads")
    assert ticked(made, "rebuild_datasets").requests == ()
    came(made)
    assert {one.run_key for one in ticked(made, "rebuild_datasets").requests} != {request.run_key}


@pytest.mark.no_cover  # other tests run the same lines
def test_a_trajectory_committed_during_the_build_is_built_later(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every dataset is newer than the trajectory, and does not contain it."""
    came(made)

    def late(*given: Any, **more: Any) -> Any:
        result = run_dataset_stage(*given, **more)
        came(made, "late")
        return result

    monkeypatch.setattr(dataset_assets, "run_dataset_stage", late)
    assert made.run("build_datasets").success
    assert len(ticked(made, "rebuild_datasets").requests) == 1


def test_it_waits_for_running_demonstrations_up_to_a_limit(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(made)
    run = under_way(made, "process_demonstration")
    assert "are being processed" in ticked(made, "rebuild_datasets").skipped
    later = time.time() + made.settings.discovery.max_dataset_age_seconds
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        assert len(ticked(made, "rebuild_datasets").requests) == 1
    made.instance.delete_run(run.run_id)
    assert len(ticked(made, "rebuild_datasets").requests) == 1


def test_no_second_build_is_requested_while_one_runs(made: Bench) -> None:
    came(made)
    under_way(made, "build_datasets")
    assert "being built" in ticked(made, "rebuild_datasets").skipped


@pytest.mark.no_cover  # other tests run the same lines
def test_a_build_that_failed_is_requested_again_under_another_key(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster drops a request whose key has a run, even a failed one."""
    came(made)
    monkeypatch.setattr(dataset_assets, "run_dataset_stage", refuse)
    keys: list[str | None] = []
    later = time.time()
    for _ in range(DATASET_ATTEMPTS):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now=later: now)
            [request] = ticked(made, "rebuild_datasets").requests
        assert not launched(made, request, "build_datasets").success
        assert "the next is in" in ticked(made, "rebuild_datasets").skipped or len(keys) == 4
        keys.append(request.run_key)
        later += 1000
    assert len(set(keys)) == DATASET_ATTEMPTS
    assert "by hand" in ticked(made, "rebuild_datasets").skipped
    came(made, "second")
    assert len(ticked(made, "rebuild_datasets").requests) == 1


def refuse(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def wait(*_: object, **__: object) -> None:
    raise StorageError("the bucket does not answer")


@pytest.mark.no_cover  # other tests run the same lines
def test_a_build_that_waits_for_something_is_tried_again_without_end(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    came(made)
    monkeypatch.setattr(dataset_assets, "run_dataset_stage", wait)
    keys = []
    later = time.time()
    for _ in range(DATASET_ATTEMPTS + 2):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now=later: now)
            [request] = ticked(made, "rebuild_datasets").requests
        assert not launched(made, request, "build_datasets").success
        assert "the next is in" in ticked(made, "rebuild_datasets").skipped
        keys.append(request.run_key)
        later += 2000
    assert len(set(keys)) == DATASET_ATTEMPTS + 2


def test_before_anything_has_run_there_is_nothing_to_build(made: Bench) -> None:
    assert progress(made.instance, made.settings) == Progress(0, 0, 0.0, processing=False)


def requested(made: Bench) -> list[dg.RunRequest]:
    """What three ticks request; a run that is not launched, again."""
    return [one for _ in range(3) for one in ticked(made, "new_uploads").requests]


def test_what_is_no_decision_among_them_keeps_no_upload_waiting(made: Bench) -> None:
    for name in ("notes.txt", "first/more/x.json"):
        stray = Path(made.settings.store, "reviews", name)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text("-")
    made.catalogue()
    assert {(one.partition_key, one.tags[REASON_TAG]) for one in requested(made)} == {
        ("first", "new"),
        ("second", "new"),
    }


def test_a_persons_decision_reaches_the_datasets_by_itself(made: Bench) -> None:
    made.catalogue()
    first, second = {one.partition_key: one for one in requested(made)}.values()
    assert launched(made, first).success
    assert launched(made, second).success
    assert made.run("build_datasets").success
    assert requested(made) == []
    folder, version = made.workspace.store.open("trajectories/first")
    made_by = (subject_of(version, "first"), folder, "ann")
    Reviews(made.workspace.store).make(*made_by, "reject", {"reason": "other"})
    asked = json.dumps({"unbuilt_decisions": unbuilt_decisions(made.workspace.store)})
    told = ticked(made, "new_uploads", asked)  # when its run failed, it is not tried for ever
    assert told.requests == ()
    assert json.loads(str(told.cursor)).items() >= json.loads(asked).items()
    request = requested(made)[0]
    assert (request.partition_key, request.tags[REASON_TAG]) == ("first", "reviewed")
    assert launched(made, request).success
    [rebuild] = ticked(made, "rebuild_datasets").requests
    assert launched(made, rebuild, "build_datasets").success
    folder = made.workspace.store.open("sft")[0]
    samples = (folder / "samples.jsonl").read_bytes()
    assert (b"trajectories/first/" in samples, b"trajectories/second/" in samples) == (False, True)
    assert requested(made) == []
    assert json.loads(str(ticked(made, "new_uploads").cursor))["unbuilt_decisions"] == {}
    assert ticked(made, "rebuild_datasets").requests == ()
