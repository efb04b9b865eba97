"""The maintenance jobs: retrying, reprocessing and pruning."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.runs.quarantine import list_quarantine, read_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.settings import TrajectorySettings
from demo_pipeline_tests.defs.bench import Bench, bench, launched, materialized, ticked, values
from demo_pipeline_tests.uploads import spoil_log, tear_meta, upload


def upload_bad_ones(made: Bench, recording: Path) -> None:
    for name in ("bad", "torn"):
        upload(recording, made.uploads, name)
    spoil_log(made.uploads / "bad")
    tear_meta(made.uploads / "torn")


@pytest.fixture
def bad(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    """Two broken demonstrations."""
    with bench(tmp_path) as one:
        upload_bad_ones(one, recording)
        yield one


@pytest.fixture
def made(tmp_path: Path, made_root: Path, recording: Path) -> Iterator[Bench]:
    """Two good demonstrations that are up to date, and two bad ones."""
    with bench(tmp_path, kept=True, source=made_root) as one:
        upload_bad_ones(one, recording)
        yield one


def looks(made: Bench) -> list[dg.RunRequest]:
    found = [request for _ in range(3) for request in ticked(made, "new_uploads").requests]
    return list({request.run_key: request for request in found}.values())


def arrive(made: Bench) -> None:
    made.catalogue()
    for request in looks(made):
        launched(made, request)
    assert looks(made) == []


def job(made: Bench, name: str, op: str, **config: Any) -> dict[str, Any]:
    """The output metadata of a job of one op."""
    result = made.definitions.resolve_job_def(name).execute_in_process(
        instance=made.instance, run_config={"ops": {op: {"config": config}}} if config else {}
    )
    assert result.success
    [output] = result.filter_events(lambda event: event.is_successful_output)
    metadata = output.step_output_data.metadata
    return {key: value.value for key, value in metadata.items()}


class TestRetry:
    @pytest.mark.no_cover  # other tests run the same lines
    def test_quarantined_demonstrations_are_rerun_by_the_next_tick(self, bad: Bench) -> None:
        arrive(bad)
        assert job(bad, "retry_quarantined", "request_retries")["demonstrations"] == 2
        requests = looks(bad)
        assert {one.partition_key for one in requests} == {"bad", "torn"}
        assert all("#" in str(one.run_key) for one in requests)
        assert {one.tags["demo_pipeline/reason"] for one in requests} == {"retry"}
        for request in requests:
            launched(bad, request)
        assert looks(bad) == []
        attempts = {one.demonstration: one.attempts for one in list_quarantine(_store(bad))}
        assert attempts == {"bad": 2, "torn": 2}  # both stages were tried on the same files again

    def test_only_those_that_are_named_and_quarantined(self, bad: Bench) -> None:
        arrive(bad)
        said = job(bad, "retry_quarantined", "request_retries", ids=["bad", "good", "../x"])
        assert said["demonstrations"] == 1
        assert [one.partition_key for one in looks(bad)] == ["bad"]

    @pytest.mark.no_cover  # other tests run the same lines
    def test_two_requests_give_one_run(self, bad: Bench) -> None:
        arrive(bad)
        for _ in range(2):
            job(bad, "retry_quarantined", "request_retries", ids=["bad"])
        assert len(looks(bad)) == 1


class TestReprocess:
    @pytest.mark.no_cover  # other tests run the same lines
    def test_demonstrations_with_changed_settings_are_rerun(self, made: Bench) -> None:
        arrive(made)
        assert job(made, "reprocess_changed", "request_reprocessing")["demonstrations"] == 0
        harder = made.settings.model_copy(
            update={"trajectories": TrajectorySettings(easy_steps=1, medium_steps=2)}
        )
        changed = replace(made, settings=harder, definitions=build_defs(harder))
        assert job(changed, "reprocess_changed", "request_reprocessing")["demonstrations"] == 2
        request, _ = sorted(looks(changed), key=lambda one: str(one.partition_key))
        assert request.partition_key == "first"
        found = materialized(launched(changed, request))
        outcomes = {name: values(one)["outcome"] for (name, _), one in found.items()}
        assert outcomes["screenshots"] == "unchanged"
        assert outcomes["trajectories"] == "made"
        assert job(changed, "reprocess_changed", "request_reprocessing")["demonstrations"] == 1

    @pytest.mark.no_cover  # other tests run the same lines
    def test_a_changed_upload_is_left_to_the_sensor(self, made: Bench) -> None:
        arrive(made)
        meta = made.uploads / "first" / "meta.json"
        meta.write_text(meta.read_text().replace("Please do", "Now please do"))
        assert job(made, "reprocess_changed", "request_reprocessing")["demonstrations"] == 0
        assert [one.partition_key for one in looks(made)] == ["first"]


class TestForgetting:
    def test_the_newest_runs_of_partitions_and_datasets_are_kept(self, made: Bench) -> None:
        arrive(made)
        old = made.process("bad")
        newest = made.process("bad")
        assert made.run("report_quarantine").success
        reported = made.run("report_quarantine")
        before = {run.run_id for run in made.instance.get_runs()}
        said = job(made, "prune_history", "prune", days=0)
        left = {run.run_id for run in made.instance.get_runs()}
        assert len(before - left) == said["runs"]
        assert old.run_id not in left
        assert {newest.run_id, reported.run_id} <= left
        for stage in STAGES:
            known = made.instance.get_materialized_partitions(dg.AssetKey(stage.name))
            assert {"first", "second"} <= known
        assert looks(made) == []
        assert read_quarantine(_store(made), "bad") is not None

    def test_recent_and_unfinished_runs_are_kept(self, made: Bench) -> None:
        definition = made.definitions.resolve_job_def("build_datasets")
        started = made.instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED)
        made.run("register_uploads")
        made.run("register_uploads")
        assert job(made, "prune_history", "prune", days=30)["runs"] == 0
        assert job(made, "prune_history", "prune", days=0)["runs"] == 2
        assert made.instance.get_run_by_id(started.run_id) is not None

    @pytest.mark.no_cover  # other tests run the same lines
    def test_old_versions_are_deleted_after_the_grace_period(self, made: Bench) -> None:
        harder = made.settings.model_copy(
            update={"trajectories": TrajectorySettings(easy_steps=1, medium_steps=2)}
        )
        replace(made, settings=harder, definitions=build_defs(harder)).process("first")
        files = made.files()
        assert job(made, "prune_history", "prune", grace_hours=24)["versions"] == 0
        assert job(made, "prune_history", "prune", grace_hours=0)["versions"] >= 1
        assert made.files() == files


def _store(made: Bench) -> Any:
    return made.workspace.store
