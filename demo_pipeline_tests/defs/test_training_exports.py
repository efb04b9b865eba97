"""Tests the order of training exports, their settings, and that a failed export stops no other."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.defs import build_defs
from demo_pipeline.defs.dataset_assets import built_from_event, newest_records_event
from demo_pipeline.problems import Problem
from demo_pipeline.runs.stages import built_stages, is_built, training_exports
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline_tests.defs.bench import Bench, Result, failures, materialized, open_bench, values

PROBLEM = Problem("unfit", "samples.jsonl", "does not fit")
FOLLOWERS = ("trajectory_index", "dataset_statistics")
EXPORTS = {
    name for name, export in training_exports().items() if is_built(export.stage, Settings())
}
ON_REQUEST = training_exports().keys() - EXPORTS


@pytest.fixture
def processed(tmp_path: Path, made_root: Path) -> Iterator[Bench]:
    with open_bench(tmp_path, source=made_root) as bench:
        yield bench


def changed(bench: Bench, **datasets: Any) -> Bench:
    """Returns a copy of the bench with other settings of datasets."""
    settings = bench.settings.model_copy(update={"datasets": DatasetSettings(**datasets)})
    return replace(bench, settings=settings, definitions=build_defs(settings))


def exports(bench: Bench) -> dict[str, Any]:
    folder = bench.workspace.store.open("dataset")[0]
    return json.loads((folder / "exports.json").read_bytes())["exports"]


def order(result: Result) -> list[str]:
    """Returns the names of the steps in the order in which they began."""
    return [str(event.step_key) for event in result.all_events if event.is_step_start]


def rejecting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Replaces the checks of a stage by a check that fails."""

    def strict(stage: Any) -> Any:
        check = replace(stage.checks[0], run=lambda *_: [PROBLEM])
        return replace(stage, checks=(check,)) if stage.name == name else stage

    monkeypatch.setattr(
        "demo_pipeline.defs.dataset_assets.built_stages",
        lambda settings: [strict(stage) for stage in built_stages(settings)],
    )


def test_the_index_is_the_end_of_the_job_and_reads_what_it_built(processed):
    result = processed.run("build_datasets")
    assert result.success
    steps = order(result)
    last = max(steps.index(name) for name in EXPORTS)
    assert last < steps.index("trajectory_index") < steps.index("dataset_statistics")
    statuses = {state["asset"]: state["status"] for state in exports(processed).values()}
    assert statuses == dict.fromkeys(EXPORTS, "built") | dict.fromkeys(ON_REQUEST, "disabled")
    metadata = values(materialized(result)["trajectory_index", None])
    built = {name for name, status in metadata["exports"].items() if status == "built"}
    assert built == {"sft", "messages", "cudag"}


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_a_failed_export_is_recorded_and_stops_no_other_stage(processed, monkeypatch, name):
    rejecting(monkeypatch, name)
    bench = changed(processed)
    result = bench.run("build_datasets")
    assert set(failures(result)) == {name}
    assert not result.success
    assert {key for key, _ in materialized(result)} >= {*FOLLOWERS, *EXPORTS} - {name}
    statuses = {state["asset"]: state["status"] for state in exports(bench).values()}
    assert {key: statuses[key] for key in EXPORTS} == dict.fromkeys(EXPORTS, "built") | {
        name: "failed"
    }


def test_a_disabled_export_is_not_built_and_nothing_waits_for_it(processed):
    bench = changed(processed, exports=("sft",))
    assert bench.process("first").success
    result = bench.run("build_datasets")
    assert result.success
    assert EXPORTS & set(order(result)) == {"sft_samples"}
    assert {*FOLLOWERS} <= {key for key, _ in materialized(result)}
    statuses = {name: state["status"] for name, state in exports(bench).items()}
    assert statuses.pop("sft") == "built"
    assert {"messages", "cudag"} < statuses.keys()
    assert set(statuses.values()) == {"disabled"}
    assert bench.workspace.store.outputs("messages") == []
    newest = newest_records_event(bench.instance)
    assert built_from_event(bench.instance, bench.settings) == newest > 0
    assert built_from_event(bench.instance, Settings()) == 0


def test_an_export_is_an_asset_only_when_the_settings_name_it(processed):
    """The asset of a disabled export would fail every run that selects the asset."""
    bench = changed(processed, exports=("sft", "agentnetbench"))
    specs = {spec.key.path[-1]: spec for spec in bench.definitions.resolve_all_asset_specs()}
    both = {"sft_samples", "agentnetbench"}
    assert specs.keys() & (EXPORTS | ON_REQUEST) == both
    assert {dep.asset_key.path[-1] for dep in specs["trajectory_index"].deps} == {"records", *both}
    assert {dep.asset_key.path[-1] for dep in specs["dataset_statistics"].deps} == {
        "trajectory_index",
        "sft_samples",
    }


def test_the_metadata_says_how_many_bytes_each_dataset_wrote(processed):
    materializations = materialized(processed.run("build_datasets"))
    for name in EXPORTS:
        metadata = values(materializations[name, None])
        assert 0 < metadata["bytes_written"] < metadata["output_bytes"]
