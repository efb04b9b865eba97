"""No demonstration is lost in simulated worlds of uploads, kills and lost tables."""

import pytest

from demo_pipeline_tests.discovery.simulation import Figures, Result, simulate


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [simulate(seed, 100) for seed in range(5)]


def test_no_upload_is_missed_run_too_early_or_run_twice(results):
    assert [each.ours for each in results] == [Figures(0, 0, 0, 0)] * 5


def test_the_table_agrees_with_the_uploads(results):
    assert [each.misjudged for each in results] == [0] * 5


def test_every_fault_occurred(results):
    assert sum(each.kills for each in results) > 20
    assert sum(each.tables_lost for each in results) >= 5
    assert sum(each.superseded for each in results) > 0
    assert sum(each.lost for each in results) > 20


def test_a_last_modified_cursor_fails_in_the_same_worlds(results):
    assert sum(each.cursor.missed for each in results) > 20
    assert sum(each.cursor.premature for each in results) > 10
