"""Direction and amount of scrolls, from a rule about the log and from votes in the video."""

from itertools import accumulate
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.actions.scrolls import (
    ScrollEvidence,
    WheelVote,
    count_votes,
    is_sign_doubtful,
    read_wheel,
    scroll_direction,
    sign_disagrees,
    video_direction,
    video_notches,
    video_unit,
)
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.actions.streams import actions, inputs, move, read, summaries, tap, wheel

Sign = Literal["auto", "positive_down", "positive_up"]


@pytest.mark.parametrize(
    ("platform", "deltas", "sign", "expected"),
    [
        ("windows", [120, -120, 240], "auto", ("120", "down", "unit_signature")),
        ("macos", [120, 360], "auto", ("120", "down", "unit_signature")),
        ("windows", [40, 40, 40], "auto", ("120", "down", "unit_signature")),
        ("linux", [120, 120, 60], "auto", ("120", "down", "unit_signature")),
        ("linux", [15, 30, 45], "auto", ("120", "down", "unit_signature")),
        ("", [10, 10], "auto", ("120", "down", "unit_signature")),
        ("macos", [40, 40, 40], "auto", ("pixel", "up", "unit_signature")),
        ("windows", [8, 8, 8], "auto", ("notch", "up", "unit_signature")),
        ("linux", [0.5, 0.25], "auto", ("notch", "up", "unit_signature")),
        ("windows", [1, -1], "auto", ("notch", "up", "unit_signature")),
        ("linux", [120, 1], "auto", ("120", "down", "unit_signature")),
        ("windows", [7] * 40, "auto", ("120", "down", "unit_signature")),
        ("windows", [1] * 40, "auto", ("notch", "up", "unit_signature")),
        ("macos", [-14, 3.5], "auto", ("pixel", "up", "unit_signature")),
        ("linux", [-1], "positive_down", ("notch", "down", "override")),
        ("windows", [120], "positive_up", ("120", "up", "override")),
    ],
)
def test_unit_and_sign(platform, deltas, sign, expected):
    turns = inputs(wheel(50 * n, delta) for n, delta in enumerate(deltas))
    wheel_rule = read_wheel(turns, platform, ActionSettings(wheel_sign=sign))
    assert (wheel_rule.rule.unit, wheel_rule.rule.positive, wheel_rule.rule.method) == expected


@pytest.mark.parametrize(
    ("platform", "deltas", "expected"),
    [
        ("windows", [-120, -120], ("up", 2)),
        ("windows", [360], ("down", 3)),
        ("windows", [40, 40, 40], ("down", 1)),
        ("windows", [-40, -40, -40], ("up", 1)),
        ("windows", [120, 120, 60], ("down", 3)),
        ("linux", [-120, -120, -60], ("up", 3)),
        ("linux", [30, 30], ("down", 1)),
        ("linux", [-1, -1, -1], ("down", 3)),
        ("windows", [1], ("up", 1)),
        ("windows", [0.25, 0.25, 0.5, 0.5], ("up", 2)),
        ("linux", [0.1] * 5, ("up", 1)),
        ("linux", [2, 9], ("up", 11)),
        ("macos", [-130.0, -120.5], ("down", 3)),
        ("macos", [-7.5] * 20, ("down", 2)),
        ("macos", [50], ("up", 1)),
        ("macos", [-120, -120], ("up", 2)),
    ],
)
def test_amounts_are_notches(platform, deltas, expected):
    turns = [wheel(50 * n, delta) for n, delta in enumerate(deltas)]
    [action] = actions(*turns, platform=platform)
    assert (action.direction, action.amount) == expected
    assert action.wheel_sum == pytest.approx(sum(deltas))


