"""The direction and amount of scrolls: the rule, the votes from the video, and the verdict."""

from typing import Literal

import pytest

from demo_pipeline.actions.wheel import (
    Direction,
    ScrollEvidence,
    WheelVote,
    count_votes,
    filmed_direction,
    scroll_direction,
    wheel_rule,
)
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


def test_one_other_delta_decides_for_the_whole_recording() -> None:
    found = actions(wheel(0, 120), wheel(5000, 1), pause_ms=60_000)
    assert [action.wheel_unit for action in found] == ["notch", "notch"]


def test_a_huge_scroll_fits_its_column() -> None:
    [action] = actions(*(wheel(n, 1e6 - 1) for n in range(0, 30_000, 10)))
    assert action.amount == 2**31 - 1


@pytest.mark.parametrize(
    ("content_moves", "expected"),
    [
        ({}, None),
        ({"up": 1}, "down"),
        ({"up": 3, "down": 1}, "down"),
        ({"up": 2, "down": 1}, None),
        ({"left": 1}, None),
        ({"left": 2}, "right"),
        ({"left": 5, "up": 1}, None),
    ],
)
def test_a_scroll_goes_against_its_content(
    content_moves: dict[Direction, int], expected: str | None
) -> None:
    assert filmed_direction(content_moves) == expected


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ("", (None, 0, 0)),
        ("+", ("down", 1, 1)),
        ("++-", (None, 3, 2)),
        ("+++-", ("down", 4, 3)),
        ("---+", ("up", 4, 3)),
    ],
)
def test_three_quarters_of_the_votes_decide(
    signs: str, expected: tuple[str | None, int, int]
) -> None:
    """Every scroll went down; a `+` was logged with a positive delta."""
    scrolls = [
        ScrollEvidence(n, 1 if sign == "+" else -1, {"up": 3}) for n, sign in enumerate(signs)
    ]
    vote = count_votes(scrolls)
    assert (vote.positive, vote.votes, vote.agreeing) == expected


def test_a_sideways_scroll_has_no_vote() -> None:
    vote = count_votes([ScrollEvidence(4, 1, {"left": 3}), ScrollEvidence(7, -1, {"down": 1})])
    assert vote == WheelVote("down", 1, 1, {4: "right"})


def test_the_video_replaces_the_rule_but_not_a_setting() -> None:
    vote = WheelVote("up", 3, 3, {5: "left"})
    assert scroll_direction(1, 120, "unit_signature", vote) == "up"
    assert scroll_direction(1, -120, "documented", vote) == "down"
    assert scroll_direction(5, 120, "unit_signature", vote) == "left"
    assert scroll_direction(5, 120, "override", vote) is None
    assert scroll_direction(1, 120, "unit_signature", WheelVote()) is None
