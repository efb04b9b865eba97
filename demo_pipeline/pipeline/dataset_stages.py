"""The registry of the dataset stages: one entry per unpartitioned output.

Belongs here: entries only. Assets, jobs, `export`, `validate`, `stats`, pruning and error messages
derive from them, so a new exporter is a build function, a check and one entry.
"""

from collections.abc import Mapping

from demo_pipeline.datasets.views import (
    DEMONSTRATION_VIEWS,
    OF_STEPS,
    OF_TRAJECTORIES,
    View,
)
from demo_pipeline.osworld.task_table import CATALOG_SCHEMA
from demo_pipeline.pipeline import dataset_builds as builds
from demo_pipeline.pipeline import (
    dataset_statistics,
    quarantine_table,
    task_catalog,
)
from demo_pipeline.pipeline import validated_formats as formats
from demo_pipeline.pipeline.stage_types import Check, DatasetStage
from demo_pipeline.pipeline.training_stages import EXPORT_LOOP_VERSION, TRAINING_STAGES

QUESTS_STAGE = DatasetStage(
    name="osworld_quests",
    output="osworld/quests",
    description="Each quest as an OSWorld task file without an evaluator, in "
    "`examples/<application>/`, listed by `test_all.json`.",
    kinds=frozenset({"json"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    build=builds.run_quests,
    checks=(
        Check(
            "quest_files",
            "Every quest is a valid, listed OSWorld task file whose evaluator is null.",
            builds.verify_quests,
            compared=("tasks",),
        ),
    ),
    validated_as=formats.OSWORLD_FORMAT,
    counts=("tasks",),
)

INDEX_STAGE = DatasetStage(
    name="trajectory_index",
    output="dataset",
    description="The root of an OSWorld-Desktopd dataset: index.json, metadata.json, the "
    "provenance of all steps in steps.parquet, and links to the exact trajectories. Built after "
    "the training exports: exports.json says which of them hold what of every trajectory.",
    kinds=frozenset({"json", "parquet"}),
    code_version=EXPORT_LOOP_VERSION,
    section=lambda settings: settings.datasets,
    limits={"limits of trajectories": lambda settings: settings.trajectories},
    build=builds.run_index,
    checks=(
        Check(
            "desktopd_dataset",
            "index.json, metadata.json and every indexed trajectory fit the OSWorld-Desktopd "
            "format and each other.",
            builds.verify_index,
            compared=("trajectories", "steps"),
        ),
        Check(
            "leak_rate",
            "The shares of screenshots that already show the pointer at its target, all and "
            "avoidable ones, are within the limits.",
            builds.verify_index_leaks,
            blocking=False,
            compared=("pointer_actions",),
        ),
    ),
    links_trajectories=True,
    validated_as=formats.DATASET_FORMAT,
    views=(
        View(
            "trajectories",
            "a trajectory: task, application, success, completeness",
            "dataset/trajectories.parquet",
            OF_TRAJECTORIES,
        ),
        View(
            "steps",
            "a step: where its screenshot, tree and target came from",
            "dataset/steps.parquet",
            OF_STEPS,
        ),
        View(
            "hidden_actions",
            "an action that is no step because no screenshot shows it",
            "dataset/hidden_actions.parquet",
        ),
        View(
            "exports",
            "a trajectory in a training export: split, group, version, number of records",
            "dataset/exports.parquet",
        ),
    ),
    counts=("trajectories", "steps"),
    follows_exports=True,
)

STATISTICS_STAGE = DatasetStage(
    name="dataset_statistics",
    output="statistics",
    description="Tables about the datasets, by SQL over their Parquet files, and the views for "
    "querying the store; the same as `demo-pipeline stats`.",
    kinds=frozenset({"duckdb"}),
    code_version="9",
    inputs=("trajectory_index", "sft_samples", "messages_dataset"),
    build=dataset_statistics.run_statistics,
    checks=(
        Check(
            "datasets_agree",
            "The index, the SFT samples and the messages have the same steps and splits.",
            dataset_statistics.verify_agreement,
            blocking=False,
            compared=("trajectories", "steps"),
        ),
    ),
)

TASKS_STAGE = DatasetStage(
    name="osworld_tasks",
    output=task_catalog.CATALOG_OUTPUT,
    description="Every OSWorld task file, ordinary and risk, as a row of a catalog. A "
    "demonstration of one of these tasks is matched with it and left out of training exports.",
    kinds=frozenset({"parquet"}),
    code_version="2",
    job="read_osworld_tasks",
    inputs=(),
    source=task_catalog.read_task_files,
    build=task_catalog.run_task_catalog,
    checks=(
        Check(
            "catalog_schema",
            "Both tables have their columns; every file occurs once, with its id.",
            task_catalog.verify_catalog,
            compared=("tasks",),
        ),
        Check(
            "task_files",
            "Every task file is usable, and every listed task has a file.",
            task_catalog.verify_task_files,
            blocking=False,
            compared=("tasks",),
        ),
    ),
    columns=CATALOG_SCHEMA,
    exported=False,
)

QUARANTINE_STAGE = DatasetStage(
    name="quarantine",
    output="quarantine_table",
    description="Every quarantined demonstration: the stage, the reason, the file and line, and "
    "what to do. A corrected upload releases it.",
    kinds=frozenset({"parquet"}),
    code_version="1",
    group="recording",
    job="report_quarantine",
    inputs=(),
    source=quarantine_table.read_quarantine_records,
    build=quarantine_table.run_quarantine_table,
    checks=(
        Check(
            "quarantine_schema",
            "The table has exactly the declared columns, types and nulls.",
            quarantine_table.verify_quarantine_table,
            compared=("quarantined",),
        ),
    ),
    columns=quarantine_table.QUARANTINE_SCHEMA,
    exported=False,
)

# In the order of `export` and of the views; an input comes before the stages that read it.
DATASET_STAGES: tuple[DatasetStage, ...] = (
    *TRAINING_STAGES,
    QUESTS_STAGE,
    INDEX_STAGE,
    STATISTICS_STAGE,
    TASKS_STAGE,
    QUARANTINE_STAGE,
)

DATASET_STAGE_BY_NAME: Mapping[str, DatasetStage] = {stage.name: stage for stage in DATASET_STAGES}


def training_exports() -> tuple[DatasetStage, ...]:
    """Every stage that is a training export."""
    return tuple(stage for stage in DATASET_STAGES if stage.export is not None)


def upstream(stage: DatasetStage) -> tuple[str, ...]:
    """Names of the stages that it reads or follows."""
    followed = training_exports() if stage.follows_exports else ()
    return (*stage.inputs, *(export.name for export in followed))


def store_views() -> tuple[View, ...]:
    """Every view over a store: those over datasets, then those over demonstrations."""
    return (*(view for stage in DATASET_STAGES for view in stage.views), *DEMONSTRATION_VIEWS)
