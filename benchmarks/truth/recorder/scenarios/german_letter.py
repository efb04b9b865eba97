"""A letter in Mousepad on a German keyboard under a British locale: menus by keys, find, save."""

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import find


def _prepare(desktop: Desktop) -> None:
    desktop.start("mousepad", "--disable-server", folder=desktop.home)
    window = programs.wait_for_window("mousepad")
    programs.maximise(window)


def _run(hand: Hand) -> None:
    hand.click(find("mousepad", "text"), dy=-200)
    hand.type("Grüße aus Köln an Frau Zeyß,")
    hand.press("Return")
    hand.press("Return")
    hand.type("wir zahlen 50 % (d.h. 120,50 €) für die Yacht; bitte an: anna.kühn@hafen-köln.de")
    hand.press("Return")
    hand.type("Pfad: C:\\daten\\{2026} | Preis ~ 3 # 4 / \"gut\" & 'neu' ?", rollover=True)
    hand.press("Return")
    hand.type("Zum Spß\baß: Ä Ö Ü - äöü = fertig!")
    hand.press("Alt_L", "e")
    hand.press("Down")
    hand.press("Escape")
    hand.press("Control_L", "f")
    hand.type("yacht")
    hand.press("Return")
    hand.press("Escape")
    hand.click(find("mousepad", "menu", "View"))
    hand.click(find("mousepad", "menu item", "Line Numbers"))
    hand.think(3.2)
    hand.press("Control_L", "Home")
    hand.press("Shift_L", "End")
    hand.press("Control_L", "c")
    hand.press("Control_L", "End")
    hand.press("Control_L", "v")
    hand.click(find("mousepad", "menu", "File"))
    hand.click(find("mousepad", "menu item", "Save As..."))
    hand.rest(0.8)
    hand.press("Control_L", "a")
    hand.type("brief_zu_hafen.txt")
    hand.press("Return")
    hand.rest(0.5)
    hand.click(find("mousepad", "menu", "Document"))
    hand.press("Escape")
    hand.multi_click(find("mousepad", "text"), dx=-780, dy=-400)
    hand.type("Hallo")
    hand.click((1919, 8))
    hand.rest(0.8)


SCENARIO = Scenario(
    title="Write to the harbour in Cologne",
    app="Mousepad",
    objectives=["Write the letter in <app>Mousepad</app>", "Save it"],
    content="Write a German letter with an address and a price, show line numbers and save it.",
    prepare=_prepare,
    run=_run,
    layout="de",
)