def test_all_scrolls_of_a_recording_have_the_same_unit():
    """A single large delta shows the unit of all scrolls, even of those with a touchpad."""
    swipe = [8, 15, 22, 28, 33, 36, 38, 38, 36, 33, 28, 22, 15, 8]
    pushed = [wheel(0, 120), wheel(8000, 100), wheel(8050, 53), wheel(16_000, 1)]
    swiped = [wheel(20_000 + 20 * n, -delta) for n, delta in enumerate(swipe)]
    grouped = actions(*pushed, *swiped)
    scrolls = [action for action in grouped if action.action_type == "scroll"]
    assert [(a.wheel_unit, a.direction, a.amount) for a in scrolls] == [
        ("120", "down", 1),
        ("120", "down", 1),
        ("120", "up", 3),
    ]


def test_nudges_of_a_touchpad_add_up():
    """Each scroll is less than half a notch, but two of them are more than half a notch."""
    segmentation, _ = read([wheel(1500 * n, 31) for n in range(4)], platform="windows")
    assert [(action.amount, action.events) for action in segmentation.actions if action.amount] == [
        (1, [1, 2]),
        (1, [3, 4]),
    ]


def test_a_scroll_that_fits_both_units_is_unclear():
    """Three deltas of 8 may be 24 notches, or a fifth of a notch.

    In a recording with deltas of 120, a delta of 1 is unclear, too.
    """
    for lines in ([wheel(50 * n, 8) for n in range(3)], [wheel(0, 120), wheel(5000, 1)]):
        segmentation, _ = read(lines, platform="windows")
        scrolls = [action for action in segmentation.actions if action.action_type == "scroll"]
        assert "unclear_wheel_unit" in scrolls[-1].flags
        assert segmentation.reasons == {}


@pytest.mark.parametrize(
    ("platform", "deltas", "amount", "remainder"),
    [
        ("windows", [120, 120, 60], 3, -0.5),
        ("windows", [-120, -120, -40], 2, -1 / 3),
        ("linux", [0.75, 0.5], 1, 0.25),
        ("macos", [-130], 1, -0.3),
        ("linux", [1, 1], 2, 0),
    ],
)
def test_the_remainder_is_kept(platform, deltas, amount, remainder):
    turns = [wheel(50 * n, delta) for n, delta in enumerate(deltas)]
    segmentation, _ = read(*turns, platform=platform)
    [action] = segmentation.actions
    assert action.amount == amount
    assert action.wheel_remainder == pytest.approx(remainder, abs=1e-6)
    assert segmentation.wheel_remainder == pytest.approx(remainder, abs=1e-6)


@pytest.mark.parametrize(
    ("platform", "deltas"),
    [("windows", [10]), ("windows", [24, 24]), ("linux", [0.25, 0.2]), ("macos", [-7, 49])],
)
def test_less_than_half_a_notch_is_no_action(platform, deltas):
    segmentation, _ = read(
        [wheel(50 * n, delta) for n, delta in enumerate(deltas)], platform=platform
    )
    assert segmentation.actions == []
    assert set(segmentation.reasons.values()) == {"below_half_notch"}
    per_notch = {"windows": 120, "linux": 1, "macos": 100}[platform]
    assert segmentation.wheel_remainder == pytest.approx(sum(deltas) / per_notch, abs=1e-6)


def test_a_tiny_scroll_does_not_divide_typing():
    lines = [tap(0, "KeyA"), wheel(200, -3), tap(400, "KeyB"), wheel(9000, -300)]
    assert summaries(*lines, platform="macos", pause_ms=60_000) == ["type ab", "scroll down 3"]


@pytest.mark.parametrize(
    ("platform", "delta", "scrolls", "flags"),
    [
        ("windows", 120, 1, []),
        ("windows", 60, 2, ["wheel_unit_uncertain"]),
        ("windows", 60, 3, []),
        ("linux", 1, 2, ["wheel_unit_uncertain"]),
        ("linux", 1, 3, []),
        ("macos", 130, 2, ["wheel_unit_uncertain"]),
        ("macos", 130, 3, []),
    ],
)
def test_few_scrolls_do_not_prove_a_unit(platform, delta, scrolls, flags):
    turns = [wheel(4000 * n, delta) for n in range(scrolls)]
    grouped = actions(*turns, platform=platform, pause_ms=60_000)
    assert [action.flags for action in grouped] == [flags] * scrolls


