"""Tests of the SFT samples of OSWorld-Desktopd."""

import itertools
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.exports.sft import SFT_SCHEMA, SftSample, validate_sft, validate_sft_folder
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
    snapshot,
)
from demo_pipeline_tests.exports.forms import build_sft


def test_every_step_gives_a_sample_with_the_previous_actions(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    summary = build_sft([demo], tmp_path / "sft", DatasetSettings())
    lines = read_lines(tmp_path / "sft" / "samples.jsonl")
    assert summary.total == len(lines) == len(TABLE)
    actions = [
        json.loads((demo.path / "steps" / f"{n:03d}" / "action.json").read_text())
        for n in range(len(TABLE))
    ]
    for number, line in enumerate(lines):
        assert SftSample.model_validate(line)
        folder = f"trajectories/demo/steps/{number:03d}"
        assert line == {
            "input": {
                "instruction": "Open Chrome",
                "screenshot": f"{folder}/screenshot.png",
                "ui_tree": f"{folder}/ui_tree.json",
                "history": actions[:number],
            },
            "output": {"action": actions[number], "reasoning": f"Step {number} of the work"},
            "freshness": "fresh",
            "tree_agreement": "agrees",
        }
        assert (tmp_path / line["input"]["screenshot"]).is_file()


def test_a_differing_tree_is_left_out_together_with_the_target(tmp_path):
    target = {"id": "node_0", "role": "desktop", "name": ""}
    demo = make_trajectory(
        tmp_path, "demo", [CLICK] * 3, rows={1: {"tree_agreement": "differs"}}, targets={1: target}
    )
    build_sft([demo], tmp_path / "sft", DatasetSettings(train_ratio=1, val_ratio=0))
    first, second, third = read_lines(tmp_path / "sft/samples.jsonl")
    assert second["input"]["ui_tree"] is None
    assert (second["tree_agreement"], third["tree_agreement"]) == ("differs", "agrees")
    assert first["input"]["ui_tree"]
    assert third["input"]["ui_tree"]
    written = json.loads((demo.path / "steps/001/action.json").read_text())
    assert written["target_element"] == target
    assert second["output"]["action"] == {**written, "target_element": None}
    assert third["input"]["history"][1] == written
    assert not (tmp_path / "sft/trajectories/demo/steps/001/ui_tree.json").exists()
    assert validate_sft_folder(tmp_path / "sft") == []


def test_a_hidden_action_is_a_gap_in_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, hidden=[(1, "click", "off_screen")])
    build_sft([demo], tmp_path / "sft", DatasetSettings(train_ratio=1, val_ratio=0))
    histories = [line["input"]["history"] for line in read_lines(tmp_path / "sft/samples.jsonl")]
    gap: dict[str, Any] = {
        "step_index": None,
        "action_type": "gap",
        "parameters": {},
        "target_element": None,
        "reasoning": "Not shown: clicked outside the recorded screen.",
    }
    assert [[entry["step_index"] for entry in history] for history in histories] == [
        [],
        [0, None],
        [0, None, 1],
    ]
    assert histories[2][1] == gap
    assert validate_sft_folder(tmp_path / "sft") == []


BEYOND_THE_TABLE = (
    ("click", {"x": 5, "y": 6, "button": "left", "clicks": 3}),
    ("click", {"x": 5, "y": 6, "button": "left", "modifiers": ["ctrl"]}),
    ("double_click", {"x": 5, "y": 6, "modifiers": ["shift"]}),
    ("hotkey", {"keys": ["down"], "presses": 4}),
    ("drag", {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4, "button": "right"}),
    ("drag", {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4, "clicks": 2}),
)


def test_with_documented_keys_samples_have_no_other_keys(tmp_path):
    """Actions with an undocumented JSON key are only counted: no sample or history has them."""
    table = [*TABLE[:2], *TABLE[3:]]  # without the triple click
    actions = [table[0], *BEYOND_THE_TABLE, *table[1:]]
    demo = make_trajectory(tmp_path, "demo", actions, hidden=[(8, "click", "off_screen")])
    settings = DatasetSettings(train_ratio=1, val_ratio=0, sft_keys="documented")
    summary = build_sft([demo], tmp_path / "sft", settings)
    assert summary.excluded_records["undocumented_parameters"] == len(BEYOND_THE_TABLE)
    lines = read_lines(tmp_path / "sft" / "samples.jsonl")
    assert len(lines) == summary.total == len(table)
    keys = {
        "click": {"x", "y", "button"},
        "double_click": {"x", "y"},
        "right_click": {"x", "y"},
        "type": {"text"},
        "hotkey": {"keys"},
        "scroll": {"x", "y", "direction", "amount"},
        "drag": {"start_x", "start_y", "end_x", "end_y"},
        "wait": {"seconds"},
    }
    for number, line in enumerate(lines):
        assert line.keys() == {"input", "output"}
        assert line["input"].keys() == {"instruction", "screenshot", "ui_tree", "history"}
        assert line["output"].keys() == {"action", "reasoning"}
        history = line["input"]["history"]
        assert len(history) == number
        for action in [*history, line["output"]["action"]]:
            assert action["parameters"].keys() == keys[action["action_type"]]
    assert {action["action_type"] for action in history} == keys.keys() - {"wait"}
    assert validate_sft_folder(tmp_path / "sft") == []


