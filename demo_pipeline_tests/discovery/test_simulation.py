"""What a season of uploads, deaths and lost ledgers must not cost: a demonstration."""

import pytest

from demo_pipeline_tests.discovery.simulation import Figures, Result, simulate


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [simulate(seed, 100) for seed in range(5)]


def test_nothing_is_missed_hurried_or_doubled(results):
    assert [each.ours for each in results] == [Figures(0, 0, 0, 0)] * 5


def test_the_ledger_says_what_lies_there(results):
    assert [each.misjudged for each in results] == [0] * 5


def test_all_that_can_go_wrong_went_wrong(results):
    assert sum(each.kills for each in results) > 20
    assert sum(each.ledgers_lost for each in results) >= 5
    assert sum(each.superseded for each in results) > 0
    assert sum(each.lost for each in results) > 20


def test_a_last_modified_cursor_fails_in_the_same_worlds(results):
    assert sum(each.cursor.missed for each in results) > 20
    assert sum(each.cursor.premature for each in results) > 10


def test_a_seed_is_a_world(results):
    assert simulate(0, 100) == results[0]