@pytest.mark.parametrize(
    ("platform", "deltas", "expected"),
    [
        ("linux", [1, 1, 1, -1], ["scroll up 3", "scroll down 1"]),
        ("windows", [120, -120], ["scroll down 1", "scroll up 1"]),
        ("windows", [120, 120, -30], ["scroll down 2"]),
        ("linux", [2, -0.25, 1], ["scroll up 3"]),
        ("macos", [-200, -100, 1, -1, 1], ["scroll down 3"]),
        ("macos", [-300, 49], ["scroll down 3"]),
        ("macos", [-300, 50], ["scroll down 3", "scroll up 1"]),
        ("macos", [3, -300], ["scroll down 3"]),
        ("macos", [-300, 20, 20, 20], ["scroll down 3", "scroll up 1"]),
    ],
)
def test_a_reversal_of_at_least_half_a_notch_is_a_scroll(platform, deltas, expected):
    turns = [wheel(50 * n, delta) for n, delta in enumerate(deltas)]
    assert summaries(*turns, platform=platform) == expected


def test_the_last_small_deltas_belong_to_their_gesture():
    segmentation, _ = read(wheel(0, 120), wheel(50, 120), wheel(100, -1), platform="windows")
    assert [(a.direction, a.amount, a.events) for a in segmentation.actions] == [
        ("down", 2, [1, 2, 3])
    ]


def test_the_phases_and_momentum_of_a_touchpad_are_one_scroll():
    """The person presses a key and moves the pointer while the page is still scrolling."""
    pushed = [move(0, 50, 60), wheel(10, 0), wheel(20, -150), wheel(40, -120)]
    gliding = [tap(60, "KeyA"), wheel(80, -100), move(90, 700, 700), wheel(100, -80), wheel(120, 0)]
    segmentation, _ = read(*pushed, *gliding, platform="macos")
    scroll, text = segmentation.actions
    assert (scroll.amount, scroll.x, scroll.events) == (5, 50, [2, 3, 4, 7, 9, 10])
    assert (scroll.press_ms, text.text) == (20, "a")
    assert segmentation.reasons == {}


def test_a_second_push_elsewhere_is_no_momentum():
    pushes = [wheel(20, -150), move(60, 700, 700), wheel(100, -180)]
    grouped = actions(move(0, 50, 60), *pushes, platform="macos")
    assert [(a.x, a.amount) for a in grouped] == [(50, 2), (700, 2)]
    later = [wheel(20, -150), move(60, 700, 700), wheel(500, -150)]
    assert len(actions(move(0, 50, 60), *later, platform="macos")) == 2


@pytest.mark.parametrize("platform", ["windows", "linux"])
def test_other_platforms_have_no_momentum(platform):
    lines = [move(0, 50, 60), wheel(20, -1), wheel(25, 0), move(60, 700, 700), wheel(100, -1)]
    segmentation, _ = read(*lines, platform=platform)
    assert [(a.x, a.amount) for a in segmentation.actions] == [(50, 1), (700, 1)]
    assert segmentation.reasons == {3: "zero_delta"}


@given(
    st.lists(
        st.tuples(st.integers(1, 1500), st.sampled_from([-120, -60, 0, 30, 40, 120])), max_size=30
    )
)
def test_no_part_of_a_notch_is_lost(turns):
    """Amounts and remainder add up to the sum of all logged deltas."""
    times = accumulate(gap for gap, _ in turns)
    lines = [wheel(time, delta) for time, (_, delta) in zip(times, turns, strict=True)]
    segmentation, _ = read(*lines, platform="windows")
    whole = 0.0
    for action in segmentation.actions:
        if action.direction == "down":
            whole += action.amount or 0
        else:
            whole -= action.amount or 0
    logged = sum(delta for _, delta in turns) / 120
    assert whole + segmentation.wheel_remainder == pytest.approx(logged, abs=1e-5)


