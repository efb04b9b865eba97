"""Trajectories of other origin, published at the stage `trajectories`; they have no recording.

Belongs here: the version that such a trajectory becomes, and building what follows from it alone.
Its recipe names the files it was copied from instead of a recording, so that nobody takes it for
one; the stages before it have no output, and `run` renews those after it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.importers.desktopd_trajectories import copy_trajectory, files_of, write_origin
from demo_pipeline.importers.import_recordings import ImportOutcome, ImportState
from demo_pipeline.importers.source_recording import FoundRecording, UnreadableSourceError
from demo_pipeline.importers.upload_folder import Given, given_for
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.recording.meta import Meta
from demo_pipeline.runs.build import build_if_stale
from demo_pipeline.runs.failures import DefectError, TransientError
from demo_pipeline.runs.results import DemonstrationResult, Status
from demo_pipeline.runs.stage_runs import (
    IMPORTED_FILES,
    RefusedError,
    build_stage,
    imported_trajectory,
    stages_after_import,
)
from demo_pipeline.runs.task_catalog import match_meta
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.uploads import NAME_RULE
from demo_pipeline.store.versions import CheckOutcome, Recipe, Staging
from demo_pipeline.trajectories.provenance import recorded_outcome
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_FORM = "2"  # of what is written of an imported trajectory; raised when it is other bytes


def import_trajectory(workspace: Workspace, found: FoundRecording, options: Given) -> ImportOutcome:
    """Publish a trajectory, and build what needs nothing but trajectories: records, annotations.

    What is wrong with it is in the outcome; nothing of it is published then.
    """
    key = found.name
    if not is_safe_id(key):
        return ImportOutcome(found.folder, ImportState.REFUSED, sentences=(NAME_RULE,))
    output = TRAJECTORIES_STAGE.output(key)
    known = workspace.store.published(output) is not None
    if known and imported_trajectory(workspace.store, key) is None:
        sentence = f"the store has a demonstration of the id {key}, made from a recording"
        return ImportOutcome(found.folder, ImportState.REFUSED, sentences=(sentence,))
    files = ((name, file_digest(found.folder / name).sha256) for name in files_of(found.folder))
    try:
        given = given_for(found, options)
        match = match_meta(workspace, _as_meta(found.folder))
        inputs = {
            IMPORTED_FILES: combined_digest(files),
            "osworld": match.fingerprint,
            "given": given.platform,
        }
        recipe = Recipe(TRAJECTORIES_STAGE.name, f"imported-{_FORM}", "", inputs)

        def build(staging: Staging) -> Mapping[str, Any]:
            copy_trajectory(found.folder, key, staging.path)
            _require_valid(staging.path, key)
            return write_origin(staging.path, match, given.platform)

        def check(out: Path) -> list[CheckOutcome]:
            problems = tuple(validate_trajectory(out, key))
            return [CheckOutcome("desktopd_trajectory", not errors(problems), problems)]

        status = build_if_stale(workspace.store, output, recipe, build, check, force=False).status
        for stage in stages_after_import():
            build_stage(workspace, stage, key)
    except UnreadableSourceError as error:
        return ImportOutcome(found.folder, ImportState.REFUSED, sentences=(str(error),))
    except DemonstrationError as error:
        shown = error.problems[:3]
        more = (f"and {len(error.problems) - 3} more problems",) if error.problems[3:] else ()
        sentences = (*(str(replace(problem, demonstration="")) for problem in shown), *more)
        return ImportOutcome(found.folder, ImportState.REFUSED, sentences=sentences)
    state = ImportState.KNOWN if status is Status.CACHED else ImportState.IMPORTED
    return ImportOutcome(found.folder, state, key, ("there is no recording of it",))


def imported_ids(workspace: Workspace, recorded: Collection[str]) -> list[str]:
    """The ids of imported trajectories; `recorded` are those of the uploads, which are none."""
    store = workspace.store
    trajectories = (name.rpartition("/")[2] for name in store.outputs(TRAJECTORIES_STAGE.folder))
    others = (key for key in trajectories if key not in recorded)
    return [key for key in others if imported_trajectory(store, key) is not None]


def renew_trajectory(workspace: Workspace, key: str, *, force: bool) -> DemonstrationResult:
    """Build the stages after an imported trajectory that are not up to date."""
    current = imported_trajectory(workspace.store, key)
    made = current.manifest.summary if current else {}
    stage = TRAJECTORIES_STAGE
    try:
        for stage in stages_after_import():
            build_stage(workspace, stage, key, force=force)
    except RefusedError as error:
        return DemonstrationResult(key, Status.REJECTED, {}, stage.name, error.problems)
    except (TransientError, DefectError) as error:
        problem = Problem("run_failed", ".", f"{error}", demonstration=key)
        return DemonstrationResult(key, Status.FAILED, {}, stage.name, (problem,))
    outcome = recorded_outcome("completed", success=bool(made.get("success")))
    return DemonstrationResult(key, Status.BUILT, {**made, "outcome": outcome})


def _require_valid(folder: Path, key: str) -> None:
    """Raise `DemonstrationError` with what deviates from the format."""
    if problems := errors(validate_trajectory(folder, key)):
        raise DemonstrationError(problems)


def _as_meta(folder: Path) -> Meta:
    """The task in the form in which recordings have it, to find the benchmark's task it may be."""
    task = read_trajectory(folder).task
    named = {"osworld_task_id": task.osworld_task_id} if task.osworld_task_id else {}
    quest = {"title": task.instruction, "content": task.instruction, "app": task.application}
    return Meta.model_validate({"timestamp": "1970-01-02T00:00:00+00:00", "quest": quest | named})
