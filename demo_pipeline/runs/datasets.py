"""One dataset: its trajectories and other inputs, its recipe, its output, its checks.

Belongs here: the wiring between store and build functions, the same for every dataset stage; the
committed trajectories, and the state of every training export.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.datasets.index import ExportState
from demo_pipeline.datasets.placement import place, splits_fingerprint
from demo_pipeline.datasets.selection import (
    CORRECTIONS_FILE,
    NOTES_FILE,
    TRAJECTORY_FILE,
    judged_success,
)
from demo_pipeline.exports.assemble import BY_TRAJECTORY
from demo_pipeline.exports.record_stages import RECORDS_STAGE, record_fingerprints
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.privacy.redaction_stage import looked_for, told_of_privacy
from demo_pipeline.problems import errors
from demo_pipeline.runs.build import build_if_stale, note_settings, rebuild_reason
from demo_pipeline.runs.damage import trajectory_damage
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import (
    DATASET_STAGE_BY_NAME,
    TRAINING_EXPORTS,
    is_built,
    store_views,
)
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import PrivacySettings
from demo_pipeline.stage import Need, Stage, Summary, TrainingExport
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.store.split_memory import keep_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import (
    CheckOutcome,
    Recipe,
    Staging,
    Version,
    VersionName,
)
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE


def dataset_output(stage: Stage[DatasetInputs], context: DatasetInputs) -> str:
    """Name of the stage's output in the store."""
    export = TRAINING_EXPORTS.get(stage.name)
    subfolder = export.subfolder if export else None
    return f"{stage.folder}/{subfolder(context)}" if subfolder else stage.folder


def dataset_recipe(
    stage: Stage[DatasetInputs], context: DatasetInputs, fingerprints: Mapping[str, str]
) -> Recipe:
    """Everything that the output depends on; `fingerprints`: of inputs but the trajectories."""
    inputs = dict(fingerprints)
    if stage.reads_trajectories:
        committed = context.committed
        kept = kept_files(stage)
        required = context.settings.datasets.require_review
        inputs |= {one.id: read_of(one, kept, required) for one in committed.trajectories}
        inputs[SPLITS] = splits_fingerprint(committed.trajectories)
        inputs |= {f"left out: {name}": str(n) for name, n in committed.left_out.items()}
        inputs |= {"privacy": committed.privacy} if committed.privacy else {}
        inputs |= _looked_for(context.settings.privacy)
    return Recipe(stage.name, stage.code_version, stage.fingerprint(context.settings), inputs)


def _looked_for(privacy: PrivacySettings) -> dict[str, str]:
    """What a dataset in which something is redacted depends on, also if nothing was found."""
    return {LOOKED_FOR: looked_for(privacy)} if privacy.reads_pictures else {}


LOOKED_FOR = "looked_for"  # in a recipe and a summary
SPLITS = "splits"  # among the inputs of a recipe


def kept_files(stage: Stage[DatasetInputs]) -> tuple[str, ...]:
    """The files of records that a dataset reads; that of its form, if it has one, is the last."""
    export = TRAINING_EXPORTS.get(stage.name)
    form = export.kept if export else ""
    return tuple(filter(None, (TRAJECTORY_FILE, CORRECTIONS_FILE, NOTES_FILE, form)))


