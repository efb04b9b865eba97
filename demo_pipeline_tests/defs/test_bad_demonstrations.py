"""A broken demonstration: reported with file and line, quarantined, released when corrected."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.problems import Problem
from demo_pipeline.runs.quarantine import QuarantineRecord, read_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline_tests.defs.bench import Bench, Result, bench, failures, materialized, verdicts
from demo_pipeline_tests.uploads import BREAKING, TYPED, spoil_log, upload

NAMES = [stage.name for stage in STAGES]


@dataclass(frozen=True)
class Case:
    """One way to be broken: the run, the record it left, and the run after the correction."""

    stage: str
    where: str
    result: Result
    record: QuarantineRecord | None
    corrected: Result
    after: QuarantineRecord | None


@pytest.fixture(scope="module", params=sorted(BREAKING))
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recording: Path
) -> Iterator[Case]:
    spoil, stage, where = BREAKING[request.param]
    with bench(tmp_path_factory.mktemp("bad"), partitions_per_run=1) as made:
        folder = upload(recording, made.uploads, "bad")
        spoil(folder)
        result = made.process("bad")
        record = read_quarantine(made.workspace.store, "bad")
        shutil.rmtree(folder)
        upload(recording, made.uploads, "bad")
        corrected = made.process("bad")
        after = read_quarantine(made.workspace.store, "bad")
        yield Case(stage, where, result, record, corrected, after)


def test_the_run_fails_in_the_stage_that_detects_the_problem(case: Case) -> None:
    assert not case.result.success
    assert set(failures(case.result)) == {case.stage}


def test_the_failure_names_demonstration_file_and_line_and_what_to_do(case: Case) -> None:
    said = failures(case.result)[case.stage]
    assert f"bad: {case.where}" in said.description
    assert said.description.rstrip().endswith(")")  # the remedy
    assert "correct the upload" in said.metadata["what_to_do"].value
    assert case.where.partition(":")[0] in said.metadata["found"].value


def test_the_stage_is_not_materialized_and_its_check_fails(case: Case) -> None:
    made = {name for name, _ in materialized(case.result)}
    assert made == set(NAMES[: NAMES.index(case.stage)])
    failed = [verdict for verdict in verdicts(case.result).values() if not verdict.passed]
    assert [verdict.asset_key.path[-1] for verdict in failed] == [case.stage]
    assert [verdict.partition for verdict in failed] == ["bad"]
    assert case.where in (failed[0].description or "")


def test_the_quarantine_record_says_the_same(case: Case) -> None:
    assert case.record is not None
    assert case.record.stage == case.stage
    problem = case.record.problems[0]
    assert problem["file"] == case.where.partition(":")[0]
    assert problem["remedy"]
    assert problem["demonstration"] == "bad"
    assert TYPED not in case.record.model_dump_json()


def test_a_corrected_upload_is_processed_and_released(case: Case) -> None:
    assert case.corrected.success
    assert [name for name, _ in materialized(case.corrected)] == NAMES
    assert case.after is None


def test_a_bad_demonstration_is_not_retried(tmp_path: Path, recording: Path) -> None:
    with bench(tmp_path) as made:
        spoil_log(upload(recording, made.uploads, "bad"))
        made.instance.add_dynamic_partitions("demonstrations", ["bad"])
        eager = dg.define_asset_job(
            "eager",
            selection=["raw_recordings", "events"],
            op_retry_policy=dg.RetryPolicy(max_retries=3),
        )
        definitions = dg.Definitions.merge(made.definitions, dg.Definitions(jobs=[eager]))
        again = Bench(made.settings, definitions, made.instance)
        result = again.run("eager", "bad")
        assert set(failures(result)) == {"events"}
        assert result.retry_attempts_for_node("events") == 0


@pytest.mark.no_cover  # other tests run the same lines
def test_the_first_reason_stays_when_a_correct_demonstration_is_replaced_by_a_broken_one(
    tmp_path: Path, recording: Path
) -> None:
    with bench(tmp_path, partitions_per_run=25) as made:
        folder = upload(recording, made.uploads, "one")
        upload(recording, made.uploads, "two")
        made.instance.add_dynamic_partitions("demonstrations", ["one", "two"])
        assert made.process("one").success
        before = made.files()
        BREAKING["torn meta"][0](folder)
        assert not made.process_range("one", "two").success
        record = read_quarantine(made.workspace.store, "one")
        assert record is not None
        assert (record.stage, record.problems[0]["file"]) == ("raw_recordings", "meta.json")
        after = made.files()
        assert {output: after[output] for output in before} == before
        assert "trajectories/two" in after


def test_a_failed_check_stops_the_chain_and_keeps_the_last_good_version(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, partitions_per_run=1) as made:
        upload(recording, made.uploads, "one")
        assert made.process("one").success
        before = made.files()
        found = Problem("seen", "actions.parquet", "does not add up", remedy="look at it")
        strictest = [
            replace(one, checks=tuple(replace(c, run=lambda _, __: [found]) for c in one.checks))
            if one.name == "actions"
            else one
            for one in STAGES
        ]
        monkeypatch.setattr(demonstrations, "STAGES", strictest)
        strict = replace(made, definitions=build_defs(made.settings))
        result = strict.process("one", **{"demo_pipeline/force": "true"})
        assert "one: actions.parquet: does not add up" in failures(result)["actions"].description
        assert {name for name, _ in materialized(result)} == {"raw_recordings", "events"}
        failed = [verdict for verdict in verdicts(result).values() if not verdict.passed]
        names = ["actions_schema", "ledger_sums", "known_input", "keyboard_layout"]
        assert [verdict.check_name for verdict in failed] == names
        assert {verdict.partition for verdict in failed} == {"one"}
        record = read_quarantine(made.workspace.store, "one")
        assert record is not None
        assert record.stage == "actions"
        assert made.files() == before


@pytest.mark.parametrize("key", ["../outside", "a,b"])
def test_a_partition_that_is_not_an_id_is_refused_by_name(tmp_path: Path, key: str) -> None:
    with bench(tmp_path) as made:
        made.instance.add_dynamic_partitions("demonstrations", [key])
        result = made.run("process_demonstration", key)
        said = failures(result)["raw_recordings"]
        assert "is not a demonstration id" in said.description
        assert "demo-pipeline register" in said.description
        assert not (tmp_path / "store").exists()


def test_an_id_without_an_upload_is_reported(tmp_path: Path) -> None:
    with bench(tmp_path) as made:
        said = failures(made.process("nobody"))["raw_recordings"]
        assert "nobody: .: no folder of the uploads has this id" in said.description
