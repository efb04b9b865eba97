"""The quick judgement of a tree's node never says yes where the model says no."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.formats.desktopd import UINode
from demo_pipeline.formats.desktopd_tree import check_tree, is_plainly_sound

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


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(sorted(GOOD)), ANYTHING, max_size=3))
def test_what_is_plainly_sound_is_a_node(changes: dict[str, Any]) -> None:
    value = GOOD | changes
    if is_plainly_sound(value):
        UINode.model_validate(value)


def test_a_usual_node_needs_no_model() -> None:
    assert is_plainly_sound(GOOD)
    assert is_plainly_sound({key: GOOD[key] for key in ("id", "role", "name", "bounds")})


def test_names_may_be_in_any_script_but_not_broken() -> None:
    assert is_plainly_sound(GOOD | {"name": "Suchen…"})
    assert not is_plainly_sound(GOOD | {"name": "\ud800"})


def test_a_fault_is_told_with_the_number_of_its_node() -> None:
    root = GOOD | {"id": "node_0", "role": "desktop", "children": [GOOD | {"role": "knob"}]}
    tree = {"timestamp": "2026-01-01T00:00:00Z", "screen": {"width": 1920, "height": 1080}}
    nodes, problems = check_tree({**tree, "root": root}, "ui_tree.json")
    assert list(nodes) == ["node_0"]
    assert "node number 1 in document order: role" in problems[0].message
