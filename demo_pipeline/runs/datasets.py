"""One dataset: its trajectories and other inputs, its recipe, its output, its checks.

Belongs here: the wiring between store and build functions, the same for every dataset stage; the
committed trajectories, and the state of every training export.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.datasets.index import ExportState
from demo_pipeline.datasets.selection import CORRECTIONS_FILE, NOTES_FILE, TRAJECTORY_FILE
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.problems import DemonstrationError, errors
from demo_pipeline.review.review_store import verdicts
from demo_pipeline.runs.build import build_if_stale
from demo_pipeline.runs.damage import trajectory_damage
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, store_views, training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Stage, Summary, TrainingExport
from demo_pipeline.store.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.store.names import is_former_id, safe_id
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import CheckOutcome, Recipe, Version, VersionName
from demo_pipeline.store.versions import Staging, document_damage
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory, load
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_BROKEN = "left out: broken"


def dataset_output(stage: Stage[DatasetInputs], context: DatasetInputs) -> str:
    """Name of the stage's output in the store."""
    return f"{stage.folder}/{stage.subfolder(context)}" if stage.subfolder else stage.folder


def dataset_recipe(
    stage: Stage[DatasetInputs], context: DatasetInputs, fingerprints: Mapping[str, str]
) -> Recipe:
    """Everything that the output depends on.

    Args:
        stage: the stage.
        context: its inputs.
        fingerprints: name → fingerprint of the inputs that are not trajectories.
    """
    inputs = dict(fingerprints)
    if stage.reads_trajectories:
        committed = context.committed
        kept = (
            TRAJECTORY_FILE,
            CORRECTIONS_FILE,
            NOTES_FILE,
            *filter(None, [stage.export.kept if stage.export else ""]),
        )
        required = context.settings.datasets.require_review
        inputs |= {one.id: read_of(one, kept, required) for one in committed.trajectories}
        inputs |= {f"left out: {name}": str(n) for name, n in committed.left_out.items()}
    settings = context.settings
    inputs |= {name: section(settings).fingerprint() for name, section in stage.limits.items()}
    return Recipe(stage.name, stage.code_version, stage.fingerprint(settings), inputs)


def read_of(source: DatasetTrajectory, kept: Sequence[str], required: str) -> str:
    """Fingerprint of what is read of a trajectory and its records, and of a review that counts."""
    known = [source.content, *(source.digests.get(name, "") for name in kept)]
    if required == "approved" or (required == "not_rejected" and source.rejected_for):
        known += [source.review, source.rejected_for]
    return hashlib.sha256(" ".join(known).encode()).hexdigest()


def is_present(built: Recipe, wanted: Recipe) -> bool:
    """Whether a dataset was built from what there is now.

    Trajectories that were damaged after their commit may be missing, when they are counted.
    """
    same = (built.stage, built.code_version, built.settings)
    if same != (wanted.stage, wanted.code_version, wanted.settings):
        return False
    missing = wanted.inputs.keys() - built.inputs.keys()
    expected = {name: text for name, text in wanted.inputs.items() if name not in missing}
    if missing and _BROKEN in expected:
        expected[_BROKEN] = str(int(expected[_BROKEN]) + len(missing))
    return built.inputs == expected


_damaged: set[tuple[str, str]] = set()
"""(store, output) that a build of this process has found damaged: the next ones leave it out, too,
although they may not have to read it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is needed of a version of records: names, and the files that are as they are wanted."""

    name: VersionName
    trajectory: VersionName
    digests: Mapping[str, str]

    @classmethod
    def of(cls, version: Version, wanted: Mapping[str, str]) -> Self:
        """Of a version; `wanted`: file → what it has to depend on."""
        manifest = version.manifest
        current = manifest.code_version == RECORDS_STAGE.code_version
        fresh = {name for name, text in wanted.items() if manifest.inputs.get(name) == text}
        fresh |= {TRAJECTORY_FILE} | {one.path for one in manifest.files if "/" in one.path}
        usable = {CORRECTIONS_FILE, NOTES_FILE, *(fresh if current else ())}
        digests = {one.path: one.sha256 for one in manifest.files if one.path in usable}
        link = manifest.links[TRAJECTORIES_STAGE.name]
        content = manifest.inputs[TRAJECTORIES_STAGE.name]
        return cls(version.name, VersionName(link.output, link.version, content), digests)


