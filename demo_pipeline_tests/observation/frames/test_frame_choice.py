"""Tests the choice of the frame before an action, with frames that have only a time."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.observation.frames.frame_choice import FrameChooser, Reason
from demo_pipeline.observation.frames.frame_requests import FrameRequest
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath, TargetArea
from demo_pipeline.observation.frames.video_reader import Frame, Span

NO_IMAGE: Any = None


def chosen(
    changes: dict[float, bool], *, press: float = 5.0, since: float = 0.0, approach: float = 4.0
) -> tuple[float | None, Reason]:
    """Returns the time of the chosen frame in a video with ten frames a second, and the reason.

    `changes` has the time of each change, and whether the change is large.
    """
    limit = press - 0.1
    wanted = FrameRequest(0, press, since, limit, min(approach, limit), None, Span(since, limit))
    progress = FrameChooser(wanted)
    for tenth in range(round((press + 1) * 10)):
        time = tenth / 10
        frame = Frame(tenth, time, NO_IMAGE)
        progress.add(frame, changed=time in changes, large=changes.get(time, False))
    frame_chosen, reason = progress.choice()
    return frame_chosen.time if frame_chosen else None, reason


def test_the_last_still_frame_before_the_pointer_moves() -> None:
    assert chosen({1.0: True}) == (3.9, Reason.PRE_MOVE)


@given(
    st.dictionaries(st.integers(0, 59).map(lambda tenth: tenth / 10), st.booleans()),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_needing_only_large_changes_the_choice_is_the_same_without_the_small_ones(
    changes: dict[float, bool], since: int, approach: int
) -> None:
    both = []
    for spared in (False, True):
        wanted = FrameRequest(
            0, 5.0, since / 10, 4.9, min(approach / 10, 4.9), None, Span(since / 10, 4.9)
        )
        progress = FrameChooser(wanted)
        for tenth in range(60):
            frame = Frame(tenth, tenth / 10, NO_IMAGE)
            changed = frame.time in changes
            large = changes.get(frame.time, False)
            if spared and not large and progress.needs_only_large_changes(frame):
                changed = False
            progress.add(frame, changed=changed, large=large)
        best, reason = progress.choice()
        still = progress.seconds_still(best) if best else None
        both.append((best, reason, still))
    assert both[0] == both[1]


def test_a_frame_that_the_clock_puts_just_before_the_movement_may_be_on_the_way() -> None:
    assert chosen({}, approach=4.005) == (3.9, Reason.PRE_MOVE)
    assert chosen({}, approach=4.05) == (4.0, Reason.PRE_MOVE)
    assert chosen({4.0: True}, approach=4.105) == (4.0, Reason.PRE_MOVE)


def test_keys_have_no_movement_that_a_frame_could_be_on() -> None:
    assert chosen({}, press=5.005, approach=9.0) == (4.9, Reason.PRE_MOVE)


def test_hovering_on_the_way_changes_nothing() -> None:
    assert chosen({4.3: False, 4.6: False}) == (3.9, Reason.PRE_MOVE)


def test_a_dialog_that_opens_on_the_way_is_waited_for() -> None:
    assert chosen({4.3: True}) == (4.3, Reason.SETTLED)


def test_the_previous_actions_effect_is_waited_for_while_the_hand_moves() -> None:
    """If the pointer moves on immediately, even a small change on its way may be the effect."""
    assert chosen({4.2: False}, since=3.8, approach=3.9) == (4.2, Reason.SETTLED)


def test_an_effect_that_shows_just_before_the_pointer_moves_was_there_in_time() -> None:
    """The frame in which the effect appears counts as still, because nothing changes afterwards."""
    assert chosen({3.9: True}, since=3.6, approach=3.95) == (3.9, Reason.PRE_MOVE)


def test_a_frame_amid_a_change_is_never_taken_for_a_still_one() -> None:
    assert chosen({4.2: True, 4.3: True}, since=3.8) == (4.3, Reason.SETTLED)


def test_a_screen_that_never_rests_gives_its_last_frame() -> None:
    always = {tenth / 10: True for tenth in range(60)}
    assert chosen(always) == (4.9, Reason.BACKOFF)
    until_the_press = {tenth / 10: True for tenth in range(43, 60)}
    assert chosen(until_the_press) == (4.9, Reason.BACKOFF)


def test_a_rest_of_the_pointer_parts_its_approach_from_what_was_before() -> None:
    places = {0: 0, 100: 50, 1000: 60, 1100: 100}
    path = PointerPath.through((time, x, x) for time, x in places.items())
    area = TargetArea(100, 100, radius=10)
    assert path.approach_start(1200, float("-inf"), area) == 1000


def test_a_movement_inside_a_wide_target_is_an_approach_too() -> None:
    """The pointer rested on a paragraph, and then moves to a word in it to select text."""
    places = {0: 300, 1000: 280, 1100: 150, 1200: 100}
    moves = [(time, x, 100) for time, x in places.items()]
    area = TargetArea(100, 100, radius=40, box=PixelBox(0, 90, 400, 20))
    assert PointerPath.through(moves).approach_start(1300, 500, area) == 1000
    assert PointerPath.through(moves[:1]).approach_start(1300, 500, area) is None
    assert PointerPath.through(moves).approach_start(1300, 1250, area) is None


def test_frames_of_the_previous_action_are_not_for_this_one() -> None:
    time, reason = chosen({}, since=4.55, approach=4.6)
    assert time is not None
    assert time >= 4.55
    assert reason in {Reason.PRE_MOVE, Reason.SETTLED}


def test_no_frame_in_time_is_no_frame() -> None:
    assert chosen({}, since=4.95, press=5.0) == (None, Reason.MISSING)


@settings(deadline=None)
@given(
    changes=st.dictionaries(st.integers(0, 70).map(lambda n: n / 10), st.booleans()),
    press=st.floats(0.5, 6),
    since=st.floats(0, 6),
    approach=st.floats(0, 6),
)
def test_never_later_than_the_guard_nor_before_the_previous_action(
    changes: dict[float, bool], press: float, since: float, approach: float
) -> None:
    time, reason = chosen(changes, press=press, since=since, approach=approach)
    if time is None:
        assert reason is Reason.MISSING
    else:
        assert since <= time <= press - 0.1 + 1e-6
        assert reason in {Reason.PRE_MOVE, Reason.SETTLED, Reason.BACKOFF}


@pytest.mark.parametrize("late", [4.95, 5.0, 5.5])
def test_changes_by_the_press_itself_do_not_matter(late: float) -> None:
    assert chosen({round(late, 1): True})[1] is Reason.PRE_MOVE
