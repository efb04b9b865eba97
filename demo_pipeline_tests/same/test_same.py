"""Tests that the names that people type, click and query change only on purpose."""

from demo_pipeline_tests.same.__main__ import differences, hashed, read_expected
from demo_pipeline_tests.same.names import visible_names


def test_every_name_is_as_recorded():
    expected = read_expected()
    current = hashed(visible_names(expected))
    kinds = {name.split()[0] for name in current}
    names = {name: value for name, value in expected.items() if name.split()[0] in kinds}
    lines = differences(names, current)
    assert lines == [], "intended? `make same SAME=record`, and the changelog"
