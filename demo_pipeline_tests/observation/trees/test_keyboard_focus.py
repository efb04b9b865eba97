"""Which element keys were meant for, and when that is not known."""

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.keyboard_focus import KeyboardFocus
from demo_pipeline.observation.trees.scans import CurrentScan, LoggedScan
from demo_pipeline_tests.observation.nodes import mapped, node

SEARCH = node("Edit", (200, 200, 300, 40), name="Search")
NOTE = node("Edit", (200, 300, 300, 40), name="Note")
SCREEN = [node("Window", (100, 100, 800, 600), SEARCH, NOTE, node("Button", (600, 200, 80, 40)))]
TYPING = Action("type", 10_000, 11_000, [9])


def click(x: float, y: float, at: int) -> Action:
    return Action("click", at, at + 100, [1], x=x, y=y)


def meant(
    scanned: int, *clicks: Action, known: bool = True, changes: tuple[float, ...] = ()
) -> str | None:
    """Name of the element that typing at 10 s goes to; the scan at `scanned` saw Search focused."""
    tree = mapped(SCREEN, focused=SEARCH)
    keyboard = KeyboardFocus()
    for action in clicks:
        keyboard.record_click(action, target_known=known)
    force = CurrentScan(LoggedScan(1, 0, 0, scanned, 100), TYPING.press_ms - scanned - 100, "stale")
    found, method = keyboard.target(TYPING, tree, force, changes)
    assert (method == "none") == (found is None)
    return found.name if found else None


def test_a_scan_after_the_click_knows_the_focus() -> None:
    assert meant(9500, click(250, 220, 8000)) == "Search"
    assert meant(9500) == "Search"


def test_a_click_after_the_scan_moves_the_focus() -> None:
    assert meant(7000, click(250, 320, 8000)) == "Note"


def test_a_scan_amid_the_click_may_not_know_yet() -> None:
    assert meant(8150, click(250, 320, 8000)) == "Note"


def test_a_click_into_what_the_scan_does_not_know_leaves_the_focus_unknown() -> None:
    """A field of a dialog that opened since: what had the focus behind it has it no more."""
    assert meant(7000, click(620, 220, 8000)) is None
    assert meant(7000, click(250, 320, 8000), known=False) is None


def test_a_dialog_that_opened_since_has_the_keyboard() -> None:
    assert meant(7000, changes=(9000,)) is None
    assert meant(9500, changes=(9000,)) == "Search"


def test_what_a_click_opened_itself_keeps_the_focus_it_gave() -> None:
    assert meant(7000, click(250, 320, 8000), changes=(8300,)) == "Note"
