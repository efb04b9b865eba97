"""US-International dead keys in a web form, an editor and a terminal, under a Dutch locale."""

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import Widget, find

_BUTTON = ("push button", "button", "toggle button")


def _web(roles: str | tuple[str, ...], name: str) -> Widget:
    return find("chrom", roles, name)


def _prepare(desktop: Desktop) -> None:
    desktop.start("mousepad", "--disable-server", folder=desktop.home)
    notes = programs.wait_for_window("mousepad")
    programs.place_window(notes, 1010, 40, 580, 400)
    programs.chromium(desktop, "harbor.html", 0, 20, 1000, 840)
    programs.xterm(desktop, 1010, 500, 56, 17, desktop.home)


def _run(hand: Hand) -> None:
    hand.click(_web("entry", "Full name"))
    hand.type("Zoë García-Muñoz")
    hand.press("Tab")
    hand.type("zoe.garcia@caf\b\b\bports.example")
    hand.click(_web("entry", "Web page"))
    hand.type("http://example.com/~zoe/a_b?x='1'")
    hand.click(_web("entry", "Remarks"))
    hand.type('Naïf café, à la crème: "très bon" & it\'s 3^2 ~ 9', pace=(0.06, 0.16))
    hand.click(_web(("toggle button", "switch", "push button"), "Wireless"))
    hand.click(_web("check box", "I accept"))
    hand.click(find("mousepad", "text"))
    hand.type('Señor Müller says: "olé!"')
    hand.press("Return")
    hand.type("don't | can't # 100%", rollover=True)
    hand.press("Alt_L", "s")
    hand.press("Down")
    hand.press("Escape")
    terminal = (1250, 650)
    hand.click(terminal)
    hand.type("echo \"it's `date`\" > ~/'my file'")
    hand.press("Return")
    hand.type("ls -la ~ | sort")
    hand.press("Return")
    hand.scroll(terminal, 4)
    hand.click(_web(_BUTTON, "Send form"), pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Harbor Lane reserved"), "3.4 s of a spinner")
    hand.click(_web(_BUTTON, "Clear"))
    hand.click(_web("entry", "Full name"))
    hand.type("Ångström & Çelik")
    hand.rest(0.5)


SCENARIO = Scenario(
    title="Write names with accents",
    app="Chromium",
    objectives=["Fill in the form of <app>Chromium</app>", "Write a note in <app>Mousepad</app>"],
    content="Reserve a berth for Zoë García-Muñoz, write a note and list the files.",
    prepare=_prepare,
    run=_run,
    width=1600,
    height=900,
    fps=10,
    layout="us",
    variant="intl",
    locale="nl-NL",
)
