"""What a pointing action was aimed at, by what the pictures show since the scan."""

from types import SimpleNamespace
from typing import Any

import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.changes import PictureChanges
from demo_pipeline.observation.frames.evidence import SinceScanEvidence, TargetEvidence
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_targets import StepTargets
from demo_pipeline.recording.logged_scans import LoggedScan
from demo_pipeline_tests.observation.nodes import mapped, node

LINK = node("Hyperlink", (200, 200, 200, 30), name="Desk lamps")
ITEM = node("MenuItem", (200, 300, 200, 30), name="Copy")
BOX = node("CheckBox", (200, 400, 20, 20), name="Choose May")
TREE = mapped([node("Window", (100, 100, 800, 600), LINK, ITEM, BOX)])
HERE, FAR = (300, 205, 60, 20), (600, 500, 60, 20)


def clicked(y: float, began: bool, ended: bool, *changed: Any) -> tuple[str, str | None]:
    """Agreement and target of a click at a height; `changed`: places since the scan had ended."""
    shown = PictureChanges(regions=changed)
    evidence: Any = SimpleNamespace(
        targets=[TargetEvidence(action_index=0, window=None, began=began, ended=ended)],
        since_scan=[SinceScanEvidence(action_index=0, scan_event=1, began=shown, ended=shown)],
        typed=[],
    )
    reader: Any = SimpleNamespace(scale=lambda _: 1.0, readable_tree=lambda *_: None)
    click = Action("click", 10_000, 10_100, [1], x=210, y=y)
    current = CurrentScan(LoggedScan(1, 0, 0, 9000, 100), 900, "fresh")
    agreement, found, _ = StepTargets(reader, evidence, (), [click]).step(0, TREE, current, ())
    return agreement, found.name if found else None


@pytest.mark.parametrize(
    ("y", "began", "ended", "changed", "name"),
    [
        (210, False, False, (FAR,), "Desk lamps"),
        (210, True, True, (FAR,), "Desk lamps"),  # lit as the pointer came: so is nothing else
        (210, True, False, (FAR,), "Desk lamps"),
        (210, True, True, (HERE,), None),
        (310, True, False, (FAR,), None),  # a menu that closed while the scan ran
        (410, False, False, ((230, 405, 60, 10),), None),  # the name beside a box changed
        (410, False, False, (FAR,), "Choose May"),
    ],
)
def test_what_the_screenshot_shows_unchanged_is_the_target(
    y: float, began: bool, ended: bool, changed: Any, name: str | None
) -> None:
    assert clicked(y, began, ended, *changed)[1] == name


def test_a_tree_lacks_what_was_pressed_where_something_new_is() -> None:
    assert clicked(600, False, False, FAR) == ("agrees", None)
    assert clicked(600, False, False, (202, 592, 16, 16)) == ("differs", None)
