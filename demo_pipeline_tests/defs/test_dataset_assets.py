"""Tests that datasets are built from committed outputs, and never replaced by a failed build."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.defs import build_defs
from demo_pipeline.problems import Problem, errors
from demo_pipeline.runs.stages import datasets_job_stages, is_built, training_exports
from demo_pipeline.runs.validation import validate
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline_tests.defs.bench import (
    Bench,
    failures,
    materialized,
    open_bench,
    values,
    verdicts,
)
from demo_pipeline_tests.uploads import upload

KINDS = {"osworld_quests": "osworld", "trajectory_index": "dataset"}
EXPORTERS = [
    stage
    for stage in datasets_job_stages()
    if stage.reads_trajectories and is_built(stage, Settings())
]
PROBLEM = Problem("seen", "index.json", "does not fit", line=7, remedy="look at it")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("datasets")) as bench:
        for key in ("one", "two"):
            upload(recording, bench.uploads, key)
            assert bench.process(key).success
        assert bench.run("build_datasets").success
        yield bench


def test_every_dataset_is_valid_and_says_what_it_holds(built):
    materializations = materialized(built.run("build_datasets"))
    for stage in EXPORTERS:
        metadata = values(materializations[stage.name, None])
        assert metadata["outcome"] == "unchanged"
        assert metadata["left_out"] == {"broken": 0, "private": 0, "quarantined": 0}
        export = training_exports().get(stage.name)
        kind = export.name if export else KINDS[stage.name]
        assert errors(validate(Path(metadata["path"]), kind, built.settings)) == []
    assert values(materializations["sft_samples", None])["samples"] == 3
    assert values(materializations["trajectory_index", None])["trajectories"] == 2


def test_the_leak_rates_are_numbers_in_the_metadata_and_a_check(built):
    result = built.run("build_datasets")
    materializations = materialized(result)
    rates = {"pointer_actions": 4, "leaks": 0, "leak_rate": 0.0, "unavoidable_leak_rate": 0.0}
    for name in ("trajectory_index", "dataset_statistics"):
        metadata = values(materializations[name, None])
        assert {key: metadata[key] for key in rates} == rates
    assert verdicts(result)["leak_rate"].passed


@pytest.mark.parametrize("stage", EXPORTERS, ids=lambda stage: stage.name)
def test_without_a_trajectory_the_failure_names_the_next_step(tmp_path, stage):
    with open_bench(tmp_path) as bench:
        result = bench.run("build_datasets", only=(stage.name,))
        message = failures(result)[stage.name].description
        assert "no trajectory is committed yet" in message
        assert "demo-pipeline run" in message
        assert bench.workspace.store.outputs() == []


def test_a_failed_check_is_shown_and_keeps_the_last_good_version(built, monkeypatch):
    strictest = [
        replace(stage, checks=(replace(stage.checks[0], run=lambda *_: [PROBLEM]),))
        for stage in datasets_job_stages()
    ]
    patched = "demo_pipeline.defs.dataset_assets.built_stages"
    monkeypatch.setattr(patched, lambda settings: [s for s in strictest if is_built(s, settings)])
    settings = built.settings.model_copy(update={"datasets": DatasetSettings(seed=1)})
    strict = replace(built, settings=settings, definitions=build_defs(settings))
    before = built.workspace.store.current("dataset")
    result = strict.run("build_datasets", only=("trajectory_index",))
    failure = failures(result)["trajectory_index"]
    assert "the last good version is kept" in failure.description
    assert "index.json:7" in failure.description
    assert failure.metadata["found"].records[0].data["what to do"] == "look at it"
    verdict = verdicts(result)["desktopd_dataset"]
    assert not verdict.passed
    assert verdict.description == str(PROBLEM)
    assert materialized(result) == {}
    assert built.workspace.store.current("dataset") == before
