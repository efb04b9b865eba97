"""The list of stages: those of a demonstration, and those of the datasets.

Belongs here: the lists, and what follows from them. Each stage is declared in the package of its
subject. Assets, jobs, `export`, `validate`, `stats`, pruning and error messages derive from them.
"""

from collections.abc import Mapping
from typing import Any

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.sql_views import DEMONSTRATION_VIEWS, View
from demo_pipeline.evaluation.agentnetbench_files import AGENTNETBENCH_EXPORT
from demo_pipeline.exports.dataset_stages import (
    INDEX_STAGE,
    INDEX_VIEWS,
    QUESTS_STAGE,
    export_of,
)
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.exports.form import form_of
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE, UI_TREES_STAGE
from demo_pipeline.privacy.redaction_stage import REDACTIONS_STAGE
from demo_pipeline.recording.recording_stages import (
    EVENTS_STAGE,
    RAW_RECORDINGS_STAGE,
    RecordingInputs,
)
from demo_pipeline.review.triage import TRIAGE_STAGE
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.settings import OwnExportError, Settings, export_names, own_exports
from demo_pipeline.stage import Need, Stage, TrainingExport
from demo_pipeline.trajectories.trajectory_stages import CONTACT_SHEETS_STAGE, TRAJECTORIES_STAGE

# In the order in which they run.
STAGES: tuple[Stage[RecordingInputs], ...] = (
    RAW_RECORDINGS_STAGE,
    EVENTS_STAGE,
    ACTIONS_STAGE,
    SCREENSHOTS_STAGE,
    UI_TREES_STAGE,
    TRAJECTORIES_STAGE,
    REDACTIONS_STAGE,
    ANNOTATIONS_STAGE,
    RECORDS_STAGE,
    CONTACT_SHEETS_STAGE,
    TRIAGE_STAGE,
)
STAGE_BY_NAME: Mapping[str, Stage[RecordingInputs]] = {stage.name: stage for stage in STAGES}

_OTHERS = {AGENTNETBENCH_EXPORT.name: AGENTNETBENCH_EXPORT}


def _training_exports() -> Mapping[str, TrainingExport[DatasetInputs]]:
    """Every export, in the order of the settings, which is that of `export` and of the views."""
    exports: dict[str, TrainingExport[DatasetInputs]] = {}
    others: tuple[Stage[Any], ...] = (*STAGES, QUESTS_STAGE, INDEX_STAGE, STATISTICS_STAGE)
    taken = {name for stage in (*others, TASKS_STAGE) for name in (stage.name, stage.folder)}
    for name in export_names():
        export = _OTHERS.get(name) or export_of(form_of(name))
        own_names = {export.stage.name, export.stage.folder}
        if name in own_exports() and own_names & taken:
            collision = ", ".join(sorted(own_names & taken))
            raise OwnExportError(
                f"the export {name}: another output has the asset or folder {collision}; "
                "give its Form another one"
            )
        taken |= own_names
        exports[export.stage.name] = export
    return exports


TRAINING_EXPORTS: Mapping[str, TrainingExport[DatasetInputs]] = _training_exports()
"""By the name of the stage."""

# Built from the trajectories by the job `build_datasets`. An input comes before its readers.
DATASETS_JOB_STAGES: tuple[Stage[DatasetInputs], ...] = (
    *(export.stage for export in TRAINING_EXPORTS.values()),
    QUESTS_STAGE,
    INDEX_STAGE,
    STATISTICS_STAGE,
)
DATASET_STAGES: tuple[Stage[DatasetInputs], ...] = (*DATASETS_JOB_STAGES, TASKS_STAGE)
DATASET_STAGE_BY_NAME: Mapping[str, Stage[DatasetInputs]] = {
    stage.name: stage for stage in DATASET_STAGES
}


def is_built(stage: Stage[DatasetInputs], settings: Settings) -> bool:
    """Whether the settings want a dataset."""
    export = TRAINING_EXPORTS.get(stage.name)
    return export is None or export.name in settings.datasets.exports


def upstream(stage: Stage[DatasetInputs]) -> tuple[str, ...]:
    """Names of the stages that a dataset reads or follows."""
    return (*stage.inputs, *(TRAINING_EXPORTS if Need.EXPORTS in stage.needs else ()))


def store_views() -> tuple[View, ...]:
    """Every view over a store: those over datasets, then those over demonstrations."""
    of_exports = (view for export in TRAINING_EXPORTS.values() for view in export.views)
    return (*of_exports, *INDEX_VIEWS, *DEMONSTRATION_VIEWS)
