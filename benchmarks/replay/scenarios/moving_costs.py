"""A table in Gnumeric: entering and correcting values, filling down by keys, a sum, saving."""

import csv
import subprocess
from pathlib import Path

import programs
from desktop import Desktop
from hand import Hand
from replayed_scenario import ReplayedScenario

_SHEET = "costs.gnumeric"
_BEGINNING = "Item,Price\nVan,90\nBoxes,24\n"


def _prepare(desktop: Desktop) -> None:
    start = desktop.home / "costs.csv"
    start.write_text(_BEGINNING)
    subprocess.run(["ssconvert", str(start), str(desktop.home / _SHEET)], check=False)
    desktop.start("gnumeric", "--no-splash", str(desktop.home / _SHEET), folder=desktop.home)
    programs.maximise(programs.wait_for_window("gnumeric"))


def _cells(home: Path) -> dict[str, str]:
    """The cells of the saved sheet by row and column, as in `2.1`."""
    table = home / "saved.csv"
    subprocess.run(["ssconvert", str(home / _SHEET), str(table)], check=False, capture_output=True)
    with table.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    cells: dict[str, str] = {}
    for row, values in enumerate(rows, start=1):
        for column, value in enumerate(values, start=1):
            cells[f"{row}.{column}"] = value
    return cells


def _run(hand: Hand) -> None:
    hand.press("Control_L", "Home")
    for _ in range(3):
        hand.press("Down")
    hand.type("Helpers")
    hand.press("Tab")
    hand.type("4*35")
    hand.press("BackSpace")
    hand.press("Escape")
    hand.type("=4*35")
    hand.press("Return")
    hand.type("Sum")
    hand.press("Tab")
    hand.type("=SUM(B2:B4)")
    hand.press("Return")
    hand.press("Control_L", "Home")
    hand.press("Shift_L", "Right")
    hand.press("Control_L", "b")
    hand.click((700, 560))
    hand.scroll((700, 500), -5)
    hand.press("Control_L", "Home")
    hand.press("Control_L", "s")
    hand.rest(1.5)


SCENARIO = ReplayedScenario(
    title="Add up the costs of the move",
    app="Gnumeric",
    objectives=["Add the helpers", "Sum the costs", "Save the sheet"],
    content="Add four helpers at 35 each to the costs in Gnumeric, sum the costs and save.",
    prepare=_prepare,
    run=_run,
    width=1366,
    height=768,
    fps=10,
    end_state=_cells,
    wanted={"4.1": "Helpers", "4.2": "140", "5.1": "Sum", "5.2": "254"},
)
