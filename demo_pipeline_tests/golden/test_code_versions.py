"""Tests that changed code of a stage is recorded, with a higher version if its output changes."""

from dataclasses import replace

import pytest

from demo_pipeline_tests.golden.code_versions import (
    StageRecord,
    committed_records,
    current_records,
    functions,
    not_raised,
    stages,
    unrecorded,
)
from demo_pipeline_tests.golden.outputs import committed_texts
from demo_pipeline_tests.golden.stage_code import PACKAGE, CodeClosure

RECORD = StageRecord("3", "code", "outputs")


@pytest.fixture(scope="module")
def current() -> dict[str, StageRecord]:
    return current_records(committed_texts())


def test_every_stage_is_recorded_and_no_other():
    assert list(committed_records()) == list(stages()), "run `make code-versions`"


@pytest.mark.parametrize("name", list(stages()))
def test_the_code_of_the_stage_is_recorded(name, current):
    problem = unrecorded(name, committed_records().get(name), current[name])
    if problem:
        pytest.fail(problem, pytrace=False)


class TestDecision:
    """Tests which changes may be recorded as they are, and the messages about other changes."""

    def test_a_refactoring_that_changes_no_output_is_recorded_without_a_new_version(self):
        now = replace(RECORD, code="other")
        assert not_raised("events", RECORD, now) is None
        problem = unrecorded("events", RECORD, now)
        assert problem is not None
        assert "'events'" in problem
        assert "demo_pipeline/recording/recording_stages.py:" in problem
        assert "from '3' to '4'" in problem
        assert "`make code-versions`" in problem

    def test_new_code_with_other_outputs_needs_a_higher_version(self):
        now = replace(RECORD, code="other", outputs="other")
        refusal = not_raised("sft_samples", RECORD, now)
        assert refusal is not None
        assert "from '3' to '4'" in refusal
        assert unrecorded("sft_samples", RECORD, now) == refusal
        assert not_raised("sft_samples", RECORD, replace(now, code_version="4")) is None


def digest(stage: str, module: str = "", before: str = "", after: str = "") -> str:
    """Returns the hash of a stage's code, with one text of one module replaced."""
    changed = {}
    if module:
        source = PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
        assert before in source
        changed = {f"demo_pipeline.{module}": source.replace(before, after)}
    return CodeClosure(functions(stages()[stage]), changed).digest()


class TestClosure:
    """Tests what counts as the code of a stage."""

    def test_a_constant_of_a_helper_counts_where_it_is_used(self):
        edit = ("actions.scrolls", "120", "121")
        assert digest("actions", *edit) != digest("actions")
        assert digest("events", *edit) == digest("events")
        assert digest("contact_sheets", *edit) == digest("contact_sheets")

    def test_docstrings_comments_and_layout_do_not_count(self):
        path = PACKAGE / "actions" / "scrolls.py"
        source = path.read_text("utf-8")
        opening = source.split('"""')[1]
        assert digest("actions", "actions.scrolls", opening, "Other words.") == digest("actions")
        assert digest("actions", "actions.scrolls", source, f"{source}\n\n# a comment\n") == digest(
            "actions"
        )

    def test_a_pure_move_does_not_count(self):
        here = "demo_pipeline.actions.scrolls"
        there = "demo_pipeline.elsewhere"
        moved = {there: PACKAGE.joinpath("actions", "scrolls.py").read_text("utf-8")}
        for path in PACKAGE.rglob("*.py"):
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            if here in (source := path.read_text("utf-8")):
                moved[name] = source.replace(here, there)
        assert len(moved) > 3
        for stage in ("actions", "screenshots", "trajectories"):
            changed = CodeClosure(functions(stages()[stage]), moved)
            assert not changed.modules() & {here}
            assert changed.digest() == digest(stage)

    def test_the_functions_of_every_stage_reach_their_subject(self):
        subjects = {
            "raw_recordings": "recording.manifest",
            "events": "recording.input_log",
            "actions": "actions.keyboard",
            "screenshots": "observation.clock.clock_evidence",
            "ui_trees": "observation.trees.hit_test",
            "trajectories": "desktopd.validator",
            "contact_sheets": "trajectories.overlay",
            "sft_samples": "exports.sft",
            "messages_dataset": "exports.prompts",
            "cudag_dataset": "exports.cudag.record_rules",
            "trajectory_index": "exports.cards",
            "osworld_quests": "osworld.task_text",
        }
        for name, subject in subjects.items():
            modules = CodeClosure(functions(stages()[name])).modules()
            assert f"demo_pipeline.{subject}" in modules, name
