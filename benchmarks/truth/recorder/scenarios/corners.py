"""Clicks at the border of the screen: a start button, a scroll bar, a maximised window."""

import time

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import find

_PANEL = """Global {
  edge=bottom
  widthtype=percent
  width=100
  height=32
  setdocktype=1
  setpartialstrut=1
}
Plugin {
  type=menu
  Config {
    image=start-here
    item {
      name=Tide table
      action=mousepad --disable-server tides.txt
    }
    item {
      name=Files
      action=pcmanfm --no-desktop .
    }
  }
}
Plugin {
  type=taskbar
  expand=1
}
Plugin {
  type=dclock
}
"""
_START = (0, 767)
_CLOSE = (1365, 0)


def _prepare(desktop: Desktop) -> None:
    lines = [f"day {day}: high at {day % 12 + 1}, low at {day % 9 + 3}\n" for day in range(1, 120)]
    (desktop.home / "tides.txt").write_text("".join(lines))
    panels = desktop.home / ".config" / "lxpanel" / "default" / "panels"
    panels.mkdir(parents=True)
    (panels / "panel").write_text(_PANEL)
    desktop.start("xsetroot", "-solid", "#44607a")
    desktop.start("lxpanel")
    programs.wait_for_window("lxpanel")
    time.sleep(3)


def _open_maximised(hand: Hand, item: str, program: str) -> None:
    hand.click(_START)
    hand.click(find("lxpanel", "menu item", item), pause=(0.1, 0.15))
    hand.wait(lambda: bool(programs.windows_of(program)), f"{program} starts")
    hand.rest(0.6)
    frame = find(program, "frame")
    hand.multi_click((frame.x, frame.box[1] + 9))


def _run(hand: Hand) -> None:
    _open_maximised(hand, "Tide table", "mousepad")
    hand.click((1365, 600))
    hand.drag((1363, 300), (1363, 420))
    hand.press("Control_L", "End")
    hand.type("call the harbour @ 9, pay 30 #2")
    hand.press("Return")
    hand.click(find("mousepad", "menu", "File"))
    hand.press("Escape")
    hand.click(_CLOSE)
    hand.rest(0.5)
    hand.click(find("mousepad", "push button", "Don"))
    _open_maximised(hand, "Files", "pcmanfm")
    hand.think(2.8)
    hand.click((0, 400))
    hand.click(_CLOSE)
    hand.click((1365, 767))
    hand.rest(0.5)


SCENARIO = Scenario(
    title="Look up the tide",
    app="Mousepad",
    objectives=["Open the tide table from the start menu", "Add a note in <app>Mousepad</app>"],
    content="Open the tide table, add a note at its end, close it unsaved and look at the files.",
    prepare=_prepare,
    run=_run,
    width=1366,
    height=768,
)
