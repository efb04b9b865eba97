"""The registry of the training exports that are built on request, such as transitions.

Belongs here: entries only, as in dataset_stages.py. `datasets.exports` names those that are built.
"""

from demo_pipeline.exports.dataset_stats import outcome_record_counts, table_record_counts
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.step_labels import OUTCOME_FOLDER
from demo_pipeline.pipeline import derived_export_builds as builds
from demo_pipeline.pipeline import validated_formats as formats
from demo_pipeline.pipeline.stage_types import Check, DatasetStage, TrainingExport

GROUNDING_STAGE = DatasetStage(
    name="grounding_dataset",
    output="grounding",
    description="A screenshot, words that name one element of it, its box and point: the elements "
    "of trees that agree with their screenshot, as far as they can be seen and told apart.",
    kinds=frozenset({"json", "parquet"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=builds.run_grounding,
    checks=(
        Check(
            "grounding_schema",
            "Every row fits the schema; boxes are in their picture, points in their box.",
            builds.verify_grounding,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="grounding",
        files="*.parquet",
        records=table_record_counts,
        hub_tables=(
            HubTable(
                "grounding",
                "a named element of a screenshot with its box (`[x1, y1, x2, y2]` in pixels, both "
                "ends inside) and centre",
                pictures=("image",),
                task_categories=("image-text-to-text", "zero-shot-object-detection"),
            ),
        ),
    ),
    validated_as=formats.GROUNDING_FORMAT,
    counts=("records",),
)

TRANSITIONS_STAGE = DatasetStage(
    name="transitions_dataset",
    output="transitions",
    description="The screenshot before a step, its action, and the screenshot after it. No "
    "transition spans an action that no screenshot shows.",
    kinds=frozenset({"parquet"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=builds.run_transitions,
    checks=(
        Check(
            "transitions_schema",
            "Every row fits the schema; actions parse, both pictures open and differ.",
            builds.verify_transitions,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="transitions",
        files="*.parquet",
        records=table_record_counts,
        hub_tables=(
            HubTable(
                "transitions",
                "the screenshot before an action, the action as JSON, and the screenshot after it",
                pictures=("before", "after"),
            ),
        ),
    ),
    validated_as=formats.TRANSITIONS_FORMAT,
    counts=("records",),
)

STEP_LABELS_STAGE = DatasetStage(
    name="step_labels_dataset",
    output="step_labels",
    description="Demonstrations for reward models, in TRL's form of stepwise supervision: a label "
    "per step of those that did their task, and a label per demonstration of all. Failed "
    "demonstrations are in this export, and in no other.",
    kinds=frozenset({"parquet"}),
    code_version="2",
    section=lambda settings: settings.datasets,
    build=builds.run_step_labels,
    checks=(
        Check(
            "step_labels_schema",
            "Every row fits the schema; labels agree with the outcome, pictures open.",
            builds.verify_step_labels,
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="step_labels",
        files="outcome/*.parquet",
        records=outcome_record_counts,
        hub_tables=(
            HubTable(
                "step_labels",
                "a demonstration that did its task, as TRL's stepwise supervision: all labels are "
                "true, which says that the task could still be done after the step; without "
                "pictures",
                without=("images",),
                task_categories=("text-classification",),
            ),
            HubTable(
                "outcome_labels",
                "a demonstration, also one that failed, with one label: whether its task was done; "
                "without pictures",
                folder=OUTCOME_FOLDER,
                without=("images",),
                task_categories=("text-classification",),
            ),
        ),
    ),
    validated_as=formats.STEP_LABELS_FORMAT,
    counts=("records",),
)

# In the order in which they are built.
DERIVED_STAGES: tuple[DatasetStage, ...] = (
    GROUNDING_STAGE,
    TRANSITIONS_STAGE,
    STEP_LABELS_STAGE,
)