def test_a_sample_has_the_known_effect_of_its_step(tmp_path):
    facts = {0: {"screen_changed": True, "taken_back_by": 1}, 1: {"screen_changed": False}}
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows=facts)
    build_sft([demo], tmp_path / "sft", DatasetSettings(train_ratio=1, val_ratio=0))
    lines = read_lines(tmp_path / "sft/samples.jsonl")
    effects = [(line.get("screen_changed"), line.get("taken_back_by")) for line in lines]
    assert effects == [(True, 1), (False, None), (None, None)]
    assert "screen_changed" not in lines[2]
    assert validate_sft_folder(tmp_path / "sft") == []


def test_a_missing_tree_is_a_problem_unless_it_differs(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK])
    build_sft([demo], tmp_path / "sft", DatasetSettings())
    path = tmp_path / "sft" / "samples.jsonl"
    [line] = read_lines(path)
    line["input"]["ui_tree"] = None
    path.write_text(json.dumps(line) + "\n")
    assert "input.ui_tree" in str(validate_sft(path)[0])
    path.write_text(json.dumps({**line, "tree_agreement": "differs"}) + "\n")
    assert validate_sft(path) == []


def test_only_files_that_a_sample_names_are_written(tmp_path):
    demos = [
        make_trajectory(tmp_path, "good", [CLICK, CLICK], rows={1: {"pts": None}}),
        make_trajectory(tmp_path, "bad", success=False, shade=9),
    ]
    build_sft(demos, tmp_path / "sft", DatasetSettings())
    shipped = tmp_path / "sft" / "trajectories"
    assert set(snapshot(shipped)) == {
        "good/steps/000/screenshot.png",
        "good/steps/000/ui_tree.json",
    }
    source = demos[0].path / "steps/000/screenshot.png"
    assert (shipped / "good/steps/000/screenshot.png").samefile(source)


def test_a_sample_with_an_inline_tree_is_valid(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK])
    build_sft([demo], tmp_path / "sft", DatasetSettings())
    path = tmp_path / "sft/samples.jsonl"
    [line] = read_lines(path)
    line["input"]["ui_tree"] = json.loads((demo.path / "steps/000/ui_tree.json").read_text())
    assert SftSample.model_validate(line)
    path.write_text(json.dumps(line) + "\n")
    assert validate_sft(path) == []


def demos_of_tasks(root, count=12):
    return [
        make_trajectory(
            root, f"demo{n}", TABLE[n : n + 2], instruction=f"Do {n}", group=f"g{n // 2}"
        )
        for n in range(count)
    ]


def test_splits_and_tables_hold_the_same_samples(tmp_path):
    summary = build_sft(demos_of_tasks(tmp_path), tmp_path / "sft", DatasetSettings())
    whole = read_lines(tmp_path / "sft" / "samples.jsonl")
    parts = {
        name: read_lines(tmp_path / "sft" / f"{name}.jsonl") for name in ("train", "val", "test")
    }
    assert {name: len(lines) for name, lines in parts.items()} | {"held_out": 0} == summary.records
    assert all(parts.values())
    in_parts = itertools.chain.from_iterable(parts.values())
    assert sorted(map(json.dumps, whole)) == sorted(map(json.dumps, in_parts))
    table = pq.read_table(tmp_path / "sft" / "samples.parquet")
    assert table.schema.equals(SFT_SCHEMA)
    for row, line in zip(table.to_pylist(), whole, strict=True):
        assert json.loads(row["action"]) == line["output"]["action"]
        assert json.loads(row["history"]) == line["input"]["history"]
        assert row["screenshot"] == line["input"]["screenshot"]
    for name, lines in parts.items():
        rows = pq.read_table(tmp_path / "sft" / f"{name}.parquet").to_pylist()
        assert {row["split"] for row in rows} == {name}
        assert [row["ui_tree"] for row in rows] == [line["input"]["ui_tree"] for line in lines]


@pytest.mark.parametrize("avoidable", [False, True])
@pytest.mark.parametrize("unavoidable", [False, True])
def test_settings_decide_whether_leaking_steps_give_samples(tmp_path, avoidable, unavoidable):
    rows = {0: {"leak": True}, 1: {"leak": True, "unavoidable": True}}
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK, CLICK], rows=rows)
    asked = DatasetSettings(
        include_avoidable_leaks=avoidable, include_unavoidable_leaks=unavoidable
    )
    summary = build_sft([demo], tmp_path / "sft", asked)
    assert summary.total == 1 + avoidable + unavoidable
    counts = summary.excluded_records
    assert (counts["avoidable_leak"], counts["unavoidable_leak"]) == (
        not avoidable,
        not unavoidable,
    )


def test_a_step_with_an_unproven_clock_gives_no_sample(tmp_path):
    demo = make_trajectory(
        tmp_path, "demo", [CLICK, CLICK, CLICK], rows={1: {"unproven_clock": True}}
    )
    summary = build_sft([demo], tmp_path / "sft", DatasetSettings())
    assert summary.total == 2
    assert summary.excluded_records["unproven_clock"] == 1
