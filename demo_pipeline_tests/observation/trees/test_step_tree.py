"""Tests of mapping scans to the roles, states and coordinates of the trajectory format."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.validator import check_tree
from demo_pipeline.observation.clock.canvas import fit_canvas
from demo_pipeline.observation.trees.step_tree import map_tree
from demo_pipeline.problems import errors
from demo_pipeline_tests.observation.nodes import FULL, TIME, document_of, everything, mapped, node

raw_nodes = st.recursive(
    st.builds(
        node,
        st.sampled_from(["Button", "Pane", "Gizmo", "Edit", ""]),
        st.one_of(
            st.tuples(*[st.floats(-3000, 3000)] * 4),
            st.lists(st.integers(-50, 5000), min_size=3, max_size=4),
            st.sampled_from([None, "here", 7, {"x": 10**400, "y": 0, "width": 1, "height": 1}]),
        ),
        name=st.one_of(st.text(max_size=4), st.none(), st.just("\ud800")),
    ),
    lambda inner: st.builds(node, st.just("Pane"), st.just((0, 0, 9, 9)), inner, inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(raw_nodes, max_size=3))
def test_whatever_a_recorder_writes_becomes_a_valid_tree(tops: list[dict[str, Any]]) -> None:
    tree = mapped(tops)
    assert errors(check_tree(document_of(tree), "ui_tree.json")[1]) == []
    nodes = everything(document_of(tree)["root"])
    assert [n["id"] for n in nodes] == [f"node_{number}" for number in range(len(nodes))]
    assert [
        asdict(tree.element(at)) | {"states": list(tree.states_at(at)), "children": 0}
        for at in range(len(tree))
    ] == [
        {**n, "position": at, "box": tree.box(at), "children": 0} for at, n in enumerate(nodes[1:])
    ]


@pytest.mark.parametrize(
    ("role", "fields", "name"),
    [
        ("push button", {"description": "Bold text", "value": "on"}, "Bold text"),
        ("push button", {"name": " ", "description": " ", "value": "Bold"}, "Bold"),
        ("push button", {"name": "B", "description": "Bold text"}, "B"),
        ("push button", {"description": 7, "value": None}, ""),
        ("label", {"value": "City"}, "City"),
        ("label", {"value": "City", "children": [node("label")]}, ""),
        ("entry", {"value": "typed", "description": "Your name"}, "Your name"),
        ("entry", {"value": "typed"}, ""),
        ("password text", {"value": "s3cret"}, ""),
        ("check box", {"value": "1"}, ""),
    ],
)
def test_a_nameless_element_is_called_by_its_description_or_value_never_by_content(
    role: str, fields: dict[str, Any], name: str
) -> None:
    tree = mapped([node(role) | fields], platform="linux")
    assert tree.element(0).name == name
    [_, written, *_] = everything(document_of(tree)["root"])
    assert written["name"] == name


@settings(deadline=None)
@given(st.lists(raw_nodes, max_size=3))
def test_one_node_can_be_asked_for_without_the_others(tops: list[dict[str, Any]]) -> None:
    whole = mapped(tops, focused=tops[0] if tops else None)
    piecemeal = mapped(tops)
    asked = mapped(tops, focused=tops[0] if tops else None)
    positions = range(len(asked))
    assert asked.roles == whole.roles
    assert [asked.states_at(at) for at in positions] == whole.states
    unfocused = [words for at, words in enumerate(whole.states) if at != whole.focused]
    assert [piecemeal.states_at(at) for at in positions if at != whole.focused] == unfocused


@settings(deadline=None)
@given(st.lists(raw_nodes, max_size=3))
def test_a_tree_is_one_line_of_plain_json(tops: list[dict[str, Any]]) -> None:
    tree = mapped(tops)
    plain = json.dumps(document_of(tree), ensure_ascii=False, separators=(",", ":"))
    assert tree.to_bytes().decode() == plain + "\n"


def test_names_may_hold_whatever_json_is_made_of() -> None:
    names = ['"}\n', "}\n{", '],"children":[', "a\\", "\x00\x1f\x7f\u2028", "Grüße 🙂", "\t\r\b\f"]
    tree = mapped([node("Pane", (0, 0, 9, 9), *(node("Text", name=name) for name in names))])
    written = everything(document_of(tree)["root"])
    assert [written_node["name"] for written_node in written[2:]] == names


def test_the_root_is_the_desktop_and_the_time_is_the_scans() -> None:
    tree = mapped([node("Window", (0, 0, 100, 100), name="Shop")])
    document = document_of(tree)
    assert document["timestamp"] == "2026-01-05T09:00:00.250Z"
    assert document["screen"] == {"width": 1920, "height": 1080}
    assert document["root"]["role"] == "desktop"
    assert document["root"]["bounds"] == {"x": 0, "y": 0, "width": 1920, "height": 1080}
    assert document["root"]["children"][0]["name"] == "Shop"


def test_without_a_scan_there_is_only_the_root() -> None:
    tree = map_tree(None, TIME, "windows", FULL)
    assert document_of(tree)["root"]["children"] == []
    assert errors(check_tree(document_of(tree), "ui_tree.json")[1]) == []


def test_bounds_are_on_the_canvas() -> None:
    retina = fit_canvas((2880, 1800), 2.0)
    tree = mapped(
        [node("AXButton", (100.5, 50.25, 80, 20)), node("AXButton", [10, 20, 110, 70])],
        retina,
        "macos",
    )
    assert tree.element(0).bounds == {"x": 217, "y": 60, "width": 96, "height": 24}
    assert tree.element(1).bounds == {"x": 108, "y": 24, "width": 120, "height": 60}
    assert tree.box(1) == (10, 20, 100, 50)


def test_elements_on_another_display_keep_their_place() -> None:
    tree = mapped([node("Button", (-500, 2000, 50, 20))])
    assert tree.element(0).bounds == {"x": -500, "y": 2000, "width": 50, "height": 20}


def test_states_are_translated_and_the_others_counted() -> None:
    raw = node("Button", enabled=False, visible=False, checked=True, selected=False, shiny=True)
    raw["states"]["read-only"] = True
    tree = mapped([raw, node("Button", shiny=True, expanded=True)])
    assert set(tree.states_at(0)) == {"disabled", "hidden", "checked", "readonly"}
    assert tree.states_at(1) == ("visible", "expanded")
    assert dict(tree.dropped_states) == {"shiny": 2}


def test_the_focused_element_is_marked() -> None:
    field = node("Edit", (5, 5, 50, 20), name="Note")
    tree = mapped([node("Window", (0, 0, 99, 99), field)], focused={**field, "children": []})
    assert [words[0] for words in tree.states] == ["visible", "focused"]
    nowhere = mapped([node("Window", (0, 0, 99, 99), field)], focused=node("Edit", (6, 6, 1, 1)))
    assert all("focused" not in words for words in nowhere.states)


def test_unknown_roles_are_counted_by_name() -> None:
    tree = mapped([node("Gizmo"), node("Gizmo"), node("Button")])
    assert tree.roles == ["unknown", "unknown", "button"]
    assert dict(tree.unknown_roles) == {"Gizmo": 2}


def test_one_child_may_come_without_a_list() -> None:
    """Some macOS recorders write a single child, or a single root, as an object."""
    top = node("AXWindow", (0, 0, 50, 50))
    top["children"] = node("AXButton", (1, 1, 5, 5), name="OK")
    tree = mapped(top, platform="macos")
    assert tree.roles == ["window", "button"]
    assert tree.parents[1] == 0


@pytest.mark.parametrize("broken", [None, 7, "tree", [], [1, None, "x"], {"children": 3}])
def test_a_scan_of_another_shape_is_no_trouble(broken: Any) -> None:
    assert len(mapped(broken)) <= 1


def test_a_thousand_levels_are_mapped() -> None:
    top = leaf = node("Pane", (0, 0, 500, 500))
    for _ in range(1000):
        child = node("Pane", (0, 0, 500, 500))
        leaf["children"] = [child]
        leaf = child
    tree = mapped([top])
    assert len(tree) == 1001
    assert tree.depths[-1] == 1001
    assert errors(check_tree(document_of(tree), "ui_tree.json")[1]) == []