@contextmanager
def committed_trajectories(workspace: Workspace) -> Iterator[CommittedTrajectories]:
    """Every trajectory with records as a local folder; damaged and missing ones are counted.

    A trajectory under the id that an earlier version gave its folder is left out and counted when
    there is one under the present id, so that no demonstration is in a dataset twice.
    A quarantined demonstration whose last good records are still committed is included with them.
    A file of records that other settings or other code have made is left out of `digests`.
    """
    left_out: Counter[str] = Counter(broken=0, quarantined=0)
    names, renamed = _present_names(workspace.store)
    if renamed:
        left_out["renamed"] = renamed
    noted = {name.rpartition("/")[2] for name in _still_damaged(workspace.store)}
    present = [name for name in names if name.rpartition("/")[2] not in noted]
    wanted = RECORDS_STAGE.parts(workspace.settings)
    with workspace.store.open_all(present, lambda version: _Kept.of(version, wanted)) as opened:
        kept = {one.name.output.rpartition("/")[2]: one for _, one in opened}
        versions = {key: one.trajectory for key, one in kept.items()}
        judged = verdicts(workspace.reviews, workspace.store, versions)
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
        gone = [name for name in names if name.rpartition("/")[2] not in kept]
        damaged = sorted(_damaged_output(workspace.store, name) for name in gone)
        left_out["broken"] = len(damaged)
        for record in list_quarantine(workspace.store):
            left_out["quarantined"] += record.demonstration not in kept
        yield CommittedTrajectories(
            trajectories,
            versions,
            {key: one.name for key, one in kept.items()},
            left_out,
            tuple(damaged),
        )


def _damaged_output(store: Store, records: str) -> str:
    """The output that is damaged when records cannot be opened: theirs, or the trajectory's."""
    trajectory = TRAJECTORIES_STAGE.output(records.rpartition("/")[2])
    return trajectory if store.verify(trajectory) else records


def _still_damaged(store: Store) -> set[str]:
    """The outputs that were found damaged and were not built again since."""
    _damaged.difference_update(
        [(url, name) for url, name in _damaged if url == store.url and not store.verify(name)]
    )
    return {name for url, name in _damaged if url == store.url}


def note_damage(store: Store, output: str) -> bool:
    """Note that an output was found damaged, unless only its local copy of a bucket was."""
    if store.verify(output):
        _damaged.add((store.url, output))
    return (store.url, output) in _damaged


def _present_names(store: Store) -> tuple[list[str], int]:
    """The outputs of records under their present ids, and how many others there are."""
    outputs = store.outputs(RECORDS_STAGE.folder)
    known = frozenset(outputs)
    names = [output for output in outputs if not _is_renamed(output, known)]
    return names, len(outputs) - len(names)


def _is_renamed(output: str, outputs: frozenset[str]) -> bool:
    """Whether the trajectory stands under its present id, too."""
    key = output.rpartition("/")[2]
    return is_former_id(key) and RECORDS_STAGE.output(safe_id(key)) in outputs


def without_unreadable(committed: CommittedTrajectories) -> CommittedTrajectories:
    """The trajectories that are still valid; the others are counted as broken."""
    outputs = {key: version.output for key, version in committed.versions.items()}
    gone = {outputs[one.id] for one in committed.trajectories if not _is_valid(one)}
    return without_outputs(committed, gone)


def without_outputs(
    committed: CommittedTrajectories, outputs: Collection[str]
) -> CommittedTrajectories:
    """The trajectories but those of these outputs, which are counted as broken."""
    ids = {name.rpartition("/")[2]: name for name in outputs}
    gone = {one.id: ids[one.id] for one in committed.trajectories if one.id in ids}
    kept = tuple(one for one in committed.trajectories if one.id not in gone)
    versions = {key: version for key, version in committed.versions.items() if key not in gone}
    records = {key: version for key, version in committed.records.items() if key not in gone}
    damaged = tuple(sorted({*committed.damaged, *gone.values()}))
    left_out = {**committed.left_out, "broken": len(damaged)}
    return CommittedTrajectories(kept, versions, records, left_out, damaged)


def _is_valid(trajectory: DatasetTrajectory) -> bool:
    try:
        load(trajectory)
    except (DemonstrationError, ChangedOutput):
        return False
    return not errors(validate_trajectory(trajectory.path, trajectory.id))


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
    version, records = _counted(workspace, export, output, count=count)
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
    export: TrainingExport,
    output: str,
    *,
    count: bool,
) -> tuple[Version | None, Mapping[str, int]]:
    """The current version of an export, and with `count` its records of each trajectory."""
    if not count:
        return workspace.store.current(output), {}
    try:
        with workspace.store.open_files(output, export.files) as (folder, version):
            return version, export.records(folder)
    except MissingOutput:
        return None, {}


