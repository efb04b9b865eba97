"""The window in front when the tree does not say which: the one that was clicked last."""

from typing import Any

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.clicked_window import ClickedWindow
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline_tests.observation.nodes import mapped, node

# Two frames that overlap; only the editor is at (950, 400), both are at (600, 400).
EDITOR, PAGE = (500, 200, 600, 500), (100, 100, 700, 500)
TEXT = node("text", (510, 300, 580, 390), name="Text")
SAVE = node("push button", (900, 210, 100, 30), name="Save")
VIEW = node("menu item", (900, 250, 100, 30), name="View")
LINK = node("link", (560, 390, 80, 30), name="Link")
NEXT = Action("click", 20_000, 20_100, [9], x=600, y=400)
CLICK = Action("click", 10_000, 10_100, [1], x=950, y=400)


def screen(*others: Any) -> StepTree:
    editor, page = node("frame", EDITOR, TEXT, SAVE, VIEW), node("frame", PAGE, LINK)
    return mapped([page, editor, *others], platform="linux")


def aimed_at(
    *actions: Action, tree: StepTree | None = None, changes: tuple[float, ...] = ()
) -> str | None:
    """Name of what the next click is aimed at, after some actions on the screen."""
    clicked, before = ClickedWindow(), screen()
    for action in actions:
        on = action.x is not None and action.y is not None
        clicked.record(
            action, before, node_at(before, action.x or 0, action.y or 0) if on else None
        )
    now = before if tree is None else tree
    found = node_at(now, 600, 400, clicked.in_tree(NEXT, now, changes))
    return found.name if found else None


def on(x: float, y: float, action_type: str = "click") -> Action:
    return Action(action_type, 10_000, 10_100, [1], x=x, y=y)


def test_the_window_that_was_clicked_is_in_front() -> None:
    assert aimed_at() is None
    assert aimed_at(CLICK) == "Text"
    assert aimed_at(on(150, 550), CLICK) == "Text"


def test_typing_and_scrolling_leave_the_window_in_front() -> None:
    typed = Action("type", 11_000, 12_000, [2])
    assert aimed_at(CLICK, typed, on(300, 300, "scroll")) == "Text"


def test_keys_a_drag_and_a_click_on_nothing_known_leave_it_open() -> None:
    """Alt+Tab, a moved window, a task bar that is not in the tree."""
    for doing in (Action("hotkey", 11_000, 11_100, [2]), on(950, 400, "drag"), on(1500, 900)):
        assert aimed_at(CLICK, doing) is None


def test_a_window_that_opened_since_may_be_in_front() -> None:
    opened = node("frame", (550, 350, 200, 200), node("link", (590, 390, 40, 40), name="Other"))
    assert aimed_at(CLICK, tree=screen(opened)) is None


def test_a_large_change_after_the_click_may_have_raised_another_window() -> None:
    assert aimed_at(on(950, 220), changes=(10_500.0,)) is None
    assert aimed_at(on(950, 220), changes=(9_000.0,)) == "Text"


def test_a_menu_that_closes_is_a_large_change_that_raises_nothing() -> None:
    assert aimed_at(on(950, 265), changes=(10_500.0,)) == "Text"
