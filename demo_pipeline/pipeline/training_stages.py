"""The registry of the training exports: SFT samples, chats, and the CUDAG dataset.

Belongs here: entries only, as in dataset_stages.py.
"""

from demo_pipeline.datasets.views import OF_SPLIT, View
from demo_pipeline.evaluation.agentnetbench_files import agentnetbench_counts
from demo_pipeline.exports.dataset_stats import (
    cudag_record_counts,
    messages_record_counts,
    sft_record_counts,
)
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.pipeline import cudag_directories
from demo_pipeline.pipeline import dataset_builds as builds
from demo_pipeline.pipeline import validated_formats as formats
from demo_pipeline.pipeline.derived_export_stages import DERIVED_STAGES
from demo_pipeline.pipeline.stage_types import Check, DatasetStage, TrainingExport
from demo_pipeline.pipeline.trajectory_export_stages import TRAJECTORY_STAGES

EXPORT_LOOP_VERSION = "11"  # of the stages that export trajectories: they share the export loop

SFT_STAGE = DatasetStage(
    name="sft_samples",
    output="sft",
    description="OSWorld-Desktopd SFT samples: one per step with instruction, screenshot, tree, "
    "history, action and reasoning, together and by split. Failed demonstrations are left out "
    "and counted.",
    kinds=frozenset({"json", "parquet"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=builds.run_sft,
    checks=(
        Check(
            "sft_schema",
            "Every line is a valid SFT sample whose screenshot and tree exist.",
            builds.verify_sft,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="sft",
        files="samples.parquet",
        records=sft_record_counts,
        all_written=True,
        hub_tables=(
            HubTable(
                "sft",
                "a step: instruction, screenshot, tree and earlier actions, with the action that "
                "the person took (OSWorld-Desktopd's SFT samples; nested values are JSON text)",
                pictures=("screenshot",),
                trees=("ui_tree",),
            ),
        ),
    ),
    validated_as=formats.SFT_FORMAT,
    views=(View("sft", "an SFT sample with its split", "sft/samples.parquet"),),
    counts=("records",),
)

MESSAGES_STAGE = DatasetStage(
    name="messages_dataset",
    output="messages",
    description="The same steps as chats: lines as qwen-vl-utils and ms-swift read them, tables as "
    "TRL, Axolotl and ms-swift do. The splits are those of the other exports.",
    kinds=frozenset({"json", "parquet"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=builds.run_messages,
    checks=(
        Check(
            "messages_schema",
            "Every line fits the schema; roles alternate, images open, calls parse.",
            builds.verify_messages,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="messages",
        files="*.jsonl",
        records=messages_record_counts,
        all_written=True,
        hub_tables=(
            HubTable(
                "messages",
                "a step as a chat: `messages` and `images`; the answer is calls of `computer_use`",
                pictures=("images",),
            ),
        ),
    ),
    validated_as=formats.MESSAGES_FORMAT,
    views=(View("messages", "a chat record with its split", "messages/*.parquet", OF_SPLIT),),
    counts=("records",),
)

CUDAG_STAGE = DatasetStage(
    name="cudag_dataset",
    output="datasets",
    subfolder=builds.cudag_directory,
    replaces=cudag_directories.replaced_directories,
    description="A CUDAG dataset: data, train and val as JSONL, test with images. No task and no "
    "demonstration is in two splits.",
    kinds=frozenset({"json"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=builds.run_cudag,
    checks=(
        Check(
            "one_configuration",
            "No published directory of the same prefix and user was built with other settings.",
            cudag_directories.verify_one_configuration,
            compared=("records",),
        ),
        Check(
            "cudag_schema",
            "The directory fits the CUDAG format; splits are disjoint; coordinates agree.",
            builds.verify_cudag,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="cudag", files="*.json*", records=cudag_record_counts, all_written=True
    ),
    validated_as=formats.CUDAG_FORMAT,
    counts=("records",),
)

AGENTNETBENCH_STAGE = DatasetStage(
    name="agentnetbench",
    output="agentnetbench",
    description="The test split in AgentNetBench's own form, a file per trajectory with the true "
    "actions and their targets' boxes, so that its script can score a model on it.",
    kinds=frozenset({"json"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=builds.run_agentnetbench,
    checks=(
        Check(
            "agentnetbench_files",
            "Every task has its keys, pictures, true actions and boxes.",
            builds.verify_agentnetbench,
            compared=("records",),
        ),
    ),
    export=TrainingExport(name="agentnetbench", files="tasks/*.json", records=agentnetbench_counts),
    validated_as=formats.AGENTNETBENCH_FORMAT,
    counts=("records",),
)

# In the order in which they are built.
TRAINING_STAGES: tuple[DatasetStage, ...] = (
    SFT_STAGE,
    MESSAGES_STAGE,
    CUDAG_STAGE,
    *TRAJECTORY_STAGES,
    *DERIVED_STAGES,
    AGENTNETBENCH_STAGE,
)
