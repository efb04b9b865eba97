"""Running one dataset stage: its inputs, its output, its checks.

Belongs here: the wiring between store and build functions, the same for every dataset stage. Which
stages exist is registered in dataset_stages.py.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.datasets.export_parts import KeptParts, kept_parts, using_parts
from demo_pipeline.files.image_header import linked_images_are_whole
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.committed_trajectories import (
    DocumentComparison,
    committed_trajectories,
    note_damage,
    without_outputs,
    without_unreadable,
)
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_recipes import dataset_output, dataset_recipe
from demo_pipeline.pipeline.export_states import (
    export_states,
    failed_before,
    keep_record_counts,
    note_error,
    note_result,
)
from demo_pipeline.pipeline.stages import DATASET_STAGE_BY_NAME, store_views
from demo_pipeline.pipeline.verification import trajectory_damage
from demo_pipeline.problems import errors
from demo_pipeline.stage import Stage, Summary
from demo_pipeline.storage.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version
from demo_pipeline.trajectories.trajectory_files import before_reading
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_LOG = logging.getLogger(__package__)
_NOTABLE_WAIT = 1.0  # seconds


def run_dataset_stage(
    workspace: Workspace, stage: Stage[DatasetInputs], *, force: bool = False
) -> BuildResult:
    """Build one dataset from what is committed now, unless it is up to date.

    On one machine one process at a time builds it; another waits, and then finds it up to date.
    When a check rejects a dataset of trajectories, every trajectory is validated again. Those that
    were damaged after their commit are left out and counted, and the dataset is built from the
    others; likewise when a file that would be hard-linked is not the one that was committed.
    Outputs that the new one replaces are unpublished after it is published.

    Raises:
        MissingOutput: an input that the stage requires has not been built, or one has lost a file.
        StorageError: the store or the source cannot be read.
    """
    with workspace.store.parts.one_build(stage.name) as waited:
        if waited > _NOTABLE_WAIT:
            _LOG.info("%s: another process built it for %.0f s", stage.name, waited)
        try:
            # Thousands of trajectories are held, which a search for cycles goes through.
            with using_parts(None if force else _parts(workspace, stage)), reduced_python_gc():
                result = _run(workspace, stage, force=force)
        except Exception as error:
            with suppress(StorageError, OSError):
                note_error(workspace.store, stage, error)
            raise
        note_result(workspace.store, stage, result)
        return result


def _run(workspace: Workspace, stage: Stage[DatasetInputs], *, force: bool) -> BuildResult:
    """Build from all trajectories, then from fewer as long as damaged ones are found."""
    with _opened(workspace, stage) as (opened, fingerprints):
        context = opened
        while True:
            before = context.committed
            try:
                with before_reading(DocumentComparison(before)):
                    result = _build(workspace, stage, context, fingerprints, force=force)
            except ChangedOutput as error:
                valid = without_outputs(before, [error.output])
                if len(valid.trajectories) == len(before.trajectories):
                    raise
                if not note_damage(workspace.store, error.output):  # a new copy is downloaded
                    return _run(workspace, stage, force=force)
            else:
                if result.status != "rejected":
                    _unpublish_replaced(workspace, stage, context, result)
                    keep_record_counts(stage, result)
                    return result
                if not stage.reads_trajectories:
                    return result
                valid = without_unreadable(before)
                if len(valid.trajectories) == len(before.trajectories):
                    return result
            context = replace(context, committed=valid)


def _unpublish_replaced(
    workspace: Workspace, stage: Stage[DatasetInputs], context: DatasetInputs, result: BuildResult
) -> None:
    """Unpublish the outputs that a published one replaces."""
    for name in stage.replaces(context, result.output, context.published) if stage.replaces else ():
        _LOG.info("%s: %s is unpublished: %s replaces it", stage.name, name, result.output)
        workspace.store.remove(name)


def wanted_recipe(workspace: Workspace, stage: Stage[DatasetInputs]) -> Recipe:
    """The recipe of an output that is built now; the current version has it when nothing changed.

    Raises:
        StorageError: the store or the source cannot be read.
    """
    with using_parts(_parts(workspace, stage)), _opened(workspace, stage) as opened:
        return dataset_recipe(stage, *opened)


def _parts(workspace: Workspace, stage: Stage[DatasetInputs]) -> KeptParts:
    """The parts that a build of the stage keeps and uses."""
    settings = stage.fingerprint(workspace.settings)
    return KeptParts(workspace.store.parts, stage.name, stage.code_version, settings)


def unchanged_output(
    workspace: Workspace, stage: Stage[DatasetInputs], committed: CommittedTrajectories
) -> str | None:
    """Name of the stage's output when building it now would change nothing; None otherwise.

    Args:
        workspace: the roots; nothing is built or written.
        stage: the stage.
        committed: the committed trajectories, opened once for many stages.

    Raises:
        StorageError: the store or the source cannot be read.
    """
    store = workspace.store
    if stage.export is not None and failed_before(store, stage):
        return None
    with _opened(workspace, stage, committed) as (context, fingerprints):
        output, recipe = (
            dataset_output(stage, context),
            dataset_recipe(stage, context, fingerprints),
        )
        current = store.current(output)
        same = current is not None and current.manifest.recipe == recipe
        if current is None or not same or not store.is_complete(current):
            return None
        _LOG.info("%s: %s is unchanged", stage.name, output)
        return output


@contextmanager
def _opened(
    workspace: Workspace, stage: Stage[DatasetInputs], opened: CommittedTrajectories | None = None
) -> Iterator[tuple[DatasetInputs, dict[str, str]]]:
    """The stage's inputs, and the fingerprints of those that are not trajectories.

    With the committed trajectories `opened` already, to compare only: nothing is counted.
    """
    committed = CommittedTrajectories()
    folders: dict[str, Path] = {}
    fingerprints: dict[str, str] = {}
    with ExitStack() as stack:
        for name in stage.inputs:
            if name == TRAJECTORIES_STAGE.name:
                committed = opened or stack.enter_context(committed_trajectories(workspace))
                continue
            if not DATASET_STAGE_BY_NAME[name].is_built(workspace.settings):
                continue
            output = DATASET_STAGE_BY_NAME[name].folder
            try:
                folders[output], version = stack.enter_context(workspace.store.open(output))
            except MissingOutput:
                if output in workspace.store.outputs(output):  # published, but it lacks a file
                    raise
            else:
                fingerprints[output] = version.content
        source = stage.source(workspace) if stage.source else None
        if source is not None:
            fingerprints.update(source.fingerprints)
        context = DatasetInputs(
            settings=workspace.settings,
            committed=committed,
            folders=folders,
            views=store_views(),
            source=source.value if source else None,
            published=_published(workspace, stage) if stage.subfolder else {},
            code_version=stage.code_version,
        )
        if stage.follows_exports:
            context = replace(
                context, exports=export_states(workspace, context, count=opened is None)
            )
            states = {f"export: {state.name}": state.fingerprint for state in context.exports}
            fingerprints.update(states)
        yield context, fingerprints


def _published(workspace: Workspace, stage: Stage[DatasetInputs]) -> dict[str, Version]:
    """The published outputs of a stage with several, by name."""
    store = workspace.store
    versions = {name: store.published(name) for name in store.outputs(stage.folder)}
    return {name: version for name, version in versions.items() if version is not None}


def _build(
    workspace: Workspace,
    stage: Stage[DatasetInputs],
    context: DatasetInputs,
    fingerprints: Mapping[str, str],
    *,
    force: bool,
) -> BuildResult:
    anew = ExitStack()

    def build(staging: Staging) -> Summary:
        parts = kept_parts()
        if stage.export is not None:
            staging.hardlink_sources.extend(context.committed.versions.values())
            if parts and not staging.previous:
                # The output has a new name: what it replaces has the same pictures.
                staging.previous.extend(list(context.published.values())[-1:])
        if parts:
            parts.earlier[:] = [before.find for before in staging.previous_files()]
        summary = dict(stage.build(context, staging.path))
        staging.linked.extend(parts.linked.items() if parts else ())
        if not stage.reads_trajectories:
            return summary
        if stage.links_trajectories:
            for key, version in context.committed.versions.items():
                staging.link(TRAJECTORIES_STAGE.output(key), version)
        unreadable = tuple(summary.get("problems", ()))
        damage = [*trajectory_damage(workspace.store, context.committed.damaged, unreadable)]
        summary |= {"damaged": [problem.as_dict() for problem in damage]} if damage else {}
        problems = [str(problem) for problem in unreadable]
        return summary | {"problems": problems, "left_out": dict(context.committed.left_out)}

    def check(out: Path) -> Sequence[CheckOutcome]:
        # The commit of an export compares its hard links; that of the index has none to compare.
        with linked_images_are_whole() if stage.export else nullcontext():
            return _checked(stage, context, out)

    with anew:
        return build_if_stale(
            workspace.store,
            dataset_output(stage, context),
            dataset_recipe(stage, context, fingerprints),
            build,
            check,
            force=force,
            reuse_links=stage.export is not None and not force,
            mend=lambda: anew.enter_context(using_parts(None)),  # no link is taken as it is
        )


def _checked(stage: Stage[DatasetInputs], context: DatasetInputs, out: Path) -> list[CheckOutcome]:
    """The outcomes of the checks, up to the first blocking one that failed."""
    outcomes: list[CheckOutcome] = []
    for check in stage.checks:
        problems = tuple(check.run(context, out))
        passed = not errors(problems)
        outcomes.append(CheckOutcome(check.name, passed, problems, blocking=check.blocking))
        if check.blocking and not passed:
            break
    return outcomes
