"""Lists all stages: the stages of a demonstration, and the stages that build datasets.

Each stage is declared in the package of its subject. Assets, jobs, `export`, `validate`, `stats`,
pruning and error messages are derived from the lists.

Each training export, such as `sft`, is declared as a `Form` in its own module. To save time, these
modules are imported late: `training_export` and `built_stages` import only the exports that they
return. Other functions that list dataset stages import all exports.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from demo_pipeline.actions.action_stages import ACTIONS_STAGE
from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.sql_views import DEMONSTRATION_VIEWS, View
from demo_pipeline.exports.dataset_stages import (
    INDEX_STAGE,
    INDEX_VIEWS,
    QUESTS_STAGE,
    export_of,
)
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.exports.form import form_of
from demo_pipeline.exports.record_stages import RECORDS_STAGE, WITHOUT_FORM
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

# The stages of a demonstration, in the order in which they run
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

_AFTER_EXPORTS: tuple[Stage[DatasetInputs], ...] = (QUESTS_STAGE, INDEX_STAGE, STATISTICS_STAGE)


@cache
def training_export(name: str) -> TrainingExport[DatasetInputs]:
    """Returns the training export with this name in `datasets.exports`; imports its module.

    Raises:
        OwnExportError: an export from another package uses the asset or folder name of another
            output.
    """
    if name in WITHOUT_FORM:
        from demo_pipeline.evaluation.agentnetbench_files import (  # noqa: PLC0415 - imported late
            AGENTNETBENCH_EXPORT,
        )

        return AGENTNETBENCH_EXPORT
    export = export_of(form_of(name))
    if name in own_exports():
        _require_own_names(export)
    return export


def _require_own_names(export: TrainingExport[DatasetInputs]) -> None:
    """Raises `OwnExportError` if another output uses the export's asset or folder name."""
    names = export_names()
    earlier = map(training_export, names[: names.index(export.name)])
    stages: list[Stage[Any]] = [*STAGES, *_AFTER_EXPORTS, TASKS_STAGE]
    stages += [other.stage for other in earlier]
    taken = {stage.name for stage in stages} | {stage.folder for stage in stages}
    collision = taken.intersection({export.stage.name, export.stage.folder})
    if collision:
        raise OwnExportError(
            f"the export {export.name}: another output has the asset or folder "
            f"{', '.join(sorted(collision))}; give its Form another one"
        )


def export_of_stage(stage: Stage[DatasetInputs]) -> TrainingExport[DatasetInputs] | None:
    """Returns the training export that a stage builds; None for any other dataset."""
    return training_export(stage.export) if stage.export else None


def is_built(stage: Stage[DatasetInputs], settings: Settings) -> bool:
    """Returns whether the settings enable a dataset."""
    return not stage.export or stage.export in settings.datasets.exports


def built_stages(settings: Settings) -> list[Stage[DatasetInputs]]:
    """Returns the dataset stages that the settings enable, each after its inputs."""
    names = [name for name in export_names() if name in settings.datasets.exports]
    return [*(training_export(name).stage for name in names), *_AFTER_EXPORTS]


@cache
def training_exports() -> Mapping[str, TrainingExport[DatasetInputs]]:
    """Returns a dictionary from stage names to training exports, in the order of `export_names`."""
    exports = map(training_export, export_names())
    return {export.stage.name: export for export in exports}


@cache
def datasets_job_stages() -> tuple[Stage[DatasetInputs], ...]:
    """Returns every stage of the job `build_datasets`, each after its inputs."""
    return (*(export.stage for export in training_exports().values()), *_AFTER_EXPORTS)


@cache
def dataset_stages() -> tuple[Stage[DatasetInputs], ...]:
    """Returns every stage whose output does not belong to a single demonstration."""
    return (*datasets_job_stages(), TASKS_STAGE)


@cache
def dataset_stages_by_name() -> Mapping[str, Stage[DatasetInputs]]:
    """Returns a dictionary from names to the stages of `dataset_stages`."""
    return {stage.name: stage for stage in dataset_stages()}


def parents_that_always_exist(stage: Stage[DatasetInputs]) -> list[str]:
    """Returns the names of a dataset's inputs, except training exports, which may be disabled."""
    always_built = STAGE_BY_NAME.keys() | {other.name for other in _AFTER_EXPORTS}
    return [name for name in stage.inputs if name in always_built]


def upstream(stage: Stage[DatasetInputs], settings: Settings) -> list[str]:
    """Returns the names of the enabled stages that must run before a dataset is built."""
    exports = [other.name for other in built_stages(settings) if other.export]
    always = parents_that_always_exist(stage)
    inputs = [name for name in stage.inputs if name in always or name in exports]
    return [*inputs, *exports] if Need.EXPORTS in stage.needs else inputs


def store_views() -> tuple[View, ...]:
    """Returns all SQL views over a store: views over datasets, then views over demonstrations."""
    views: list[View] = []
    for export in training_exports().values():
        views += export.views
    return (*views, *INDEX_VIEWS, *DEMONSTRATION_VIEWS)


# Imports the exports of other packages, so that every command fails here if one is unusable.
for _own_export in own_exports():
    training_export(_own_export)
