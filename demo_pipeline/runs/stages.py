"""The list of stages: those of a demonstration, and those of the datasets.

Belongs here: the lists. Each stage is declared in the package of its subject. Assets, jobs,
`export`, `validate`, `stats`, pruning and error messages derive from them, so a new exporter is a
declaration and one line here.
"""

from collections.abc import Mapping

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.sql_views import DEMONSTRATION_VIEWS, View
from demo_pipeline.evaluation.agentnetbench_files import AGENTNETBENCH_STAGE
from demo_pipeline.exports.dataset_stages import (
    AGENTNET_STAGE,
    ATIF_STAGE,
    CUA_LITE_STAGE,
    CUDAG_STAGE,
    GROUNDING_STAGE,
    INDEX_STAGE,
    MESSAGES_STAGE,
    QUESTS_STAGE,
    SFT_STAGE,
    STEP_LABELS_STAGE,
    TRANSITIONS_STAGE,
)
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE, UI_TREES_STAGE
from demo_pipeline.recording.recording_stages import (
    EVENTS_STAGE,
    RAW_RECORDINGS_STAGE,
    RecordingInputs,
)
from demo_pipeline.review.triage import TRIAGE_STAGE
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.stage import Stage
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

# In the order in which they run.
STAGES: tuple[Stage[RecordingInputs], ...] = (
    RAW_RECORDINGS_STAGE,
    EVENTS_STAGE,
    ACTIONS_STAGE,
    SCREENSHOTS_STAGE,
    UI_TREES_STAGE,
    TRAJECTORIES_STAGE,
    ANNOTATIONS_STAGE,
    RECORDS_STAGE,
    CONTACT_SHEETS_STAGE,
    TRIAGE_STAGE,
)
STAGE_BY_NAME: Mapping[str, Stage[RecordingInputs]] = {stage.name: stage for stage in STAGES}

# In the order of `export` and of the views; an input comes before the stages that read it.
DATASET_STAGES: tuple[Stage[DatasetInputs], ...] = (
    SFT_STAGE,
    MESSAGES_STAGE,
    CUDAG_STAGE,
    CUA_LITE_STAGE,
    AGENTNET_STAGE,
    ATIF_STAGE,
    GROUNDING_STAGE,
    TRANSITIONS_STAGE,
    STEP_LABELS_STAGE,
    AGENTNETBENCH_STAGE,
    QUESTS_STAGE,
    INDEX_STAGE,
    STATISTICS_STAGE,
    TASKS_STAGE,
    QUARANTINE_STAGE,
)
DATASET_STAGE_BY_NAME: Mapping[str, Stage[DatasetInputs]] = {
    stage.name: stage for stage in DATASET_STAGES
}


def training_exports() -> tuple[Stage[DatasetInputs], ...]:
    """Every stage that is a training export."""
    return tuple(stage for stage in DATASET_STAGES if stage.export is not None)


def upstream(stage: Stage[DatasetInputs]) -> tuple[str, ...]:
    """Names of the stages that a dataset reads or follows."""
    followed = training_exports() if stage.follows_exports else ()
    return (*stage.inputs, *(export.name for export in followed))


def store_views() -> tuple[View, ...]:
    """Every view over a store: those over datasets, then those over demonstrations."""
    return (*(view for stage in DATASET_STAGES for view in stage.views), *DEMONSTRATION_VIEWS)
