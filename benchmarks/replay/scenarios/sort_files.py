"""PCManFM: files dragged into folders, some chosen together, one renamed, one deleted."""

import subprocess
from pathlib import Path

import programs
from desktop import Desktop
from hand import Hand
from replayed_scenario import ReplayedScenario
from widgets import Widget, find

_FOLDER = "moving"


def _prepare(desktop: Desktop) -> None:
    folder = desktop.home / _FOLDER
    for name in ("bills", "letters"):
        (folder / name).mkdir(parents=True)
    for name in ("gas.txt", "landlord.txt", "movers.txt", "power.txt", "van.txt", "water.txt"):
        (folder / name).write_text(f"{name}\n")
    desktop.start("pcmanfm", "--no-desktop", str(folder))
    window = programs.wait_for_window("pcmanfm")
    programs.place_window(window, 40, 40, 1000, 640)
    programs.activate(window)
    subprocess.run(["xdotool", "key", "ctrl+4"], check=False)  # the list, whose cells have names


def _files(home: Path) -> dict[str, str]:
    folder = home / _FOLDER
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8").strip() for path in paths}


def _file(name: str) -> Widget:
    return find("pcmanfm", ("icon", "table cell"), name)


def _run(hand: Hand) -> None:
    hand.drag(_file("gas.txt"), _file("bills"))
    hand.rest(0.8)
    hand.drag(_file("landlord.txt"), _file("letters"))
    hand.rest(0.8)
    hand.click(_file("power.txt"))
    hand.click(_file("water.txt"), modifiers=("Control_L",))
    hand.press("Control_L", "x")
    hand.multi_click(_file("bills"))
    hand.press("Control_L", "v")
    hand.rest(1)
    hand.press("Alt_L", "Up")
    hand.rest(0.5)
    hand.click(_file("movers.txt"))
    hand.press("F2")
    hand.type("friday_movers")
    hand.press("Return")
    hand.rest(0.5)
    hand.drag(_file("van.txt"), _file("letters"))
    hand.rest(1)


SCENARIO = ReplayedScenario(
    title="Sort the moving papers",
    app="PCManFM",
    objectives=["Move the bills and letters into their folders", "Rename the file of the movers"],
    content="Sort the files into the folders bills and letters, and rename movers.txt.",
    prepare=_prepare,
    run=_run,
    width=1440,
    height=900,
    fps=10,
    end_state=_files,
    wanted={
        "bills/gas.txt": "gas.txt",
        "bills/power.txt": "power.txt",
        "bills/water.txt": "water.txt",
        "friday_movers.txt": "movers.txt",
        "letters/landlord.txt": "landlord.txt",
        "letters/van.txt": "van.txt",
    },
)
