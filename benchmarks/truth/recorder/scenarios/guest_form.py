"""A guest form in Chromium: all kinds of text, hover menus, toasts, a toggle, days, a dialog."""

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import Widget, find

_BUTTON = ("push button", "button", "toggle button")


def _web(roles: str | tuple[str, ...], name: str) -> Widget:
    return find("chrom", roles, name)


def _prepare(desktop: Desktop) -> None:
    programs.chromium(desktop, "harbor.html", 0, 0, desktop.width, desktop.height)


def _run(hand: Hand) -> None:
    hand.click(_web("entry", "Full name"))
    hand.type("Marta O'Neil-Br\b\b\bBrandt")
    hand.press("Tab")
    hand.type("marta.brandt@harbor-lane.org")
    hand.click(_web(("password text", "entry"), "Password"))
    hand.type('S4lt#Wat~er"9')
    hand.press("Tab")
    hand.type("https://boats.example/list?kind=sail&size=9#top", rollover=True)
    hand.click(_web("entry", "Remarks"))
    hand.type('We pay 50% | "half" @ arrival; tide ~ 2\\3, see #4 / A\'s list')
    hand.click(_web("radio button", "Motor boat"))
    hand.click(_web(("toggle button", "switch", "push button"), "Shore power"))
    hand.click(_web(_BUTTON, "July 9"))
    hand.click(_web("check box", "I accept"))
    hand.click(_web(_BUTTON, "Send form"), pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Harbor Lane reserved"), "3.4 s of a spinner")
    hand.click(_web(_BUTTON, "Print ticket"))
    hand.think(3.4)
    hand.click(_web(_BUTTON, "Delete"))
    hand.click(_web(_BUTTON, "Keep it"))
    hand.hover(_web(_BUTTON, "Services"), 0.9)
    hand.click(_web(_BUTTON, "Sail loft"), pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Harbor Lane sail loft"), "2.6 s of a spinner")
    hand.click(_web(_BUTTON, "Choose sail loft 3"))
    hand.scroll((1000, 500), -5)
    hand.press("Control_L", "l")
    hand.type("harbor.test/slow/market.html?q=rope+red")
    hand.press("Return", pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Quay Market"), "3.1 s until the server answers")
    hand.press("Alt_L", "Left")
    hand.rest(0.5)


SCENARIO = Scenario(
    title="Reserve a berth",
    app="Chromium",
    objectives=["Fill in the form of <app>Chromium</app>", "Reserve a berth", "Look at the loft"],
    content="Reserve a berth for Marta Brandt at Harbor Lane and look at the sail loft.",
    prepare=_prepare,
    run=_run,
    width=1366,
    height=768,
    fps=10,
)
