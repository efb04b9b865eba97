"""The list of stages: those of a demonstration, and those of the datasets.

Belongs here: the lists, and what follows from them. Each stage is declared in the package of its
subject. Assets, jobs, `export`, `validate`, `stats`, pruning and error messages derive from them.

The module of a form is loaded when its training export is first asked for. Ask by name, or with
`built_stages` for what the settings build: only a list of all exports loads every form.
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

_AFTER_EXPORTS: tuple[Stage[DatasetInputs], ...] = (QUESTS_STAGE, INDEX_STAGE, STATISTICS_STAGE)


@cache
def training_export(name: str) -> TrainingExport[DatasetInputs]:
    """Returns the training export with this name in `datasets.exports`; loads its form.

    Raises:
        OwnExportError: it is of another package, and has the asset or the folder of another output.
    """
    if name in WITHOUT_FORM:
        from demo_pipeline.evaluation.agentnetbench_files import (  # noqa: PLC0415 - as any form
            AGENTNETBENCH_EXPORT,
        )

        return AGENTNETBENCH_EXPORT
    export = export_of(form_of(name))
    if name in own_exports():
        _require_own_names(export)
    return export


def _require_own_names(export: TrainingExport[DatasetInputs]) -> None:
    """Raises `OwnExportError` if an earlier output has the asset or the folder of an export."""
    names = export_names()
    earlier = map(training_export, names[: names.index(export.name)])
    stages: list[Stage[Any]] = [*STAGES, *_AFTER_EXPORTS, TASKS_STAGE]
    stages += [other.stage for other in earlier]
    taken = {name for stage in stages for name in (stage.name, stage.folder)}
    collision = taken.intersection({export.stage.name, export.stage.folder})
    if collision:
        raise OwnExportError(
            f"the export {export.name}: another output has the asset or folder "
            f"{', '.join(sorted(collision))}; give its Form another one"
        )


def export_of_stage(stage: Stage[DatasetInputs]) -> TrainingExport[DatasetInputs] | None:
    """Returns the training export that a stage builds; None: it builds no training export."""
    return training_export(stage.export) if stage.export else None


def is_built(stage: Stage[DatasetInputs], settings: Settings) -> bool:
    """Returns whether the settings want a dataset."""
    return not stage.export or stage.export in settings.datasets.exports


def built_stages(settings: Settings) -> list[Stage[DatasetInputs]]:
    """Returns the dataset stages that the settings switch on; an input precedes its readers."""
    names = [name for name in export_names() if name in settings.datasets.exports]
    return [*(training_export(name).stage for name in names), *_AFTER_EXPORTS]


@cache
def training_exports() -> Mapping[str, TrainingExport[DatasetInputs]]:
    """Every training export by the name of its stage, in the order of the settings."""
    exports = map(training_export, export_names())
    return {export.stage.name: export for export in exports}


@cache
def datasets_job_stages() -> tuple[Stage[DatasetInputs], ...]:
    """Every stage of the job `build_datasets`. An input comes before its readers."""
    return (*(export.stage for export in training_exports().values()), *_AFTER_EXPORTS)


@cache
def dataset_stages() -> tuple[Stage[DatasetInputs], ...]:
    """Every stage whose output is not that of a demonstration."""
    return (*datasets_job_stages(), TASKS_STAGE)


@cache
def dataset_stages_by_name() -> Mapping[str, Stage[DatasetInputs]]:
    """Returns the stages of `dataset_stages` by their names."""
    return {stage.name: stage for stage in dataset_stages()}


def parents_that_always_exist(stage: Stage[DatasetInputs]) -> list[str]:
    """Names of the stages that a dataset reads with any settings: training exports are missing."""
    always_built = STAGE_BY_NAME.keys() | {other.name for other in _AFTER_EXPORTS}
    return [name for name in stage.inputs if name in always_built]


def upstream(stage: Stage[DatasetInputs], settings: Settings) -> list[str]:
    """Names of the stages that a dataset reads or follows, as far as the settings build them."""
    exports = [other.name for other in built_stages(settings) if other.export]
    always = parents_that_always_exist(stage)
    inputs = [name for name in stage.inputs if name in always or name in exports]
    return [*inputs, *exports] if Need.EXPORTS in stage.needs else inputs


def store_views() -> tuple[View, ...]:
    """Every view over a store: those over datasets, then those over demonstrations."""
    of_exports = (view for export in training_exports().values() for view in export.views)
    return (*of_exports, *INDEX_VIEWS, *DEMONSTRATION_VIEWS)


# An export of another package that cannot be used ends every command with its sentence.
for _own_export in own_exports():
    training_export(_own_export)
