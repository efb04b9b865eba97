"""Tests of the data of the review page: the timeline and the tiles of the grid."""

from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.actions.action_tables import CONTINUED, read_actions
from demo_pipeline.review import review_data
from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.trajectories.provenance import HiddenAction, HiddenActions, HiddenReason
from demo_pipeline_tests.sample_workspace import open_workspace


def data_of(root: Path) -> ReviewData:
    workspace = open_workspace(root)
    return ReviewData(workspace.store, workspace.uploads)


def test_every_bar_of_the_desktop_recordings_is_a_step(real_root):
    data = data_of(real_root)
    for name in ("20261121_212358", "20261121_212801"):
        demonstration = data.demonstration(name)
        assert demonstration is not None
        bars = demonstration["timeline"]["actions"]
        assert [bar["step"] for bar in bars] == [step["index"] for step in demonstration["steps"]]
        assert {bar["hidden"] for bar in bars} == {None}


def test_continued_typing_extends_its_step_and_only_hidden_actions_are_marked(
    made_root, monkeypatch
):
    folder = open_workspace(made_root).store.open("actions/first")[0]
    actions = read_actions(folder)
    typed = next(action for action in actions if action.action_type == "type")
    place = actions.index(typed) + 1
    later = typed.end_ms + 3000
    continued = replace(
        typed, action_index=97, press_ms=later - 500, end_ms=later, flags=[CONTINUED]
    )
    hidden = replace(typed, action_index=98, action_type="click", press_ms=later, text=None)
    ignored = replace(hidden, action_index=99)  # neither a step nor a hidden action, like a pause
    recorded = [*actions[:place], continued, hidden, ignored, *actions[place:]]
    listed = HiddenAction(3, 98, "click", later, HiddenReason.OFF_SCREEN)
    monkeypatch.setattr(review_data, "read_actions", lambda _: recorded)
    monkeypatch.setattr(review_data, "read_hidden_actions", lambda _: HiddenActions((listed,)))
    demonstration = data_of(made_root).demonstration("first")
    assert demonstration is not None
    bars = demonstration["timeline"]["actions"]
    steps = [step["index"] for step in demonstration["steps"]]
    assert sorted(bar["step"] for bar in bars if bar["hidden"] is None) == steps
    assert [bar["hidden"] for bar in bars if bar["step"] is None] == ["off_screen"]
    [typing] = [
        step["index"] for step in demonstration["steps"] if step["action"]["action_type"] == "type"
    ]
    [bar] = [bar for bar in bars if bar["step"] == typing]
    assert bar["to"] - bar["from"] == pytest.approx((later - typed.press_ms) / 1000, abs=0.01)


def test_a_step_has_the_evidence_for_its_text_and_its_clock(made_root):
    demonstration = data_of(made_root).demonstration("first")
    assert demonstration is not None
    [typing] = [step for step in demonstration["steps"] if step["action"]["action_type"] == "type"]
    assert typing["text_evidence"] in {"confirmed", "unseen"}
    assert typing["clock_uncertainty_ms"] >= 0
    assert typing["clock_method"]


def test_a_tile_has_the_action_with_its_points_and_the_targets_box(made_root):
    tiles = [tile for tile in data_of(made_root).steps() if tile["demo"] == "first"]
    click = tiles[0]
    assert click["action"] == "click"
    [(x, y)] = click["points"]
    left, top, width, height = click["box"]
    assert left <= x < left + width
    assert top <= y < top + height
    assert [tile["text"] for tile in tiles if tile["action"] == "type"] == ["Ab, c!"]
