"""A note in Mousepad: typing, selecting by keys and by a drag, a menu, find and replace, saving."""

from pathlib import Path

import programs
from desktop import Desktop
from hand import Hand
from replayed_scenario import ReplayedScenario
from widgets import find

_EDITOR = "mousepad"
_BEGINNING = "Packing list\n\nkitchen: pans\nstudy: books\n"


def _prepare(desktop: Desktop) -> None:
    note = desktop.home / "note.txt"
    note.write_text(_BEGINNING)
    desktop.start(_EDITOR, "--disable-server", str(note), folder=desktop.home)
    programs.maximise(programs.wait_for_window(_EDITOR))


def _note(home: Path) -> dict[str, str]:
    return {"note.txt": (home / "note.txt").read_text("utf-8")}


def _run(hand: Hand) -> None:
    hand.click(find(_EDITOR, "text"), dy=120)
    hand.press("Control_L", "End")
    hand.type("cellar: wine, 12 bottles")
    hand.press("Return")
    hand.type("hall: coats", rollover=True)
    hand.press("Return")
    hand.press("Up")
    hand.press("Shift_L", "End")
    hand.press("Control_L", "c")
    hand.press("Control_L", "End")
    hand.press("Control_L", "v")
    hand.type(" (a secon\b\bond box)")
    hand.press("Return")
    hand.click(find(_EDITOR, "menu", "Search"))
    hand.click(find(_EDITOR, "menu item", "Find and Replace"))
    hand.rest(0.8)
    hand.type("books")
    hand.press("Tab")
    hand.type("papers")
    hand.click(find(_EDITOR, "push button", "Replace", exact=True, pick=-1))
    hand.press("Escape")
    hand.press("Control_L", "Home")
    for _ in range(8):
        hand.press("Right", pause=(0.08, 0.12))
    hand.type("day ")
    hand.press("Control_L", "s")
    hand.rest(0.5)


SCENARIO = ReplayedScenario(
    title="Complete the packing list",
    app="Mousepad",
    objectives=["Add the cellar and the hall", "Replace books by papers", "Save the note"],
    content="Complete the packing list in Mousepad, replace the books by papers and save it.",
    prepare=_prepare,
    run=_run,
    width=1366,
    height=768,
    fps=10,
    end_state=_note,
    wanted={
        "note.txt": "Packing day list\n\nkitchen: pans\nstudy: papers\n"
        "cellar: wine, 12 bottles\nhall: coats\nhall: coats (a second box)\n",
    },
)
