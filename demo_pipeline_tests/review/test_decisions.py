"""Tests which decisions about a demonstration apply, and how they correct its trajectory."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from pydantic import ValidationError

from demo_pipeline.desktopd.models import StepAction
from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.desktopd.validator import check_tree
from demo_pipeline.review.decisions import (
    NO_CORRECTIONS,
    Decision,
    DecisionError,
    Subject,
    completed_action,
    corrected,
    judge,
    next_time,
)
from demo_pipeline.trajectories.trajectory_loading import load_provenance
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.review.made import tree

SUBJECT = Subject("demo", "v1", {step: f"{step:064x}" for step in range(4)})
CLICKED = {
    "step_index": 1,
    "action_type": "click",
    "parameters": {"x": 350, "y": 190, "button": "left"},
    "target_element": {"id": "node_2", "role": "button", "name": "Button 2"},
    "reasoning": "As recorded.",
}
START = datetime(2026, 1, 2, tzinfo=UTC)


def decided(number: int, kind: str, value: Any = None, **more: Any) -> Decision:
    """Returns a decision. Decisions with higher numbers are later."""
    value = value or {}
    subject = more.pop("subject", SUBJECT)
    members = {
        "id": f"{number:032x}",
        "demonstration": "demo",
        "author": "ann",
        "time": next_time([], START + timedelta(seconds=number)),
        "trajectory": subject.version,
        "judged": {},
        "kind": kind,
        "value": value,
    }
    decision = Decision.model_validate(members | more)
    return decision.model_copy(update={"judged": subject.judged(decision)})


def undo(number: int, of: int) -> Decision:
    return decided(number, "undo", {"decision": f"{of:032x}"})


def test_the_latest_of_contradicting_decisions_applies_in_any_reading_order():
    decisions = [
        decided(1, "approve"),
        decided(2, "reject", {"reason": "unfinished"}),
        decided(3, "instruction", {"text": "one"}),
        decided(4, "instruction", {"text": "\n<app>two</app>:\n\n  words "}),
        decided(5, "bad_step", {"step": 2}),
    ]
    judgements = {repr(judge(order, SUBJECT)) for order in permutations(decisions)}
    assert len(judgements) == 1
    held = judge([*decisions, *decisions], SUBJECT)
    assert (held.status, held.corrections.instruction) == ("rejected", "two:\n\n  words")
    assert held.corrections.bad_steps == [2]


def test_an_undo_takes_a_decision_back_and_an_undone_undo_does_not():
    decisions = [decided(1, "approve"), decided(2, "reject", {"reason": "other"}), undo(3, 2)]
    assert judge(decisions, SUBJECT).status == "approved"
    again = judge([*decisions, undo(4, 3)], SUBJECT)
    assert again.status == "rejected"
    assert not again.undone
    assert judge([*decisions, undo(4, 3), undo(5, 4)], SUBJECT).status == "approved"


def test_a_decision_about_another_version_applies_if_the_judged_steps_are_equal():
    other = replace(SUBJECT, version="v2", steps={**SUBJECT.steps, 3: "f" * 64})
    decisions = [
        decided(1, "approve"),
        decided(2, "bad_step", {"step": 1}),
        decided(3, "bad_step", {"step": 3}),
        decided(4, "note", {"text": "look", "step": 1}),
    ]
    held = judge(decisions, other)
    assert held.status == "open"
    assert held.corrections.bad_steps == [1]
    assert [decision.kind for decision in held.stale] == ["approve", "bad_step"]
    assert judge(decisions, replace(other, steps=SUBJECT.steps)).status == "approved"
    assert judge([*decisions, undo(5, 1)], other).stale == (decisions[2],)


def test_a_decision_about_missing_steps_is_stale():
    """Decisions from another store were never checked against this trajectory."""
    longer = replace(SUBJECT, steps={step: f"{step:064x}" for step in range(10)})
    for kind, value in (("bad_step", {"step": 9}), ("trim", {"first": 1, "last": 4})):
        held = judge([decided(1, kind, value, subject=longer)], SUBJECT)
        assert (len(held.stale), held.corrections) == (1, NO_CORRECTIONS)


def test_a_private_box_is_replaced_only_by_a_decision_about_the_same_box():
    box = {"step": 1, "x": 10, "y": 20, "width": 30, "height": 40, "private": True}
    decisions = [
        decided(1, "private_box", box),
        decided(2, "private_box", box | {"x": 200}),
        decided(3, "private_box", box | {"private": False}),
    ]
    judgement = judge(decisions, SUBJECT)
    assert judgement.applied == tuple(decisions)
    assert judgement.replaced == (decisions[0],)


def test_a_new_decision_is_later_than_every_decision_its_author_saw():
    seen = [decided(7, "approve")]
    late = next_time(seen, START - timedelta(days=3))
    assert late == "2026-01-02T00:00:07.001Z"
    assert next_time(seen, START + timedelta(days=1)) == "2026-01-03T00:00:00.000Z"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("reject", {"reason": "boring"}, "reason"),
        ("instruction", {"text": "   "}, "text"),
        ("trim", {"first": 3, "last": 1}, "first is after last"),
        ("outcome", {"success": "yes"}, "success"),
        ("applause", {}, "kind"),
    ],
)
def test_an_invalid_decision_is_refused(kind, value, message):
    with pytest.raises(ValidationError, match=message):
        decided(1, kind, value)


class TestCorrectedActions:
    """A corrected action is validated like the action of a recorded step."""

    recorded = StepAction.model_validate(CLICKED)
    nodes = check_tree(tree("Shop"), "ui_tree.json")[0]

    def check(self, **change: Any) -> StepAction:
        return completed_action({"step_index": 1, **change}, self.recorded, self.nodes)

    def test_another_target_gets_its_role_name_and_sentence_from_the_tree(self):
        action = self.check(target_element={"id": "node_3"})
        assert action.target_element is not None
        assert (action.target_element.role, action.target_element.name) == ("button", "Button 3")
        assert action.reasoning == 'Click the "Button 3" button.'

    def test_the_reviewers_own_sentence_stays(self):
        action = self.check(target_element=None, reasoning="Open the shop.")
        assert (action.target_element, action.reasoning) == (None, "Open the shop.")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"target_element": {"id": "node_99"}}, "role"),
            (
                {"target_element": {"id": "node_99", "role": "button", "name": "x"}},
                "not in this step's tree",
            ),
            ({"parameters": {"x": 5000, "y": 5, "button": "left"}}, "outside 1920x1080"),
            ({"parameters": {"x": 5, "y": 5, "button": "nose"}}, "button"),
            ({"parameters": {"x": 5, "y": 5, "button": "left", "z": 1}}, "unknown keys"),
            ({"action_type": "double_click", "parameters": {"x": 1, "y": 1}}, "keeps the step"),
        ],
    )
    def test_an_action_that_no_step_can_have_is_refused(self, change, message):
        with pytest.raises(DecisionError, match=message):
            self.check(**change)


def test_records_get_corrected_words_steps_and_outcome(tmp_path):
    recorded = make_trajectory(tmp_path, actions=(CLICK,) * 4, success=False)
    trajectory = read_trajectory(recorded.path)
    action = json.loads((recorded.path / "steps/002/action.json").read_text())
    action["parameters"]["x"] = 11
    held = judge(
        [
            decided(1, "instruction", {"text": "Open it"}),
            decided(2, "outcome", {"success": True}),
            decided(3, "trim", {"first": 1, "last": 2}),
            decided(4, "bad_step", {"step": 1}),
            decided(5, "bad_step", {"step": 3}),
            decided(6, "action", {"action": action}),
            decided(7, "approve"),
        ],
        SUBJECT,
    )
    rows = load_provenance(recorded)
    result = corrected(trajectory, held.corrections, dict(enumerate(rows)))
    changed = result.trajectory
    assert [step.index for step in changed.steps] == [1, 2]
    assert changed.steps[1].action.parameters.x == 11  # type: ignore[attr-defined]
    assert (changed.task.instruction, changed.task.expected_steps) == ("Open it", 2)
    assert (changed.result.success, changed.result.error_message) == (True, None)
    assert changed.final_screenshot == trajectory.steps[3].screenshot
    assert result.bad_steps == {1}
    assert result.trajectory.result.completion_time_ms == 80
    assert list(result.rows) == [1, 2]
    assert judge([decided(1, "approve")], SUBJECT).corrections == NO_CORRECTIONS
