"""Tests that garbage collection is reduced, and restored afterwards."""

import gc

import pytest

from demo_pipeline.files.processes import reduced_python_gc


def test_a_decorated_function_that_fails_restores_it():
    usual = gc.get_threshold()
    seen = []

    @reduced_python_gc()
    def failing() -> None:
        seen.append(gc.get_threshold())
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            failing()
    assert gc.get_threshold() == usual
    assert all(threshold[0] > usual[0] for threshold in seen)