def read_of(source: DatasetTrajectory, kept: Sequence[str], required: str) -> str:
    """Fingerprint of what is read of a trajectory and its records, and of a review that counts."""
    known = [source.content, *(source.digests.get(name, "") for name in kept)]
    if required == "approved" or (required == "not_rejected" and source.rejected_for):
        known += [source.review, source.rejected_for]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is needed of a version of records: names, and the files that are as they are wanted."""

    name: VersionName
    trajectory: VersionName
    digests: Mapping[str, str]
    withheld: str  # why the demonstration must not leave; empty: it may
    summary: Mapping[str, Any]

    @classmethod
    def of(cls, version: Version, wanted: Mapping[str, str], privacy: PrivacySettings) -> Self:
        """Of a version.

        Args:
            version: of records.
            wanted: file → what it has to depend on.
            privacy: what must have been looked for, if something must not leave.
        """
        manifest = version.manifest
        current = manifest.code_version == RECORDS_STAGE.code_version
        fresh = {name for name, text in wanted.items() if manifest.inputs.get(name) == text}
        fresh |= {TRAJECTORY_FILE} | {one.path for one in manifest.files if "/" in one.path}
        usable = {CORRECTIONS_FILE, NOTES_FILE, *(fresh if current else ())}
        digests = {one.path: one.sha256 for one in manifest.files if one.path in usable}
        link = manifest.links[TRAJECTORIES_STAGE.name]
        content = manifest.inputs[link.output.partition("/")[0]]
        summary: Mapping[str, Any] = manifest.summary
        unseen = privacy.reads_pictures and summary.get("privacy") != looked_for(privacy)
        return cls(
            version.name,
            VersionName(link.output, link.version, content),
            digests,
            str(summary.get("withheld", "")) or ("not looked at" if unseen else ""),
            summary,
        )


def committed_trajectories(
    workspace: Workspace, *, keep: bool = False, damaged: Collection[str] = ()
) -> CommittedTrajectories:
    """Every trajectory with records, placed in its split; damaged and missing ones are counted.

    Args:
        workspace: with the store.
        keep: remember the splits, for a build.
        damaged: outputs whose damage was found when they were read; they are left out.

    Raises:
        StorageError: the store cannot be read.
    """
    found = set(damaged)
    while True:
        committed = _committed(workspace, found)
        settings, store = workspace.settings.datasets, workspace.store
        try:
            placed, memory = place(store, committed.trajectories, settings)
            break
        except ChangedOutput as error:
            if error.output in found:
                raise
            found.add(error.output)
    if keep:
        keep_split_memory(store, memory)
    return replace(committed, trajectories=placed, told=(*memory.twins(), *memory.moves()))


def _committed(workspace: Workspace, damaged: Collection[str]) -> CommittedTrajectories:
    """Every trajectory with records as a local folder, but the damaged ones.

    A quarantined demonstration whose last good records are still committed is included with them.
    A file of records that other settings or other code have made is left out of `digests`.
    """
    left_out: Counter[str] = Counter(broken=0, quarantined=0, private=0)
    names = workspace.store.outputs(RECORDS_STAGE.folder)
    store = workspace.store
    noted = {name.rpartition("/")[2] for name in damaged}
    present = [name for name in names if name.rpartition("/")[2] not in noted]
    wanted = record_fingerprints(workspace.settings)
    privacy = workspace.settings.privacy
    found = [(at, _Kept.of(one, wanted, privacy)) for at, one in store.open_all(present)]
    opened = [(at, one) for at, one in found if not one.withheld]
    kept = {one.name.output.rpartition("/")[2]: one for _, one in opened}
    versions = {key: one.trajectory for key, one in kept.items()}
    judged = workspace.reviews.verdicts(versions)
    trajectories = tuple(
        DatasetTrajectory(
            key,
            f"{folder}/{TRAJECTORIES_STAGE.name}",
            one.trajectory.content,
            records=folder,
            digests=one.digests,
            review=judged[key].status if key in judged else "open",
            rejected_for=judged[key].rejected_for if key in judged else "",
        )
        for (key, one), (folder, _) in zip(kept.items(), opened, strict=True)
    )
    private = {one.name.output for _, one in found if one.withheld}
    gone = [n for n in names if n not in private and n.rpartition("/")[2] not in kept]
    broken = sorted(_damaged_output(store, name) for name in gone)
    left_out["broken"], left_out["private"] = len(broken), len(private)
    for record in list_quarantine(workspace.store):
        left_out["quarantined"] += record.demonstration not in kept
    return CommittedTrajectories(
        trajectories,
        versions,
        {key: one.name for key, one in kept.items()},
        left_out,
        tuple(broken),
        privacy=told_of_privacy(privacy, [one.summary for one in kept.values()]),
    )


def _damaged_output(store: Store, records: str) -> str:
    """The output that is damaged when records cannot be opened: theirs, or the trajectory's."""
    trajectory = TRAJECTORIES_STAGE.output(records.rpartition("/")[2])
    return trajectory if store.verify(trajectory) else records


_FOLDER = "failed_exports"


def export_states(workspace: Workspace, context: DatasetInputs) -> tuple[ExportState, ...]:
    """The state of every training export, for the trajectories and settings of `context`."""
    return tuple(_state(workspace, context, export) for export in TRAINING_EXPORTS.values())


def _state(
    workspace: Workspace,
    context: DatasetInputs,
    export: TrainingExport[DatasetInputs],
) -> ExportState:
    stage = export.stage
    if not is_built(stage, workspace.settings):
        return ExportState(export.name, stage.name, "disabled")
    output = dataset_output(stage, context)
    reason = failed_before(workspace.store, stage)
    version = workspace.store.current(output)
    if version is None:
        return ExportState(
            export.name, stage.name, "failed" if reason else "missing", reason=reason
        )
    recipe = version.manifest.recipe
    built = recipe == dataset_recipe(stage, context, {})
    return ExportState(
        name=export.name,
        asset=stage.name,
        status="built" if built else "failed" if reason else "outdated",
        output=output,
        version=version.id,
        size=version.manifest.size,
        records=_counted(version),
        reason="" if built else reason,
    )


