"""Tests of the facts about scans that are passed to the stage that decodes the video."""

from types import SimpleNamespace
from typing import Any

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.clock.canvas import ScreenParts
from demo_pipeline.observation.trees.scanned_targets import scan_targets
from demo_pipeline.recording.logged_scans import LoggedScan
from demo_pipeline_tests.observation.nodes import FULL, mapped, node


def test_cells_that_may_be_empty_do_not_tell_the_units_of_a_tree() -> None:
    """The cells of a calendar have names only for screen readers, not visible on the screen."""
    buttons = [node("Button", (200, 200 + 50 * row, 90, 30), name=f"Day {row}") for row in range(6)]
    cells = [
        node("table cell", (400, 200 + 50 * row, 90, 30), name=f"Mon {row}:00") for row in range(9)
    ]
    tree = mapped([node("Window", (100, 100, 800, 600), *buttons, *cells)])
    reader: Any = SimpleNamespace(tree=lambda *_: tree)
    calibration: Any = SimpleNamespace(screen=ScreenParts.single(FULL), canvas=FULL)
    click = Action("click", 10_000, 10_100, [1], x=210, y=210)
    targets = scan_targets([click], [LoggedScan(1, 0, 0, 9000, 100)], reader, calibration)
    marks = targets.by_action[0].marks
    assert marks is not None
    assert set(marks[:, 0].tolist()) == {200.0}
