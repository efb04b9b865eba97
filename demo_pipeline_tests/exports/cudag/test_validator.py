"""Tests of the CUDAG validator with valid, foreign and damaged datasets."""

import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.problems import Severity, errors
from demo_pipeline_tests.datasets.builders import picture, read_lines
from demo_pipeline_tests.exports.cudag.editing import (
    NAME,
    drop,
    edit_line,
    edit_test,
    problem_lines,
    put,
)

ANSWER = (
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", '
    '"coordinate": [342, 567]}}\n</tool_call>'
)


@pytest.fixture
def foreign(tmp_path):
    """Writes the examples in CUDAG's documentation as a dataset that another program generated."""
    root = tmp_path / NAME
    (root / "images").mkdir(parents=True)
    (root / "test" / "images").mkdir(parents=True)
    record = {
        "id": "calendar_00001",
        "image": "images/calendar_00001.jpg",
        "conversations": [
            {"from": "human", "value": "<image>\nClick October 15 in the calendar"},
            {"from": "gpt", "value": ANSWER},
        ],
        "metadata": {"task_type": "click-day", "real_coords": [164, 306], "tolerance": [27, 13]},
    }
    test = {
        "test_id": "test_00001",
        "screenshot": "images/test_00001.png",
        "prompt": "Click October 15 in the calendar",
        "expected_action": {
            "name": "computer_use",
            "arguments": {"action": "left_click", "coordinate": [342, 567]},
        },
        "tolerance": [27, 13],
        "metadata": {"task_type": "click-day", "real_coords": [164, 306], "image_size": [480, 540]},
    }
    (root / "config.json").write_text('{"name_prefix": "calendar"}')
    (root / "data.jsonl").write_text(json.dumps(record) + "\n")
    (root / "train.jsonl").write_text(json.dumps(record) + "\n")
    (root / "val.jsonl").write_text("")
    (root / "test" / "test.json").write_text(json.dumps([test], indent=2))
    (root / "images" / "calendar_00001.jpg").write_bytes(jpeg(480, 540))
    (root / "test" / "images" / "test_00001.png").write_bytes(picture(3, 480, 540))
    return root


def jpeg(width, height):
    import cv2
    import numpy as np

    return cv2.imencode(".jpg", np.full((height, width, 3), 200, np.uint8))[1].tobytes()


def test_our_dataset_has_no_problem(good):
    assert validate_cudag(good) == []


def test_the_documented_examples_have_no_problem(foreign):
    assert validate_cudag(foreign) == []


def test_the_documented_error_for_an_image_path(foreign):
    line = (foreign / "train.jsonl").read_text()
    many = [line.replace("00001", f"{n:05d}") for n in range(1, 43)]
    many[41] = many[41].replace("images/calendar_00042.jpg", "sample.jpg")
    (foreign / "train.jsonl").write_text("".join(many))
    expected = "train.jsonl:42: Invalid image path: sample.jpg (must start with 'images/')"
    assert expected in problem_lines(foreign)


@pytest.mark.parametrize("value", [None, [27], [27, 13, 5], "27", [2.5, 1], [True, 1]])
def test_the_documented_error_for_a_missing_tolerance(foreign, value):
    path = foreign / "test" / "test.json"
    entry = json.loads(path.read_text())[0]
    entries = [{**entry, "test_id": f"t{n}"} for n in range(1, 6)]
    if value is None:
        del entries[4]["tolerance"]
    else:
        entries[4]["tolerance"] = value
    path.write_text(json.dumps(entries))
    assert problem_lines(foreign) == ["test.json:5: tolerance must be [tol_x, tol_y] array"]


def test_optional_parts_may_be_missing_but_not_something_else(copy):
    shutil.rmtree(copy / "test" / "annotated")
    assert validate_cudag(copy) == []
    (copy / "test" / "annotated").write_text("a file")
    (copy / "held_out.jsonl").unlink()
    (copy / "held_out.jsonl").mkdir()
    assert {"test/", "held_out.jsonl"} <= {p.location for p in errors(validate_cudag(copy))}


