import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.files import json_files

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(VALUES, st.sampled_from([None, 2]))
def test_text_is_the_same_as_the_standard_librarys(value, indent):
    separators = (",", ":") if indent is None else (",", ": ")
    expected = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    assert json_files.encode(value, indent=indent) == expected


@given(VALUES, st.sampled_from([None, 1]))
def test_value_is_the_same_as_the_standard_librarys(value, indent):
    text = json.dumps(value, indent=indent)
    assert json_files.decode(text) == json.loads(text)


@given(st.text(alphabet='{}[],:"1 a\\', max_size=12))
def test_accepts_exactly_what_the_standard_library_accepts(text):
    try:
        expected = json.loads(text)
    except json.JSONDecodeError:
        with pytest.raises(json.JSONDecodeError):
            json_files.decode(text)
    else:
        assert json_files.decode(text) == expected


def test_error_has_the_position_in_the_whole_text():
    with pytest.raises(json.JSONDecodeError) as caught:
        json_files.decode('{\n"a": [1,\n nul]}')
    assert caught.value.lineno == 3


@given(VALUES)
def test_every_shallow_value_has_a_line(value):
    text = json.dumps({"a": [value]}, indent=1)
    place_of = json_files.places_in(text)
    assert [place_of(where) for where in ((), ("a",), ("a", 0))] == [
        (1, None),
        (2, None),
        (3, None),
    ]


def test_lines_of_keys_items_and_repeated_keys():
    text = '{"a": 1,\n "b": {"c": [10,\n 20, {"d": 0}]},\n "a": "x"}'
    place_of = json_files.places_in(text)
    assert place_of(("b", "c", 0)) == (2, None)
    assert place_of(("b", "c", 1)) == (3, None)
    assert place_of(("b", "c", 2, "d")) == place_of(("b", "c", 2, "d", "e")) == (3, None)
    assert place_of(("a",)) == (4, None)
    assert json_files.places_in("")(("a",)) == (None, None)


@given(VALUES)
def test_every_shallow_value_of_one_line_has_a_column(value):
    text = json.dumps({"a": [value]})
    place_of = json_files.places_in(f"\n {text}\n")
    assert [place_of(where) for where in ((), ("a",), ("a", 0))] == [(2, 2), (2, 3), (2, 9)]
