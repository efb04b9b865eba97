"""The test split as AgentNetBench's own files, so that its script can score it.

Source: OpenCUA, evaluation/agentnetbench/README.md. Belongs here: writing `tasks/<trajectory>.json`
and `images/`, and the declaration of the training export.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.export_loop import ExportSummary, plan_export
from demo_pipeline.datasets.splits import Split
from demo_pipeline.evaluation.answer_forms import answer_code
from demo_pipeline.evaluation.rules import as_ground_truth, bench_truth
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.exports.agentnet import BENCH_IMAGES, BENCH_TASKS, validate_agentnetbench
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.json_files import dump_json, load_json
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.stage import Check, Stage, Summary, TrainingExport, ValidatedFormat, built_again
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}
_README = """# AgentNetBench files of the test split

`tasks/` and `images/` are what `--data` and `--image_dir` of OpenCUA's
`evaluation/agentnetbench/run.py` read. A step is one action of a person, with the target's box
where it is known, and has no alternative: a demonstration shows one way. Drags and scrolls begin
with a move. The words in `inner_monologue` are made by a template. The script has no rule for waits
and the middle button, and it reads the triple click of an answer as `triple_click`, which is not
the `tripleClick` that it has a rule for: all of them have 0 whatever is answered. It reads no
`hscroll` of an answer: a sideways scroll has at most the half for its move.
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
    task: dict[str, Any] = {}  # of the trajectory whose steps come

    def end() -> None:
        if task:
            dump_json(out / BENCH_TASKS / f"{task['task_id']}.json", task)
            task.clear()

    def add(record: StepRecord) -> None:
        if task.get("task_id") != record.step.trajectory_id:
            end()
            task.update(_head(record))
        image = f"{record.step.trajectory_id}_{record.step.step_index}.png"
        link_or_copy(record.step.screenshot, out / BENCH_IMAGES / image)
        task["steps"].append(_step(record, image))

    summary = each_true_step(plan_export(trajectories, settings), settings, [Split.TEST], add)
    end()
    (out / "README.md").write_text(_README, encoding="utf-8")
    return summary


def _step(record: StepRecord, image: str) -> dict[str, Any]:
    step = record.step
    return {
        "step_num": step.step_index,
        "image": image,
        "action": answer_code(record),
        "milestone": False,
        "inner_monologue": {
            "observation": "",
            "thought": "",
            "low_level_instruction": record.draft.metadata.reasoning,
        },
        "ground_truth_actions": [as_ground_truth(part) for part in bench_truth(step)],
        "alternative_options": [],
    }


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


def _run(inputs: DatasetInputs, out: Path) -> Summary:
    trajectories, settings = inputs.committed.trajectories, inputs.settings.datasets
    return build_agentnetbench(trajectories, out, settings).as_dict()


_STAGE: Stage[DatasetInputs] = Stage(
    name="agentnetbench",
    folder="agentnetbench",
    description="The test split in AgentNetBench's own form, a file per trajectory with the true "
    "actions and their targets' boxes, so that its script can score a model on it.",
    kinds=frozenset({"json"}),
    code_version="15",
    section=lambda settings: settings.datasets,
    build=_run,
    checks=(
        Check(
            "agentnetbench_files",
            "Every task has its keys, pictures, true actions and boxes.",
            built_again(_run, lambda _, out: validate_agentnetbench(out)),
            compared=("records",),
        ),
    ),
)
AGENTNETBENCH_EXPORT = TrainingExport(
    stage=_STAGE,
    name="agentnetbench",
    files="tasks/*.json",
    records=agentnetbench_counts,
    validated_as=ValidatedFormat(
        name="agentnetbench",
        files=(BENCH_TASKS,),
        validate=lambda path, _: validate_agentnetbench(path),
    ),
)
