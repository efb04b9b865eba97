"""Tests that the committed recordings yield exactly the person's actions, in order."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline_tests.actions.streams import summary_of
from demo_pipeline_tests.actions.test_keyboard_input import FORMS
from demo_pipeline_tests.actions.test_property import found_in
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_documents
from demo_pipeline_tests.simulator.script import click, scroll, type_text

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"

TICKETS = [
    ("click left 1", 549, 386),
    ("type Kendrick Lamar", None, None),
    ("click left 1", 830, 386),
    ("click left 1", 540, 510),
    ("down", None, None),
    ("enter", None, None),
    ("click left 1", 341, 558),
    ("drag left", 710, 624),
    ("click left 1", 549, 733),
    ("type 4 seats, under $500! (aisle if possible)", None, None),
    ("ctrl+a", None, None),
    ("ctrl+c", None, None),
    ("double_click", 820, 293),
    ("scroll down 25", 542, 564),
    ("click left 1", 414, 912),
]
SHOPPING = [
    ("click left 1", 729, 542),
    ("type Milk (2 litres)", None, None),
    ("enter", None, None),
    ("type Eggs, 12", None, None),
    ("shift+home", None, None),
    ("ctrl+c", None, None),
    ("end", None, None),
    ("enter", None, None),
    ("ctrl+v", None, None),
    ("drag left", 207, 200),
    ("right_click", 260, 200),
    ("esc", None, None),
    ("click left 1", 365, 152),
    ("esc", None, None),
    ("scroll down 3", 729, 542),
    ("ctrl+s", None, None),
    ("ctrl+a", None, None),
    ("type list.txt", None, None),
    ("enter", None, None),
]


def actions_of(recording: str) -> list[Action]:
    log = (RECORDINGS / recording / "input_log.jsonl").read_bytes()
    platform = json.loads((RECORDINGS / recording / "meta.json").read_bytes())["platform"]
    grouped, problems = found_in(log, platform)
    assert problems == []
    return [action for action in grouped if action.action_type != "pause"]


@pytest.mark.parametrize(
    ("recording", "expected"), [("20261121_212358", TICKETS), ("20261121_212801", SHOPPING)]
)
def test_the_actions_of_the_person(recording, expected):
    grouped = actions_of(recording)
    assert [(summary_of(action), action.x, action.y) for action in grouped] == expected
    # A single scroll does not show the unit of the wheel.
    assert {flag for action in grouped for flag in action.flags} == {"wheel_unit_uncertain"}


def in_words(action: Action) -> tuple[str, dict[str, Any]]:
    """Describes an action in the format of the simulator's ground truth."""
    at = {"x": action.x, "y": action.y}
    held = {"modifiers": action.modifiers} if action.modifiers else {}
    triple = {"clicks": 3} if action.clicks == 3 else {}
    words: dict[str, dict[str, Any]] = {
        "click": {**at, "button": action.button, **triple, **held},
        "double_click": {**at, **held},
        "right_click": {**at, **held},
        "drag": {
            "start_x": action.x,
            "start_y": action.y,
            "end_x": action.end_x,
            "end_y": action.end_y,
        },
        "scroll": {**at, "direction": action.direction, "amount": action.amount},
        "type": {"text": action.text},
        "hotkey": {"keys": action.keys},
    }
    kind = action.action_type
    return kind, words[kind]


UNITS_MS = {"seconds": 1000, "microseconds": 1e-3}


@pytest.mark.parametrize("platform", ["windows", "macos", "linux"])
@pytest.mark.parametrize("form", FORMS)
def test_simulated_recordings_with_characters_in_every_form(tmp_path, platform, form):
    options = replace(SMALL, platform=platform, characters=FORMS[form], wheel="recorder")
    truth = write_documents(tmp_path, script(click("Name"), type_text("A b'\\ {c}\b!")), options)
    grouped, problems = found_in((tmp_path / "input_log.jsonl").read_bytes(), platform)
    assert problems == []
    described = [in_words(action) for action in grouped if action.action_type != "pause"]
    assert described == [(action.action_type, action.parameters) for action in truth.actions]


@pytest.mark.parametrize("unit", UNITS_MS)
def test_simulated_recordings_in_another_unit_of_time(tmp_path, unit):
    options = replace(SMALL, time_unit_ms=UNITS_MS[unit])
    truth = write_documents(tmp_path, script(), options)
    grouped, problems = found_in((tmp_path / "input_log.jsonl").read_bytes(), options.platform)
    assert problems == []
    meant = [action for action in truth.actions if action.action_type != "wait"]
    assert [action.end_ms for action in grouped if action.action_type != "pause"] == [
        action.end_ms for action in meant
    ]


@pytest.mark.parametrize("platform", ["windows", "macos", "linux"])
@pytest.mark.parametrize("wheel", ["documented", "recorder"])
def test_simulated_scrolls(tmp_path, platform, wheel):
    options = replace(SMALL, platform=platform, wheel=wheel)
    truth = write_documents(tmp_path, script(scroll("Rows", 2), scroll("Rows", -1)), options)
    grouped, _ = found_in((tmp_path / "input_log.jsonl").read_bytes(), platform)
    described = [in_words(action) for action in grouped if action.action_type != "pause"]
    assert described == [(action.action_type, action.parameters) for action in truth.actions]
