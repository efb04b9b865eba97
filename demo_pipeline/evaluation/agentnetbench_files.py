"""The test split as AgentNetBench's own files, so that its script can score it.

Source: OpenCUA, evaluation/agentnetbench/README.md. Belongs here: writing
`tasks/<trajectory>.json` and `images/`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.export_loop import ExportSummary, plan_export
from demo_pipeline.datasets.splits import Split
from demo_pipeline.evaluation.answer_forms import answer_code
from demo_pipeline.evaluation.rules import as_ground_truth, bench_truth
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.exports.agentnetbench import BENCH_IMAGES, BENCH_TASKS
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}
_README = """# AgentNetBench files of the test split

`tasks/` and `images/` are what `--data` and `--image_dir` of OpenCUA's
`evaluation/agentnetbench/run.py` read. A step is one action of a person, with the target's box
where it is known, and has no alternative: a demonstration shows one way. Drags and scrolls begin
with a move. The words in `inner_monologue` are made by a template. The script has no rule for waits
and the middle button, and it reads the triple click of an answer as `triple_click`, which is not
the `tripleClick` that it has a rule for: all of them have 0 whatever is answered.
"""


def build_agentnetbench(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Write the steps of the test split, a file per trajectory.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into.
        settings: what takes part, and the splits.
    """
    for folder in (BENCH_TASKS, BENCH_IMAGES):
        (out / folder).mkdir(parents=True, exist_ok=True)
    writer = _TaskWriter(out)
    plan = plan_export(trajectories, settings)
    summary = each_true_step(plan, settings, [Split.TEST], writer.add)
    writer.end()
    (out / "README.md").write_text(_README, encoding="utf-8")
    return summary


class _TaskWriter:
    """Collects the steps of one trajectory after the other."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._task: dict[str, Any] = {}

    def add(self, record: StepRecord) -> None:
        step = record.step
        if self._task.get("task_id") != step.trajectory_id:
            self.end()
            self._task = _head(record)
        image = f"{step.trajectory_id}_{step.step_index}.png"
        link_or_copy(step.screenshot, self._out / BENCH_IMAGES / image)
        self._task["steps"].append(
            {
                "step_num": step.step_index,
                "image": image,
                "action": answer_code(record),
                "milestone": False,
                "inner_monologue": {
                    "observation": "",
                    "thought": "",
                    "low_level_instruction": step.reasoning,
                },
                "ground_truth_actions": [as_ground_truth(part) for part in bench_truth(step)],
                "alternative_options": [],
            }
        )

    def end(self) -> None:
        """Write the file of the trajectory, if there is one."""
        if self._task:
            dump_json(self._out / BENCH_TASKS / f"{self._task['task_id']}.json", self._task)
            self._task = {}


def _head(record: StepRecord) -> dict[str, Any]:
    step, instruction = record.step, record.trajectory.task.instruction
    return {
        "task_id": step.trajectory_id,
        "user_task_description": instruction,
        "high_level_task_description": instruction,
        "meta_info": {
            "applications": [step.application],
            "system": _SYSTEMS.get(step.platform, step.platform),
            "screen_resolution": {"width": step.size[0], "height": step.size[1]},
        },
        "steps": [],
    }


def agentnetbench_counts(folder: Path) -> Mapping[str, int]:
    """Trajectory → number of its steps."""
    files = sorted((folder / BENCH_TASKS).glob("*.json"))
    return {file.stem: len(load_json(file)["steps"]) for file in files}