def _counted(version: Version) -> Mapping[str, int]:
    """Trajectory → number of its records."""
    counts: Any = version.manifest.summary.get(BY_TRAJECTORY, {})
    known: Mapping[str, int] = counts
    return known


def note_result(store: Store, stage: Stage[DatasetInputs], result: BuildResult) -> None:
    """Remember that a training export was rejected, or forget that it failed before."""
    if stage.name not in TRAINING_EXPORTS:
        return
    if result.status is Status.REJECTED:
        failed = [outcome.name for outcome in result.checks if not outcome.passed]
        _note(store, stage, failed[-1] if failed else "rejected")
    else:
        store.delete_document(_document(stage))


def note_error(store: Store, stage: Stage[DatasetInputs], error: Exception) -> None:
    """Remember which kind of error ended the build of a training export."""
    if stage.name in TRAINING_EXPORTS:
        _note(store, stage, type(error).__name__)


def _note(store: Store, stage: Stage[DatasetInputs], reason: str) -> None:
    store.put_document(_document(stage), sealed({"reason": reason}))


def failed_before(store: Store, stage: Stage[DatasetInputs]) -> str:
    """Why the last build of a training export failed; empty when it did not."""
    data = store.get_document(_document(stage))
    try:
        return str(unsealed(data, _document(stage)).get("reason")) if data else ""
    except DamagedDocument:  # something failed, and the next build tells what
        return "its note is damaged"


def _document(stage: Stage[DatasetInputs]) -> str:
    return f"{_FOLDER}/{stage.name}.json"


_LOG = logging.getLogger(__package__)


def run_dataset_stage(
    workspace: Workspace,
    stage: Stage[DatasetInputs],
    *,
    force: bool = False,
    opened: list[CommittedTrajectories] | None = None,
) -> BuildResult:
    """Build one dataset from what is committed now, unless it is up to date.

    Datasets that are built one after the other open the trajectories once, with one list `opened`
    for all. Records that are found damaged are left out and counted, and the dataset is built from
    the others. Outputs that the new one replaces are unpublished after it is published.

    Raises:
        MissingOutput: an input that the stage requires has not been built, or one has lost a file.
        StorageError: the store or the source cannot be read.
    """
    try:
        with reduced_python_gc():  # thousands of trajectories are held, without cycles
            result = _run(workspace, stage, [] if opened is None else opened, force=force)
    except Exception as error:
        with suppress(StorageError, OSError):
            note_error(workspace.store, stage, error)
        raise
    note_result(workspace.store, stage, result)
    return result


def _run(
    workspace: Workspace,
    stage: Stage[DatasetInputs],
    opened: list[CommittedTrajectories],
    *,
    force: bool,
) -> BuildResult:
    """Build; again without the records that are found damaged, once for each."""
    store, found = workspace.store, set[str]()
    while True:
        try:
            if stage.reads_trajectories and not opened:
                opened.append(committed_trajectories(workspace, keep=True))
            context, fingerprints = _opened(workspace, stage, *opened)
            result = _build(workspace, stage, context, fingerprints, force=force)
            rejected = result.status is Status.REJECTED
            damaged = _damaged_inputs(store, opened) - found if rejected else set()
            if not damaged:
                break
            found |= damaged
            opened[:] = [committed_trajectories(workspace, keep=True, damaged=found)]
        except ChangedOutput as error:
            if error.output in found:
                raise
            found.add(error.output)
            opened[:] = [committed_trajectories(workspace, keep=True, damaged=found)]
    if opened and result.version:
        opened[0].whole.add((result.version.output, result.version.id))
    export = TRAINING_EXPORTS.get(stage.name)
    if export and export.replaces and result.status is not Status.REJECTED:
        for name in export.replaces(context, result.output, context.published):
            words = stage.name, name, result.output
            _LOG.info("%s: %s is unpublished: %s replaces it", *words)
            store.remove(name)
    return result


def _damaged_inputs(store: Store, opened: Sequence[CommittedTrajectories]) -> set[str]:
    """The trajectories and records that a dataset was built of and that are damaged."""
    keys = [key for committed in opened for key in committed.versions]
    names = [stage.output(key) for key in keys for stage in (TRAJECTORIES_STAGE, RECORDS_STAGE)]
    return {name for name in names if store.verify(name)}


