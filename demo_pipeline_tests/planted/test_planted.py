"""The list of planted faults fits the code; `make planted` plants them."""

from dataclasses import replace

import pytest

from demo_pipeline_tests.planted.faults import outdated, place, read_faults

FAULTS = read_faults()


def test_every_line_stands_once_and_every_test_exists() -> None:
    assert outdated(FAULTS) == [], "renew these entries of faults.json, then `make planted`"


def test_there_are_more_than_a_hundred_faults_and_none_twice() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 100
    assert len({(fault.find, fault.replace) for fault in FAULTS}) == len(FAULTS)


def test_an_entry_that_no_longer_fits_is_named() -> None:
    fault = replace(FAULTS[0], name="a rule")
    gone = replace(fault, find="a line of no module", test="test_of_nothing")
    assert outdated([gone, replace(fault, replace=fault.find)]) == [
        "a rule: 'a line of no module' must stand once, but stands nowhere",
        "a rule: there is no test test_of_nothing",
        "a rule: the line is not changed",
    ]
    with pytest.raises(LookupError, match="a rule: 'import ' must stand once, but stands "):
        place(replace(fault, find="import "))
