"""Tests the values that domains of columns accept, and the messages about other values."""

import pyarrow as pa
import pytest

from demo_pipeline.files.parquet import ANY, COUNT, TEXT, between, fitting, one_of


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        (one_of("left", "right"), ["left", None, "right"], ["left", "banana"]),
        (one_of("a"), [["a", "a"], [], None], [["a"], ["a", "banana"]]),
        (COUNT, [0, 3.5, None], [1.0, float("nan")]),
        (between(1, 3), [1, 3], [3, 4]),
        (TEXT, ["\n", "x"], ["x", ""]),
        (fitting("[0-9]+"), ["1", "23"], ["1", "2 banana"]),
        (ANY.where("given", "yes"), ["x", None], [None, None]),
        (ANY.where("given", "yes"), [["x"], []], [["x"], ["banana"]]),
        (ANY.only_where("given", "yes"), [None, None], [None, "banana"]),
        (one_of("x").where("given"), ["x", "x"], ["x", None]),
    ],
)
def test_a_domain_names_the_row_and_never_the_value(domain, good, bad):
    given = ["yes", "no", "no"]
    assert not domain.fault("named", pa.table({"named": good, "given": given[: len(good)]}))
    fault = domain.fault("named", pa.table({"named": bad, "given": given[: len(bad)]}))
    row = 1 if bad == [None, None] else 2
    assert fault.startswith(f"row {row}: named ")
    assert domain.words in fault
    assert "banana" not in fault
