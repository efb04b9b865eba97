"""The training exports that are built on request: trajectories, grounding, transitions, labels.

Belongs here: their declarations. `datasets.exports` names those that are built.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from demo_pipeline.datasets.dataset_inputs import DatasetInputs, built
from demo_pipeline.exports.agentnet import (
    AGENTNET_META,
    agentnet_places,
    agentnet_record_counts,
    build_agentnet,
    validate_agentnet,
)
from demo_pipeline.exports.atif import (
    ATIF_LIST,
    atif_places,
    atif_record_counts,
    build_atif,
    validate_atif,
    validate_atif_file,
)
from demo_pipeline.exports.cards import (
    describe_grounding,
    describe_step_labels,
    describe_transitions,
)
from demo_pipeline.exports.cua_lite import build_cua_lite, cua_lite_places, cua_lite_record_counts
from demo_pipeline.exports.cua_lite_models import LITE_ROOT
from demo_pipeline.exports.cua_lite_validator import validate_cua_lite
from demo_pipeline.exports.dataset_counts import (
    outcome_record_counts,
    table_record_counts,
    table_stats,
)
from demo_pipeline.exports.grounding import (
    GROUNDING_SCHEMA_FILE,
    build_grounding,
    validate_grounding,
)
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.step_labels import (
    OUTCOME_FOLDER,
    STEP_LABELS_SCHEMA_FILE,
    build_step_labels,
    validate_step_labels,
)
from demo_pipeline.exports.transitions import (
    TRANSITIONS_SCHEMA_FILE,
    build_transitions,
    validate_transitions,
)
from demo_pipeline.exports.whole_trajectories import LOSSES_FILE, Place, torn_task_problems
from demo_pipeline.problems import Problem, errors
from demo_pipeline.stage import Check, Stage, TrainingExport, ValidatedFormat, built_again


def _whole(
    validate: Callable[[Path], list[Problem]], listed: Callable[[Path], Iterator[Place]]
) -> Callable[[DatasetInputs, Path], list[Problem]]:
    """The check of whole trajectories against their form, and that no task is in two splits."""

    def check(inputs: DatasetInputs, out: Path) -> list[Problem]:
        found = validate(out)
        if errors(found):
            return found
        provenance = [trajectory.provenance for trajectory in inputs.committed.trajectories]
        return [*found, *torn_task_problems(listed(out), provenance, LOSSES_FILE)]

    return check


def _rows(
    validate: Callable[[Path], list[Problem]], column: str, folder: str = ""
) -> Callable[[DatasetInputs, Path], list[Problem]]:
    """The check of rows against their form, and that no task is in two splits."""

    def check(inputs: DatasetInputs, out: Path) -> list[Problem]:
        found = validate(out)
        if errors(found):
            return found
        return [*found, *table_stats(out / folder, inputs.committed.provenance, column)[1]]

    return check


CUA_LITE_STAGE: Stage[DatasetInputs] = Stage(
    name="cua_lite_dataset",
    folder="cua_lite",
    description="Whole trajectories in CUA-Lite's form, from which its adapters render the "
    "training data of many agents. A row is the longest stretch of a trajectory that can be shown "
    "and said.",
    kinds=frozenset({"parquet"}),
    code_version="4",
    section=lambda settings: settings.datasets,
    build=built(build_cua_lite),
    checks=(
        Check(
            "cua_lite_rows",
            "Every row fits CUA-Lite's form; images have the content that their names say.",
            built_again(built(build_cua_lite), _whole(validate_cua_lite, cua_lite_places)),
            compared=("records",),
        ),
    ),
    export=TrainingExport(
        name="cua_lite", files="cua-lite/*.parquet", records=cua_lite_record_counts
    ),
    validated_as=ValidatedFormat(
        name="cua_lite",
        files=(LITE_ROOT,),
        validate=lambda path, _: validate_cua_lite(path),
        decisive=True,
    ),
    counts=("records", "steps"),
)


AGENTNET_STAGE: Stage[DatasetInputs] = Stage(
    name="agentnet_dataset",
    folder="agentnet",
    description="Whole trajectories as AgentNet's JSON Lines: each action as pyautogui code, in "
    "the full form and in that of OpenCUA's thought generator.",
    kinds=frozenset({"json"}),
    code_version="4",
    section=lambda settings: settings.datasets,
    build=built(build_agentnet),
    checks=(
        Check(
            "agentnet_lines",
            "Every line fits AgentNet's form; its code is nothing but the form's calls.",
            built_again(built(build_agentnet), _whole(validate_agentnet, agentnet_places)),
            compared=("records",),
        ),
    ),
    export=TrainingExport(name="agentnet", files="*.jsonl", records=agentnet_record_counts),
    validated_as=ValidatedFormat(
        name="agentnet",
        files=(AGENTNET_META,),
        validate=lambda path, _: validate_agentnet(path),
        decisive=True,
    ),
    counts=("records", "steps"),
)


ATIF_STAGE: Stage[DatasetInputs] = Stage(
    name="atif_trajectories",
    folder="atif",
    description="Trajectories in the Agent Trajectory Interchange Format 1.8, a file each with its "
    "images. What no screenshot shows is said in words.",
    kinds=frozenset({"json"}),
    code_version="4",
    section=lambda settings: settings.datasets,
    build=built(build_atif),
    checks=(
        Check(
            "atif_files",
            "Every file fits the format; its calls are actions, its images open.",
            built_again(built(build_atif), _whole(validate_atif, atif_places)),
            compared=("records",),
        ),
    ),
    export=TrainingExport(name="atif", files="atif_trajectories.jsonl", records=atif_record_counts),
    validated_as=ValidatedFormat(
        name="atif",
        files=(ATIF_LIST,),
        validate=lambda path, _: validate_atif(path) if path.is_dir() else validate_atif_file(path),
        decisive=True,
    ),
    counts=("records", "steps"),
)


GROUNDING_STAGE: Stage[DatasetInputs] = Stage(
    name="grounding_dataset",
    folder="grounding",
    description="A screenshot, words that name one element of it, its box and point: the elements "
    "of trees that agree with their screenshot, as far as they can be seen and told apart.",
    kinds=frozenset({"json", "parquet"}),
    code_version="4",
    section=lambda settings: settings.datasets,
    build=built(build_grounding, describe_grounding),
    checks=(
        Check(
            "grounding_schema",
            "Every row fits the schema; boxes are in their picture, points in their box.",
            built_again(
                built(build_grounding, describe_grounding), _rows(validate_grounding, "role")
            ),
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
    validated_as=ValidatedFormat(
        name="grounding",
        files=(GROUNDING_SCHEMA_FILE,),
        validate=lambda path, _: validate_grounding(path),
        decisive=True,
    ),
    counts=("records",),
)


TRANSITIONS_STAGE: Stage[DatasetInputs] = Stage(
    name="transitions_dataset",
    folder="transitions",
    description="The screenshot before a step, its action, and the screenshot after it. No "
    "transition spans an action that no screenshot shows.",
    kinds=frozenset({"parquet"}),
    code_version="4",
    section=lambda settings: settings.datasets,
    build=built(build_transitions, describe_transitions),
    checks=(
        Check(
            "transitions_schema",
            "Every row fits the schema; actions parse, both pictures open and differ.",
            built_again(
                built(build_transitions, describe_transitions),
                _rows(validate_transitions, "action_type"),
            ),
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
    validated_as=ValidatedFormat(
        name="transitions",
        files=(TRANSITIONS_SCHEMA_FILE,),
        validate=lambda path, _: validate_transitions(path),
        decisive=True,
    ),
    counts=("records",),
)


STEP_LABELS_STAGE: Stage[DatasetInputs] = Stage(
    name="step_labels_dataset",
    folder="step_labels",
    description="Demonstrations for reward models, in TRL's form of stepwise supervision: a label "
    "per step of those that did their task, and a label per demonstration of all. Failed "
    "demonstrations are in this export, and in no other.",
    kinds=frozenset({"parquet"}),
    code_version="3",
    section=lambda settings: settings.datasets,
    build=built(build_step_labels, describe_step_labels),
    checks=(
        Check(
            "step_labels_schema",
            "Every row fits the schema; labels agree with the outcome, pictures open.",
            built_again(
                built(build_step_labels, describe_step_labels),
                _rows(validate_step_labels, "outcome", OUTCOME_FOLDER),
            ),
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
    validated_as=ValidatedFormat(
        name="step_labels",
        files=(STEP_LABELS_SCHEMA_FILE,),
        validate=lambda path, _: validate_step_labels(path),
        decisive=True,
    ),
    counts=("records",),
)