def note_result(store: Store, stage: Stage[DatasetInputs], result: BuildResult) -> None:
    """Remember that a training export was rejected, or forget that it failed before."""
    if stage.export is None:
        return
    if result.status is Status.REJECTED:
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


_LOG = logging.getLogger(__package__)


def run_dataset_stage(
    workspace: Workspace, stage: Stage[DatasetInputs], *, force: bool = False
) -> BuildResult:
    """Build one dataset from what is committed now, unless it is up to date.

    When a check rejects a dataset of trajectories, every trajectory is validated again. Those that
    were damaged after their commit are left out and counted, and the dataset is built from the
    others; likewise when a file that would be hard-linked is not the one that was committed.
    Outputs that the new one replaces are unpublished after it is published.

    Raises:
        MissingOutput: an input that the stage requires has not been built, or one has lost a file.
        StorageError: the store or the source cannot be read.
    """
    try:
        with reduced_python_gc():  # thousands of trajectories are held, without cycles
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
                result = _build(workspace, stage, context, fingerprints, force=force)
            except ChangedOutput as error:
                damaged = [name for name, output in _read(stage).items() if output == error.output]
                if damaged:
                    run_dataset_stage(workspace, DATASET_STAGE_BY_NAME[damaged[0]])
                    return _run(workspace, stage, force=force)
                valid = without_outputs(before, [error.output])
                if len(valid.trajectories) == len(before.trajectories):
                    raise
                if not note_damage(workspace.store, error.output):  # a new copy is downloaded
                    return _run(workspace, stage, force=force)
            else:
                if result.status is not Status.REJECTED:
                    _unpublish_replaced(workspace, stage, context, result)
                    return result
                if not stage.reads_trajectories:
                    return result
                valid = without_unreadable(before)
                if len(valid.trajectories) == len(before.trajectories):
                    return result
            context = replace(context, committed=valid)


def _read(stage: Stage[DatasetInputs]) -> dict[str, str]:
    """The outputs of other dataset stages that a stage reads, by the stage's name."""
    stages = {name: DATASET_STAGE_BY_NAME.get(name) for name in stage.inputs}
    return {name: one.folder for name, one in stages.items() if one is not None}


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
    with _opened(workspace, stage) as opened:
        return dataset_recipe(stage, *opened)


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
            if name == RECORDS_STAGE.name:
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
    def build(staging: Staging) -> Summary:
        committed = context.committed
        if stage.export is not None:
            made = [one.id for one in committed.trajectories if any("/" in n for n in one.digests)]
            staging.hardlink_sources.extend(committed.versions.values())
            staging.hardlink_sources.extend(committed.records[key] for key in made)
        for output, folder in context.folders.items():  # what is read has the bytes of its commit
            if found := document_damage(folder, output):
                raise found.as_error()
        if stage.links_trajectories:  # it hands on what no dataset reads
            _require_whole_documents(committed)
        summary = dict(stage.build(context, staging.path))
        if not stage.reads_trajectories:
            return summary
        if stage.links_trajectories:
            for key, version in committed.versions.items():
                staging.link(TRAJECTORIES_STAGE.output(key), version)
        unreadable = tuple(summary.get("problems", ()))
        damage = [*trajectory_damage(workspace.store, committed.damaged, unreadable)]
        summary |= {"damaged": [problem.as_dict() for problem in damage]} if damage else {}
        problems = [str(problem) for problem in unreadable]
        return summary | {"problems": problems, "left_out": dict(committed.left_out)}

    return build_if_stale(
        workspace.store,
        dataset_output(stage, context),
        dataset_recipe(stage, context, fingerprints),
        build,
        lambda out: _checked(stage, context, out),
        force=force,
    )


def _require_whole_documents(committed: CommittedTrajectories) -> None:
    """Compare the files of trajectories but their pictures with their manifests.

    Pictures are compared when they are linked, and when they are read.

    Raises:
        ChangedOutput: one differs.
    """
    for source in committed.trajectories:
        output = committed.versions[source.id].output
        if damage := document_damage(source.path.resolve(), output):
            raise damage.as_error()


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
