"""Tests which events Dagster records when a demonstration is built, is rejected or fails."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from demo_pipeline.defs import demonstrations
from demo_pipeline.files.recording_files import LOG_FILE as LOG
from demo_pipeline.files.recording_files import META_FILE as META
from demo_pipeline.runs.failures import TransientError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.quarantine import list_quarantine, read_quarantine
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline_tests.defs.bench import (
    Bench,
    failures,
    materialized,
    open_bench,
    values,
    verdicts,
)


@pytest.fixture
def bench(tmp_path: Path, made_root: Path) -> Iterator[Bench]:
    with open_bench(tmp_path, source=made_root) as opened:
        yield opened


def test_every_stage_says_what_it_made_and_what_its_checks_compared(bench):
    shutil.rmtree(bench.settings.store)
    result = bench.process("first")
    assert result.success
    materializations = materialized(result)
    assert {name for name, key in materializations if key == "first"} == STAGE_BY_NAME.keys()
    metadata = values(materializations["trajectories", "first"])
    assert (metadata["outcome"], metadata["steps"]) == ("made", 4)
    assert materializations["actions", "first"].tags is not None
    current = bench.workspace.store.current("actions/first")
    assert current is not None
    assert materializations["actions", "first"].tags["dagster/data_version"] == current.content[:16]
    evaluations = verdicts(result)
    checks: list[str] = []
    for stage in STAGES:
        checks += [check.name for check in stage.checks]
    assert sorted(evaluations) == sorted(checks)
    assert len(checks) <= 17  # one per kind of question, plus the check of redactions
    assert {evaluation.partition for evaluation in evaluations.values()} == {"first"}
    assert re.match(r"no problem in \d\d+ lines, ", evaluations["events_schema"].description or "")


def test_stages_that_are_up_to_date_are_reported_as_unchanged(bench):
    before = bench.files()
    result = bench.process("first")
    assert result.success
    assert {values(asset)["outcome"] for asset in materialized(result).values()} == {"unchanged"}
    assert bench.files() == before
    forced = bench.process("first", **{"demo_pipeline/force": "true"})
    assert {values(asset)["outcome"] for asset in materialized(forced).values()} == {"made"}
    assert bench.files() == before


def test_the_reason_of_a_rejection_is_in_every_event(bench):
    (bench.uploads / "first" / LOG).write_text("no json\n" * 3)
    result = bench.process("first")
    assert not result.success
    [(stage, failure)] = failures(result).items()
    assert stage == "events"
    record = read_quarantine(bench.workspace.store, "first")
    assert record is not None
    sentence = str(record.known_problems()[0])
    assert sentence.startswith(f"first: {LOG}:1: ")
    assert (failure.description or "").startswith(sentence)
    [observed] = result.get_asset_observation_events()
    observation = observed.asset_observation_data.asset_observation
    assert (observation.asset_key.path, observation.partition) == (["events"], "first")
    assert observation.description == failure.description
    verdict = verdicts(result)["events_schema"]
    assert (verdict.passed, verdict.partition) == (False, "first")
    assert verdict.description == failure.description
    assert {name for name, _ in materialized(result)} == {"raw_recordings"}
    assert bench.process("second").success


def test_a_defect_of_the_pipeline_is_quarantined_without_its_message(bench):
    def build(*_: object) -> dict[str, int]:
        raise ZeroDivisionError("typed text")

    broken = replace(STAGE_BY_NAME["actions"], build=build, code_version="0")
    asset = demonstrations.demonstration_asset(broken)
    result = _materialize(bench, asset, "first")
    assert not result.success
    [failure] = failures(result).values()
    assert "a defect of the pipeline stopped actions of first" in failure.description
    assert "typed text" not in str(failure)
    [record] = list_quarantine(bench.workspace.store)
    assert record.problems[0]["code"] == "run_crashed"


def _materialize(bench: Bench, asset: dg.AssetsDefinition, key: str) -> dg.ExecuteInProcessResult:
    bench.instance.add_dynamic_partitions("demonstrations", [key])
    return dg.materialize(
        [asset],
        partition_key=key,
        instance=bench.instance,
        resources=bench.definitions.resources,
        raise_on_error=False,
    )


@pytest.mark.parametrize(("failing", "success"), [(2, True), (9, False)])
def test_a_transient_error_is_retried_and_then_fails_with_its_message(
    bench, monkeypatch, failing, success
):
    attempts = 0
    build = Graph.build

    def build_later(*arguments: Any, **options: Any) -> BuildResult:
        nonlocal attempts
        attempts += 1
        if attempts <= failing:
            raise TransientError("No space left on device")
        return build(*arguments, **options)

    monkeypatch.setattr(Graph, "build", build_later)
    monkeypatch.setattr("demo_pipeline.defs.reporting.RETRY_SECONDS", (0, 0, 0))
    bench.instance.add_dynamic_partitions("demonstrations", ["first"])
    result = bench.run("process_demonstration", "first", ["actions"])
    assert result.success is success
    assert attempts == (failing + 1 if success else 4)
    if not success:
        [failure] = failures(result).values()
        assert failure.description == "No space left on device; tried 4 times"
    assert list_quarantine(bench.workspace.store) == []


def test_an_invalid_id_and_a_missing_input_are_reported(bench):
    bench.instance.add_dynamic_partitions("demonstrations", ["../up", "first"])
    [failure] = failures(bench.run("process_demonstration", "../up", ["events"])).values()
    assert "is not a demonstration id" in failure.description
    shutil.rmtree(bench.settings.store)
    [failure] = failures(bench.run("process_demonstration", "first", ["events"])).values()
    assert "recordings/first" in failure.description
    assert "--select raw_recordings --partition first" in failure.description
    assert list_quarantine(bench.workspace.store) == []


def test_later_stages_of_a_quarantined_demonstration_refuse_with_its_reason(bench):
    (bench.uploads / "first" / META).write_text("{")
    bench.process("first")
    [failure] = failures(bench.run("process_demonstration", "first", ["actions"])).values()
    assert META in failure.description
    [record] = list_quarantine(bench.workspace.store)
    assert record.stage == "raw_recordings"


def test_nothing_of_dagsters_core_is_used():
    package = Path(demonstrations.__file__).parents[1]
    users = [path.name for path in package.rglob("*.py") if "dagster._core" in path.read_text()]
    assert users == []
