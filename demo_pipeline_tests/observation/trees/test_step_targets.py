"""Which element keys were meant for, and when that is not known."""

from typing import Any

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.scans import CurrentScan, LoggedScan
from demo_pipeline.observation.trees.step_targets import KeyboardFocus
from demo_pipeline_tests.observation.nodes import mapped, node

SEARCH = node("Edit", (200, 200, 300, 40), name="Search")
NOTE = node("Edit", (200, 300, 300, 40), name="Note")
TEXT = node("Edit", (200, 400, 300, 250), name="Text")
SCREEN = [
    node("Window", (100, 100, 800, 600), SEARCH, NOTE, TEXT, node("Button", (600, 200, 80, 40)))
]
TYPING = Action("type", 10_000, 11_000, [9])
IN_SEARCH, IN_NOTE, IN_TEXT = (210, 212, 90, 16), (210, 312, 90, 16), (210, 512, 90, 16)
ELSEWHERE = (1200, 312, 90, 16)


def click(x: float, y: float, at: int) -> Action:
    return Action("click", at, at + 100, [1], x=x, y=y)


def keys(*names: str, at: int) -> Action:
    return Action("hotkey", at, at + 100, [1], keys=list(names))


def meant(
    scanned: int,
    *earlier: Action,
    known: bool = True,
    changes: tuple[float, ...] = (),
    typed: tuple[Any, ...] = (),
    focused: Any = SEARCH,
    screen: Any = SCREEN,
) -> str | None:
    """Name of the element that typing at 10 s goes to; the scan at `scanned` saw `focused`."""
    before, tree = mapped(SCREEN, focused=SEARCH), mapped(screen, focused=focused)
    keyboard = KeyboardFocus()
    for action in earlier:
        target = None
        if known and action.x is not None and action.y is not None:
            target = node_at(before, action.x, action.y)
        keyboard.record(action, before, target)
    current = CurrentScan(LoggedScan(1, 0, 0, scanned, 100), TYPING.press_ms - scanned, "stale")
    found, method = keyboard.target(TYPING, tree, current, changes, typed)
    assert (method == "none") == (found is None)
    return found.name if found else None


def test_a_scan_after_the_click_knows_the_focus() -> None:
    assert meant(9500, click(620, 220, 8000)) == "Search"
    assert meant(9500) == "Search"


def test_a_click_into_a_field_moves_the_focus_there() -> None:
    assert meant(7000, click(250, 320, 8000)) == "Note"
    assert meant(9500, click(250, 320, 8000), focused=None) == "Note"


def test_a_scan_amid_the_click_may_not_know_yet() -> None:
    assert meant(8150, click(620, 220, 8000)) is None


def test_a_click_into_what_the_scan_does_not_know_leaves_the_focus_unknown() -> None:
    """A field of a dialog that opened since: what had the focus behind it has it no more."""
    assert meant(7000, click(620, 220, 8000)) is None
    assert meant(7000, click(250, 320, 8000), known=False) is None


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
    assert meant(7500, click(250, 220, 7000), tab, typed=(IN_TEXT,)) is None  # a menu may be there


def test_text_that_appeared_elsewhere_was_not_typed_into_the_focus() -> None:
    """A terminal without accessibility beside a window that claims the focus."""
    assert meant(9500, typed=(ELSEWHERE,)) is None
    assert meant(9500, typed=(IN_SEARCH, ELSEWHERE)) == "Search"
    assert meant(7000, click(250, 450, 8000), typed=(IN_TEXT,)) == "Text"


def test_a_click_on_nothing_in_the_tree_leaves_no_focus_in_a_later_scan() -> None:
    outside = click(1500, 900, 8000)
    assert meant(9500, outside) is None
    assert meant(9500, outside, click(620, 220, 8500)) == "Search"
    opened = node("Window", (900, 100, 300, 200), field := node("Edit", (950, 150, 100, 30)))
    field["name"] = "Street"
    assert meant(9500, outside, screen=[*SCREEN, opened], focused=field) == "Street"


def test_the_focus_of_another_window_than_the_clicked_one_is_left_over() -> None:
    other = node("Window", (1000, 100, 300, 600), field := node("Edit", (1050, 150, 100, 30)))
    before = mapped([*SCREEN, other])
    keyboard = KeyboardFocus()
    keyboard.record(click(620, 220, 8000), before, node_at(before, 620, 220))
    current = CurrentScan(LoggedScan(1, 0, 0, 9500, 100), 400, "fresh")
    for focused, name in ((field, None), (NOTE, "Note")):
        tree = mapped([*SCREEN, other], focused=focused)
        found, _ = keyboard.target(TYPING, tree, current, ())
        assert (found.name if found else None) == name
