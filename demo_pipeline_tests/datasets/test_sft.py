"""SFT samples: seed 001, section 6."""

import json

from demo_pipeline.datasets.sft import build_sft
from demo_pipeline.formats.desktopd import SftSample
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, read_lines


def test_a_sample_a_step_with_the_actions_before_it(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    summary = build_sft([demo], tmp_path / "sft", DatasetSettings())
    lines = read_lines(tmp_path / "sft" / "samples.jsonl")
    assert summary.samples == len(lines) == len(TABLE)
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
        }
        assert (tmp_path / line["input"]["screenshot"]).is_file()


def test_failed_demonstrations_take_part_only_when_asked(tmp_path):
    demos = [make_trajectory(tmp_path, "good"), make_trajectory(tmp_path, "bad", success=False)]
    summary = build_sft(demos, tmp_path / "one", DatasetSettings())
    assert (summary.samples, summary.excluded_trajectories["failed"]) == (1, 1)
    summary = build_sft(demos, tmp_path / "two", DatasetSettings(include_failed=True))
    assert (summary.samples, summary.trajectories) == (2, 2)


def test_a_step_without_a_true_picture_is_history_only(tmp_path):
    rows = {0: {"pts": None}, 1: {"off_screen": True}}
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK, CLICK], rows=rows)
    summary = build_sft([demo], tmp_path / "sft", DatasetSettings())
    (line,) = read_lines(tmp_path / "sft" / "samples.jsonl")
    assert [action["step_index"] for action in line["input"]["history"]] == [0, 1]
    assert summary.excluded_samples == {"off_screen": 1, "missing_frame": 1}


def test_a_broken_demonstration_is_counted_and_the_rest_is_written_alike(tmp_path):
    demos = [make_trajectory(tmp_path, name) for name in "abc"]
    build_sft([demos[2], demos[0]], tmp_path / "without", DatasetSettings())
    (demos[1].path / "steps" / "000" / "action.json").unlink()
    summary = build_sft(demos, tmp_path / "with", DatasetSettings())
    first, second = (tmp_path / name / "samples.jsonl" for name in ("with", "without"))
    assert first.read_bytes() == second.read_bytes()
    assert summary.excluded_trajectories["unreadable"] == 1
    assert summary.problems[0].demonstration == "b"
