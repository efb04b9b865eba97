"""Runs from the command line: defects are not quarantined, dead workers affect one each."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.defs import demonstration_assets, local_execution
from demo_pipeline.defs.local_execution import process, register_uploads
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGES
from demo_pipeline.pipeline.outcomes import DemonstrationOutcome
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs import dying_assets
from demo_pipeline_tests.uploads import upload


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Path) -> Settings:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    upload(recording, tmp_path / "uploads", "one")
    made = Settings(uploads=str(tmp_path / "uploads"), store=str(tmp_path / "store"))
    assert register_uploads(Workspace.open(made)) == (["one"], ["one"])
    return made


def test_a_dead_worker_affects_only_its_own_demonstration(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(local_execution, "_process_one", dying_assets.work)
    outcomes = list(process(settings, ["a", "dies", "b"], 2, force=True))
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
