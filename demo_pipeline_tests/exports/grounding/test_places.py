"""Places of elements in pixels and in CUA-Lite's units."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.grounding import (
    InclusiveBox,
    box_centre,
    lite_box,
    lite_point,
)

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "100"))
SIZES = st.tuples(st.integers(64, 4000), st.integers(64, 4000))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[InclusiveBox, tuple[int, int]]:
    """A box, and the picture that it is in."""
    width, height = draw(SIZES)
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    across, down = draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
    return (x, y, x + across - 1, y + down - 1), (width, height)


@given(boxes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_point_of_a_box_is_in_it_and_its_units_are_the_nearest(
    made: tuple[InclusiveBox, tuple[int, int]],
) -> None:
    box, size = made
    point = box_centre(box)
    left, top, right, bottom = box
    assert left <= point[0] <= right
    assert top <= point[1] <= bottom
    pixels, units = (*point, *box), (*lite_point(point, size), *lite_box(box, size))
    for pixel, unit, side in zip(pixels, units, (*size, *size, *size), strict=True):
        assert abs(unit / 1000 * side - pixel) <= side / 2000 + 1e-6