def wanted_recipe(workspace: Workspace, stage: Stage[DatasetInputs]) -> Recipe:
    """The recipe of an output that is built now; the current version has it when nothing changed.

    Raises:
        StorageError: the store or the source cannot be read.
    """
    return dataset_recipe(stage, *_opened(workspace, stage))


def rebuild_cause(
    workspace: Workspace, stage: Stage[DatasetInputs], committed: CommittedTrajectories
) -> tuple[str, str]:
    """The stage's output, and why it would be built now; empty when it would not.

    Raises:
        StorageError: the store or the source cannot be read.
    """
    store = workspace.store
    if stage.name in TRAINING_EXPORTS and failed_before(store, stage):
        return stage.folder, "it failed before"
    context, fingerprints = _opened(workspace, stage, committed)
    output, recipe = dataset_output(stage, context), dataset_recipe(stage, context, fingerprints)
    current = store.current(output)
    if current is None or current.manifest.recipe != recipe:
        return output, rebuild_reason(current, recipe)
    if not store.is_complete(current):
        return output, "a file is missing"
    _LOG.info("%s: %s is unchanged", stage.name, output)
    return output, ""


def _opened(
    workspace: Workspace,
    stage: Stage[DatasetInputs],
    opened: CommittedTrajectories | None = None,
) -> tuple[DatasetInputs, dict[str, str]]:
    """The stage's inputs, and the fingerprints of those that are not trajectories.

    `opened`: the committed trajectories, if they are open already.
    """
    committed = CommittedTrajectories()
    folders: dict[str, Path] = {}
    fingerprints: dict[str, str] = {}
    for name in stage.inputs:
        if name == RECORDS_STAGE.name:
            committed = opened or committed_trajectories(workspace)
            continue
        if not is_built(DATASET_STAGE_BY_NAME[name], workspace.settings):
            continue
        output = DATASET_STAGE_BY_NAME[name].folder
        try:
            whole = opened.whole if opened else ()
            folders[output], version = workspace.store.open(output, whole=whole)
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
        published=_published(workspace, stage),
        code_version=stage.code_version,
    )
    if Need.EXPORTS in stage.needs:
        context = replace(context, exports=export_states(workspace, context))
        states = {f"export: {state.name}": state.fingerprint for state in context.exports}
        fingerprints.update(states)
    return context, fingerprints


def _published(workspace: Workspace, stage: Stage[DatasetInputs]) -> dict[str, Version]:
    """The published outputs of a stage with several, by name."""
    store, export = workspace.store, TRAINING_EXPORTS.get(stage.name)
    if export is None or export.subfolder is None:
        return {}
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
    output, recipe = dataset_output(stage, context), dataset_recipe(stage, context, fingerprints)

    def build(staging: Staging) -> Summary:
        note_settings(workspace, stage)
        committed, before = context.committed, staging.before
        if stage.name in TRAINING_EXPORTS:  # first those that probably have the files
            known = before.manifest.inputs if before else {}
            made = [one.id for one in committed.trajectories if any("/" in n for n in one.digests)]
            staging.hardlink_sources.extend(filter(None, [before]))
            for versions in (committed.versions, {key: committed.records[key] for key in made}):
                ids = sorted(versions, key=lambda key: known.get(key) == recipe.inputs[key])
                staging.hardlink_sources.extend(versions[key] for key in ids)
        if Need.LINKS in stage.needs:  # it hands on what no dataset reads
            judged = {one.id for one in committed.trajectories if judged_success(one) is not None}
            for key, version in committed.versions.items():
                output = TRAJECTORIES_STAGE.output(key)
                if workspace.store.current(output) is None:
                    raise ChangedOutput(output, "one of its files")
                if key in judged:  # the stage links its files one by one, beside another result
                    staging.hardlink_sources.append(version)
                else:
                    staging.link(output, version)
        summary = dict(stage.build(context, staging.path))
        if not stage.reads_trajectories:
            return summary
        unreadable = tuple(summary.get("problems", ()))
        damage = [*trajectory_damage(workspace.store, committed.damaged, unreadable)]
        summary |= {"privacy": committed.privacy} if committed.privacy else {}
        summary |= _looked_for(workspace.settings.privacy)
        summary |= {"told": list(committed.told)} if committed.told else {}
        summary |= {"damaged": [problem.as_dict() for problem in damage]} if damage else {}
        problems = [str(problem) for problem in unreadable]
        return summary | {"problems": problems, "left_out": dict(committed.left_out)}

    return build_if_stale(
        workspace.store,
        output,
        recipe,
        build,
        lambda out: _checked(stage, context, out),
        force=force,
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
