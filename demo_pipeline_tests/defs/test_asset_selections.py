"""Tests that Dagster's command for materializing a selection of all assets succeeds."""

from pathlib import Path

import pytest
from dagster._cli.asset import asset_materialize_command

from demo_pipeline.runs.stages import STAGES, is_built, training_exports
from demo_pipeline.settings import Settings
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import Bench, open_bench
from demo_pipeline_tests.sample_workspace import DEMOS

CHAIN = {stage.name for stage in STAGES}
EXPORTS = {
    name for name, export in training_exports().items() if is_built(export.stage, Settings())
}
DATASETS = {
    *EXPORTS,
    "osworld_quests",
    "trajectory_index",
    "dataset_statistics",
}


@pytest.fixture
def bench(tmp_path: Path, made_root: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A workspace with its own DAGSTER_HOME, and a file with the definitions next to it."""
    with open_bench(tmp_path, kept=True, source=made_root) as opened:
        opened.instance.add_dynamic_partitions("demonstrations", list(DEMOS))
    settings = opened.settings.model_dump_json()
    (tmp_path / "defs.py").write_text(
        "from demo_pipeline.defs import build_defs\n"
        "from demo_pipeline.settings import Settings\n"
        f"defs = build_defs(Settings.model_validate_json({settings!r}))\n"
    )
    (tmp_path / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return opened


@pytest.mark.filterwarnings("ignore::dagster.SupersessionWarning", "ignore::dagster.BetaWarning")
def test_a_selection_runs_everything_that_it_reaches(bench):
    command = ["-f", "defs.py", "--select", "*", "--partition", next(iter(DEMOS))]
    asset_materialize_command.main(command, standalone_mode=False)  # raises if the run fails
    [run] = bench.instance.get_runs()
    assert {key.to_user_string() for key in run.asset_selection or ()} == CHAIN | DATASETS
    assert run.is_success
