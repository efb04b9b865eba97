"""Tests requests and correct answers in the format of OpenCUA's models."""

from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.evaluation.answer_forms import answer_opencua, ask_opencua
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.files.json_files import load_json
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, write_json
from demo_pipeline_tests.fixed_values import settings_with

SETTINGS = settings_with(DatasetSettings, max_hidden_share=1.0)
TYPE = ("type", {"text": "x"})


def records_of(trajectory: DatasetTrajectory) -> list[StepRecord]:
    records: list[StepRecord] = []
    each_true_step(plan_export([trajectory], SETTINGS), SETTINGS, list(Split), records.append)
    return records


def question(record: StepRecord) -> str:
    return ask_opencua(record, SETTINGS)[1]


def test_hidden_actions_are_in_the_question_in_words(tmp_path):
    hidden = [(1, "click", "off_screen"), (2, "type", "off_screen")]
    records = records_of(make_trajectory(tmp_path, actions=[CLICK, TYPE, CLICK], hidden=hidden))
    assert [question(record).count("# Step ") for record in records[:3]] == [0, 2, 4]
    assert question(records[2]).split("\n\n") == [
        "# Task:\nOpen Chrome",
        "# Step 1:\n## Action:\nStep 0 of the work\n## Code:\npyautogui.click(x=0.5, y=0.5)",
        "# Step 2:\n## Action:\nclicked outside the recorded screen",
        "# Step 3:\n## Action:\nStep 1 of the work\n## Code:\npyautogui.write(message='x')",
        "# Step 4:\n## Action:\ntyped text outside the recorded screen",
    ]


def test_sentences_have_positions_in_the_same_form_as_the_code(tmp_path):
    trajectory = make_trajectory(tmp_path, actions=[CLICK, TYPE])
    file = trajectory.path / "steps/000/action.json"
    write_json(file, {**load_json(file), "reasoning": "Click at (960, 540).\nIt is <image>."})
    first, second, end = records_of(trajectory)
    words = "Click at (0.5, 0.5). It is [image]."
    code = "pyautogui.click(x=0.5, y=0.5)"
    assert answer_opencua(first) == f"## Action:\n{words}\n\n## Code:\n{code}"
    assert question(second).endswith(f"# Step 1:\n## Action:\n{words}\n## Code:\n{code}")
    assert answer_opencua(end) == (
        "## Action:\nEnd the task: it is done.\n\n## Code:\ncomputer.terminate(status='success')"
    )
