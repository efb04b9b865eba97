"""Every asset's checks notice small damages to its output.

The suite takes some of each asset's; `python -m pytest -m minutes demo_pipeline_tests/breakages`
takes all of them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from demo_pipeline.runs.stages import DATASET_STAGES, STAGES
from demo_pipeline_tests.breakages.built import Output, build_outputs
from demo_pipeline_tests.breakages.damages import damages_of

ASSETS = [*(stage.name for stage in STAGES), *(stage.name for stage in DATASET_STAGES)]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory, real_root: Path) -> Mapping[str, Output]:
    return build_outputs(tmp_path_factory.mktemp("breakages") / "root", real_root)


def names_of(output: Output) -> list[str]:
    names = [*damages_of(output.folder)]
    assert len(names) >= 5
    return names


def missed(output: Output, names: Iterable[str], folder: Path) -> list[str]:
    """The damages that no check of the asset notices."""
    damages = damages_of(output.folder)
    as_it_is = output.problems(output.copy(folder / "whole"))
    found = []
    for name in names:
        broken = output.copy(folder / "broken")
        damages[name](broken)
        if output.problems(broken) == as_it_is:
            found.append(name)
    return found


@pytest.mark.parametrize("asset", ASSETS)
def test_checks_notice_some_damages(asset, outputs, tmp_path):
    names = names_of(outputs[asset])
    assert missed(outputs[asset], names[:: len(names) // 20 + 1], tmp_path) == []


@pytest.mark.minutes
@pytest.mark.parametrize("asset", ASSETS)
def test_checks_notice_every_damage(asset, outputs, tmp_path):
    assert missed(outputs[asset], names_of(outputs[asset]), tmp_path) == []
