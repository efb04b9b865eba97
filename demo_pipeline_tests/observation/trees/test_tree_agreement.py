"""Tests of whether a tree agrees with the screenshot if the screen changed after its scan."""

from collections.abc import Sequence
from typing import Any

import pytest

from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges
from demo_pipeline.observation.frames.evidence import SinceScanEvidence
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline.observation.trees.tree_agreement import Contradiction, contradictions_of
from demo_pipeline_tests.observation.nodes import mapped, node

LABEL = (120, 120, 200, 20)
FIELD = (120, 160, 300, 30)
NOTES = (100, 300, 800, 500)
CHECK = (120, 210, 120, 20)
BUTTON = (500, 160, 100, 30)
MENU_LINES = ((700, 400, 90, 14), (700, 430, 60, 14), (700, 460, 110, 14))


def window(*more: Any) -> StepTree:
    parts = [
        node("Text", LABEL, name="Nothing found yet"),
        node("Edit", FIELD, name="Search"),
        node("CheckBox", CHECK, name="Gift wrap"),
        node("Button", BUTTON, name="Find"),
        node("Edit", NOTES, name="Notes"),
    ]
    return mapped([node("Window", (100, 100, 900, 800), *parts, *more, name="Shop")])


def agreement(
    *regions: ChangedBox,
    panels: tuple[ChangedBox, ...] = (),
    ended: tuple[ChangedBox, ...] | None = None,
    tree: StepTree | None = None,
    previous: StepTree | None = None,
) -> str:
    began = ContentChanges(regions=regions, panels=panels)
    last = began if ended is None else ContentChanges(regions=ended)
    since = SinceScanEvidence(action_index=0, scan_event=1, began=began, ended=last)
    contradictions = against(since, tree=tree, previous=previous)
    if contradictions is None:
        return "unknown"
    return "agrees" if all(contradiction.is_news for contradiction in contradictions) else "differs"


def against(
    since: SinceScanEvidence | None,
    tree: StepTree | None = None,
    previous: StepTree | None = None,
) -> Sequence[Contradiction] | None:
    return contradictions_of(window() if tree is None else tree, since, lambda: previous)


def test_an_unchanged_screen_agrees() -> None:
    assert agreement() == "agrees"


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        pytest.param((122, 122, 150, 16), "differs", id="another label"),
        pytest.param((124, 166, 80, 16), "agrees", id="typed into a field"),
        pytest.param((114, 154, 312, 42), "agrees", id="the field's focus ring"),
        pytest.param((120, 212, 14, 14), "agrees", id="a tick"),
        pytest.param((122, 104, 150, 19), "agrees", id="just above the label"),
    ],
)
def test_the_tree_decides_whether_a_changed_region_is_a_difference(
    region: ChangedBox, expected: str
) -> None:
    assert agreement(region) == expected


def test_another_choice_of_a_combo_box_is_no_difference() -> None:
    chosen = node("Text", (605, 505, 100, 20), name="Blue room")
    tree = window(node("ComboBox", (600, 500, 200, 30), chosen, name="Room"))
    assert agreement((606, 506, 90, 16), tree=tree) == "agrees"


def test_a_dialog_or_a_menu_that_the_tree_lacks_differs() -> None:
    assert agreement(panels=((400, 350, 300, 200),)) == "differs"
    assert agreement((950, 250, 40, 14), (950, 275, 45, 14), (950, 300, 48, 14)) == "differs"


def test_lines_in_a_large_text_area_are_no_difference_but_a_menu_over_it_is() -> None:
    assert agreement(*MENU_LINES) == "agrees"
    assert agreement(*MENU_LINES, panels=((690, 390, 140, 100),)) == "differs"


def test_a_scan_during_which_a_menu_opened_agrees_only_when_it_has_the_menu() -> None:
    """The menu opened during the scan, so the screen looked like the screenshot only at its end."""
    item = node("MenuItem", (100, 100, 250, 60), name="Save as")
    opened = (122, 122, 150, 16)
    assert agreement(opened, ended=(), previous=window()) == "differs"
    assert agreement(opened, ended=(), tree=window(item), previous=window()) == "agrees"
    assert agreement(ended=(opened,), previous=window()) == "agrees"
    assert agreement(ended=(opened,), tree=window(item), previous=window()) == "differs"


def test_without_a_comparison_or_a_tree_the_agreement_is_unknown() -> None:
    since = SinceScanEvidence(action_index=0, scan_event=1, began=None, ended=ContentChanges())
    assert against(since) is None
    assert against(None) is None


def test_news_at_one_place_prove_nothing_about_another() -> None:
    """The scan read the changed time of a clock, but may have missed a dialog that opened, too."""
    clock = (902, 104, 60, 16)
    dialog = (400, 350, 300, 200)
    began = ContentChanges(regions=(clock,), panels=(dialog,))
    since = SinceScanEvidence(action_index=0, scan_event=1, began=began, ended=ContentChanges())
    times = [window(node("Text", (900, 102, 70, 20), name=time)) for time in ("9:00", "9:01")]
    both = against(since, tree=times[1], previous=times[0]) or ()
    (change,) = [contradiction for contradiction in both if not contradiction.is_news]
    assert change == Contradiction(dialog, is_popup=True)
    assert change.is_near(500.0, 400.0)
    assert not change.is_near(150.0, 175.0)
    assert agreement(tree=mapped([])) == "unknown"
