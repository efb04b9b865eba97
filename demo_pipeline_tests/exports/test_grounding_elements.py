"""Tests of the selection of elements for grounding rows; doubtful elements are left out."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.grounding_elements import choose_elements, read_screen
from demo_pipeline.trajectories.step_sentences import TypedTexts
from demo_pipeline_tests.datasets.seen_screens import Box, element, write_tree

AREA = (0, 0, 1920, 1080)
SAVE: Box = (100, 100, 80, 30)
LEFT: Box = (0, 0, 900, 800)
RIGHT: Box = (950, 0, 900, 800)


def chosen(
    tmp_path: Path,
    *nodes: dict[str, Any],
    platform: str = "linux",
    typed: tuple[str, ...] = (),
    area: tuple[int, int, int, int] = AREA,
    most: int = 100,
) -> tuple[list[str], dict[str, int]]:
    """Returns the texts of the selected elements, and counts of the others by reason."""
    write_tree(tmp_path, *nodes)
    screen = read_screen(tmp_path / "ui_tree.json", platform)
    assert screen
    elements, left_out = choose_elements(screen, area, TypedTexts(typed), 8, most)
    return [text for _, text in elements], {
        name: count for name, count in left_out.items() if count
    }


def window(*children: dict[str, Any], box: Box = LEFT, **options: Any) -> dict[str, Any]:
    return element("window", "Window", box, *children, **options)


def save(box: Box = SAVE, name: str = "Save", role: str = "button", *below: Any) -> dict[str, Any]:
    return element(role, name, box, *below)


def test_a_visible_named_leaf_is_asked_for(tmp_path):
    assert chosen(tmp_path, window(save())) == (["the Save button"], {"other_role": 1})


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (save(role="textfield"), "other_role"),
        (save(role="combobox"), "other_role"),
        (save(role="panel"), "other_role"),
        (save(name="btn_save"), "unreadable_name"),
        (save(name="hunter2 secret"), "typed_name"),
        (save((100, 100, 7, 30)), "small"),
        (save((100, 100, 80, 7)), "small"),
        (save((0, 0, 800, 700)), "large"),
        (save((850, 100, 80, 30)), "clipped"),  # extends beyond the window
        (save((-10, 100, 80, 30)), "outside"),
        (save(SAVE, "Save", "button", save((110, 105, 20, 20), "All", "label")), "not_a_leaf"),
        (save(SAVE, "Save", "label", save((110, 105, 20, 20), "Save", "label")), "not_a_leaf"),
    ],
)
def test_an_element_that_may_mislead_is_left_out(tmp_path, node, reason):
    texts, left_out = chosen(tmp_path, window(node), typed=("hunter2",))
    assert "the Save button" not in texts
    assert reason in left_out


@pytest.mark.parametrize("box", [(100, 100, 0, 30), (100, 100, 80, 0)])
def test_elements_without_area_and_hidden_elements_are_ignored(tmp_path, box):
    assert chosen(tmp_path, save(box)) == ([], {})
    hidden = element("button", "Save", SAVE, states=("hidden",))
    assert chosen(tmp_path, hidden) == ([], {})
    inside = element("panel", "", (50, 50, 300, 300), save(), states=("hidden",))
    assert chosen(tmp_path, inside) == ([], {})


def test_elements_in_the_bars_beside_a_narrow_screen_are_left_out(tmp_path):
    node = save((200, 100, 80, 30))
    assert chosen(tmp_path, node, area=(240, 0, 1680, 1080)) == ([], {"outside": 1})


def test_a_control_with_only_its_own_parts_counts_as_a_leaf(tmp_path):
    parts = (save((105, 105, 20, 20), "", "image"), save((130, 105, 40, 20), "Save", "label"))
    texts, left_out = chosen(tmp_path, save(SAVE, "Save", "button", *parts))
    assert texts == ["the Save button"]
    assert left_out == {"part_of_control": 1}


@pytest.mark.parametrize("name", ["Save", "save", "Save…", "&Save"])
def test_two_of_the_same_name_and_role_are_ambiguous(tmp_path, name):
    nodes = (save(), save((300, 100, 80, 30), name))
    assert chosen(tmp_path, *nodes) == ([], {"ambiguous": 2})


@pytest.mark.parametrize(
    ("role", "name", "other"),
    [
        ("button", "Search", "Search button"),
        ("button", "Search…", "search Button"),
        ("menuitem", "Paste", "Paste menu item"),
        ("link", "Home", "Home Link"),
    ],
)
def test_elements_with_the_same_words_are_ambiguous(tmp_path, role, name, other):
    nodes = (save(SAVE, name, role), save((300, 100, 80, 30), other, role))
    assert chosen(tmp_path, *nodes) == ([], {"ambiguous": 2})


@pytest.mark.parametrize(("name", "other"), [("Save", "Save button"), ("Save button", "Save")])
def test_an_element_of_a_vague_role_may_have_the_same_words(tmp_path, name, other):
    vague = save((300, 100, 80, 30), other, "unknown")
    assert chosen(tmp_path, save(SAVE, name), vague) == ([], {"ambiguous": 1, "other_role": 1})


def test_the_word_of_another_role_in_a_name_is_not_ambiguous(tmp_path):
    link = save((300, 100, 80, 30), "Save button", "link")
    assert chosen(tmp_path, save(), link)[0] == ["the Save button", "the Save button link"]


def test_an_element_that_is_left_out_still_makes_its_namesakes_ambiguous(tmp_path):
    tiny = save((300, 100, 5, 5))
    assert chosen(tmp_path, save(), tiny) == ([], {"ambiguous": 1, "small": 1})
    vague = save((300, 100, 80, 30), "Save", "unknown")
    assert chosen(tmp_path, save(), vague) == ([], {"ambiguous": 1, "other_role": 1})


def test_other_roles_and_invisible_namesakes_are_not_ambiguous(tmp_path):
    other = save((300, 100, 80, 30), "Save", "menuitem")
    assert chosen(tmp_path, save(), other)[0] == ["the Save button", "the Save menu item"]
    hidden = element("button", "Save", (300, 100, 80, 30), states=("hidden",))
    assert chosen(tmp_path, save(), hidden)[0] == ["the Save button"]
    elsewhere = save((2500, 100, 80, 30))  # on another display
    assert chosen(tmp_path, save(), elsewhere)[0] == ["the Save button"]


class TestCovered:
    """An element is selected only if nothing can be in front of it."""

    @pytest.mark.parametrize(
        ("node", "covers"),
        [
            (save((150, 90, 200, 200), "", "panel"), True),
            (save((175, 90, 200, 200), "", "panel"), False),  # covers a strip of 5 pixels
            (save((175, 90, 200, 200), "", "dialog"), False),
            (save((90, 90, 200, 200), "Other", "list"), True),
        ],
    )
    def test_by_a_later_node_of_its_window(self, tmp_path, node, covers):
        if node["role"] == "list":
            node = {**node, "role": "listbox"}
        texts, _ = chosen(tmp_path, window(save(), node))
        assert ("the Save button" not in texts) is covers

    def test_not_by_a_container_before_it(self, tmp_path):
        before = save((90, 90, 200, 200), "", "panel")
        assert chosen(tmp_path, window(before, save()))[0] == ["the Save button"]
        label = save((90, 90, 200, 200), "Words", "label")
        assert "the Save button" not in chosen(tmp_path, window(label, save()))[0]

    @pytest.mark.parametrize("platform", ["windows", "macos"])
    def test_by_a_window_that_the_tree_lists_before_where_order_is_depth(self, tmp_path, platform):
        front = window()
        back = window(save())
        for windows, expected in (((front, back), []), ((back, front), ["the Save button"])):
            desktop = element("panel", "Desktop", AREA, *windows)
            assert chosen(tmp_path, desktop, platform=platform)[0] == expected

    def test_at_the_top_of_a_windows_tree_the_focus_tells_and_not_the_order(self, tmp_path):
        for focus, expected in ((("focused",), ["the Save button"]), ((), [])):
            covered = window(save(), states=focus)
            for windows in ((covered, window()), (window(), covered)):
                assert chosen(tmp_path, *windows, platform="windows")[0] == expected

    def test_by_any_window_where_the_order_says_nothing(self, tmp_path):
        for nodes in ((window(), window(save())), (window(save()), window())):
            texts, left_out = chosen(tmp_path, *nodes)
            assert texts == []
            assert left_out["covered"] == 1

    def test_unless_its_own_window_alone_has_the_focus(self, tmp_path):
        focus = ("visible", "focused")
        field = element("textfield", "", (100, 300, 200, 30), states=focus)
        assert chosen(tmp_path, window(save(), field), window())[0] == ["the Save button"]
        both = (window(save(), field), window(field))
        assert chosen(tmp_path, *both)[0] == []

    def test_not_by_a_window_beside_it(self, tmp_path):
        assert chosen(tmp_path, window(save()), window(box=RIGHT))[0] == ["the Save button"]

    def test_by_a_dialog_of_its_window(self, tmp_path):
        dialog = element("dialog", "Sure?", (90, 90, 300, 200))
        assert chosen(tmp_path, window(dialog, save()))[0] == []

    def test_by_an_open_list_that_is_wider_than_its_items(self, tmp_path):
        items = [save((100, 131 + 30 * row, 60, 30), f"Item {row}", "menuitem") for row in range(3)]
        choice = element("combobox", "City", (100, 100, 300, 30), *items)
        # The open list covers the slider, but the list's items do not.
        slider = save((300, 150, 90, 20), "Price", "slider")
        texts, left_out = chosen(tmp_path, window(choice, slider))
        assert "the Price slider" not in texts
        assert left_out["covered"] == 1
        beside = save((420, 150, 90, 20), "Price", "slider")
        assert "the Price slider" in chosen(tmp_path, window(choice, beside))[0]


def test_of_many_elements_the_same_ones_are_taken_wherever_they_are_in_the_tree(tmp_path):
    nodes = [save((100, 40 * row, 80, 30), f"Item {row}") for row in range(20)]
    first, left_out = chosen(tmp_path, *nodes, most=5)
    assert len(first) == 5
    assert left_out == {"too_many": 15}
    second, _ = chosen(tmp_path, *nodes[::-1], most=5)
    assert sorted(first) == sorted(second)
    assert set(chosen(tmp_path, *nodes, most=4)[0]) < set(first)
