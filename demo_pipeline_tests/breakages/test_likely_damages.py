"""The checks of an asset notice damages to its output that are likely to happen.

`likely.json` lists the damages of each asset. `unseen` says why no check can notice a damage.
"""

from collections.abc import Mapping

import pytest

from demo_pipeline_tests.breakages.built import Output
from demo_pipeline_tests.breakages.likely import LikelyDamage, likely_damages
from demo_pipeline_tests.breakages.test_breakages import ASSETS

SHARE_TO_BE_SEEN = 0.95


@pytest.mark.parametrize("asset", ASSETS)
def test_checks_see_the_likely_damages_of_an_output(
    asset: str, outputs: Mapping[str, Output], tmp_path
) -> None:
    output = outputs[asset]
    problems_before = output.problems(output.copy(tmp_path / "whole"))
    damages = [damage for damage in likely_damages() if damage.asset == asset]
    missed: list[LikelyDamage] = []
    for damage in damages:
        damaged = output.copy(tmp_path / "damaged")
        damage.apply(damaged)
        if output.problems(damaged) == problems_before:
            missed.append(damage)
    assert [damage.what for damage in missed] == [d.what for d in damages if d.unseen]


def test_at_most_a_twentieth_of_the_list_may_be_missed() -> None:
    damages = likely_damages()
    seen = [damage for damage in damages if not damage.unseen]
    assert len(damages) > 200
    assert len(seen) >= SHARE_TO_BE_SEEN * len(damages)


def test_every_asset_has_likely_damages() -> None:
    assert {damage.asset for damage in likely_damages()} == set(ASSETS)
