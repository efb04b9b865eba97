"""Tests of the target of a pointing action if the screen changed after the scan."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.changes import ContentChanges
from demo_pipeline.observation.frames.evidence import SinceScanEvidence, TargetEvidence
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_targets import StepTargets
from demo_pipeline.recording.logged_scans import LoggedScan
from demo_pipeline_tests.observation.nodes import mapped, name_of, node

LINK = node("Hyperlink", (200, 200, 200, 30), name="Desk lamps")
ITEM = node("MenuItem", (200, 300, 200, 30), name="Copy")
BOX = node("CheckBox", (200, 400, 20, 20), name="Choose May")
SAVE = node("Button", (200, 500, 200, 30), name="Save")
TREE = mapped([node("Window", (100, 100, 800, 600), LINK, ITEM, BOX, SAVE)])
HERE = (300, 205, 60, 20)
FAR = (600, 500, 60, 20)


def clicked(y: float, began: bool, ended: bool, *changed: Any) -> tuple[str, str | None]:
    """Returns the agreement of the tree with the screenshot, and the name of a click's target.

    Args:
        y: height of the click.
        began: whether the target was redrawn since the scan began.
        ended: whether the target was redrawn since the scan ended.
        changed: places of the screen that changed after the scan.
    """
    changes = ContentChanges(regions=changed)
    evidence: Any = SimpleNamespace(
        targets=[TargetEvidence(action_index=0, window=None, began=began, ended=ended)],
        since_scan=[SinceScanEvidence(action_index=0, scan_event=1, began=changes, ended=changes)],
        typed=[],
        hovers=(),
    )
    reader: Any = SimpleNamespace(scale=lambda _: 1.0, readable_tree=lambda *_: None)
    click = Action("click", 10_000, 10_100, [1], x=210, y=y)
    current = CurrentScan(LoggedScan(1, 0, 0, 9000, 100), 900, "fresh")
    agreement, target, _ = StepTargets(reader, evidence, (), [click]).step(0, TREE, current, ())
    return agreement, name_of(target)


@pytest.mark.parametrize(
    ("y", "began", "ended", "changed", "name"),
    [
        (210, False, False, (FAR,), "Desk lamps"),
        (210, True, True, (FAR,), "Desk lamps"),  # only highlighted because the pointer came
        (210, True, False, (FAR,), "Desk lamps"),
        (210, True, True, (HERE,), None),
        (310, True, False, (FAR,), None),  # a menu that closed while the scan ran
        (410, False, False, ((230, 405, 60, 10),), None),  # the label beside a check box changed
        (410, False, False, (FAR,), "Choose May"),
    ],
)
def test_an_element_that_the_screenshot_shows_unchanged_is_the_target(
    y: float, began: bool, ended: bool, changed: Any, name: str | None
) -> None:
    assert clicked(y, began, ended, *changed)[1] == name


def test_a_tree_lacks_what_was_pressed_where_something_new_is() -> None:
    assert clicked(600, False, False, FAR) == ("agrees", None)
    assert clicked(600, False, False, (202, 592, 16, 16)) == ("differs", None)


SCANNED_BEFORE = mapped([node("Window", (100, 100, 800, 600), LINK)])


def clicked_after_slow_scan(
    y: int, *, before_began: bool, before: bool, acted: bool = True
) -> str | None:
    """Returns the name of the target of a click where the screen was redrawn only during a scan.

    The tree of the previous scan has only the link.

    Args:
        y: height of the click.
        before_began: whether the place was redrawn between the previous scan and the start of the
            current scan.
        before: whether the place was redrawn after the previous scan.
        acted: whether the person pressed a key between the two scans.
    """
    near = ContentChanges(regions=((200, y - 10, 200, 30),))
    seen = TargetEvidence(
        action_index=1,
        window=None,
        began=True,
        ended=False,
        before_began=before_began,
        before=before,
    )
    since = SinceScanEvidence(action_index=1, scan_event=2, began=near, ended=ContentChanges())
    evidence: Any = SimpleNamespace(targets=[seen], since_scan=[since], typed=[], hovers=())
    reader: Any = SimpleNamespace(scale=lambda _: 1.0, readable_tree=lambda *_: SCANNED_BEFORE)
    key = Action("hotkey", 8000 if acted else 5000, 8000 if acted else 5000, [1], keys=["f5"])
    click = Action("click", 10_000, 10_100, [2], action_index=1, x=210, y=y)
    scans = (LoggedScan(2, 0, 0, 8500, 1000), LoggedScan(1, 0, 0, 7000, 100))
    current = CurrentScan(scans[0], 500, "fresh", scans[1])
    targets = StepTargets(reader, evidence, (), [key, click])
    _, target, _ = targets.step(1, TREE, current, ())
    return name_of(target)


def test_a_slow_scan_may_have_read_an_element_before_something_came_over_it() -> None:
    assert clicked_after_slow_scan(210, before_began=False, before=True) is None
    assert clicked_after_slow_scan(210, before_began=True, before=False) == "Desk lamps"


def test_an_element_that_the_scan_before_lacks_appeared_while_a_slow_scan_ran() -> None:
    assert clicked_after_slow_scan(510, before_began=False, before=True) == "Save"


def test_a_menu_that_may_have_closed_while_a_slow_scan_ran_is_no_target() -> None:
    assert clicked_after_slow_scan(310, before_began=False, before=True) == "Copy"
    assert clicked_after_slow_scan(310, before_began=True, before=True) is None
    assert clicked_after_slow_scan(310, before_began=True, before=True, acted=False) == "Copy"


FOLDER = mapped([node("frame", (100, 100, 800, 600), name="coast")], platform="linux")
IN_TITLE = (300, 110, 90, 16)
IN_WINDOW = (300, 400, 90, 16)


def window_is_certain(x: float, y: float, changes: ContentChanges, shot: Path) -> bool:
    """Returns whether a click that hit no element was certainly inside the window of the tree."""
    since = SinceScanEvidence(action_index=0, scan_event=1, began=changes, ended=changes)
    evidence: Any = SimpleNamespace(targets=[], since_scan=[since], typed=[], hovers=())
    reader: Any = SimpleNamespace(scale=lambda _: 1.0)
    click = Action("click", 10_000, 10_100, [1], x=x, y=y)
    return StepTargets(reader, evidence, (), [click], [shot]).is_window_certain(0, FOLDER, 0, None)


def test_a_window_whose_title_changed_or_that_something_covers_is_not_certain(
    tmp_path: Path,
) -> None:
    """A terminal without a tree covers the right half of the window."""
    picture = np.zeros((1080, 1920), np.uint8)
    picture[100:700, 100:900] = 250
    picture[300:900, 600:1100] = 120
    shot = tmp_path / "000.png"
    cv2.imwrite(str(shot), picture)
    assert window_is_certain(300, 250, ContentChanges(), shot)
    assert window_is_certain(300, 250, ContentChanges(regions=(IN_WINDOW,)), shot)
    assert not window_is_certain(300, 250, ContentChanges(regions=(IN_TITLE,)), shot)
    opened = ContentChanges(regions=(IN_WINDOW,), panels=((200, 200, 300, 300),))
    assert not window_is_certain(300, 250, opened, shot)
    assert not window_is_certain(700, 500, ContentChanges(), shot)
