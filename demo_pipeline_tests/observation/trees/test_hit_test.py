"""Which element an action was meant for."""

import pytest

from demo_pipeline.observation.trees.hit_test import focused_node, node_at, text_node_at
from demo_pipeline_tests.observation.nodes import mapped, node

WINDOW = (100, 100, 800, 600)


def hit(tree: list, x: float, y: float) -> str | None:
    found = node_at(mapped(tree), x, y)
    return found.name if found else None


def test_the_smallest_visible_element_is_hit() -> None:
    button = node("Button", (300, 300, 100, 40), node("Text", (320, 310, 40, 20), name="OK label"))
    tree = [node("Window", WINDOW, node("Group", (200, 200, 400, 300), button, name="group"))]
    button["name"] = "OK"
    assert hit(tree, 325, 315) == "OK label"
    assert hit(tree, 305, 305) == "OK"
    assert hit(tree, 210, 210) == "group"


def test_of_two_alike_the_one_drawn_last_is_hit() -> None:
    twins = [node("Button", (300, 300, 100, 40), name=name) for name in ("below", "above")]
    assert hit([node("Window", WINDOW, *twins)], 310, 310) == "above"


def test_the_far_edge_belongs_to_the_neighbour() -> None:
    left = node("Button", (200, 200, 100, 40), name="left")
    right = node("Button", (300, 200, 100, 40), name="right")
    tree = [node("Window", WINDOW, left, right)]
    assert hit(tree, 299.9, 210) == "left"
    assert hit(tree, 300, 210) == "right"


def test_hidden_and_empty_elements_are_not_hit() -> None:
    hidden = node("Button", (300, 300, 10, 10), name="hidden", visible=False)
    empty = node("Button", (300, 300, 0, 0), name="empty")
    shown = node("Button", (290, 290, 50, 50), name="shown")
    assert hit([node("Window", WINDOW, hidden, empty, shown)], 305, 305) == "shown"


def test_windows_and_what_fills_them_are_no_targets() -> None:
    tree = [node("Window", WINDOW, node("Pane", (102, 102, 797, 597), name="client area"))]
    assert hit(tree, 400, 400) is None


def overlapping(role: str) -> tuple[list[dict[str, object]], dict[str, object]]:
    """A dialog in front of a list whose rows are smaller than the dialog's field."""
    row = node("ListItem", (300, 300, 200, 20), name="covered row")
    field = node("Edit", (280, 290, 400, 60), name="field")
    dialog = node(role, (250, 250, 500, 200), field, name="dialog")
    return [dialog, node(role, WINDOW, row, name="behind")], field


def test_what_lies_behind_another_window_is_not_hit() -> None:
    tree, _ = overlapping("Window")
    assert hit(tree, 310, 310) == "field"
    assert hit(tree[::-1], 310, 310) == "covered row"


def test_the_window_with_the_focus_is_in_front_whatever_the_order() -> None:
    tree, field = overlapping("frame")
    for order in (tree, tree[::-1]):
        found = node_at(mapped(order, platform="linux", focused=field), 310, 310)
        assert found is not None
        assert found.name == "field"


@pytest.mark.parametrize("claims", ["nobody", "both"])
def test_with_two_windows_and_no_sign_of_the_front_one_there_is_no_target(claims: str) -> None:
    tree, _ = overlapping("frame")
    for frame in tree if claims == "both" else ():
        frame["children"][0]["states"]["focused"] = True  # type: ignore[index]
    assert node_at(mapped(tree, platform="linux"), 310, 310) is None
    behind = node_at(mapped(tree, platform="linux"), 310, 550)
    assert behind is None or behind.name != "field"


def test_a_document_without_an_area_does_not_bring_its_window_to_the_front() -> None:
    tree, field = overlapping("frame")
    page = node("document web", (0, 0, 0, 0), name="page", focused=True)
    tree[1]["children"].append(page)  # type: ignore[attr-defined]
    found = node_at(mapped(tree, platform="linux", focused=field), 310, 310)
    assert found is not None
    assert found.name == "field"


def test_an_empty_overlay_in_front_covers_nothing() -> None:
    overlay = node("Window", (0, 0, 1920, 1080), name="overlay")
    button = node("Button", (300, 300, 100, 40), name="below it")
    assert hit([overlay, node("Window", WINDOW, button)], 310, 310) == "below it"


def test_the_bare_desktop_is_no_target() -> None:
    """Recorders list the whole screen as a pane above all windows."""
    tree = [node("Pane", (0, 0, 1920, 1080), node("Window", WINDOW), name="Desktop")]
    assert hit(tree, 1500, 900) is None
    assert hit(tree, 400, 400) is None


def test_what_is_scrolled_out_of_its_pane_is_not_hit() -> None:
    """A page's nodes keep their boxes below the edge of the pane that shows the page."""
    link = node("Link", (200, 600, 100, 20), name="far down the page")
    pane = node("ScrollPane", (120, 120, 700, 300), link, name="page")
    status = node("StatusBar", (100, 590, 800, 60), name="status")
    tree = [node("Window", WINDOW, status, pane)]
    assert hit(tree, 250, 610) == "status"
    link["bbox"]["y"] = 200
    assert hit(tree, 250, 210) == "far down the page"


def test_keys_go_to_the_focused_element_but_never_to_a_window() -> None:
    field = node("Edit", (200, 200, 300, 40), name="Note")
    window = node("Window", WINDOW, field)
    for focused, expected in ((field, "Note"), (window, None), (None, None)):
        found = focused_node(mapped([window], focused=focused))
        assert (found.name if found else None) == expected


def test_a_click_into_a_text_field_finds_the_field_not_its_text() -> None:
    inner = node("Text", (210, 205, 50, 20), name="typed before")
    field = node("Edit", (200, 200, 300, 40), inner, name="Note")
    tree = mapped([node("Window", WINDOW, field, node("Button", (600, 200, 50, 40)))])
    found = text_node_at(tree, 215, 210)
    assert found is not None
    assert found.name == "Note"
    assert text_node_at(tree, 610, 210) is None
    assert text_node_at(tree, 5, 5) is None
