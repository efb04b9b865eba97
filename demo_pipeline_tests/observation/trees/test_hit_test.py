"""Tests of the hit test, which finds the element of a tree at which an action was aimed."""

import pytest

from demo_pipeline.observation.trees.hit_test import (
    focused_node,
    node_at,
    text_node_around,
)
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline_tests.observation.nodes import mapped, name_of, node

WINDOW = (100, 100, 800, 600)
SCREEN = (0, 0, 1920, 1080)


def hit(tree: list, x: float, y: float) -> str | None:
    return name_at(mapped(tree), x, y)


def name_at(tree: StepTree, x: float, y: float, front: int | None = None) -> str | None:
    element = node_at(tree, x, y, front)
    return name_of(element)


def position_of(tree: StepTree, name: str) -> int:
    return next(node for node in range(len(tree)) if tree.raws[node].name == name)


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
    visible = node("Button", (290, 290, 50, 50), name="visible")
    assert hit([node("Window", WINDOW, hidden, empty, visible)], 305, 305) == "visible"


def test_windows_and_what_fills_them_are_no_targets() -> None:
    tree = [node("Window", WINDOW, node("Pane", (102, 102, 797, 597), name="client area"))]
    assert hit(tree, 400, 400) is None


def overlapping(role: str) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Returns the windows of a tree, and the field of the window in front.

    The front window, of the given role, covers a window with a list row that is smaller than the
    field.
    """
    row = node("ListItem", (300, 300, 200, 20), name="covered row")
    field = node("Edit", (280, 290, 400, 60), name="field")
    dialog = node(role, (250, 250, 500, 200), field, name="dialog")
    return [dialog, node(role, WINDOW, row, name="behind")], field


def test_elements_behind_another_window_are_not_hit() -> None:
    tree, _ = overlapping("Window")
    for order, expected in ((tree, "field"), (tree[::-1], "covered row")):
        assert hit([node("Pane", SCREEN, *order, name="Desktop")], 310, 310) == expected
        applications = [node("AXApplication", (0, 0, 0, 0), window) for window in order]
        assert hit(applications, 310, 310) == expected


def test_the_order_of_windows_at_the_top_of_a_windows_scan_means_nothing() -> None:
    """The recorder lists the windows in the order in which their scans end.

    Therefore, only the recorder's own hit test shows which window is in front.
    """
    tree, field = overlapping("Window")
    row = tree[1]["children"][0]  # type: ignore[index]
    away = node("Button", (0, 0, 9, 9))
    for order in (tree, tree[::-1]):
        assert name_at(mapped(order, cursor=(5, 5, away)), 310, 310) is None
        assert name_at(mapped(order, focused=field), 310, 310) is None
        assert name_at(mapped(order, cursor=(300, 300, field)), 310, 310) == "field"
        assert name_at(mapped(order, cursor=(300, 300, row), focused=field), 310, 310) == (
            "covered row"
        )


def test_a_recorder_without_hit_tests_lists_windows_from_front_to_back() -> None:
    tree, _ = overlapping("Window")
    assert hit(tree, 310, 310) == "field"
    assert hit(tree[::-1], 310, 310) == "covered row"


def test_the_recorders_hit_test_elsewhere_does_not_tell_which_window_is_in_front() -> None:
    tree, _ = overlapping("Window")
    row = node("ListItem", (300, 150, 200, 20), name="row above the dialog")
    tree[1]["children"].append(row)  # type: ignore[attr-defined]
    assert name_at(mapped(tree, cursor=(310, 160, row)), 310, 310) is None


def test_an_icon_of_the_desktop_is_hit_only_where_no_window_covers_it() -> None:
    icon = node("ListItem", (300, 300, 76, 90), name="Recycle Bin")
    desktop = node("Pane", SCREEN, node("List", SCREEN, icon), name="Program Manager")
    text = node("Edit", (250, 250, 400, 300), name="text")
    for role in ("Window", "Pane"):
        editor = node(role, (240, 200, 500, 400), text, name="Notes")
        for order in ([editor, desktop], [desktop, editor]):
            assert hit(order, 310, 310) == "text"
            assert hit([desktop, node(role, WINDOW, name="game")], 310, 310) == "Recycle Bin"
            text["bbox"]["x"] = 400  # moves the editor's text away from the tested point
            assert hit(order, 310, 310) is None
            text["bbox"]["x"] = 250
    assert hit([desktop], 310, 310) == "Recycle Bin"


def test_a_pane_at_the_top_of_a_windows_scan_is_a_window() -> None:
    """Browsers, the taskbar, and menus without a name are listed as such panes."""
    link = node("Hyperlink", (500, 400, 120, 18), name="Terms")
    taskbar = node("Pane", (0, 1040, 1920, 40), node("Button", (0, 1040, 48, 40), name="Start"))
    browser = node("Pane", (0, 0, 1920, 1040), node("Document", (0, 90, 1920, 950), link))
    browser["name"] = "Tickets"
    text = node("Edit", (450, 300, 600, 300), name="note")
    notes = node("Window", (400, 200, 700, 500), text, name="Notes")
    for order, first in (([browser, notes], "Terms"), ([notes, browser], "note")):
        assert hit(order, 510, 405) == first
        assert name_at(mapped(order, cursor=(5, 5, taskbar)), 510, 405) is None
        tree = mapped(order, focused=text)
        assert name_at(tree, 510, 405, position_of(tree, "Notes")) == "note"
        assert name_at(tree, 510, 405, position_of(tree, "Tickets")) == "Terms"
    assert hit([browser], 1800, 1000) != "Tickets"
    assert hit([browser, taskbar], 10, 1050) == "Start"
    assert hit([browser, taskbar], 900, 1050) is None


def test_a_menu_without_a_name_may_cover_the_window_with_the_focus() -> None:
    button = node("Button", (300, 300, 200, 60), name="below the menu")
    entry = node("MenuItem", (310, 310, 300, 24), name="Copy")
    menu = node("Pane", (305, 305, 310, 200), entry)
    tree = [node("Window", WINDOW, button, name="Editor"), menu]
    assert name_at(mapped(tree, focused=button), 320, 320) is None
    assert name_at(mapped(tree, focused=button, cursor=(320, 320, entry)), 320, 320) == "Copy"
    assert name_at(mapped(tree, focused=button), 301, 301) == "below the menu"


@pytest.mark.parametrize("role", ["Window", "frame"])
def test_the_window_that_the_picture_shows_is_in_front_whatever_the_tree_says(role: str) -> None:
    """The focus proves nothing, because recorders also report a focus in windows behind others."""
    boxes, field = overlapping(role)
    for order in (boxes, boxes[::-1]):
        tree = mapped([node("Pane", SCREEN, *order, name="Desktop")], focused=field)
        assert name_at(tree, 310, 310, position_of(tree, "dialog")) == "field"
        assert name_at(tree, 310, 310, position_of(tree, "behind")) == "covered row"


@pytest.mark.parametrize("claims", ["nobody", "one", "both"])
def test_with_two_windows_and_no_sign_of_the_front_one_there_is_no_target(claims: str) -> None:
    tree, _ = overlapping("frame")
    for frame in tree[: {"nobody": 0, "one": 1, "both": 2}[claims]]:
        frame["children"][0]["states"]["focused"] = True  # type: ignore[index]
    assert node_at(mapped(tree, platform="linux"), 310, 310) is None
    behind = node_at(mapped(tree, platform="linux"), 310, 550)
    assert behind is None or behind.name != "field"


def test_the_bare_part_of_a_window_may_cover_another_one() -> None:
    """For example, the title bar of a dialog has no element in AT-SPI, but covers other windows."""
    dialog = node("frame", (250, 250, 500, 200), node("Edit", (280, 290, 400, 60), name="field"))
    row = node("ListItem", (260, 255, 200, 20), name="row")
    tree = mapped([node("frame", WINDOW, row), dialog], platform="linux")
    assert name_at(tree, 270, 260) is None
    assert name_at(tree, 270, 260, position_of(tree, "row") - 1) == "row"


def test_an_empty_overlay_in_front_covers_nothing() -> None:
    overlay = node("Window", (0, 0, 1920, 1080), name="overlay")
    button = node("Button", (300, 300, 100, 40), name="below it")
    assert hit([overlay, node("Window", WINDOW, button)], 310, 310) == "below it"


def test_the_bare_desktop_is_no_target() -> None:
    """Recorders list the whole screen as a pane around all windows."""
    tree = [node("Pane", (0, 0, 1920, 1080), node("Window", WINDOW), name="Desktop")]
    assert hit(tree, 1500, 900) is None
    assert hit(tree, 400, 400) is None


def test_elements_scrolled_out_of_their_pane_are_not_hit() -> None:
    """The elements of a page keep their boxes even outside the pane that shows the page."""
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
        element = focused_node(mapped([window], focused=focused))
        assert name_of(element) == expected


def test_the_field_around_typed_text_is_a_text_field_the_text_is_none() -> None:
    inner = node("Text", (210, 205, 50, 20), name="typed before")
    field = node("Edit", (200, 200, 300, 40), inner, name="Note")
    tree = mapped([node("Window", WINDOW, field, node("Button", (600, 200, 50, 40)))])
    text = node_at(tree, 215, 210)
    button = node_at(tree, 610, 210)
    assert text is not None
    assert button is not None
    element = text_node_around(tree, text)
    assert element is not None
    assert element.name == "Note"
    assert text_node_around(tree, button) is None


def test_a_menu_item_is_in_front_of_a_smaller_button_below_it() -> None:
    """The menu item belongs to the menu bar, and the button below it belongs to the toolbar."""
    tool = node("Button", (320, 260, 30, 30), name="Cut")
    entry = node("MenuItem", (300, 250, 200, 40), name="Reload")
    menus = node("MenuBar", (100, 100, 800, 25), node("Menu", (300, 100, 50, 25), entry, name="V"))
    bar = node("ToolBar", (100, 255, 800, 40), tool)
    for order in ([menus, bar], [bar, menus]):
        assert hit([node("Window", WINDOW, *order)], 330, 270) == "Reload"
    assert hit([node("Window", WINDOW, bar)], 330, 270) == "Cut"


def test_a_submenu_is_in_front_of_the_menu_it_belongs_to() -> None:
    eight = node("MenuItem", (380, 250, 120, 40), name="8 columns")
    sub = node("Menu", (300, 250, 100, 30), eight, name="Tab size")
    plain = node("MenuItem", (370, 255, 40, 30), name="Plain")
    menu = node("Menu", (300, 100, 50, 25), sub, plain, name="Document")
    assert hit([node("Window", WINDOW, menu)], 390, 260) == "8 columns"


def test_an_option_is_in_front_of_what_its_list_covers() -> None:
    option = node("ListItem", (300, 250, 200, 30), name="Kiel")
    box = node("ComboBox", (300, 200, 200, 30), node("List", (300, 230, 200, 300), option))
    small = node("CheckBox", (310, 255, 20, 20), name="Seats only")
    assert hit([node("Window", WINDOW, box, small)], 315, 260) == "Kiel"


def test_between_branches_that_nothing_tells_apart_there_is_no_target() -> None:
    """The smaller element comes first and sticks out of the other, so either may be in front."""
    small = node("Button", (300, 300, 60, 30), name="small")
    large = node("Button", (320, 290, 300, 60), name="large")
    assert hit([node("Window", WINDOW, small, large)], 330, 310) is None
    assert hit([node("Window", WINDOW, large, small)], 330, 310) == "small"


def test_a_label_inside_a_control_that_it_is_no_part_of_may_be_scrolled_away_behind_it() -> None:
    title = node("Text", (320, 305, 80, 20), name="Redstart")
    search = node("Edit", (300, 300, 300, 30), name="Find")
    assert hit([node("Window", WINDOW, search, title)], 330, 310) is None
    assert hit([node("Window", WINDOW, search, title)], 500, 310) == "Find"
    inner = node("Edit", (300, 300, 300, 30), title, name="Find")
    assert hit([node("Window", WINDOW, inner)], 330, 310) == "Redstart"


def test_an_element_without_a_name_stands_for_the_control_around_it() -> None:
    picture = node("Image", (310, 310, 20, 20))
    button = node("Button", (300, 300, 100, 40), picture, name="Save")
    group = node("Group", (200, 200, 600, 300), picture, name="Toolbox")
    assert hit([node("Window", WINDOW, button)], 315, 315) == "Save"
    assert hit([node("Window", WINDOW, group)], 315, 315) is None
    assert hit([node("Window", WINDOW, node("Group", (200, 200, 600, 300)))], 315, 315) is None
    assert hit([node("Window", WINDOW, node("Edit", (300, 300, 100, 40)))], 315, 315) == ""


def test_a_whole_page_is_scrolled_but_not_clicked() -> None:
    blank = node("Group", (130, 130, 600, 2000))
    page = node("Document", (120, 120, 700, 500), blank, name="News")
    tree = mapped([node("Window", WINDOW, page)])
    assert node_at(tree, 200, 200) is None
    element = node_at(tree, 200, 200, of_scroll=True)
    assert element is not None
    assert element.name == "News"


def test_a_menu_is_open_over_the_pane_that_holds_its_title() -> None:
    """LibreOffice has its menu bar in a scroll pane, which does not clip the open menu.

    In contrast, a menu of a page is clipped by the page.
    """
    for pane, expected in (("scroll pane", "Insert Table..."), ("document web", "Form")):
        item = node("menu item", (300, 125, 340, 25), name="Insert Table...")
        title = node("menu", (300, 100, 50, 25), item, name="Table")
        bar = node("menu bar", (100, 100, 800, 25), title)
        form = node("label", (320, 125, 45, 19), name="Form")
        window = node("frame", WINDOW, node(pane, (100, 100, 800, 25), bar), form)
        assert hit([window], 330, 135) == expected


def test_elements_scrolled_below_a_pane_are_not_hit() -> None:
    row = node("label", (300, 320, 200, 20), name="scrolled away")
    pane = node("scroll pane", (300, 200, 300, 100), row)
    assert hit([node("frame", WINDOW, pane)], 310, 330) is None


def test_a_button_that_the_border_of_its_page_cuts_is_hit_on_the_border() -> None:
    button = node("push button", (300, 690, 100, 40), name="Add offer")
    page = node("document web", (100, 100, 800, 600), button, name="page")
    tree = [node("frame", (90, 90, 900, 700), page, name="browser")]
    assert hit(tree, 350, 699) == "Add offer"
    assert hit(tree, 350, 700) == "Add offer"  # scaled boxes are rounded
    assert hit(tree, 350, 703) is None


def test_a_paragraph_of_an_editor_is_a_target_with_its_text() -> None:
    paragraph = node("paragraph", (150, 200, 700, 20))
    paragraph["value"] = "Rowing club"
    empty = node("paragraph", (150, 230, 700, 20))
    text = node("document text", (120, 120, 760, 560), paragraph, empty, name="lines.txt")
    tree = [node("frame", WINDOW, text, name="Writer")]
    assert hit(tree, 200, 210) == "Rowing club"
    assert hit(tree, 200, 240) is None


def test_titles_of_a_menu_bar_without_height_are_not_on_the_screen() -> None:
    button = node("push button", (310, 125, 35, 35), name="Print")
    for height, expected in ((0, "Print"), (19, "Format")):
        title = node("menu", (300, 125, 58, 19), name="Format")
        bar = node("menu bar", (100, 125, 800, height), title)
        window = node("frame", WINDOW, bar, node("tool bar", (100, 125, 800, 39), button))
        assert hit([window], 320, 135) == expected


def test_the_thumb_stands_for_the_slider_or_scroll_bar_around_it() -> None:
    for role, expected in (("Slider", "Brightness"), ("ScrollBar", "Brightness"), ("Header", None)):
        thumb = node("Thumb", (340, 300, 20, 20), name="Position")
        track = node(role, (300, 300, 200, 20), thumb, name="Brightness")
        assert hit([node("Window", WINDOW, track)], 345, 305) == expected
