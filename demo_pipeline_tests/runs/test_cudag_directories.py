"""Tests which CUDAG directories stay published: one for each prefix in the settings."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo_pipeline.exports.cudag import dataset
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.named_stages import CUDAG_STAGE
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """Returns a copy of a root with two demonstrations, processed up to the trajectories."""
    return copy_of(made_root, tmp_path / "root")


def build(root: Path, time: str, **settings: object) -> BuildResult:
    """Builds the dataset as if its newest recording were of this time.

    If the time is empty, the newest recording keeps its own time.
    """
    chosen = DatasetSettings.model_validate(settings)
    with pytest.MonkeyPatch.context() as patch:
        if time:
            newest = datetime.strptime(time, "%Y%m%d_%H%M%S").replace(tzinfo=UTC)
            patch.setattr(dataset, "_generated_at", lambda _: newest)
        return run_dataset_stage(open_workspace(root, datasets=chosen), CUDAG_STAGE, force=True)


def published(root: Path) -> list[str]:
    names = open_workspace(root).store.outputs("datasets")
    return [name.removeprefix("datasets/") for name in names]


FIRST = "20250101_000000"
SECOND = "20250202_000000"


def test_a_new_directory_replaces_the_older_one_of_its_prefix_and_user(root):
    build(root, FIRST)
    build(root, FIRST, name_prefix="other")
    build(root, SECOND)
    wanted = [
        f"demonstrations--demo-pipeline--{SECOND}",
        f"other--demo-pipeline--{FIRST}",
    ]
    assert published(root) == wanted
    names = export_datasets(open_workspace(root).store, root / "exported")
    assert [name for name in names if name.startswith("datasets/")] == [
        f"datasets/{name}" for name in wanted
    ]


def test_an_older_directory_left_by_a_killed_build_goes_with_the_next_run(root, monkeypatch):
    build(root, FIRST)
    with monkeypatch.context() as killed:
        killed.setattr(dataset, "_family", lambda directory: directory)
        build(root, SECOND)
    assert published(root) == [f"demonstrations--demo-pipeline--{time}" for time in (FIRST, SECOND)]
    assert build(root, SECOND).status in {"made", "unchanged"}
    assert published(root) == [f"demonstrations--demo-pipeline--{SECOND}"]


@pytest.mark.parametrize("time", [FIRST, SECOND])
def test_other_settings_need_another_prefix_and_replace_nothing(root, time):
    before = build(root, FIRST).version
    with pytest.raises(RefusedError) as caught:
        build(root, time, seed=7, cudag_scroll_unit="notches")
    [check] = caught.value.checks
    [problem] = check.problems
    assert (check.name, problem.code) == ("one_configuration", "other_settings")
    assert "other values of datasets.seed, datasets.cudag_scroll_unit;" in problem.message
    assert "datasets.name_prefix" in problem.remedy
    assert published(root) == [f"demonstrations--demo-pipeline--{FIRST}"]
    kept = open_workspace(root).store.current(f"datasets/{published(root)[0]}")
    assert kept is not None
    assert kept.name == before
    assert build(root, time, seed=7, name_prefix="second").status == "made"


def test_another_prompt_style_is_published_in_a_second_directory(root):
    build(root, FIRST)
    assert build(root, FIRST, prompt_style="instruction").status == "made"
    names = [f"demonstrations{style}--demo-pipeline--{FIRST}" for style in ("", "-instruction")]
    assert published(root) == names


def test_settings_that_change_no_record_need_no_other_prefix(root):
    build(root, FIRST)
    assert build(root, FIRST, license="cc-by-4.0", image_mode="copy").status == "made"
    assert len(published(root)) == 1


def test_new_demonstrations_replace_the_directory_under_the_same_settings(root):
    build(root, "")
    shutil.copytree(root / "uploads" / "first", root / "uploads" / "third")
    run_all_stages(open_workspace(root), "third")
    assert build(root, "").status == "made"
    assert len(published(root)) == 1
