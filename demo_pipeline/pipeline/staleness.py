"""Whether a demonstration's outputs are up to date: the recipes of its stages, compared.

Belongs here: what a stage's output depends on. Running a stage is in runner.py.
"""

from collections.abc import Mapping

from demo_pipeline.osworld.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS, match_task
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording import manifest
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE, RecordingInputs
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.version_manifest import Recipe, Version
from demo_pipeline.storage.uploads.upload_listing import changed_while_read


def stage_inputs(
    workspace: Workspace,
    stage: Stage[RecordingInputs],
    demonstration: str,
    versions: Mapping[str, Version],
    match: TaskMatch,
) -> dict[str, str]:
    """Fingerprints of the stage's inputs, of the upload and of the matched task, by name.

    Raises:
        DemonstrationError: the upload cannot be read.
    """
    inputs = {name: versions[name].content for name in stage.inputs}
    if not stage.inputs:
        inputs["upload"] = _upload_identity(workspace, demonstration)
    if stage.matches_task:
        # Only its own match, so that another task in the catalog rebuilds no trajectory.
        inputs[OSWORLD_TASKS] = match.fingerprint
    return inputs


def _upload_identity(workspace: Workspace, demonstration: str) -> str:
    identity = workspace.uploads.identity(demonstration)
    if identity is None:
        with workspace.uploads.open(demonstration):  # raises what is wrong with it
            raise DemonstrationError(changed_while_read(demonstration, "."))
    return identity


def stage_recipe(
    workspace: Workspace, stage: Stage[RecordingInputs], inputs: Mapping[str, str]
) -> Recipe:
    """Everything that the stage's output depends on."""
    settings = stage.fingerprint(workspace.settings)
    return Recipe(stage.name, stage.code_version, settings, dict(inputs))


def is_outdated(workspace: Workspace, demonstration: str) -> bool:
    """Whether building its current upload again would give other outputs than the committed."""
    first = workspace.store.current(RAW_RECORDINGS_STAGE.output(demonstration))
    if first is None:
        return False
    same = first.manifest.recipe.inputs["upload"] == workspace.uploads.identity(demonstration)
    return same and not is_up_to_date(workspace, demonstration)


def is_up_to_date(workspace: Workspace, demonstration: str) -> bool:
    """Whether every stage's output was built from the current upload, by this code.

    Reads of the upload only what `Uploads.identity` reads.
    """
    versions: dict[str, Version] = {}
    try:
        for stage in STAGES:
            current = workspace.store.current(stage.output(demonstration))
            if current is None:
                return False
            versions[stage.name] = current
            match = _match(workspace, demonstration) if stage.matches_task else NO_CATALOG
            inputs = stage_inputs(workspace, stage, demonstration, versions, match)
            if current.manifest.recipe != stage_recipe(workspace, stage, inputs):
                return False
            if not workspace.store.is_complete(current):
                return False
    except (DemonstrationError, MissingOutput):
        return False
    return True


def _match(workspace: Workspace, demonstration: str) -> TaskMatch:
    output = RAW_RECORDINGS_STAGE.output(demonstration)
    with workspace.store.open(output) as (folder, _):
        return match_task(workspace, manifest.read_manifest(folder))
