"""Tests of finding the element that received keys, and of leaving it unknown."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.keyboard_focus import FocusEvidence, KeyboardFocus
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_targets import agreement_at
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tree_agreement import Contradiction
from demo_pipeline.recording.logged_scans import LoggedScan
from demo_pipeline_tests.observation.nodes import mapped, name_of, node

SEARCH = node("Edit", (200, 200, 300, 40), name="Search")
NOTE = node("Edit", (200, 300, 300, 40), name="Note")
TEXT = node("Edit", (200, 400, 300, 250), name="Text")
SCREEN = [
    node("Window", (100, 100, 800, 600), SEARCH, NOTE, TEXT, node("Button", (600, 200, 80, 40)))
]
TYPING = Action("type", 10_000, 11_000, [9])
IN_SEARCH = (210, 212, 90, 16)
IN_NOTE = (210, 312, 90, 16)
IN_TEXT = (210, 512, 90, 16)
ELSEWHERE = (1200, 312, 90, 16)


def click(x: float, y: float, at: int) -> Action:
    return Action("click", at, at + 100, [1], x=x, y=y)


def keys(*names: str, at: int) -> Action:
    return Action("hotkey", at, at + 100, [1], keys=list(names))


def pointed_at(tree: StepTree, action: Action) -> Element | None:
    """Returns the element at the position of a pointing action; None for other actions."""
    if action.x is None or action.y is None:
        return None
    return node_at(tree, action.x, action.y)


def meant(
    scanned: int,
    *earlier: Action,
    targets_known: bool = True,
    changes: tuple[float, ...] = (),
    typed: tuple[Any, ...] = (),
    focused: Any = SEARCH,
    screen: Any = SCREEN,
) -> str | None:
    """Returns the name of the element that typing at 10 s went to.

    Args:
        scanned: start of the current scan, milliseconds.
        earlier: actions before the typing.
        targets_known: whether the targets of the earlier actions are known.
        changes: times of large changes of the screen.
        typed: places that changed while the text was typed.
        focused: the element that the scan reports as focused.
        screen: the windows in the scan.
    """
    before = mapped(SCREEN, focused=SEARCH)
    tree = mapped(screen, focused=focused)
    keyboard = KeyboardFocus()
    for action in earlier:
        target = pointed_at(before, action) if targets_known else None
        keyboard.record(action, before, target)
    current = CurrentScan(LoggedScan(1, 0, 0, scanned, 100), TYPING.press_ms - scanned, "stale")
    element, method = keyboard.target(TYPING, tree, current, changes, typed)
    assert (method == "none") == (element is None)
    return name_of(element)


def test_a_scan_after_the_click_knows_the_focus() -> None:
    assert meant(9500, click(620, 220, 8000)) == "Search"
    assert meant(9500) == "Search"


def test_a_click_into_a_field_moves_the_focus_there() -> None:
    assert meant(7000, click(250, 320, 8000)) == "Note"
    assert meant(9500, click(250, 320, 8000), focused=None) == "Note"


def test_a_click_into_what_the_scan_does_not_know_leaves_the_focus_unknown() -> None:
    """A dialog opened after the scan, so the element behind it lost the focus."""
    assert meant(7000, click(620, 220, 8000)) is None
    assert meant(7000, click(250, 320, 8000), targets_known=False) is None


def test_a_dialog_that_opened_since_has_the_keyboard() -> None:
    assert meant(7000, changes=(9000,)) is None
    assert meant(9500, changes=(9000,)) == "Search"


def test_keys_that_move_the_focus_make_an_older_scan_and_the_click_useless() -> None:
    clicked = click(250, 320, 7000)
    for names in (("tab",), ("enter",), ("esc",), ("alt", "tab"), ("ctrl", "f"), ("f6",)):
        assert meant(7500, clicked, keys(*names, at=8000)) is None
        assert meant(9000, keys(*names, at=8000)) == "Search"
    assert meant(7500, clicked, keys("ctrl", "a", at=8000)) == "Note"


def test_typed_text_shows_the_field_after_tab() -> None:
    tab = keys("tab", at=8000)
    assert meant(7500, click(250, 220, 7000), tab, typed=(IN_NOTE,)) == "Note"
    assert meant(7500, click(250, 220, 7000), tab, typed=(IN_NOTE, IN_SEARCH)) is None
    assert meant(7500, click(250, 220, 7000), tab, typed=(IN_TEXT,)) == "Text"


def test_text_that_appeared_elsewhere_was_not_typed_into_the_focus() -> None:
    """The text went to a terminal without a tree, but a scan reports a focus in another window."""
    assert meant(9500, typed=(ELSEWHERE,)) is None
    assert meant(9500, typed=(IN_SEARCH, ELSEWHERE)) == "Search"
    assert meant(7000, click(250, 450, 8000), typed=(IN_TEXT,)) == "Text"


FORM = [
    node(
        "Window",
        (100, 100, 800, 600),
        node(
            "document web",
            (100, 140, 800, 560),
            node("Edit", (200, 200, 300, 40), name="Name", keyboard_focusable=True),
            node("Text", (200, 250, 300, 20), name="Deck"),
            node("RadioButton", (200, 280, 90, 20), name="Upper", keyboard_focusable=True),
            node("RadioButton", (300, 280, 90, 20), name="Lower", keyboard_focusable=True),
            node("CheckBox", (200, 320, 120, 20), name="Bicycle", keyboard_focusable=True),
            node("Button", (200, 360, 80, 30), name="Book", keyboard_focusable=True),
            name="Ferry",
        ),
    )
]


def reached(*pressed: tuple[str, ...], start: tuple[float, float] = (250, 220)) -> str | None:
    """Returns the name of the focused element after a click at `start` and the keys `pressed`.

    The only scan ran before the click.
    """
    tree = mapped(FORM, focused=None)
    keyboard = KeyboardFocus()
    clicked = click(*start, 1000)
    keyboard.record(clicked, tree, node_at(tree, *start))
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    for number, names in enumerate(pressed):
        action = keys(*names, at=2000 + 500 * number)
        element, _ = keyboard.target(action, tree, current, ())
        keyboard.record(action, tree, element)
    element, _ = keyboard.target(TYPING, tree, current, ())
    return name_of(element)


def test_tab_goes_through_a_page_and_knows_no_button_of_a_group() -> None:
    tab = ("tab",)
    back = ("shift", "tab")
    assert reached(tab) is None  # the focus is on the chosen radio button, which is unknown
    assert reached(tab, tab) == "Bicycle"
    assert reached(tab, tab, tab) == "Book"
    assert reached(tab, tab, tab, back) == "Bicycle"
    assert reached(tab, tab, tab, tab) is None  # the focus is on a control of the browser
    assert reached(back) is None


def test_a_clicked_box_has_the_focus_until_a_key_takes_it_away() -> None:
    assert reached(start=(260, 330)) == "Bicycle"
    assert reached(("esc",), start=(260, 330)) is None


def test_enter_in_a_text_of_several_lines_writes_a_line() -> None:
    big = node("Document", (200, 400, 300, 250), name="Text")
    screen = [node("Window", (100, 100, 800, 600), SEARCH, big)]
    tree = mapped(screen)
    keyboard = KeyboardFocus()
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    roles = {tree.raws[n].name: role for n, role in enumerate(tree.roles)}
    for place, name in (((250, 220), "Search"), ((250, 500), "Text")):
        keyboard.record(click(*place, 1000), tree, node_at(tree, *place))
        enter = keys("enter", at=2000)
        keyboard.record(enter, tree, keyboard.target(enter, tree, current, ())[0])
        element, _ = keyboard.target(TYPING, tree, current, ())
        assert (element is not None) == (roles[name] == "textarea")


def test_a_menu_that_was_opened_has_the_keys_not_the_field_behind_it() -> None:
    tree = mapped(SCREEN, focused=SEARCH)
    keyboard = KeyboardFocus()
    menu = Action("right_click", 8000, 8100, [1], x=250, y=220)
    keyboard.record(menu, tree, node_at(tree, 250, 220))
    escape = keys("esc", at=10_000)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    assert keyboard.target(escape, tree, current, ()) == (None, "none")
    keyboard.record(escape, tree, None)
    after = replace(TYPING, press_ms=12_000)
    current = CurrentScan(LoggedScan(1, 0, 0, 11_500, 100), 0, "fresh")
    element, _ = keyboard.target(after, tree, current, ())
    assert element is not None
    assert element.name == "Search"


def test_escape_with_a_dialog_on_the_screen_is_not_meant_for_a_field_outside_it() -> None:
    dialog = node("Dialog", (300, 300, 200, 150), node("Button", (320, 400, 60, 30), name="OK"))
    tree = mapped([*SCREEN, dialog], focused=SEARCH)
    keyboard = KeyboardFocus()
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    assert keyboard.target(keys("esc", at=10_000), tree, current, ()) == (None, "none")
    assert keyboard.target(TYPING, tree, current, ())[1] == "focused"


def test_a_dialog_that_the_tree_lacks_has_the_keys_a_changed_label_does_not() -> None:
    tree = mapped(SCREEN, focused=SEARCH)
    keyboard = KeyboardFocus()
    keyboard.record(click(250, 320, 8000), tree, node_at(tree, 250, 320))
    current = CurrentScan(LoggedScan(1, 0, 0, 7000, 100), 0, "stale")
    label = Contradiction((650, 500, 90, 16), is_popup=False)
    dialog = Contradiction((400, 400, 300, 200), is_popup=True)
    outside = Contradiction((1200, 400, 300, 200), is_popup=True)
    typing_on_tree = (TYPING, tree, current, (), ())
    assert keyboard.target(*typing_on_tree, [label, outside])[1] == "last_click"
    assert keyboard.target(*typing_on_tree, [dialog]) == (None, "none")


def test_a_tree_is_partly_right_when_most_of_it_is_as_in_the_picture_of_a_wait() -> None:
    rows = [node("Text", (200, 200 + 60 * row, 300, 40), name=f"Row {row}") for row in range(5)]
    tree = mapped([node("Window", (100, 100, 800, 600), *rows)])
    keyboard = KeyboardFocus()
    wait = Action("pause", 10_000, 13_000, [9])
    gone = [Contradiction((200, 200 + 60 * row, 300, 40), is_popup=False) for row in range(5)]
    assert agreement_at(wait, tree, None, gone[:2], None, keyboard) == "partial"
    assert agreement_at(wait, tree, None, gone, None, keyboard) == "differs"
    assert agreement_at(TYPING, tree, None, gone[:2], None, keyboard) == "partial"
    assert agreement_at(TYPING, tree, None, gone, None, keyboard) == "differs"
    menu = replace(gone[0], is_popup=True)
    assert agreement_at(TYPING, tree, None, [menu], None, keyboard) == "differs"
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "stale")
    keyboard.target(TYPING, tree, current, (), [ELSEWHERE])
    assert agreement_at(TYPING, tree, None, gone[:2], None, keyboard) == "differs"


def test_a_scan_that_saw_something_new_may_lack_what_was_pressed_there() -> None:
    tree = mapped(SCREEN)
    keyboard = KeyboardFocus()
    news = [Contradiction((400, 600, 300, 90), is_popup=True, is_news=True)]
    pressed = click(550, 650, 10_000)
    beside = click(210, 320, 10_000)
    assert agreement_at(pressed, tree, None, news, None, keyboard) == "differs"
    assert agreement_at(beside, tree, None, news, None, keyboard) == "agrees"


def after(
    screen: Any,
    *done: tuple[Action, Any],
    typed: Any = (),
    contradictions: Any = (),
    at: int = 10_000,
) -> str | None:
    """Returns the name of the element that typing after other actions went to.

    The only scan ran before all actions.

    Args:
        screen: the windows in the scan.
        done: each earlier action with the places of the screen that changed after it.
        typed: places that changed while the text was typed.
        contradictions: places where the screenshot contradicts the scan.
        at: time of the typing, milliseconds.
    """
    tree = mapped(screen, focused=None)
    keyboard = KeyboardFocus()
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    for action, places in done:
        element = pointed_at(tree, action)
        if action.x is None:
            element, _ = keyboard.target(action, tree, current, (), places, ())
        keyboard.record(action, tree, element)
    last = replace(TYPING, press_ms=at, text="x")
    element, _ = keyboard.target(last, tree, current, (), typed, contradictions)
    return name_of(element)


def typing(at: int) -> Action:
    return Action("type", at, at + 100, [1], text="x")


def test_a_status_beside_the_field_that_was_typed_into_is_no_other_field() -> None:
    status = (600, 310, 90, 20)
    button = (600, 400, 90, 30)
    more = [node("Text", status, name="Saved"), node("Button", button, name="Send")]
    screen = [node("Window", (100, 100, 800, 600), SEARCH, NOTE, *more)]
    assert after(screen, typed=(IN_NOTE, (610, 314, 40, 12), (610, 410, 40, 12))) == "Note"
    assert after(screen, typed=(IN_NOTE, (610, 514, 40, 12))) is None
    assert after(screen, typed=((610, 314, 40, 12),)) is None


def test_text_in_a_compared_text_area_was_typed_there_unless_a_dialog_is_in_front() -> None:
    assert after(SCREEN, typed=(IN_TEXT,)) == "Text"
    field = node("Edit", (210, 505, 150, 30), name="Find")
    dialog = node("Window", (200, 450, 200, 150), field)
    assert after([*SCREEN, dialog], typed=(IN_TEXT,)) == "Find"
    assert after([*SCREEN, node("Window", (200, 450, 200, 150))], typed=(IN_TEXT,)) is None


def test_where_text_appeared_tells_the_field_once_a_scan_has_it() -> None:
    lacks = mapped([node("Window", (100, 100, 800, 600), NOTE)])
    keyboard = KeyboardFocus()
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "stale")
    assert keyboard.target(TYPING, lacks, current, (), (IN_SEARCH,), ()) == (None, "none")
    keyboard.record(TYPING, lacks, None)
    tab = keys("tab", at=12_000)
    tree = mapped(SCREEN, focused=None)
    element, method = keyboard.target(tab, tree, current, (), (), ())
    assert element is not None
    assert (element.name, method) == ("Search", "typed")


OPTION = node("ListItem", (200, 230, 200, 20), name="North", keyboard_focusable=True)
CHOICE = node("ComboBox", (200, 200, 200, 30), OPTION, name="Shelf", keyboard_focusable=True)
PARTS = [
    node("Spinner", (200 + 40 * n, 250, 30, 20), name=name, keyboard_focusable=True)
    for n, name in enumerate(("Day", "Month", "Year"))
]
CELLS = [
    node("table cell", (200, 300 + 40 * n, 300, 30), name=f"Row {n}", keyboard_focusable=True)
    for n in range(2)
]
PAGE = [
    node(
        "Window",
        (100, 100, 800, 600),
        node(
            "document web",
            (100, 140, 800, 560),
            CHOICE,
            node("Edit", (195, 245, 140, 30), *PARTS, name="Date", keyboard_focusable=True),
            node("Table", (195, 295, 310, 90), *CELLS, name="Stock"),
            node("Button", (200, 500, 80, 30), name="Store", keyboard_focusable=True),
            name="Stock",
        ),
    )
]
TAB = ("tab",)


def test_a_list_of_choices_gives_the_keys_back_when_it_closes() -> None:
    opened = (click(250, 210, 1000), ())
    down = (keys("down", at=2000), ())
    enter = (keys("enter", at=3000), ())
    assert after(PAGE, opened, down) is None
    assert after(PAGE, opened, down, enter) == "Shelf"
    assert after(PAGE, opened, (typing(2000), ()), enter) is None
    gone = [Contradiction((190, 232, 400, 90), is_popup=True)]  # wider than the opened element
    assert after(PAGE, opened, down, enter, contradictions=gone) == "Shelf"
    dialog = [Contradiction((150, 150, 300, 200), is_popup=True)]
    assert after(PAGE, opened, down, enter, contradictions=dialog) is None
    assert after(PAGE, opened, down, enter, (keys("tab", at=4000), ())) == "Day"


def test_tab_stops_at_the_parts_of_a_date_and_at_cells() -> None:
    start = [(click(250, 210, 1000), ()), (keys("enter", at=2000), ()), (keys("tab", at=3000), ())]
    assert after(PAGE, *start, typed=((202, 252, 20, 16),)) == "Day"
    assert after(PAGE, *start, (typing(4000), ((202, 252, 20, 16),)), at=9000) == "Day"
    assert after(PAGE, *start, *[(keys("tab", at=4000), ())] * 3) == "Row 0"


def test_text_in_a_cell_was_typed_there_whatever_changed_beside_it() -> None:
    changed = [Contradiction((210, 345, 40, 12), is_popup=False)]
    pressed = (click(250, 510, 1000), ())
    typed = ((210, 305, 40, 16),)
    assert after(PAGE, pressed, typed=typed, contradictions=changed) == "Row 0"
    over = [Contradiction((198, 298, 304, 34), is_popup=False)]
    assert after(PAGE, pressed, typed=typed, contradictions=over) is None


def test_escape_goes_to_the_menu_that_was_opened() -> None:
    title = node("Menu", (120, 110, 60, 20), name="Edit")
    popup = node("Menu", (300, 300, 150, 90), node("MenuItem", (300, 300, 150, 30)), name="Row")
    screen = [node("Window", (100, 100, 800, 600), title, SEARCH), popup]
    tree = mapped(screen, focused=SEARCH)
    escape = keys("esc", at=10_000)
    opened = Action("right_click", 8000, 8100, [1], x=620, y=420)
    for done, scanned, name in (
        ([click(140, 120, 8000)], 7000, "Edit"),
        ([click(140, 120, 8000), keys("right", at=9000)], 7000, None),
        ([opened], 9500, "Row"),
        ([opened], 7000, None),
    ):
        keyboard = KeyboardFocus()
        for action in done:
            target = pointed_at(tree, action)
            keyboard.record(action, tree, target)
        current = CurrentScan(LoggedScan(1, 0, 0, scanned, 100), 0, "stale")
        element, _ = keyboard.target(escape, tree, current, ())
        assert name_of(element) == name


def scanned(
    begun: int, focused: Any, *, later: Any = None, alone: bool = True, action: Action = TYPING
) -> str | None:
    """Returns role and name of the element that keys after the current scan went to.

    Args:
        begun: start of the current scan, milliseconds.
        focused: the element that the current scan reports as focused.
        later: the element that a scan after the keys reports as focused; None without such a scan.
        alone: whether no other action lies between the two scans.
        action: the keys.
    """
    tree = mapped(SHEET, focused=focused)
    keyboard = KeyboardFocus()
    keyboard.record(click(620, 220, 8000), tree, node_at(tree, 620, 220))
    current = CurrentScan(LoggedScan(1, 0, 0, begun, 100), 0, "stale")
    evidence = FocusEvidence(
        later=mapped(SHEET, focused=later) if later else None, is_undisturbed=alone
    )
    element, method = keyboard.target(action, tree, current, (), (), (), evidence)
    assert method in {"focused", "none"}
    return f"{element.role} {element.name}" if element else None


CELLS_DRAWN = node("Panel", (150, 300, 700, 300), keyboard_focusable=True)
DOCUMENT = node("document web", (150, 300, 700, 300), name="Page", keyboard_focusable=True)
TALL = node("Edit", (150, 610, 700, 80), name="Text")
SHEET = [
    node(
        "Window",
        (100, 100, 800, 600),
        *(SEARCH, CELLS_DRAWN, TALL),
        node("Button", (600, 200, 80, 40)),
    )
]


def test_the_element_that_two_scans_report_as_focused_had_all_keys_between_them() -> None:
    enter = keys("enter", at=10_000)
    assert scanned(7000, SEARCH) is None
    assert scanned(7000, SEARCH, later=SEARCH, alone=False, action=enter) == "textfield Search"
    assert scanned(7000, SEARCH, later=CELLS_DRAWN, alone=False) is None


def test_a_scan_after_keys_that_move_nothing_tells_where_they_went() -> None:
    enter = keys("enter", at=10_000)
    assert scanned(7000, SEARCH, later=CELLS_DRAWN) == "panel "
    assert scanned(7000, SEARCH, later=CELLS_DRAWN, action=enter) is None
    assert scanned(7000, SEARCH, later=TALL, action=enter) is None  # Enter may have closed a dialog
    assert (
        scanned(7000, SEARCH, later=TALL, action=keys("ctrl", "z", at=10_000)) == "textfield Text"
    )
    assert scanned(7000, SEARCH, later=NOTE) is None  # the current tree does not contain `NOTE`


def test_a_panel_that_draws_its_content_has_the_focus_a_page_does_not() -> None:
    assert scanned(9500, CELLS_DRAWN) == "panel "
    tree = mapped([node("Window", (100, 100, 800, 600), DOCUMENT)], focused=DOCUMENT)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    assert KeyboardFocus().target(TYPING, tree, current, ()) == (None, "none")


def test_buttons_that_can_be_pressed_now_do_not_take_the_focus_from_a_scanned_field() -> None:
    assert meant(9500, typed=((610, 212, 40, 16),)) == "Search"
    assert meant(9500, typed=(ELSEWHERE,)) is None


def pictures(*marked: tuple[int, int, int, int]) -> list[Any]:
    """Returns white screenshots, each with a black focus ring around one of the boxes."""
    screenshots = []
    for x, y, width, height in marked:
        picture = np.full((1080, 1920), 255, np.uint8)
        picture[y - 2 : y + height + 2, x - 2 : x + width + 2] = 0
        picture[y : y + height, x : x + width] = 255
        screenshots.append(picture)
    return screenshots


def test_the_ring_in_the_pictures_tells_what_keys_reached() -> None:
    tree = mapped(FORM, focused=None)
    keyboard = KeyboardFocus()
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    upper = (200, 280, 90, 20)
    lower = (300, 280, 90, 20)
    book = (200, 360, 80, 30)
    had = None
    for pressed, before, now, name in (
        (keys("f6", at=2000), (20, 20, 9, 9), upper, "Upper"),
        (keys("down", at=3000), upper, lower, "Lower"),
        (keys("tab", at=4000), lower, (200, 320, 120, 20), "Bicycle"),  # known by the tab order
        (keys("f6", at=5000), lower, book, "Book"),
        (click(620, 220, 5500), (20, 20, 9, 9), (20, 20, 9, 9), None),
        (keys("f6", at=6000), book, (20, 20, 9, 9), None),
    ):
        keyboard.record(pressed, tree, had)
        old, new = pictures(before, now)
        evidence = FocusEvidence(before=partial(pick, old), now=partial(pick, new))
        had, _ = keyboard.target(TYPING, tree, current, (), (), (), evidence)
        assert name_of(had) == name


def pick(picture: Any) -> Any:
    return picture


def test_the_lit_choice_of_an_open_list_has_the_keys() -> None:
    rows = [node("ListItem", (200, 232 + 20 * n, 200, 18), name=f"Row {n}") for n in range(4)]
    box = node("ComboBox", (200, 200, 200, 30), *rows, name="Shelf", keyboard_focusable=True)
    tree = mapped([node("Window", (100, 100, 800, 600), box)])
    keyboard = KeyboardFocus()
    keyboard.record(click(250, 210, 1000), tree, node_at(tree, 250, 210))
    current = CurrentScan(LoggedScan(1, 0, 0, 1500, 100), 0, "fresh")
    picture = np.full((1080, 1920), 240, np.uint8)
    unlit = keyboard.target(keys("down", at=2000), tree, current, (), evidence=FocusEvidence())
    assert unlit == (None, "none")
    picture[252:270, 200:400] = 90
    evidence = FocusEvidence(now=partial(pick, picture))
    for action in (keys("down", at=2000), keys("enter", at=3000)):
        element, method = keyboard.target(action, tree, current, (), evidence=evidence)
        assert (element and element.name, method) == ("Row 1", "picture")
        keyboard.record(action, tree, element)
    element, _ = keyboard.target(keys("up", at=4000), tree, current, ())
    assert element is not None
    assert element.name == "Shelf"


def test_the_first_of_a_dialog_that_opened_has_the_keys() -> None:
    controls = [
        node("Edit", (320, 320, 100, 30), name="Member", keyboard_focusable=True),
        node("Button", (320, 400, 60, 30), name="OK", keyboard_focusable=True),
    ]
    dialog = node("Dialog", (300, 300, 200, 150), *controls)
    before = mapped(SCREEN)
    tree = mapped([*SCREEN, dialog])
    escape = keys("esc", at=10_000)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    for pressed, is_target_known, clicked_tree, name in (
        ((620, 220), True, before, "Member"),
        ((620, 220), True, tree, None),  # the dialog was open before
        ((620, 220), False, before, "Member"),
        ((330, 410), False, before, None),  # the click may have pressed something in the dialog
    ):
        keyboard = KeyboardFocus()
        clicked = click(*pressed, 8000)
        clicked_element = node_at(clicked_tree, *pressed) if is_target_known else None
        keyboard.record(clicked, clicked_tree, clicked_element)
        element, _ = keyboard.target(escape, tree, current, ())
        assert name_of(element) == name


FILES = node("table", (120, 150, 500, 400), name="Files", keyboard_focusable=True)
FOLDER = node("frame", (100, 100, 540, 500), FILES, name="coast")
EDITOR = node(
    "frame",
    (700, 100, 500, 500),
    node("text", (710, 150, 480, 440), name="Letter", keyboard_focusable=True),
    name="Letter",
)
DESKTOP = [node("application", (0, 0, 0, 0), FOLDER), node("application", (0, 0, 0, 0), EDITOR)]
TERMINAL = (1400, 800)  # a point outside all windows of the tree


def claimed(*done: Action, focused: Any = FILES, typed: Any = (), again: Any = None) -> str | None:
    """Returns the name of the element that typing went to.

    Args:
        done: actions before the typing.
        focused: the element that the scan before the typing reports as focused.
        typed: places that changed while the text was typed.
        again: the element that the scan after the typing reports as focused; by default, `focused`.
    """
    tree = mapped(DESKTOP, platform="linux", focused=FILES)
    keyboard = KeyboardFocus()
    for action in done:
        element = pointed_at(tree, action)
        keyboard.record(action, tree, element)
    now = mapped(DESKTOP, platform="linux", focused=focused)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    evidence = FocusEvidence(later=mapped(DESKTOP, platform="linux", focused=again or focused))
    element, _ = keyboard.target(TYPING, now, current, (), typed, (), evidence)
    return name_of(element)


def test_keys_into_a_terminal_without_a_tree_are_not_given_to_the_window_that_was_left() -> None:
    letter = EDITOR["children"][0]
    at_terminal = click(*TERMINAL, 8000)
    assert claimed() == "Files"
    assert claimed(at_terminal) is None
    assert claimed(at_terminal, focused=letter) is None
    assert claimed(at_terminal, click(300, 300, 9000)) == "Files"
    assert claimed(at_terminal, click(800, 300, 9000), focused=letter) == "Letter"


def test_after_a_switch_of_windows_what_scans_call_focused_may_have_been_left() -> None:
    for names in (("alt", "tab"), ("alt", "f4"), ("ctrl", "alt", "t"), ("win", "d")):
        expected = "Files" if names == ("alt", "f4") else None  # the window of Files is still open
        assert claimed(keys(*names, at=8000)) == expected


def test_a_dialog_that_opened_after_a_switch_of_windows_has_the_keys() -> None:
    tree = mapped(DESKTOP, platform="linux", focused=FILES)
    keyboard = KeyboardFocus()
    keyboard.record(click(*TERMINAL, 8000), tree, None)
    field = node("text", (320, 320, 100, 30), name="Find", keyboard_focusable=True)
    dialog = node("dialog", (300, 300, 200, 150), field, name="Find")
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    opened = mapped([*DESKTOP, dialog], platform="linux", focused=field)
    element, _ = keyboard.target(TYPING, opened, current, ())
    assert element is not None
    assert element.name == "Find"


def test_text_in_front_of_a_table_was_not_typed_into_it() -> None:
    in_terminal = (200, 300, 90, 16)
    assert claimed(typed=(in_terminal,)) is None


def test_two_scans_around_a_new_window_do_not_agree() -> None:
    dialog = node("dialog", (300, 300, 200, 150), name="Find")
    tree = mapped(DESKTOP, platform="linux", focused=FILES)
    later = mapped([*DESKTOP, dialog], platform="linux", focused=FILES)
    current = CurrentScan(LoggedScan(1, 0, 0, 7000, 100), 0, "stale")
    for after_scan, name in ((later, None), (tree, "Files")):
        keyboard = KeyboardFocus()
        keyboard.record(keys("f5", at=8000), tree, None)
        element, _ = keyboard.target(
            TYPING, tree, current, (), (), (), FocusEvidence(later=after_scan)
        )
        assert name_of(element) == name


ITEMS = [node("menu item", (180, 44 + 25 * n, 300, 25), name=f"Item {n}") for n in range(4)]
SUBMENU = node(
    "menu",
    (180, 144, 300, 25),
    *(node("menu item", (480, 144 + 25 * n, 150, 25), name=f"Sub {n}") for n in range(3)),
    name="Text",
)
FORMAT = node("menu", (180, 19, 60, 25), *ITEMS, SUBMENU, name="Format")
MENU_OPEN = [node("frame", (0, 0, 800, 600), FORMAT, node("text", (0, 200, 800, 300), name="T"))]


def test_a_menu_that_keys_opened_has_the_keys_by_its_lit_item() -> None:
    text = MENU_OPEN[0]["children"][1]
    tree = mapped(MENU_OPEN, platform="linux", focused=text)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    for rows, name in (
        (slice(69, 94), "Item 1"),
        (slice(144, 169), "Text"),  # the title of an open submenu without a highlighted item
        (slice(0, 0), None),
    ):
        picture = np.full((1080, 1920), 255, np.uint8)
        picture[rows, 180:480] = 90
        keyboard = KeyboardFocus()
        keyboard.record(keys("alt", "o", at=8000), tree, None)
        evidence = FocusEvidence(now=partial(pick, picture), later=tree)
        element, _ = keyboard.target(keys("down", at=10_000), tree, current, (), evidence=evidence)
        assert name_of(element) == name


def test_alt_and_a_letter_without_a_menu_leave_the_keys_where_they_were() -> None:
    field = node("text", (0, 200, 800, 300), name="T", keyboard_focusable=True)
    tree = mapped([node("frame", (0, 0, 800, 600), field)], platform="linux", focused=field)
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 0, "fresh")
    keyboard = KeyboardFocus()
    keyboard.record(keys("alt", "o", at=8000), tree, None)
    element, _ = keyboard.target(TYPING, tree, current, ())
    assert element is not None
    assert element.name == "T"


def test_the_edge_of_what_opened_over_an_element_is_no_ring() -> None:
    tree = mapped(FORM, focused=None)
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    old, new = pictures((20, 20, 9, 9), (200, 360, 80, 30))
    evidence = FocusEvidence(before=partial(pick, old), now=partial(pick, new))
    opened = Contradiction((190, 350, 300, 200), is_popup=True)
    for contradictions, name in (((), "Book"), ((opened,), None)):
        keyboard = KeyboardFocus()
        keyboard.record(keys("f6", at=2000), tree, None)
        element, _ = keyboard.target(TYPING, tree, current, (), (), contradictions, evidence)
        assert name_of(element) == name


def test_a_button_that_is_framed_because_it_is_on_has_no_ring() -> None:
    """Toolbar buttons are framed to show the format at the text cursor, but receive no text."""
    bold = node("push button", (200, 360, 80, 30), name="Bold", keyboard_focusable=True)
    current = CurrentScan(LoggedScan(1, 0, 0, 500, 100), 0, "stale")
    old, new = pictures((20, 20, 9, 9), (200, 360, 80, 30))
    evidence = FocusEvidence(before=partial(pick, old), now=partial(pick, new))
    down = keys("down", at=10_000)
    text = replace(TYPING, text="Rope")
    for role, action, name in (
        ("panel", down, "Bold"),
        ("tool bar", down, None),
        ("panel", text, None),
    ):
        bar = node(role, (150, 350, 400, 60), bold)
        tree = mapped([node("frame", (100, 100, 800, 600), bar)], platform="linux")
        keyboard = KeyboardFocus()
        keyboard.record(keys("f6", at=2000), tree, None)
        element, _ = keyboard.target(action, tree, current, (), (), (), evidence)
        assert name_of(element) == name
