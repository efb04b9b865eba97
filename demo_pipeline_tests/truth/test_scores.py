"""Tests that each wrong label changes exactly the figures that measure such labels."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.truth.figures import Figures, better_figures, markdown_table, worse_figures
from benchmarks.truth.scores import Score, score_recording
from demo_pipeline_tests.truth.known_store import BUTTON, FIELD, START_MS, KnownStore

ALL_RIGHT = Figures(
    actions=3,
    actions_right=3,
    texts=1,
    texts_right=1,
    waits=1,
    waits_found=1,
    targets=1,
    targets_right=1,
    key_targets=2,
    key_targets_right=2,
    changes=2,
    changes_right=1,
)


def score(labels: KnownStore, folder: Path) -> Score:
    return score_recording(*labels.write(folder))


def differences(labels: KnownStore, folder: Path) -> dict[str, int]:
    """Returns name → value of the figures that differ from those of correct labels."""
    right = asdict(ALL_RIGHT)
    figures = asdict(score(labels, folder).figures)
    return {name: value for name, value in figures.items() if value != right[name]}


def test_right_labels_have_no_fault(tmp_path):
    result = score(KnownStore(), tmp_path)
    assert result.faults == []
    assert result.figures == ALL_RIGHT


def other_place(labels):
    labels.steps[0]["parameters"]["x"] = 130


def missed_text(labels):
    del labels.steps[2]


def hidden_click(labels):
    del labels.steps[0]
    labels.hidden_ms = [START_MS + 1_000]


def invented_click(labels):
    labels.add_step("click", (5.5, 5.6), parameters={"x": 5, "y": 5, "button": "left"})


def another_text(labels):
    labels.steps[2]["parameters"]["text"] = 'a"b'


def longer_text(labels):
    labels.steps[2]["parameters"]["text"] = "a@bc"


def text_in_two_steps(labels):
    labels.steps[2]["parameters"]["text"] = "a"
    labels.add_step("type", (4.2, 4.4), parameters={"text": "@b"})


def text_of_which_a_part_is_doubtful(labels):
    text_in_two_steps(labels)
    labels.steps[-1]["doubtful_text"] = True


def switched_layout(labels):
    switch = {"kind": "layout_switch", "t": START_MS + 4_700, "keys": ["Alt_L", "Shift_L"]}
    labels.truth["actions"].append(switch)
    labels.add_step("hotkey", (4.75, 4.8), parameters={"keys": ["alt", "shift"]})


def doubtful_text(labels):
    another_text(labels)
    labels.steps[2]["doubtful_text"] = True


def redacted_text(labels):
    labels.steps[2]["parameters"]["text"] = "<password>"


def missed_wait(labels):
    del labels.steps[1]


def invented_wait(labels):
    labels.add_step("wait", (4.5, 4.9), parameters={"seconds": 2})


def another_target(labels):
    labels.steps[0]["target"] = {**BUTTON, "name": "Cancel", "box": [140, 90, 40, 20]}


def missing_target(labels):
    labels.steps[0]["target"] = None


def label_of_the_target(labels):
    labels.steps[0]["target"] = {"role": "label", "name": "OK", "box": [100, 95, 20, 10]}


def keys_for_another_widget(labels):
    labels.steps[2]["target"] = BUTTON


def keys_without_widget(labels):
    labels.steps[3]["target"] = None


def late_screenshot(labels):
    labels.steps[3]["pts"] = 5.1


def screenshot_with_the_pointer_at_the_target(labels):
    labels.steps[0]["pts"] = 0.95


def change_denied(labels):
    labels.steps[0]["screen_changed"] = False


def late_clock(labels):
    labels.origin_ms = START_MS + 120


def unfair_click(labels):
    labels.truth["actions"][0]["unfair"] = "target: behind another window"


@pytest.mark.parametrize(
    ("change", "figures"),
    [
        (other_place, {"actions_right": 2}),
        (
            missed_text,
            {
                "actions_right": 2,
                "texts_right": 0,
                "texts_left_out": 1,
                "key_targets": 1,
                "key_targets_right": 1,
                "changes": 1,
            },
        ),
        (
            hidden_click,
            {
                "actions_right": 2,
                "actions_hidden": 1,
                "targets": 0,
                "targets_right": 0,
                "changes": 1,
                "changes_right": 0,
            },
        ),
        (invented_click, {"actions_invented": 1}),
        (another_text, {"texts_right": 0, "texts_wrong": 1}),
        (longer_text, {"texts_wrong": 1}),
        (doubtful_text, {"texts_right": 0, "texts_left_out": 1}),
        (text_in_two_steps, {}),
        (text_of_which_a_part_is_doubtful, {"texts_right": 0, "texts_wrong": 1}),
        (switched_layout, {}),
        (redacted_text, {}),
        (missed_wait, {"waits_found": 0}),
        (invented_wait, {"waits_invented": 1}),
        (another_target, {"targets_right": 0, "targets_wrong": 1}),
        (missing_target, {"targets_right": 0, "targets_missing": 1}),
        (label_of_the_target, {"targets_right": 0}),
        (keys_for_another_widget, {"key_targets_right": 1, "key_targets_wrong": 1}),
        (keys_without_widget, {"key_targets_right": 1, "key_targets_missing": 1}),
        (late_screenshot, {"screenshots_late": 1}),
        (screenshot_with_the_pointer_at_the_target, {"leaks_avoidable": 1}),
        (change_denied, {"changes_right": 0, "changes_missed": 1}),
        (late_clock, {"clock_error_ms": 120}),
        (unfair_click, {"targets": 0, "targets_right": 0}),
    ],
)
def test_a_fault_is_counted(change: Callable[[KnownStore], None], figures, tmp_path):
    labels = KnownStore()
    change(labels)
    assert differences(labels, tmp_path) == figures


def test_keys_where_no_widget_has_the_keyboard(tmp_path):
    labels = KnownStore()
    labels.truth["actions"][2]["focus"] = {**FIELD, "role": "none"}
    assert differences(labels, tmp_path) == {
        "key_targets": 1,
        "key_targets_right": 1,
        "key_targets_invented": 1,
    }


def test_fewer_right_and_more_wrong_are_worse():
    recorded = Figures(actions_right=5, waits_invented=1, clock_error_ms=20)
    assert worse_figures(recorded, Figures(actions_right=4, waits_invented=2)) == [
        "actions_right: 4, recorded 5",
        "waits_invented: 2, recorded 1",
    ]
    better = Figures(actions_right=6, waits_invented=1, clock_error_ms=24)
    assert worse_figures(recorded, better) == []
    assert better_figures(recorded, better) == ["actions_right: 5, recorded 6"]


def test_the_table_sums_all_recordings():
    table = markdown_table({"a": Figures(actions=3, actions_right=3), "b": Figures(actions=2)})
    assert "| actions | 5 | 3 | 0 hidden, 0 invented |\n" in table
