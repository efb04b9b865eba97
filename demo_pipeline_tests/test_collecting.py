"""The garbage collector is held back, and let go again."""

import gc

import pytest

from demo_pipeline.collecting import seldom_collected


def test_the_collector_is_held_back_within_only() -> None:
    usual = gc.get_threshold()
    with seldom_collected():
        held = gc.get_threshold()
        with seldom_collected():
            assert gc.get_threshold() == held
        assert gc.get_threshold() == held
    assert held[0] > usual[0]
    assert gc.get_threshold() == usual


def test_a_decorated_function_that_fails_lets_it_go() -> None:
    usual, seen = gc.get_threshold(), []

    @seldom_collected()
    def failing() -> None:
        seen.append(gc.get_threshold())
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            failing()
    assert gc.get_threshold() == usual
    assert all(threshold[0] > usual[0] for threshold in seen)
