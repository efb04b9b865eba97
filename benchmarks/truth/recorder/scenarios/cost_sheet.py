"""Costs in LibreOffice Calc: formulas, Caps Lock, menus by keys, a dialog, sheets, the border."""

import subprocess
import time

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import find

_QUIET_START = ["--norestore", "--nologo", "--nofirststartwizard"]


def _prepare(desktop: Desktop) -> None:
    desktop.start("soffice", "--calc", *_QUIET_START, SAL_USE_VCLPLUGIN="gtk3")
    window = programs.wait_for_window("libreoffice-calc")
    time.sleep(8)
    programs.maximise(window)
    time.sleep(3)
    subprocess.run(["xdotool", "key", "Escape"], check=False)
    time.sleep(1)


def _cell(hand: Hand, text: str, key: str) -> None:
    hand.type(text)
    hand.press(key)


def _run(hand: Hand) -> None:
    hand.press("Control_L", "Home")
    hand.tap_caps_lock()
    _cell(hand, "ITEM", "Tab")
    _cell(hand, "COST", "Return")
    hand.tap_caps_lock()
    _cell(hand, "Rope 10m @ quay", "Tab")
    _cell(hand, "48.50", "Return")
    _cell(hand, "Paint #2 (red)", "Tab")
    _cell(hand, "112", "Return")
    _cell(hand, "Crane ~ 1/2 day", "Tab")
    _cell(hand, "230.2\b75", "Return")
    _cell(hand, "Sum", "Tab")
    _cell(hand, "=SUM(B2:B4)*1.05", "Return")
    hand.press("Up")
    hand.press("Control_L", "b")
    hand.press("Alt_L", "o")
    hand.press("Down")
    hand.press("Escape")
    hand.press("Escape")
    menu = find("soffice", "menu", "Insert", exact=True)
    hand.click(menu)
    hand.press("Escape")
    hand.click(find("soffice", "menu", "Sheet", exact=True))
    hand.click(find("soffice", "menu item", "Insert Sheet..."))
    hand.rest(0.8)
    hand.press("Return")
    hand.think(3.3)
    hand.type("Notes")
    hand.press("Return")
    hand.type("Paid by card | no cash")
    hand.press("Return")
    hand.press("Control_L", "Next")
    hand.hold("Down", 1.1)
    hand.scroll((1200, 800), -6)
    hand.click((2556, 1100))
    hand.press("Control_L", "Home")
    hand.click(find("soffice", "menu", "File", exact=True))
    hand.press("Escape")
    hand.rest(0.5)


SCENARIO = Scenario(
    title="Add up the costs of the boat",
    app="LibreOffice Calc",
    objectives=["Enter the costs in <app>LibreOffice Calc</app>", "Sum them", "Add a sheet"],
    content="Enter three costs with their sum, make the sum bold and add a sheet with a note.",
    prepare=_prepare,
    run=_run,
    width=2560,
    height=1440,
    fps=10,
)
