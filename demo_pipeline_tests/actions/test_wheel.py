"""Which way a wheel scrolls, and how far."""

from typing import Literal

import pytest

from demo_pipeline.actions.wheel import wheel_rule
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import actions, wheel

Sign = Literal["auto", "positive_down", "positive_up"]


@pytest.mark.parametrize(
    ("platform", "deltas", "sign", "expected"),
    [
        ("windows", [120, -120, 240], "auto", ("120", "down", "unit_signature")),
        ("macos", [120, 360], "auto", ("120", "down", "unit_signature")),
        ("windows", [1, -1], "auto", ("notch", "up", "unit_signature")),
        ("linux", [120, -1], "auto", ("notch", "up", "unit_signature")),
        ("macos", [-14, 3.5], "auto", ("pixel", "up", "unit_signature")),
        ("linux", [], "auto", ("120", "down", "documented")),
        ("linux", [-1], "positive_down", ("notch", "down", "override")),
        ("windows", [120], "positive_up", ("120", "up", "override")),
    ],
)
def test_unit_and_sign(
    platform: str, deltas: list[float], sign: Sign, expected: tuple[str, str, str]
) -> None:
    rule = wheel_rule(deltas, platform, ActionSettings(wheel_sign=sign))
    assert (rule.unit, rule.positive, rule.method) == expected


@pytest.mark.parametrize(
    ("platform", "deltas", "expected"),
    [
        ("windows", [-120, -120], ("up", 2)),
        ("windows", [360], ("down", 3)),
        ("linux", [-1, -1, -1], ("down", 3)),
        ("windows", [1], ("up", 1)),
        ("macos", [-130.0, -120.5], ("down", 3)),
        ("macos", [7], ("up", 1)),
        ("windows", [10], ("up", 10)),
    ],
)
def test_amounts_are_notches(platform: str, deltas: list[float], expected: tuple[str, int]) -> None:
    turns = [wheel(50 * n, delta) for n, delta in enumerate(deltas)]
    [action] = actions(*turns, platform=platform)
    assert (action.direction, action.amount) == expected
    assert action.wheel_sum == sum(deltas)


def test_a_notch_in_pixels_is_a_setting() -> None:
    [action] = actions(wheel(0, -90), platform="macos", macos_pixels_per_notch=30)
    assert action.amount == 3


def test_one_odd_turn_decides_for_the_whole_recording() -> None:
    found = actions(wheel(0, 120), wheel(5000, 1), pause_ms=60_000)
    assert [action.wheel_unit for action in found] == ["notch", "notch"]


def test_an_endless_turn_still_fits_its_column() -> None:
    [action] = actions(*(wheel(n, 1e6 - 1) for n in range(0, 30_000, 10)))
    assert action.amount == 2**31 - 1
