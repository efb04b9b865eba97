"""The training export `agentnetbench`: its declaration."""

from pathlib import Path

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.evaluation.agentnetbench_files import agentnetbench_counts, build_agentnetbench
from demo_pipeline.exports.agentnetbench import BENCH_TASKS, validate_agentnetbench
from demo_pipeline.stage import Check, Stage, Summary, TrainingExport, ValidatedFormat, built_again


def _run(inputs: DatasetInputs, out: Path) -> Summary:
    trajectories, settings = inputs.committed.trajectories, inputs.settings.datasets
    return build_agentnetbench(trajectories, out, settings).as_dict()


AGENTNETBENCH_STAGE: Stage[DatasetInputs] = Stage(
    name="agentnetbench",
    folder="agentnetbench",
    description="The test split in AgentNetBench's own form, a file per trajectory with the true "
    "actions and their targets' boxes, so that its script can score a model on it.",
    kinds=frozenset({"json"}),
    code_version="12",
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
    export=TrainingExport(name="agentnetbench", files="tasks/*.json", records=agentnetbench_counts),
    validated_as=ValidatedFormat(
        name="agentnetbench",
        files=(BENCH_TASKS,),
        validate=lambda path, _: validate_agentnetbench(path),
    ),
    counts=("records",),
)