def test_a_huge_scroll_fits_its_column():
    [action] = actions(*(wheel(n, 1e6 - 40) for n in range(0, 300_000, 10)))
    assert action.amount == 30_000 * (1e6 - 40) / 120
    assert video_notches(1e15, "120") == 2**31 - 1


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
def test_a_scroll_goes_against_its_content(content_moves, expected):
    assert video_direction(content_moves) == expected


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
def test_three_quarters_of_the_votes_decide(signs, expected):
    """In the video, every scroll went down. `+` and `-` are the signs of the logged deltas."""
    values = {"+": 1, "-": -1}
    scrolls = [ScrollEvidence(n, values[sign], {"up": 3}) for n, sign in enumerate(signs)]
    vote = count_votes(scrolls)
    assert (vote.positive, vote.votes, vote.agreeing) == expected


def test_a_sideways_scroll_has_no_vote():
    vote = count_votes([ScrollEvidence(4, 1, {"left": 3}), ScrollEvidence(7, -1, {"down": 1})])
    assert vote == WheelVote("down", 1, 1, {4: "right"})


@pytest.mark.parametrize(
    ("pixels", "unit", "amount"),
    [(2400, "notch", 24), (300, "notch", 24), (100, None, 0), (40, "120", 0)],
)
def test_the_video_shows_an_unclear_unit(pixels, unit, amount):
    """Deltas with the sum 24 moved the content by `pixels`. Without a unit, the amount is 0."""
    assert video_unit(pixels / 24) == unit
    assert video_notches(-24, video_unit(pixels / 24)) == amount


@pytest.mark.parametrize(
    ("pixels", "content_moves", "expected"),
    [
        (300, "up", {3: ("down", "notch")}),
        (100, "up", {}),
        (40, "down", {3: ("up", "120")}),
    ],
)
def test_the_video_shows_direction_and_unit_of_an_unclear_scroll(pixels, content_moves, expected):
    """Positive notches scroll up, and positive 120ths of a notch scroll down."""
    scroll = ScrollEvidence(3, -24, {content_moves: 4}, pixels, unclear=True)
    assert count_votes([scroll]) == WheelVote(unclear=expected)


def test_an_unclear_scroll_alone_does_not_contradict_the_rule_of_its_unit():
    """Positive 120ths usually scroll down. A single scroll that shows the opposite is ignored."""
    upwards = [ScrollEvidence(n, 60, {"down": 4}, 60, unclear=True) for n in (3, 8)]
    assert count_votes(upwards[:1]) == WheelVote()
    assert count_votes(upwards) == WheelVote(unclear={3: ("up", "120"), 8: ("up", "120")})


def test_the_video_replaces_the_rule_but_not_a_setting():
    vote = WheelVote("up", 3, 3, {5: "left"})
    assert scroll_direction(1, 120, "down", "unit_signature", vote) == "up"
    assert scroll_direction(1, -120, "up", "documented", vote) == "down"
    assert scroll_direction(5, 120, "down", "unit_signature", vote) == "left"
    assert scroll_direction(5, 120, "down", "override", vote) is None
    assert scroll_direction(1, 120, "down", "unit_signature", WheelVote()) is None


def test_a_single_scroll_does_not_overrule_the_rule():
    """Two scrolls that agree overrule the rule.

    If a single scroll contradicts the rule, the direction is unknown.
    """
    single = WheelVote("up", 1, 1)
    assert scroll_direction(1, 120, "down", "unit_signature", single) is None
    assert is_sign_doubtful(120, "down", single) is True
    assert sign_disagrees(120, "down", single) is None
    double = WheelVote("up", 2, 2)
    assert scroll_direction(1, 120, "down", "unit_signature", double) == "up"
    assert is_sign_doubtful(120, "down", double) is False
    assert sign_disagrees(120, "down", double) is True


def test_a_single_scroll_confirms_the_rule():
    vote = WheelVote("down", 1, 1)
    assert scroll_direction(1, 120, "down", "unit_signature", vote) == "down"
    assert not is_sign_doubtful(120, "down", vote)
    assert sign_disagrees(120, "down", vote) is False
