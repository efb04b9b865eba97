"""A terminal beside a file manager: shell commands, drag and drop, renaming, the wheel."""

import subprocess

import programs
from desktop import Desktop
from hand import Hand
from scenario import Scenario
from widgets import Widget, find


def _prepare(desktop: Desktop) -> None:
    folder = desktop.home / "survey"
    for name in ("coast", "inland", "old"):
        (folder / name).mkdir(parents=True)
    for name in ("beach.txt", "cliff.txt", "dunes.txt", "lagoon.csv", "tower.csv"):
        (folder / name).write_text("".join(f"{name} {number}\n" for number in range(60)))
    desktop.start("pcmanfm", "--no-desktop", str(folder))
    files = programs.wait_for_window("pcmanfm")
    terminal = programs.xterm(desktop, 760, 30, 62, 24, folder)
    programs.place_window(files, 6, 30, 740, 560)
    programs.activate(files)
    subprocess.run(["xdotool", "key", "ctrl+4"], check=False)  # the list, whose cells have names
    programs.activate(terminal)


def _file(name: str) -> Widget:
    return find("pcmanfm", ("icon", "table cell"), name)


def _run(hand: Hand) -> None:
    terminal = (1080, 300)
    hand.click(terminal)
    hand.type('ls -l | grep "txt" > /tmp/list~1')
    hand.press("Return")
    hand.click(_file("dunes.txt"))
    hand.press("F2")
    hand.type("Dunes_North #2.txt")
    hand.press("Return")
    hand.drag(_file("beach.txt"), _file("coast"))
    hand.click(terminal)
    hand.type("wc -l coast/*.txt && echo 'done @ noon'")
    hand.press("Return")
    hand.press("Up")
    hand.type(" | sort -n")
    hand.press("Return")
    hand.drag(_file("tower.csv"), _file("inland"))
    hand.multi_click(_file("inland"))
    hand.press("Alt_L", "Up")
    hand.click(_file("old"), button=3)
    hand.press("Escape")
    hand.click(terminal)
    hand.type("seq 1 80; echo $HOME/{a,b} | tr '/' '\\\\'", rollover=True)
    hand.press("Return")
    hand.scroll(terminal, 6)
    hand.type("sleep 3; echo re\b\bready", pace=(0.06, 0.2))
    hand.press("Return", pause=(0.1, 0.15))
    begun = hand.truth[-1]["t"]
    hand.wait(programs.time_passed(begun + 3100), "the command sleeps for 3 s and then prints")
    hand.type("cat lagoon.csv | head -5")
    hand.press("Return")
    hand.click(_file("cliff.txt"))
    hand.press("Control_L", "x")
    hand.multi_click(_file("old"))
    hand.press("Control_L", "v")
    hand.rest(0.5)


SCENARIO = Scenario(
    title="File the survey",
    app="PCManFM",
    objectives=["Move the files with <app>PCManFM</app>", "Count the lines in a terminal"],
    content="Move beach.txt and tower.csv into their folders, rename the dunes and count lines.",
    prepare=_prepare,
    run=_run,
    width=1440,
    height=900,
    fps=15,
)
