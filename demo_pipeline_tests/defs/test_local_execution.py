"""Runs from the command line: defects are not quarantined, dead workers affect one each."""

import re
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs import demonstration_assets, local_execution
from demo_pipeline.defs.instance_runs import InstanceRuns
from demo_pipeline.defs.local_execution import process, register_uploads
from demo_pipeline.defs.tags import INTERRUPTED_OUTCOME, OUTCOME_TAG
from demo_pipeline.discovery.run_history import RunOutcome
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.outcomes import DemonstrationOutcome
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import Settings
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs import dying_assets
from demo_pipeline_tests.uploads import spoil_log, upload


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Path) -> Settings:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    upload(recording, tmp_path / "uploads", "one")
    made = Settings(uploads=str(tmp_path / "uploads"), store=str(tmp_path / "store"))
    assert register_uploads(Workspace.open(made)) == (["one"], ["one"])
    return made


def test_a_dead_worker_affects_only_its_own_demonstration(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(local_execution, "_process_one", dying_assets.work)
    execution = settings.execution.model_copy(update={"partitions_per_run": 1})
    alone = settings.model_copy(update={"execution": execution})
    outcomes = list(process(alone, ["a", "dies", "b"], 2, force=True))
    died = [one for one in outcomes if one.status != "done"]
    assert [(one.demonstration, one.status) for one in died] == [("dies", "crashed")]
    assert "worker process died" in died[0].reasons[0]
    done = {(one.demonstration, one.summary["force"]) for one in outcomes if one not in died}
    assert done == {("a", True), ("b", True)}


def test_a_defect_is_a_crash_even_with_an_old_quarantine_record(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    raised: list[Exception] = [
        DemonstrationError(Problem("seen", "meta.json", "is odd", line=2, remedy="mend it")),
        ZeroDivisionError("a defect\nof two lines"),
    ]

    def build(*_: object) -> dict[str, object]:
        raise raised.pop(0)

    stages = [replace(one, build=build) if one.name == "events" else one for one in STAGES]
    monkeypatch.setattr(demonstration_assets, "STAGES", stages)
    values = settings.model_dump(mode="json")
    held, crashed = (local_execution._process_one(values, "one", force=False) for _ in range(2))
    assert held == DemonstrationOutcome(
        "one", "quarantined", {}, ("events: meta.json:2: is odd (mend it)",)
    )
    assert crashed == DemonstrationOutcome("one", "crashed", {}, crashed.reasons)
    [reason] = crashed.reasons
    place = r"at demo_pipeline/pipeline/runner\.py:[0-9]+"
    assert re.match(
        rf"events: ZeroDivisionError: a defect of the pipeline stopped events of one, {place}",
        reason,
    )
    assert "two lines" not in reason


@pytest.fixture
def many(settings: Settings, tmp_path: Path, recording: Path) -> Settings:
    """The uploads `one` to `four`, of which `three` has a log without a valid line."""
    for name in ("two", "three", "four"):
        upload(recording, tmp_path / "uploads", name)
    spoil_log(tmp_path / "uploads" / "three")
    register_uploads(Workspace.open(settings))
    execution = settings.execution.model_copy(update={"batch_from": 4})
    return settings.model_copy(update={"execution": execution})


IDS = ["one", "two", "three", "four"]


@pytest.mark.no_cover  # other tests run the same lines
def test_much_to_do_is_done_in_one_run(many: Settings) -> None:
    outcomes = {one.demonstration: one for one in process(many, IDS, 2)}
    assert {key: one.status for key, one in outcomes.items()} == {
        "one": "done",
        "two": "done",
        "three": "quarantined",
        "four": "done",
    }
    assert outcomes["one"].summary["steps"] == 3
    assert outcomes["three"].reasons[0].startswith("events: input_log.jsonl:1: ")
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
        assert run.job_name == "process_batch"
        history = InstanceRuns(instance, Workspace.open(many))
        launches = [history.last(key) for key in IDS]
    assert {last.outcome for last in launches if last is not None} == {RunOutcome.ENDED}
    assert len([last for last in launches if last is not None]) == len(IDS)


def test_an_interrupted_run_of_many_is_closed_and_continued(many: Settings) -> None:
    running = process(many, IDS, 1)
    first = next(running)
    running.close()
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs()
    assert run.is_finished
    assert run.tags[OUTCOME_TAG] == INTERRUPTED_OUTCOME
    assert Workspace.open(many).store.remove_leftovers() == []
    outcomes = {one.demonstration: one.status for one in process(many, IDS, 2)}
    assert outcomes[first.demonstration] == first.status
    assert sorted(outcomes.values()) == ["done", "done", "done", "quarantined"]
