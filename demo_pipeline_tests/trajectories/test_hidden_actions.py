"""Tests of the gaps that hidden actions leave, and of hidden actions in prompts and exports."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.datasets.index import build_index
from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.exports.cards import describe_index
from demo_pipeline.exports.cudag.dataset import dataset_directory_name
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.problems import errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    NOTHING_HIDDEN,
    HiddenActions,
)
from demo_pipeline_tests.datasets.builders import CLICK, hide, make_trajectory, read_lines
from demo_pipeline_tests.exports.cudag.editing import read_records
from demo_pipeline_tests.exports.forms import build_cudag, build_sft
from demo_pipeline_tests.fixed_values import settings_with

ALL_TRAIN = DatasetSettings(train_ratio=1.0, val_ratio=0.0)
TYPE = ("type", {"text": "visible words"})
BEFORE = st.lists(st.integers(0, 12), max_size=8).map(sorted)


def hidden(*before: int) -> HiddenActions:
    return HiddenActions(tuple(hide(step) for step in before))


class TestWhereTheyAre:
    """Tests of the gaps that hidden actions leave between the steps."""

    def test_the_longest_stretch_lies_between_two_gaps(self):
        assert hidden(2, 2, 7).longest_stretch(9) == range(2, 7)
        assert hidden(0, 9).longest_stretch(9) == range(9)
        assert hidden(3).longest_stretch(6) == range(3)
        assert NOTHING_HIDDEN.longest_stretch(0) == range(0)

    @given(BEFORE, st.integers(0, 12))
    def test_no_gap_is_inside_the_longest_stretch_and_none_is_longer(self, before, steps):
        actions = hidden(*(step for step in before if step <= steps))
        stretch = actions.longest_stretch(steps)
        assert set(stretch) <= set(range(steps))
        assert not any(actions.before(step) for step in stretch[1:])
        gaps = sorted({0, steps, *(action.before_step for action in actions.actions)})
        assert len(stretch) == max((end - start for start, end in pairwise(gaps)), default=0)

    def test_a_trajectory_without_hidden_actions_is_used_even_if_it_is_short(self):
        assert NOTHING_HIDDEN.whole_stretch(1, 3) == range(1)
        assert hidden(3).whole_stretch(5, 3) == range(3)
        assert hidden(2).whole_stretch(4, 3) is None

    def test_the_share_is_of_all_actions_before_a_step(self):
        late = hidden(4, 4, 4, 4)
        assert late.incomplete_steps(7, set(), 0.3) == {4, 5, 6, 7}
        assert late.incomplete_steps(7, set(), 0.5) == set()
        assert hidden(0).incomplete_steps(5, set(), 0.3) == {0, 1, 2}
        assert hidden(0).incomplete_steps(5, {1}, 0.3) == {0, 1, 2, 3}  # a wait is not an action
        assert hidden(3).incomplete_steps(2, set(), 0.0) == set()
        assert NOTHING_HIDDEN.incomplete_steps(0, set(), 0.0) == set()

    @given(BEFORE, st.integers(0, 12), st.sets(st.integers(0, 12)), st.floats(0, 1))
    def test_no_step_is_left_out_before_the_first_hidden_action(self, before, steps, waits, share):
        incomplete = hidden(*before).incomplete_steps(steps, waits, share)
        assert all(index >= min(before, default=13) for index in incomplete)


class TestWords:
    """Tests of how a prompt names hidden actions."""

    @pytest.mark.parametrize(
        ("kind", "reason", "words"),
        [
            ("click", "off_screen", "4. clicked outside the recorded screen"),
            ("type", "before_video", "4. typed text before the recording began"),
            ("hotkey", "after_video", "4. pressed keys after the recording had ended"),
            ("drag", "no_position", "4. dragged at an unknown place"),
            ("scroll", "undecodable", "4. scrolled while the screen was not recorded"),
            ("right_click", "unknown_scale", "4. right-clicked at an unknown place"),
            ("swipe", "of_tomorrow", "4. acted out of sight"),
        ],
    )
    def test_every_type_and_reason_has_words(self, kind, reason, words):
        assert f"4. {hidden_words(hide(0, kind, reason))}" == words


GAPS = [(0, "click", "before_video"), (2, "type", "off_screen"), (2, "click", "off_screen")]


def demo_with(root: Path, name: str, steps: int, *before: int, **more: Any):
    gaps = [(step, "click", "off_screen") for step in before]
    instruction = f"Do {name}"
    return make_trajectory(
        root, name, [CLICK] * steps, hidden=gaps, instruction=instruction, **more
    )


class TestSelection:
    """Tests of which demonstrations with hidden actions are in a dataset."""

    def test_the_steps_before_the_first_hidden_action_are_used(self, tmp_path, monkeypatch):
        demo = demo_with(tmp_path, "late", 7, 4, 4, 4, 4)
        summary = build_sft([demo], tmp_path / "sft", ALL_TRAIN)
        lines = read_lines(tmp_path / "sft" / "samples.jsonl")
        assert [line["output"]["action"]["step_index"] for line in lines] == [0, 1, 2, 3]
        assert summary.excluded_trajectories["incomplete"] == 0
        assert summary.excluded_records["incomplete"] == 3
        assert summary.hidden_actions == {"off_screen": 4}
        out = tmp_path / dataset_directory_name([demo], ALL_TRAIN)
        # The fourth record is the end of the trajectory.
        assert build_cudag([demo], out, ALL_TRAIN).excluded_records["incomplete"] == 4
        assert errors(validate_cudag(out)) == []
        assert len(list(read_records(out / "train.jsonl"))) == 4
        monkeypatch.setattr(DatasetSettings, "max_hidden_share", 0.5)
        assert build_sft([demo], tmp_path / "half", ALL_TRAIN).total == 7

    def test_an_incomplete_demonstration_fills_no_split(self, tmp_path):
        settings = DatasetSettings()
        usable = [demo_with(tmp_path, f"usable{n}", 3, shade=9 * n) for n in range(3)]
        sparse = [demo_with(tmp_path, f"sparse{n}", 3, 0, 0, 0, shade=50 + n) for n in range(6)]
        alone = plan_export(usable, settings).splits
        together = plan_export([*usable, *sparse], settings).splits
        assert together == alone
        assert set(alone.splits.values()) == {Split.TRAIN, Split.VAL, Split.TEST}
        whole = plan_export([*usable, *sparse], settings, whole_trajectories=True).splits
        assert alone.splits.items() <= whole.splits.items()
        assert len(whole.splits) == 9


def test_whole_trajectories_are_the_longest_stretch_without_a_gap(tmp_path):
    demos = [
        demo_with(tmp_path, "complete", 2),
        demo_with(tmp_path, "torn", 9, 0, 0, 0, 4, 4, 4, 4, 4, 9),
        demo_with(tmp_path, "scraps", 4, 2),
    ]
    plan = plan_export(demos, ALL_TRAIN, whole_trajectories=True)
    stretches = {
        selection.source.id: list(selection.stretch or ()) for selection in plan.selection.chosen
    }
    assert stretches == {"complete": [0, 1], "torn": [4, 5, 6, 7, 8]}
    assert plan.selection.excluded["incomplete"] == 1
    shorter = settings_with(DatasetSettings, train_ratio=1.0, val_ratio=0.0, min_steps=2)
    plan = plan_export(demos, shorter, whole_trajectories=True)
    assert len(plan.selection.chosen) == 3


def test_index_tables_card_and_metadata_count_them_by_reason(tmp_path):
    demos = [
        make_trajectory(tmp_path, "torn", [CLICK] * 3, hidden=GAPS),
        make_trajectory(tmp_path, "whole", [CLICK], hidden=[]),
        make_trajectory(tmp_path, "older", [CLICK]),
    ]
    out = tmp_path / "out"
    build_index(demos, out, ALL_TRAIN, ("demo_pipeline", "0"))
    rows = {
        row["trajectory_id"]: row for row in pq.read_table(out / "trajectories.parquet").to_pylist()
    }
    assert [rows[key]["complete"] for key in ("torn", "whole", "older")] == [False, True, True]
    assert (rows["torn"]["success"], rows["torn"]["hidden_actions"]) == (True, 3)
    reasons = {key: count for key, count in rows["torn"]["hidden_reasons"].items() if count}
    assert reasons == {"before_video": 1, "off_screen": 2}
    counts = json.loads((out / "metadata.json").read_text())["counts"]
    assert (counts["complete"], counts["incomplete"], counts["successful"]) == (2, 1, 3)
    assert counts["hidden_actions"] == reasons
    table = pq.read_table(out / HIDDEN_ACTIONS_FILE)
    assert table.schema.equals(HIDDEN_ACTIONS_SCHEMA)
    assert table["trajectory_id"].to_pylist() == ["torn"] * 3
    entries = json.loads((out / "index.json").read_text())["trajectories"]
    keys = set().union(*entries)
    assert keys == {"id", "task_id", "success", "steps", "application"}
    describe_index(out, ALL_TRAIN)
    assert "| actions left out: off screen | 2 |" in (out / "README.md").read_text()
