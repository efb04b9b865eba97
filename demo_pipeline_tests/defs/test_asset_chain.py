"""One demonstration from its upload to its trajectory, and what the UI shows of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.validation import validate
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    failures,
    materialized,
    values,
    verdicts,
)
from demo_pipeline_tests.uploads import TYPED, upload

NAMES = [stage.name for stage in STAGES]
Files = dict[str, dict[str, bytes]]


@dataclass(frozen=True)
class Runs:
    """The same demonstration three times: new, unchanged, and made again by force."""

    bench: Bench
    first: Result
    again: Result
    forced: Result
    files: tuple[Files, Files, Files]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Iterator[Runs]:
    with bench(tmp_path_factory.mktemp("chain")) as made:
        upload(recording, made.uploads, "good")
        results, files = [], []
        for force in ("false", "false", "true"):
            results.append(made.process("good", **{"demo_pipeline/force": force}))
            files.append(made.files())
        first, again, forced = results
        yield Runs(made, first, again, forced, (files[0], files[1], files[2]))


def of(result: Result, stage: str) -> dict[str, Any]:
    return values(materialized(result)[stage, "good"])


def test_every_stage_materializes_and_every_check_passes(runs: Runs) -> None:
    assert runs.first.success
    assert [name for name, _ in materialized(runs.first)] == NAMES
    found = verdicts(runs.first)
    assert set(found) == {check.name for stage in STAGES for check in stage.checks}
    assert {name for name, verdict in found.items() if not verdict.passed} == set()
    said = {name: verdict.description or "" for name, verdict in found.items()}
    assert said["ledger_sums"].endswith(" input events")
    assert said["desktopd_trajectory"] == "no problem in 3 steps, 3 targets"
    assert [name for name, text in said.items() if not re.search(r"\d", text)] == []


def test_a_repeated_verdict_says_over_how_many_files(runs: Runs) -> None:
    for name, verdict in verdicts(runs.again).items():
        assert re.search(r"\d+ files of this version", verdict.description or ""), name


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("raw_recordings", {"status": "completed", "platform": "windows"}),
        ("events", {"rejected_lines": 0}),
        ("actions", {"actions": 3, "by_type": {"click": 2, "type": 1}}),
        ("screenshots", {"pictures": 3}),
        ("ui_trees", {"trees": 3}),
        ("trajectories", {"steps": 3, "success": True, "application": "notes"}),
        ("trajectories", {"pointer_actions": 2, "leak_rate": 0.0, "unavoidable_leak_rate": 0.0}),
        ("contact_sheets", {"sheets": 1, "tiles": 3}),
    ],
)
def test_metadata_is_worth_reading(runs: Runs, stage: str, expected: dict[str, Any]) -> None:
    shown = of(runs.first, stage)
    assert {key: shown[key] for key in expected} == expected
    assert shown["outcome"] == "made"
    assert shown["files"] >= 1
    assert shown["output_bytes"] > 0
    assert (Path(shown["path"])).is_dir()


def test_the_summary_of_a_stage_is_not_overwritten_by_common_metadata(runs: Runs) -> None:
    upload_size = sum(file.stat().st_size for file in (runs.bench.uploads / "good").iterdir())
    shown = of(runs.first, "raw_recordings")
    assert shown["bytes"] == upload_size
    assert shown["output_bytes"] != upload_size


def test_it_says_where_the_pictures_are_and_what_opens_them(runs: Runs) -> None:
    assert of(runs.first, "trajectories")["review"] == "demo-pipeline review good"
    sheet = Path(of(runs.first, "contact_sheets")["contact_sheet"])
    assert sheet.read_bytes().startswith(b"\xff\xd8")


def test_the_committed_folder_is_a_trajectory_with_the_typed_text(runs: Runs) -> None:
    folder = Path(of(runs.first, "trajectories")["path"])
    assert validate(folder, "trajectory", runs.bench.settings) == []
    assert any(TYPED in file.read_text() for file in folder.glob("steps/*/action.json"))


def test_a_second_run_changes_nothing(runs: Runs) -> None:
    assert {of(runs.again, name)["outcome"] for name in NAMES} == {"unchanged"}
    assert verdicts(runs.again).keys() == verdicts(runs.first).keys()


def test_a_forced_run_changes_no_byte_and_no_version(runs: Runs) -> None:
    assert {of(runs.forced, name)["outcome"] for name in NAMES} == {"made"}
    assert runs.files[0] == runs.files[1] == runs.files[2]
    for result in (runs.again, runs.forced):
        for name in NAMES:
            assert of(result, name)["version"] == of(runs.first, name)["version"]
            assert data_version(result, name) == data_version(runs.first, name)


def test_data_versions_are_the_contents_fingerprints(runs: Runs) -> None:
    for stage in STAGES:
        version = runs.bench.workspace.store.current(stage.output("good"))
        assert version is not None
        assert data_version(runs.first, stage.name) == version.content[:16]


@pytest.mark.no_cover  # other tests run the same lines
def test_a_stage_that_was_deleted_comes_back_the_same(runs: Runs) -> None:
    store = runs.bench.workspace.store
    store.remove("actions/good")
    result = runs.bench.process("good")
    outcomes = {name: of(result, name)["outcome"] for name in NAMES}
    assert outcomes == dict.fromkeys(NAMES, "unchanged") | {"actions": "made"}
    assert runs.bench.files() == runs.files[0]


def test_no_demonstration_is_quarantined(runs: Runs) -> None:
    assert list_quarantine(runs.bench.workspace.store) == []


def test_a_stage_without_its_input_names_the_stage_before(tmp_path: Path, recording: Path) -> None:
    with bench(tmp_path) as made:
        upload(recording, made.uploads, "good")
        made.instance.add_dynamic_partitions("demonstrations", ["good"])
        result = made.run("process_demonstration", "good", only=("events",))
        said = failures(result)["events"].description
        assert "recordings/good" in said
        assert "materialize raw_recordings" in said
        assert list_quarantine(made.workspace.store) == []


def data_version(result: Result, stage: str) -> str | None:
    return (materialized(result)[stage, "good"].tags or {}).get("dagster/data_version")
