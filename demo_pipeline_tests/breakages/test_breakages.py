"""Every asset's checks notice small damages to its output.

The damages were written before the checks that notice them. The suite takes some of each asset;
`python -m pytest -m minutes demo_pipeline_tests/breakages` takes all of them.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline_tests.breakages import of_datasets, of_demonstrations
from demo_pipeline_tests.breakages.built import Output, build_outputs
from demo_pipeline_tests.breakages.damages import Damage

BREAKAGES: Mapping[str, Mapping[str, Damage]] = {
    "raw_recordings": of_demonstrations.RAW_RECORDINGS,
    "events": of_demonstrations.EVENTS_TABLES,
    "actions": of_demonstrations.ACTIONS_TABLES,
    "screenshots": of_demonstrations.SCREENSHOTS,
    "ui_trees": of_demonstrations.UI_TREES,
    "trajectories": of_demonstrations.TRAJECTORIES,
    "redactions": of_demonstrations.REDACTIONS,
    "annotations": of_demonstrations.ANNOTATIONS,
    "records": of_demonstrations.RECORDS,
    "contact_sheets": of_demonstrations.CONTACT_SHEETS,
    "triage": of_demonstrations.TRIAGE,
    "sft_samples": of_datasets.SFT,
    "messages_dataset": of_datasets.MESSAGES,
    "cudag_dataset": of_datasets.CUDAG,
    "cua_lite_dataset": of_datasets.CUA_LITE,
    "agentnet_dataset": of_datasets.AGENTNET,
    "atif_trajectories": of_datasets.ATIF,
    "cua_folders": of_datasets.CUA_FOLDER,
    "grounding_dataset": of_datasets.GROUNDING,
    "transitions_dataset": of_datasets.TRANSITIONS,
    "step_labels_dataset": of_datasets.STEP_LABELS,
    "agentnetbench": of_datasets.AGENTNETBENCH,
    "osworld_quests": of_datasets.QUESTS,
    "trajectory_index": of_datasets.INDEX,
    "dataset_statistics": of_datasets.STATISTICS,
    "osworld_tasks": of_datasets.TASKS,
    "quarantine": of_datasets.QUARANTINE,
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Output]:
    return build_outputs(tmp_path_factory.mktemp("breakages"))


def missed(output: Output, damages: Mapping[str, Damage], folder: Path) -> list[str]:
    """The damages that no check of the asset notices."""
    as_it_is = output.problems(output.copy(folder / "whole"))
    found = []
    for number, (name, damage) in enumerate(damages.items()):
        broken = output.copy(folder / str(number))
        damage(broken)
        if output.problems(broken) == as_it_is:
            found.append(name)
    return found


@pytest.mark.parametrize("asset", BREAKAGES)
def test_checks_notice_some_breakages(
    asset: str, outputs: Mapping[str, Output], tmp_path: Path
) -> None:
    names = list(BREAKAGES[asset])
    some = {name: BREAKAGES[asset][name] for name in names[:: len(names) // 6]}
    assert len(names) >= 12
    assert len(some) >= 6
    assert missed(outputs[asset], some, tmp_path) == []


@pytest.mark.minutes
@pytest.mark.parametrize("asset", BREAKAGES)
def test_checks_notice_every_breakage(
    asset: str, outputs: Mapping[str, Output], tmp_path: Path
) -> None:
    assert missed(outputs[asset], BREAKAGES[asset], tmp_path) == []


def test_there_are_breakages_of_every_asset() -> None:
    names = {stage.name for stage in STAGES} | {stage.name for stage in DATASET_STAGES}
    assert names == BREAKAGES.keys()
