"""Tests that the fast check of trees gives the same results as the pydantic models."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.validator import (
    Nodes,
    check_tree,
    check_tree_bytes,
    decode_tree,
    numbered_ids,
)
from demo_pipeline.files.json_files import json_bytes, parse_json
from demo_pipeline.problems import errors

GOOD: dict[str, Any] = {
    "id": "node_7",
    "role": "button",
    "name": "Save",
    "bounds": {"x": -3, "y": 4, "width": 5, "height": 0},
    "states": ["focused"],
    "children": [],
}
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["node_1", "node_", "node_1\n", "button", "focused", "\ud800", "é"]),
    st.lists(st.sampled_from(["focused", "blue", 3, None]), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y", "width", "height"]), st.integers(-2, 2)),
)


KEYS = [*sorted(GOOD), "other"]


def test_a_fault_names_the_number_of_its_node():
    root = GOOD | {"id": "node_0", "role": "desktop", "children": [GOOD | {"role": "knob"}]}
    tree = {"timestamp": "2026-01-01T00:00:00Z", "screen": {"width": 1920, "height": 1080}}
    nodes, problems = check_tree({**tree, "root": root}, "ui_tree.json")
    assert list(nodes) == ["node_0"]
    assert "node number 1 in document order: role" in problems[0].message


def tree_of(*children: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Returns a tree whose root has these children; `changes` are keys of the tree or the root."""
    root = {
        "id": "node_0",
        "role": "desktop",
        "name": "",
        "bounds": {"x": 0, "y": 0, "width": 1920, "height": 1080},
        "states": [],
        "children": list(children),
    }
    document = {"timestamp": "2026-01-01T00:00:00Z", "screen": {"width": 1920, "height": 1080}}
    given = {key: value for key, value in changes.items() if key in {*document, "other"}}
    return {**document, **given, "root": root | {k: changes[k] for k in changes.keys() & root}}


def plain(nodes: Nodes) -> dict[str, Any]:
    return {
        key: (node.id, node.role, node.name, node.bounds, node.states)
        for key, node in nodes.items()
    }


@settings(max_examples=200)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=2), max_size=3),
    st.dictionaries(
        st.sampled_from(["timestamp", "screen", "role", "bounds", "other"]),
        ANYTHING | st.fixed_dictionaries({"width": st.integers(), "height": st.just(1080)}),
        max_size=1,
    ),
    st.integers(-9, 2000),
)
def test_the_fast_path_and_the_models_agree(changes, around, x):
    bounds = {"x": x, "y": 4, "width": 5, "height": 2}
    far = GOOD | {"id": "node_99", "bounds": bounds, "states": ["visible"]}
    document = tree_of(
        far, *(GOOD | {"id": f"node_{n}"} | c for n, c in enumerate(changes, 1)), **around
    )
    try:
        data = json_bytes(document)
    except ValueError:  # NaN or infinity, which JSON does not allow
        return
    slow_nodes, slow = check_tree(parse_json(data, "t"), "ui_tree.json", data.decode())
    nodes, problems = check_tree_bytes(data, "ui_tree.json")
    assert problems == slow
    assert list(nodes) == list(slow_nodes)
    fast = decode_tree(data)
    assert fast is None or {problem.code for problem in errors(slow)} <= {"screen_size"}
    assert plain(nodes) == plain(slow_nodes)


TREE = json_bytes(tree_of(GOOD | {"name": "Grün"}, GOOD | {"id": "node_3", "states": []}))


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(TREE) - 1),
            st.sampled_from([b"", b"0", b"-", b"1e2", b'"', b"\\", b"{", b"]", b",", b"\xff"]),
        ),
        min_size=1,
        max_size=2,
    )
)
def test_a_damaged_file_has_the_same_problems_on_both_paths(edits):
    data = TREE
    for position, replacement in edits:
        data = data[:position] + replacement + data[position + 1 :]
    fast = decode_tree(data)
    if fast is not None:
        expected = check_tree(parse_json(data, "t"), "ui_tree.json", data.decode())
        nodes, problems = check_tree_bytes(data, "ui_tree.json")
        assert (plain(nodes), problems) == (plain(expected[0]), expected[1])


def test_ids_need_not_be_consecutive_but_must_be_unique():
    for ids, sound in (
        (("node_2", "node_1"), True),
        (("node_7000", "node_x"), False),
        (("node_1", "node_1"), False),
        (("node_0", "node_1"), False),
    ):
        data = json_bytes(tree_of(*(GOOD | {"id": node} for node in ids)))
        tree = decode_tree(data)
        assert (tree is not None) == sound
        assert bool(errors(check_tree_bytes(data, "ui_tree.json")[1])) != sound
        if tree is not None:
            assert (list(tree.nodes), len(tree.nodes)) == (["node_0", *ids], 3)


def test_more_nodes_than_most_trees_have_are_numbered():
    assert numbered_ids(0) == []
    assert numbered_ids(9000) == [f"node_{number}" for number in range(9000)]


@pytest.mark.parametrize(
    ("box", "outside"),
    [
        ((1919, 1079, 5, 5), False),
        ((1920, 0, 5, 5), True),
        ((0, 1080, 5, 5), True),
        ((-5, 0, 5, 5), True),
        ((-5, 0, 6, 5), False),
        ((0, -5, 5, 5), True),
        ((0, 1080, 0, 5), False),
    ],
)
def test_only_what_has_no_pixel_on_the_screen_is_outside(box, *, outside):
    bounds = dict(zip(("x", "y", "width", "height"), box, strict=True))
    for states, expected in ((["visible"], outside), (["hidden"], False), ([], False)):
        data = json_bytes(tree_of(GOOD | {"bounds": bounds, "states": states}))
        assert decode_tree(data) is not None
        codes = [problem.code for problem in check_tree_bytes(data, "ui_tree.json")[1]]
        assert codes == ["node_outside"] * expected


def test_a_usual_tree_is_read_fast_and_a_deep_one_is_read():
    assert decode_tree(json_bytes(tree_of(GOOD))) is not None
    inner = GOOD | {"id": "node_3000"}
    for number in range(2999, 0, -1):
        inner = GOOD | {"id": f"node_{number}", "children": [inner]}
    nodes, problems = check_tree_bytes(json_bytes(tree_of(inner)), "ui_tree.json")
    assert (len(nodes), problems) == (3001, [])
