"""Tests that the list of planted faults fits the code. `make planted` plants the faults."""

from demo_pipeline_tests.planted.faults import outdated, read_faults

FAULTS = read_faults()


def test_every_line_stands_once_and_every_test_exists():
    assert outdated(FAULTS) == [], "renew these entries of faults.json, then `make planted`"


def test_there_are_more_than_a_hundred_faults_and_none_twice():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 100
    assert len({(fault.find, fault.replace) for fault in FAULTS}) == len(FAULTS)
