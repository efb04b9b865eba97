"""A page in Chromium: menus that open under a resting pointer, drag and drop, a form."""

import subprocess
from pathlib import Path

import programs
from desktop import Desktop
from hand import Hand
from replayed_scenario import ReplayedScenario
from widgets import Widget, find

_PAGES = Path(__file__).with_name("pages")
_BROWSER = "chromium"


def _prepare(desktop: Desktop) -> None:
    programs.chromium(desktop, "moving_day.html", 20, 20, 1300, 840, _PAGES)


def _page_state(_home: Path) -> dict[str, str]:
    """The values that the page keeps in its title."""
    command = ["xdotool", "search", "--onlyvisible", "--name", "room=.*;day=", "getwindowname"]
    title = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    values = title.partition(" - ")[0].strip().split(";")
    return dict(value.split("=", 1) for value in values if "=" in value)


def _text(name: str) -> Widget:
    return find(_BROWSER, ("static", "section", "text", "label"), name, exact=True)


def _choose(hand: Hand, menu: str, choice: str) -> None:
    """Opens a menu by resting on it, and clicks one of its choices."""
    hand.hover(_text(menu), 0.9)
    hand.click(find(_BROWSER, "push button", choice, exact=True))


def _run(hand: Hand) -> None:
    van = find(_BROWSER, "section", "Van", exact=True)
    _choose(hand, "Rooms", "Bedroom")
    hand.drag(_text("Lamp"), (van.x, van.y), 1.4)
    _choose(hand, "Days", "Friday")
    hand.drag(_text("Mirror"), (van.x, van.y + 40), 1.4)
    hand.click(find(_BROWSER, "entry", "Note to the movers"))
    hand.type("Ring twice, the bell is slow!")
    hand.click(find(_BROWSER, "check box", "Fragile things"))
    hand.click(_text("Piano"))
    hand.click(_text("Desk"), modifiers=("Control_L",))
    _choose(hand, "Helpers", "Four people")
    hand.drag(_text("Piano"), (van.x, van.y + 60), 1.4)
    hand.rest(1)


SCENARIO = ReplayedScenario(
    title="Plan the moving day",
    app="Chromium",
    objectives=["Choose room, day and helpers", "Put things into the van"],
    content="Plan the moving day: choose room, day and helpers, load the van and leave a note.",
    prepare=_prepare,
    run=_run,
    width=1440,
    height=900,
    fps=10,
    end_state=_page_state,
    wanted={
        "room": "Bedroom",
        "day": "Friday",
        "helpers": "Four people",
        "van": "Lamp+Mirror+Piano",
        "chosen": "Desk+Piano",
        "note": "Ring twice, the bell is slow!",
        "fragile": "yes",
    },
)
