"""Tests that the sentence about a step names the action and its target."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, Role, TargetElement
from demo_pipeline.trajectories.step_sentences import hover_sentence, step_sentence

Box = tuple[int, int, int, int]
PLACE: dict[str, Any] = {"x": 10, "y": 20}
ENDS: dict[str, Any] = {"start_x": 10, "start_y": 20, "end_x": 90, "end_y": 25}
SCROLL = {**PLACE, "direction": "down", "amount": 2}
TYPED = "Xylo quark 47"
VALUES = {
    "click": PLACE,
    "double_click": PLACE,
    "right_click": PLACE,
    "type": {"text": TYPED},
    "hotkey": {"keys": ["ctrl", "s"]},
    "scroll": SCROLL,
    "drag": ENDS,
    "wait": {"seconds": 3.0},
}


def sentence_of(
    kind: str, values: dict, role: str = "", name: str = "", box: Box | None = None
) -> str:
    action_type = ActionType(kind)
    parameters = PARAMETERS[action_type].model_validate(values)
    target = TargetElement(id="node_1", role=Role(role), name=name) if role else None
    return step_sentence(action_type, parameters, target, box)


@pytest.mark.parametrize(
    ("kind", "values", "role", "name", "sentence"),
    [
        ("click", PLACE, "", "", ""),
        ("click", PLACE, "button", "Save", 'Click the "Save" button.'),
        ("click", PLACE, "button", "", "Click the button at (10, 20)."),
        ("click", PLACE, "menuitem", "View", 'Click the "View" menu item.'),
        ("click", PLACE, "checkbox", "Agree", 'Click the "Agree" checkbox.'),
        ("click", PLACE, "textfield", "Name", 'Click in the "Name" text field.'),
        ("click", PLACE, "label", "Power", 'Click "Power".'),
        ("click", PLACE, "unknown", "", ""),
        ("click", {**PLACE, "clicks": 3}, "textarea", "A", 'Triple-click in the "A" text area.'),
        ("click", {**PLACE, "button": "middle"}, "link", "More", 'Middle-click the "More" link.'),
        (
            "click",
            {**PLACE, "modifiers": ["ctrl", "shift"]},
            *("listitem", "b"),
            'Click the "b" list item while holding Ctrl+Shift.',
        ),
        ("right_click", PLACE, "icon", "Bin", 'Right-click the "Bin" icon.'),
        ("double_click", PLACE, "treeitem", "src", 'Double-click the "src" tree item.'),
        ("scroll", SCROLL, "listitem", "Row 3", "Scroll down 2 notches in the list."),
        ("scroll", SCROLL, "tablecell", "B2", "Scroll down 2 notches in the table."),
        ("scroll", SCROLL, "listbox", "Rows", 'Scroll down 2 notches in the "Rows" list.'),
        ("scroll", SCROLL, "button", "Save", "Scroll down 2 notches."),
        ("scroll", {**SCROLL, "amount": 1}, "", "", "Scroll down 1 notch."),
        ("type", {"text": TYPED}, "textfield", "Name", 'Type the text into the "Name" text field.'),
        ("type", {"text": TYPED}, "table", "Files", ""),
        ("type", {"text": TYPED}, "", "", ""),
        ("type", {"text": " "}, "", "", "Press Space."),
        ("type", {"text": "   "}, "", "", "Press Space 3 times."),
        ("hotkey", {"keys": ["space"]}, "button", "Book", 'Press Space on the "Book" button.'),
        ("wait", {"seconds": 3.0}, "listitem", "Ada", 'Wait for the "Ada" list item.'),
        ("wait", {"seconds": 3.0}, "", "", ""),
        ("hotkey", {"keys": ["ctrl", "s"]}, "", "", "Press Ctrl+S."),
        ("hotkey", {"keys": ["pagedown"], "presses": 3}, "", "", "Press Page Down 3 times."),
        ("drag", ENDS, "", "", "Drag from (10, 20) to (90, 25)."),
        ("drag", ENDS, "slider", "Volume", 'Drag the "Volume" slider to (90, 25).'),
        ("drag", ENDS, "scrollbar", "", "Drag the scroll bar to (90, 25)."),
        ("drag", ENDS, "listitem", "a.txt", 'Drag from the "a.txt" list item to (90, 25).'),
        ("drag", ENDS, "panel", "Page", "Drag from (10, 20) to (90, 25)."),
    ],
)
def test_a_sentence_says_what_was_done_in_plain_words(kind, values, role, name, sentence):
    assert sentence_of(kind, values, role, name) == sentence


@pytest.mark.parametrize(
    ("box", "sentence"),
    [
        ((0, 0, 100, 40), 'Select the text from (10, 20) to (90, 25) in the "Body" text area.'),
        ((0, 0, 50, 40), "Drag from (10, 20) to (90, 25)."),
        (None, "Drag from (10, 20) to (90, 25)."),
    ],
)
def test_a_drag_within_a_text_selects_it(box, sentence):
    assert sentence_of("drag", ENDS, "textarea", "Body", box) == sentence


def test_a_drag_that_began_with_a_double_click_selects_words():
    words = {**ENDS, "clicks": 2}
    assert sentence_of("drag", words, "textarea", "Body", (0, 0, 100, 40)).startswith(
        "Select the words"
    )
    assert sentence_of("drag", words) == "Double-click and drag from (10, 20) to (90, 25)."


def test_without_an_element_the_window_is_named():
    parameters = PARAMETERS[ActionType.CLICK].model_validate(PLACE)
    named = step_sentence(ActionType.CLICK, parameters, None, None, "Bird ledger")
    assert named == 'Click in the "Bird ledger" window at (10, 20).'
    typing = PARAMETERS[ActionType.TYPE].model_validate({"text": TYPED})
    named = step_sentence(ActionType.TYPE, typing, None, None, "Notes")
    assert named == 'Type the text in the "Notes" window.'


@given(st.sampled_from(list(VALUES)), st.sampled_from(["", *Role]), st.text(max_size=200))
def test_a_sentence_is_a_short_line_without_typed_text(kind, role, name):
    sentence = sentence_of(kind, VALUES[kind], role, name)
    assert re.fullmatch(r"([A-Z][^\n]*\.)?", sentence)
    assert len(sentence) < 180
    assert TYPED not in sentence
    assert not role or sentence_of(kind, VALUES[kind], role, " ").count('"') == 0


@pytest.mark.parametrize(
    ("sentence", "places", "name", "expected"),
    [
        (
            'Click the "Rename" link.',
            [(5, 6)],
            "Board",
            'Hover over the "Board" menu and click the "Rename" link.',
        ),
        ('Click the "Rename" link.', [(5, 6)], "", 'Hover at (5, 6) and click the "Rename" link.'),
        ("", [(5, 6)], "", "Hover at (5, 6) and click at (10, 20)."),
        (
            'Click the "PDF" link.',
            [(5, 6), (7, 8)],
            "Export",
            'Hover at (5, 6), then over the "Export" menu and click the "PDF" link.',
        ),
    ],
)
def test_a_sentence_names_where_the_pointer_rested(sentence, places, name, expected):
    kind = ActionType.CLICK
    element = TargetElement(id="node_2", role=Role.MENU, name=name) if name else None
    parameters = PARAMETERS[kind].model_validate(PLACE)
    assert hover_sentence(sentence, kind, parameters, places, element) == expected
