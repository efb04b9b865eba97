"""The checks of every asset notice all small damages to its output except those in `unseen.json`.

The normal test suite tries some damages of each asset. `python -m pytest -m minutes
demo_pipeline_tests/breakages` tries all damages. `unseen.json` contains for each asset the reasons
why no check can notice a damage, and the damages with each reason.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline_tests.breakages.built import Output
from demo_pipeline_tests.breakages.damages import damages_of

ASSETS = [*(stage.name for stage in STAGES), *(stage.name for stage in dataset_stages())]
UNSEEN = json.loads(Path(__file__).with_name("unseen.json").read_bytes())


def names_of(output: Output) -> list[str]:
    names = [*damages_of(output.folder)]
    assert len(names) >= 5
    return names


def missed(output: Output, names: Iterable[str], folder: Path) -> list[str]:
    """Returns the names of the damages that no check of the asset notices."""
    damages = damages_of(output.folder)
    problems_before = output.problems(output.copy(folder / "whole"))
    missed_names = []
    for name in names:
        broken = output.copy(folder / "broken")
        damages[name](broken)
        if output.problems(broken) == problems_before:
            missed_names.append(name)
    return missed_names


def unseen(asset: str) -> set[str]:
    """Returns the damages in `unseen.json` for an asset."""
    return set().union(*UNSEEN.get(asset, {}).values())


@pytest.mark.parametrize("asset", ASSETS)
def test_checks_notice_some_damages(asset, outputs, tmp_path):
    names = names_of(outputs[asset])
    some = names[:: len(names) // 20 + 1]
    assert set(missed(outputs[asset], some, tmp_path)) == unseen(asset).intersection(some)


@pytest.mark.minutes
@pytest.mark.parametrize("asset", ASSETS)
def test_checks_notice_every_damage_but_the_listed(asset, outputs, tmp_path):
    assert set(missed(outputs[asset], names_of(outputs[asset]), tmp_path)) == unseen(asset)


def test_the_list_names_assets():
    assert set(UNSEEN) <= set(ASSETS)
