"""Tests of the CUDAG format: coordinates, tolerances, ids and tool calls."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.cudag.models import (
    IMAGE_TOKEN,
    CudagMetadata,
    box_to_ru,
    cudag_id,
    to_ru,
    tolerance_ru,
)
from demo_pipeline.exports.cudag.records import RecordDraft
from demo_pipeline.exports.tool_calls import (
    ToolCall,
    ToolCallError,
    parse_tool_calls,
    render_tool_calls,
)
from demo_pipeline.files.shown_text import MARKER, escape_markers

DOCUMENTED_ANSWER = (
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", '
    '"coordinate": [342, 567]}}\n</tool_call>'
)
MARKERS = ["<image>", "<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>", "<video>"]
SIDE = st.integers(1, 5000)


def test_the_documented_coordinates():
    assert to_ru(164, 306, (480, 540)) == (342, 567)


@given(st.integers(-100, 6000), st.integers(-100, 6000), SIDE, SIDE)
@settings(max_examples=100, deadline=None)
def test_ru_follows_the_formula_on_each_axis_and_stays_in_range(x, y, width, height):
    got = to_ru(x, y, (width, height))
    clamped = (min(max(x, 0), width - 1), min(max(y, 0), height - 1))
    exact = (clamped[0] / width * 1000, clamped[1] / height * 1000)
    assert all(0 <= part <= 1000 for part in got)
    assert all(abs(g - e) <= 0.5 for g, e in zip(got, exact, strict=True))
    assert got == to_ru(*clamped, (width, height))


def test_a_box_and_its_tolerance():
    assert box_to_ru((192, 108, 192, 108), (1920, 1080)) == (100, 100, 200, 200)
    box = (192, 108, 192, 108)
    assert tolerance_ru((288, 162), box, (1920, 1080), (1, 100)) == (50, 50)
    assert tolerance_ru((212, 200), box, (1920, 1080), (1, 100)) == (10, 14)
    assert tolerance_ru((384, 108), box, (1920, 1080), (1, 100)) == (1, 1)
    assert tolerance_ru((0, 0), box, (1920, 1080), (1, 100)) == (1, 1)
    assert tolerance_ru((960, 540), (0, 0, 1920, 1080), (1920, 1080), (1, 100)) == (100, 100)


@given(SIDE, SIDE, st.data())
@settings(max_examples=100, deadline=None)
def test_points_within_the_tolerance_are_at_most_one_unit_outside_the_target(width, height, data):
    size = (width, height)
    left = data.draw(st.integers(0, width - 1))
    top = data.draw(st.integers(0, height - 1))
    box = (
        left,
        top,
        data.draw(st.integers(1, width - left)),
        data.draw(st.integers(1, height - top)),
    )
    point = (
        left + data.draw(st.integers(0, box[2] - 1)),
        top + data.draw(st.integers(0, box[3] - 1)),
    )
    tolerance = tolerance_ru(point, box, size, (1, 1000))
    for axis in (0, 1):
        reach = max(tolerance[axis], 0) / 1000 * size[axis]
        low = point[axis] - reach
        high = point[axis] + reach
        inside = box[axis] <= low + 1e-6 and high <= box[axis] + box[axis + 2] + 1e-6
        assert inside or tolerance[axis] == 1


def test_ids_have_only_allowed_characters_and_stay_different():
    assert cudag_id("demo_1-a") == "demo_1-a"
    assert cudag_id("a.b") != cudag_id("a_b")
    assert cudag_id("a.b").startswith("a_b_")
    assert len(cudag_id("a.b")) == len("a_b_") + 6


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_different_names_have_different_ids(first_name, second_name):
    assert set(cudag_id(first_name)) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    )
    ids_are_equal = cudag_id(first_name) == cudag_id(second_name)
    assert ids_are_equal == (first_name == second_name)


def test_a_call_is_written_as_documented_and_read_back():
    call = ToolCall("left_click", {"coordinate": [342, 567]})
    assert render_tool_calls([call]) == (DOCUMENTED_ANSWER, 0)
    assert parse_tool_calls(DOCUMENTED_ANSWER) == [call]
    assert parse_tool_calls(DOCUMENTED_ANSWER)[0].arguments["coordinate"] == [342, 567]


@given(st.lists(st.text(max_size=10) | st.sampled_from(MARKERS), max_size=6).map("".join))
@settings(max_examples=150, deadline=None)
def test_any_text_survives_and_leaves_no_marker(text):
    calls = [ToolCall("type", {"text": text}), ToolCall("wait", {"time": 1.5})]
    turn, escaped = render_tool_calls(calls)
    assert parse_tool_calls(turn) == calls
    assert turn.count("<tool_call>") == turn.count("</tool_call>") == 2
    assert IMAGE_TOKEN not in turn
    assert bool(escaped) == bool(MARKER.search(json.dumps(text, ensure_ascii=False)))
    prompt, count = escape_markers(text)
    assert not MARKER.search(prompt)
    assert len(prompt) == len(text)
    assert bool(count) == (prompt != text)


def test_ordinary_angle_brackets_stay():
    turn, escaped = render_tool_calls([ToolCall("type", {"text": "if a < b: é"})])
    assert "if a < b: é" in turn
    assert escaped == 0
    assert escape_markers("a < b > c") == ("a < b > c", 0)
    assert escape_markers("say <image> and <|im_start|>") == ("say [image] and [|im_start|]", 2)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("", "nothing else"),
        ("click it", "nothing else"),
        (f"Sure.\n{DOCUMENTED_ANSWER}", "nothing else"),
        (f"{DOCUMENTED_ANSWER}\nDone", "block 2"),
        (f"{DOCUMENTED_ANSWER}\n", "block 2"),
        (f"{DOCUMENTED_ANSWER}{DOCUMENTED_ANSWER}", "block 2"),
        (DOCUMENTED_ANSWER.removesuffix("</tool_call>"), "nothing else"),
        ("<tool_call>\n{oops}\n</tool_call>", "not valid JSON"),
        ("<tool_call>\n[]\n</tool_call>", "must be an object"),
        (DOCUMENTED_ANSWER.replace("computer_use", "browser"), "name must be"),
        (DOCUMENTED_ANSWER.replace("left_click", "press"), "action must be one of"),
        (DOCUMENTED_ANSWER.replace("567", "1001"), "integers from 0 to 1000"),
        (DOCUMENTED_ANSWER.replace("567", "56.5"), "integers from 0 to 1000"),
        (DOCUMENTED_ANSWER.replace("567", "true"), "integers from 0 to 1000"),
        (DOCUMENTED_ANSWER.replace("[342, 567]", "null"), "integers from 0 to 1000"),
        (DOCUMENTED_ANSWER.replace("coordinate", "place"), "missing argument coordinate"),
        (DOCUMENTED_ANSWER.replace("left_click", "scroll"), "missing argument pixels"),
    ],
)
def test_a_turn_that_breaks_the_grammar_is_rejected_with_the_reason(turn, reason):
    with pytest.raises(ToolCallError, match=reason):
        parse_tool_calls(turn)


def test_an_error_never_quotes_what_was_typed():
    secret = DOCUMENTED_ANSWER.replace("left_click", "hunter2").replace("coordinate", "hunter2")
    with pytest.raises(ToolCallError) as caught:
        parse_tool_calls(secret)
    assert "hunter2" not in str(caught.value)


def test_a_record_is_written_with_every_key():
    metadata = CudagMetadata(task_type="left-click", real_coords=(3, 4), has_coordinate=True)
    call = ToolCall("left_click", {"coordinate": [342, 567]})
    draft = RecordDraft("a", Path("shot.png"), "Go", 0, (call,), metadata)
    value = json.loads(draft.line(".jpg"))
    assert list(value) == ["id", "image", "conversations", "metadata"]
    assert value["image"] == "images/a.jpg"
    assert value["conversations"] == [
        {"from": "human", "value": "<image>\nGo"},
        {"from": "gpt", "value": DOCUMENTED_ANSWER},
    ]
    assert list(value["metadata"]) == list(CudagMetadata._fields)
    assert None not in value["metadata"].values()
    test = json.loads(draft.tests()["test"])
    assert (test["test_id"], test["prompt"], test["metadata"]["start_coords"]) == (
        "a",
        "Go",
        [0, 0],
    )
