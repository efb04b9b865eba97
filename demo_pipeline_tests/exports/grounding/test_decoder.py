"""Answers about a place, in pixels and in CUA-Lite's units, and their inverses."""

import json
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.models import ActionType, ClickParameters
from demo_pipeline.exports.answers import Answer, AnsweredAction, AnswerFormatError
from demo_pipeline.exports.grounding import (
    InclusiveBox,
    box_centre,
    decode_lite_grounding,
    decode_point_text,
    lite_box,
    lite_point,
)

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "100"))
SIZE = (1920, 1080)
SIZES = st.tuples(st.integers(64, 4000), st.integers(64, 4000))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[InclusiveBox, tuple[int, int]]:
    """A box, and the picture that it is in."""
    width, height = draw(SIZES)
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    across, down = draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
    return (x, y, x + across - 1, y + down - 1), (width, height)


def clicked(answer: Answer) -> tuple[int, int]:
    (action,) = answer.actions
    assert isinstance(action, AnsweredAction)
    assert action.action_type == ActionType.CLICK
    assert isinstance(action.parameters, ClickParameters)
    return action.parameters.x, action.parameters.y


def call(name: str, coordinate: list[int]) -> str:
    return json.dumps({"name": name, "arguments": {"coordinate": coordinate}})


@given(boxes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_point_or_box_in_pixels_is_read_as_it_was_written(
    made: tuple[InclusiveBox, tuple[int, int]],
) -> None:
    box, size = made
    point = box_centre(box)
    assert clicked(decode_point_text(json.dumps(point), size)) == point
    assert clicked(decode_point_text(json.dumps(box), size)) == point
    left, top, right, bottom = box
    assert left <= point[0] <= right
    assert top <= point[1] <= bottom


@given(boxes())
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_point_in_units_is_read_and_written_as_the_same_units(
    made: tuple[InclusiveBox, tuple[int, int]],
) -> None:
    box, size = made
    point = box_centre(box)
    units = lite_point(point, size)
    read = clicked(decode_lite_grounding(call("point", units), size))
    assert all(
        abs(a - b) <= side / 1000 + 0.5 for a, b, side in zip(read, point, size, strict=True)
    )
    again = lite_point(read, size)
    for axis, side in enumerate(size):  # where a pixel is wider than a unit, it has several
        assert abs(again[axis] - units[axis]) <= 500 / side
    in_box = clicked(decode_lite_grounding(call("bbox", lite_box(box, size)), size))
    assert all(
        abs(a - b) <= side / 1000 + 1 for a, b, side in zip(in_box, point, size, strict=True)
    )


def test_a_refusal_is_a_failure_without_an_action() -> None:
    assert decode_point_text("null", SIZE) == Answer((), status="failure")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(
            ("", "not JSON"),
            ("(1, 2)", "not JSON"),
            ("[1, 2", "not JSON"),
            ("[" * 99_999, "not JSON"),
        ),
        *((text, "no list of two or four numbers") for text in ("[1]", "[1,2,3]", '["1", 2]', "7")),
        *((text, "no list of two or four numbers") for text in ("[true, 1]", "[1e99, 1]", "{}")),
        *((text, "not in the picture") for text in ("[1920, 0]", "[0, 1080]", "[-1, 0]")),
        *((text, "a box that ends before it begins") for text in ("[9,9,8,9]", "[9,9,9,8]")),
    ],
)
def test_what_is_no_place_is_refused(text: str, reason: str) -> None:
    with pytest.raises(AnswerFormatError) as caught:
        decode_point_text(text, SIZE)
    assert caught.value.reason == reason


@given(st.text())
@example('{"name": "point", "arguments": {"coordinate": [1, 1001]}}')
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_other_text_is_refused_by_both(text: str) -> None:
    for decode in (decode_point_text, decode_lite_grounding):
        try:
            decode(text, SIZE)
        except AnswerFormatError:
            continue


def test_two_places_are_no_answer_and_a_click_is_one() -> None:
    two = f"[{call('point', [1, 1])}, {call('point', [2, 2])}]"
    with pytest.raises(AnswerFormatError, match="more than one place"):
        decode_lite_grounding(two, SIZE)
    click = {"actions": [{"action": "click", "coordinate": [500, 500]}]}
    assert clicked(decode_lite_grounding(json.dumps(click), SIZE)) == (960, 540)
