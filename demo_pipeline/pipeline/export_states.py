"""The state of every training export: what is committed of it, or why nothing is.

Belongs here: comparing the committed versions with what would be built now, and remembering which
build failed. Nothing here builds.
"""

import hashlib
import json
from collections.abc import Mapping

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.export_parts import Part, kept_parts
from demo_pipeline.datasets.index import ExportState
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_recipes import dataset_output, dataset_recipe, is_present
from demo_pipeline.pipeline.stages import training_exports
from demo_pipeline.stage import Stage, TrainingExport
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.store import Store
from demo_pipeline.storage.store.version_manifest import Version

_FOLDER = "failed_exports"


def export_states(
    workspace: Workspace, context: DatasetInputs, *, count: bool = True
) -> tuple[ExportState, ...]:
    """The state of every training export of the registry.

    Args:
        workspace: the store; of a bucket only the files that are counted are downloaded.
        context: the trajectories and settings that an export would be built from now.
        count: count the records of each trajectory, which no fingerprint needs.
    """
    return tuple(
        _state(workspace, context, stage, stage.export, count=count)
        for stage in training_exports()
        if stage.export is not None
    )


def _state(
    workspace: Workspace,
    context: DatasetInputs,
    stage: Stage[DatasetInputs],
    export: TrainingExport,
    *,
    count: bool,
) -> ExportState:
    if not stage.is_built(workspace.settings):
        return ExportState(export.name, stage.name, "disabled")
    output = dataset_output(stage, context)
    reason = failed_before(workspace.store, stage)
    version, records = _counted(workspace, stage, export, output, count=count)
    if version is None:
        return ExportState(
            export.name, stage.name, "failed" if reason else "missing", reason=reason
        )
    recipe = version.manifest.recipe
    built = is_present(recipe, dataset_recipe(stage, context, {}))
    return ExportState(
        name=export.name,
        asset=stage.name,
        status="built" if built else "failed" if reason else "outdated",
        output=output,
        version=version.id,
        size=version.manifest.files.size,
        records=records,
        reason="" if built else reason,
    )


def _counted(
    workspace: Workspace,
    stage: Stage[DatasetInputs],
    export: TrainingExport,
    output: str,
    *,
    count: bool,
) -> tuple[Version | None, Mapping[str, int]]:
    """The current version of an export, and with `count` its records of each trajectory."""
    store = workspace.store
    version = store.current(output) if export.all_written or not count else None
    if not count:
        return version, {}
    parts = kept_parts()
    kept = parts.get(_counts_key(stage, version)) if parts and version else None
    if kept is not None:
        return version, kept.header["records"]
    try:
        with store.open_files(output, export.files) as (folder, version):
            return version, export.records(folder)
    except MissingOutput:
        return None, {}


def keep_record_counts(stage: Stage[DatasetInputs], result: BuildResult) -> None:
    """Keep how many records of each trajectory a built export holds, as its exporter counted."""
    parts = kept_parts()
    counted = stage.export is not None and stage.export.all_written
    if parts and counted and result.status == "made" and result.version is not None:
        part = Part({"records": parts.written})
        parts.put(_counts_key(stage, result.version), part)


def _counts_key(stage: Stage[DatasetInputs], version: Version) -> str:
    facts = json.dumps(["record counts", stage.name, version.output, version.id])
    return hashlib.sha256(facts.encode()).hexdigest()


def note_result(store: Store, stage: Stage[DatasetInputs], result: BuildResult) -> None:
    """Remember that a training export was rejected, or forget that it failed before."""
    if stage.export is None:
        return
    if result.status == "rejected":
        failed = [outcome.name for outcome in result.checks if not outcome.passed]
        _note(store, stage, failed[-1] if failed else "rejected")
    else:
        store.delete_document(_document(stage))


def note_error(store: Store, stage: Stage[DatasetInputs], error: Exception) -> None:
    """Remember which kind of error ended the build of a training export."""
    if stage.export is not None:
        _note(store, stage, type(error).__name__)


def _note(store: Store, stage: Stage[DatasetInputs], reason: str) -> None:
    store.put_document(_document(stage), json_bytes({"reason": reason}))


def failed_before(store: Store, stage: Stage[DatasetInputs]) -> str:
    """Why the last build of a training export failed; empty when it did not."""
    data = store.get_document(_document(stage))
    return str(json.loads(data)["reason"]) if data else ""


def _document(stage: Stage[DatasetInputs]) -> str:
    return f"{_FOLDER}/{stage.name}.json"