def test_a_directory_in_an_images_place_is_an_error(copy):
    name = read_lines(copy / "val.jsonl")[0]["image"]
    (copy / name).unlink()
    (copy / name).mkdir()
    assert f"val.jsonl:1: Image not found: {name}" in problem_lines(copy)


def test_data_is_the_union_of_the_splits(copy):
    lines = (copy / "data.jsonl").read_text().splitlines(keepends=True)
    stray = json.loads(lines[1])
    stray["id"] = "stray"
    changed = lines[2].replace("Step 2", "Step two")
    (copy / "data.jsonl").write_text(
        "".join([*lines[:1], json.dumps(stray) + "\n", changed, lines[0], *lines[3:]])
    )
    messages = "\n".join(problem_lines(copy))
    assert "data.jsonl:2: record 'stray' is in no split" in messages
    assert "differs from train.jsonl:3" in messages
    assert "data.jsonl:4: id" in messages
    assert "train.jsonl:2: record" in messages


def test_a_wanted_split_without_records_is_a_warning_with_its_reason(copy):
    (copy / "val.jsonl").write_text("")
    report = json.loads((copy / "splits.json").read_text())
    warnings = [p.message for p in validate_cudag(copy) if p.code == "empty_split"]
    assert warnings == [
        "val is empty: every record of its 1 task groups was left out: see excluded"
    ]
    report["splits"]["val"]["groups"] = 0
    (copy / "splits.json").write_text(json.dumps(report))
    warnings = [p.message for p in validate_cudag(copy) if p.code == "empty_split"]
    assert warnings == ["val is empty: there are too few task groups to give it one"]


def test_a_directory_of_another_name_is_only_a_warning(copy):
    copy = copy.rename(copy.parent / "mine")
    problems = validate_cudag(copy)
    assert [(p.location, p.severity) for p in problems] == [("./", Severity.WARNING)]


def test_no_directory_is_an_error(tmp_path):
    assert [p.code for p in validate_cudag(tmp_path / "nothing")] == ["not_a_directory"]


def test_a_rule_of_the_pipeline_is_a_warning_in_datasets_of_others(foreign):
    edit_line(
        foreign, "train.jsonl", 1, put("conversations", 1, "value", value=f"{ANSWER}\nThat is it.")
    )
    problems = validate_cudag(foreign)
    assert not errors(problems)
    assert {p.location for p in problems} == {"train.jsonl:1", "data.jsonl:1"}


def test_datasets_of_others_must_follow_the_document(foreign):
    edit_line(foreign, "train.jsonl", 1, drop("metadata", "real_coords"))
    edit_test(foreign, 1, put("expected_action", "arguments", "coordinate", value=[342, 1200]))
    messages = problem_lines(foreign)
    assert "train.jsonl:1: metadata.real_coords: Field required" in messages
    assert "test.json:1: coordinate must be [x, y] from 0 to 1000" in messages


def test_messages_never_quote_what_was_typed(copy):
    secret = "hunter2"  # noqa: S105 - the test needs a secret
    value = ANSWER.replace("left_click", secret).replace("coordinate", secret)
    edit_line(copy, "train.jsonl", 11, put("conversations", 1, "value", value=value))
    edit_line(copy, "train.jsonl", 12, put("metadata", secret, value=secret))
    messages = problem_lines(copy)
    assert messages
    assert secret not in "\n".join(messages)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
PATHS = [
    ("id",),
    ("image",),
    ("conversations",),
    ("conversations", 0),
    ("conversations", 1, "value"),
    ("metadata",),
    ("metadata", "real_coords"),
    ("metadata", "image_size"),
    ("metadata", "tolerance"),
    ("metadata", "end_coords"),
]


@given(st.sampled_from(PATHS), JSON)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_value_in_a_record_raises_an_error(foreign, keys, value):
    original = json.loads((foreign / "data.jsonl").read_text())
    original["metadata"].update(image_size=[480, 540], end_coords=[0, 0])
    put(*keys, value=value)(original)
    (foreign / "train.jsonl").write_text(json.dumps(original) + "\n")
    (foreign / "config.json").write_text('{"generator": "demo_pipeline"}')
    assert validate_cudag(foreign)
