"""Garbage collection is reduced, and restored afterwards."""

import gc

import pytest

from demo_pipeline.files.processes import reduced_python_gc


def test_collection_is_reduced_inside_the_block_only() -> None:
    usual = gc.get_threshold()
    with reduced_python_gc():
        held = gc.get_threshold()
        with reduced_python_gc():
            assert gc.get_threshold() == held
        assert gc.get_threshold() == held
    assert held[0] > usual[0]
    assert gc.get_threshold() == usual


def test_a_decorated_function_that_fails_restores_it() -> None:
    usual, seen = gc.get_threshold(), []

    @reduced_python_gc()
    def failing() -> None:
        seen.append(gc.get_threshold())
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            failing()
    assert gc.get_threshold() == usual
    assert all(threshold[0] > usual[0] for threshold in seen)
