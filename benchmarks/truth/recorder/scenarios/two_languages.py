"""English and Russian in one form and one note: the layout is switched with Alt+Shift."""

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
    programs.place_window(notes, 1010, 40, 580, 620)
    programs.chromium(desktop, "harbor.html", 0, 20, 1000, 840)


def _run(hand: Hand) -> None:
    hand.click(_web("entry", "Full name"))
    hand.type('Olga Petrova / Kvartira "7"')
    hand.press("Tab")
    hand.type("olga_p@moscow.example")
    hand.click(_web("entry", "Remarks"))
    hand.switch_layout("Alt_L", "Shift_L")
    hand.type("Привет, лодка готова?", pace=(0.06, 0.16))
    hand.click(_web("radio button", "Sailing boat"))
    hand.click(_web(_BUTTON, "July 12"))
    hand.click(find("mousepad", "text"))
    hand.type("Список: канат, краска №")
    hand.switch_layout("Alt_L", "Shift_L")
    hand.type(" 4 x rope & 2 tins")
    hand.press("Return")
    hand.type("~/docs/list.txt | total = $35")
    hand.click(find("mousepad", "menu", "Search"))
    hand.press("Down")
    hand.press("Return")
    hand.type("rope")
    hand.press("Escape")
    hand.click(_web(_BUTTON, "Send form"), pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Harbor Lane reserved"), "3.4 s of a spinner")
    hand.click(_web(_BUTTON, "Delete"))
    hand.click(_web(_BUTTON, "Delete it"))
    hand.click(_web("entry", "Web page"))
    hand.switch_layout("Alt_L", "Shift_L")
    hand.type("ёлка и якорь")
    hand.press("Control_L", "a")
    hand.switch_layout("Alt_L", "Shift_L")
    hand.type("WWW.Example.ORG:8080/a_b?c=(d)", rollover=True)
    hand.think(2.6)
    hand.hover(_web(_BUTTON, "Berths"), 0.8)
    hand.click(_web(_BUTTON, "My berths"), pause=(0.1, 0.15))
    hand.wait(lambda: programs.title_shows("Harbor Lane my berths"), "2.6 s of a spinner")
    hand.click(_web(_BUTTON, "Choose my berths 2"))
    hand.rest(0.5)


SCENARIO = Scenario(
    title="Book a berth in two languages",
    app="Chromium",
    objectives=["Fill in the form of <app>Chromium</app>", "Write a list in <app>Mousepad</app>"],
    content="Reserve a berth for Olga Petrova and write a list in Russian and English.",
    prepare=_prepare,
    run=_run,
    width=1600,
    height=900,
    fps=12,
    layout="us,ru",
    layout_options="grp:alt_shift_toggle",
    locale="ru-RU",
)
