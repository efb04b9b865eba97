import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files.json_files import (
    JsonFileError,
    dump_json,
    dump_long_json,
    json_bytes,
    load_json,
    parse_json,
)
from demo_pipeline_tests.desktopd.good_dataset import deep_tree


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b'{"a": 1,\n"b": }', 2),
        (b'{\n\n"a": NaN}', 3),
        (b"[1,\n-Infinity]", 2),
        (b"[\n1e999]", 2),
        (b"[\n" + b"9" * 5000 + b"]", 2),
        (b'{"a": "x\n"}', 1),
        (b'["ok",\n"\xff"]', 2),
        (b"\xff\xfe[\x00]\x00", 1),
        (b"{} {}", 1),
        (b"[" * 5000, 1),
        (b'{"a":' * 3000 + b"\n?", 2),
    ],
)
def test_bad_json_is_one_typed_error_with_its_line(tmp_path, data, line):
    path = tmp_path / "secret.json"
    path.write_bytes(data)
    with pytest.raises(JsonFileError) as caught:
        load_json(path)
    assert (caught.value.file, caught.value.line) == ("secret.json", line)
    assert str(tmp_path) not in str(caught.value)


def test_missing_file_and_folder_are_typed_errors(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(JsonFileError, match="cannot be read"):
            load_json(path, "x.json")


def test_error_never_repeats_content():
    with pytest.raises(JsonFileError) as caught:
        parse_json(b'{"password": hunter2}', "a.json")
    assert "hunter2" not in str(caught.value)


def test_byte_order_mark_and_repeated_keys_are_tolerated():
    assert parse_json(b'\xef\xbb\xbf{"a": 1, "a": 2}', "a.json") == {"a": 2}


def levels_of(node):
    levels = 1
    while node["children"]:
        (node,) = node["children"]
        levels += 1
    return levels


@pytest.mark.parametrize(
    ("levels", "compact"), [(400, True), (1000, True), (5000, True), (400, False), (1000, False)]
)
def test_deep_trees_are_written_and_read(tmp_path, levels, compact):
    dump_json(tmp_path / "a" / "tree.json", deep_tree(levels), compact=compact)
    tree = load_json(tmp_path / "a" / "tree.json")
    assert levels_of(tree["root"]) == levels


JSON_TEXT = st.text(st.characters(codec=None))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(VALUES, st.booleans())
def test_written_json_is_read_back(value, compact):
    data = json_bytes(value, compact=compact)
    assert data.endswith(b"\n")
    again = json_bytes(parse_json(data, "a.json"), compact=compact)
    assert again == data
    assert json.loads(data) == json.loads(json.dumps(value))


def test_form_of_the_file():
    value = {"b": "é", "a": [1, {}], "lone": "\ud83d"}
    assert json_bytes(value) == (
        '{\n  "b": "é",\n  "a": [\n    1,\n    {}\n  ],\n  "lone": "\\ud83d"\n}\n'.encode()
    )
    assert json_bytes(value, compact=True) == '{"b":"é","a":[1,{}],"lone":"\\ud83d"}\n'.encode()


@pytest.mark.parametrize(("value", "error"), [(float("nan"), ValueError), (object(), TypeError)])
def test_a_value_without_json_form_is_rejected_before_the_file_is_written(tmp_path, value, error):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(error):
        dump_json(path, {"a": value})
    assert path.read_text() == "old"


@pytest.mark.parametrize("count", [0, 1, 3, 600])
@pytest.mark.parametrize("is_list", [True, False])
def test_a_long_member_gives_the_bytes_of_the_whole(tmp_path, count, is_list):
    items = [{"name": f'ü"\n\ud83d{n}', "empty": {}, "list": [n, [None]]} for n in range(count)]
    named = {f"{n}": item for n, item in enumerate(items)}
    before: dict[str, Any] = {"inner": {"long": [], "other": {}}, "text": '\n  "long": []'}
    dump_json(tmp_path / "whole.json", {**before, "long": items if is_list else named})
    short = {**before, "long": [] if is_list else {}}
    dump_long_json(tmp_path / "long.json", short, "long", items if is_list else named.items())
    assert (tmp_path / "long.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
