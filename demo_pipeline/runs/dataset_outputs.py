"""The outputs made from all committed trajectories: exports, index, statistics and catalogs.

This module opens the inputs of a dataset, leaves damaged demonstrations out, and reports the state
of the training exports to the index. graph.py decides whether a dataset is up to date, and builds
it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.datasets.index import ExportState, ExportStatus
from demo_pipeline.datasets.selection import (
    CORRECTIONS_FILE,
    NOTES_FILE,
    TRAJECTORY_FILE,
    judged_success,
)
from demo_pipeline.exports.export_summary import BY_TRAJECTORY
from demo_pipeline.privacy.redaction_stage import hash_of_settings
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.runs.committed_trajectories import trajectory_fingerprints
from demo_pipeline.runs.damage import trajectory_damage
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.graph import BuildPlan, Cause, Current, Graph, Output, Refused, Stale
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import (
    built_stages,
    export_of_stage,
    store_views,
    training_export,
)
from demo_pipeline.settings import PrivacySettings, export_names
from demo_pipeline.stage import Need, SourceInput, Stage, Summary
from demo_pipeline.store.documents import DamagedDocument, sealed, unsealed
from demo_pipeline.store.errors import OutputError
from demo_pipeline.store.split_memory import keep_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Recipe, Staging, Version, VersionName
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

# Key in recipes and summaries of datasets. The value is a hash of the privacy settings with which
# screenshots were searched for private data.
LOOKED_FOR = "looked_for"
_FAILED_EXPORTS = "failed_exports"  # folder of the store's documents about failed exports
_LOG = logging.getLogger(__package__)


class DatasetOutput(Output[DatasetInputs]):
    """The output of a stage that reads all committed trajectories or other datasets."""

    @property
    def name(self) -> str:
        """The output's name in the store: the stage's folder, or a subfolder of it.

        The name of the subfolder depends on the trajectories and the settings.
        """
        export = export_of_stage(self.stage)
        if export is None or export.subfolder is None:
            return self.stage.folder
        return f"{self.stage.folder}/{export.subfolder(self._inputs_to_ask())}"

    def inputs(self) -> list[Output[Any]]:
        """Returns the datasets that this dataset reads, except those that the settings disable."""
        stages = {stage.name: stage for stage in built_stages(self.graph.workspace.settings)}
        names = [name for name in self.stage.inputs if name in stages]
        return [DatasetOutput(self.graph, stages[name]) for name in names]

    def names_of_inputs(self) -> list[str]:
        """Returns the names of the datasets, trajectories and records that this dataset reads."""
        names = super().names_of_inputs()
        if self.stage.reads_trajectories:
            committed = self.graph.trajectories
            for versions in (committed.versions, committed.records):
                names += [version.output for version in versions.values()]
        return names

    def plan(self) -> BuildPlan[DatasetInputs]:
        """Plans a build from the trajectories, datasets and other data that the stage reads."""
        stage = self.stage
        workspace = self.graph.workspace
        versions: dict[str, Version] = {}
        for output in self.inputs():
            if self.graph.published(output.name) is not None:
                versions[output.name] = self.graph.required_version(output.name)
        source = stage.source(workspace) if stage.source else SourceInput(None, {})
        inputs = replace(self._inputs_to_ask(), source=source.value)
        if Need.EXPORTS in stage.needs:
            inputs = replace(inputs, exports=export_states(self.graph))

        fingerprints = {name: version.content for name, version in versions.items()}
        fingerprints |= source.fingerprints
        fingerprints |= {f"export: {state.name}": state.fingerprint for state in inputs.exports}
        if stage.reads_trajectories:
            fingerprints |= self._fingerprints_of_trajectories()
        settings = self.graph.fingerprint_of_settings(stage)
        recipe = Recipe(stage.name, stage.code_version, settings, fingerprints)
        return BuildPlan(
            recipe=recipe,
            open_inputs=partial(self._open_inputs, inputs, versions, recipe),
            complete_summary=self._complete_summary,
        )

    def _inputs_to_ask(self) -> DatasetInputs:
        """Returns the inputs for naming and planning the output, without opening any folders."""
        reads_trajectories = self.stage.reads_trajectories
        return DatasetInputs(
            settings=self.graph.workspace.settings,
            committed=self.graph.trajectories if reads_trajectories else CommittedTrajectories(),
            published=self._published_outputs(),
            code_version=self.stage.code_version,
        )

    def _published_outputs(self) -> dict[str, Version]:
        """Maps names to the published outputs of a stage that can have several outputs.

        Returns an empty dictionary for other stages.
        """
        export = export_of_stage(self.stage)
        if export is None or export.subfolder is None:
            return {}
        store = self.graph.workspace.store
        versions: dict[str, Version] = {}
        for name in store.outputs(self.stage.folder):
            version = store.published(name)
            if version is not None:
                versions[name] = version
        return versions

    def _fingerprints_of_trajectories(self) -> dict[str, str]:
        committed = self.graph.trajectories
        settings = self.graph.workspace.settings
        required_review = settings.datasets.require_review
        files = files_of_records(self.stage)
        fingerprints = trajectory_fingerprints(committed, files, required_review)
        for reason, number in committed.left_out.items():
            fingerprints[f"left out: {reason}"] = str(number)
        if committed.privacy:
            fingerprints["privacy"] = committed.privacy
        return fingerprints | _looked_for(settings.privacy)

    @contextmanager
    def _open_inputs(
        self,
        inputs: DatasetInputs,
        versions: Mapping[str, Version],
        recipe: Recipe,
        staging: Staging,
    ) -> Iterator[DatasetInputs]:
        store = self.graph.workspace.store
        if self.stage.export:
            _share_files(staging, inputs.committed, recipe)
        if Need.LINKS in self.stage.needs:
            _link_trajectories(self.graph, staging, inputs.committed)
        folders = {name: store.open_version(version, None) for name, version in versions.items()}
        views = store_views() if Need.VIEWS in self.stage.needs else ()
        exports = with_assets(inputs.exports)
        yield replace(inputs, folders=folders, views=views, exports=exports)

    def _complete_summary(self, summary: Summary) -> Summary:
        """Adds the numbers of left-out demonstrations and the privacy settings to a summary."""
        if not self.stage.reads_trajectories:
            return summary
        committed = self.graph.trajectories
        unreadable = tuple(summary.get("problems", ()))
        damage = list(trajectory_damage(self.graph.workspace.store, committed.damaged, unreadable))
        additions: dict[str, Any] = _looked_for(self.graph.workspace.settings.privacy)
        if committed.privacy:
            additions["privacy"] = committed.privacy
        if committed.notices:
            additions["told"] = list(committed.notices)
        if damage:
            additions["damaged"] = [problem.as_dict() for problem in damage]
        additions["problems"] = [str(problem) for problem in unreadable]
        additions["left_out"] = dict(committed.left_out)
        return {**summary, **additions}

    def prepare(self) -> None:
        """Leaves out demonstrations with damaged records, and stores the splits of the others."""
        if self.stage.reads_trajectories:
            self.graph.read_records()
            self._keep_splits()

    def can_retry(self, error: DemonstrationError | OutputError) -> bool:
        """Returns whether a damaged demonstration made the build fail, and leaves it out if so.

        The dataset's summary names the damaged file and the command that rebuilds it.
        """
        if not self.stage.reads_trajectories or not isinstance(error, OutputError):
            return False
        if not self.graph.leave_out(error):
            return False
        self._keep_splits()
        return True

    def _keep_splits(self) -> None:
        keep_split_memory(self.graph.workspace.store, self.graph.trajectories.memory)

    # Failures

    def refusal(self) -> str:
        """Returns why the last build of this training export failed, or an empty string."""
        return failed_before(self.graph.workspace.store, self.stage)

    def remember_refusal(self, error: RefusedError) -> None:
        """Notes the name of the check that rejected a training export."""
        failed_checks = [outcome.name for outcome in error.checks if not outcome.passed]
        self._note(failed_checks[-1] if failed_checks else "rejected")

    def remember_failure(self, error: Exception) -> None:
        """Notes the type of the error that ended the build of a training export."""
        self._note(type(error).__name__)

    def _note(self, reason: str) -> None:
        if self.stage.export:
            document = sealed({"reason": reason})
            self.graph.workspace.store.put_document(_key_of_note(self.stage), document)

    def remember_success(self, result: BuildResult) -> None:
        """Deletes the note about an earlier failure, and unpublishes the replaced outputs."""
        store = self.graph.workspace.store
        export = export_of_stage(self.stage)
        if export is None:
            return
        store.delete_document(_key_of_note(self.stage))
        if export.replaces is not None:
            inputs = self._inputs_to_ask()
            for name in export.replaces(inputs, result.output, inputs.published):
                _LOG.info("%s: %s replaces %s", self.stage.name, result.output, name)
                store.remove(name)


def _share_files(staging: Staging, committed: CommittedTrajectories, recipe: Recipe) -> None:
    """Lists in `staging` the versions whose files an export may hard-link.

    The versions that most likely contain the needed files come first.
    """
    fingerprints_before: Mapping[str, str] = {}
    if staging.before is not None:
        staging.hardlink_sources.append(staging.before)
        fingerprints_before = staging.before.manifest.inputs
    records_with_images: dict[str, VersionName] = {}
    for trajectory in committed.trajectories:
        if any("/" in name for name in trajectory.digests):
            records_with_images[trajectory.id] = committed.records[trajectory.id]
    for versions in (committed.versions, records_with_images):
        changed_first = sorted(
            versions, key=lambda key: fingerprints_before.get(key) == recipe.inputs[key]
        )
        staging.hardlink_sources.extend(versions[key] for key in changed_first)


def _link_trajectories(graph: Graph, staging: Staging, committed: CommittedTrajectories) -> None:
    """Links every trajectory into the index, except those whose success a reviewer judged.

    The files of a judged trajectory are copied or hard-linked one by one, because the
    decision changes result.json in the index.
    """
    judged_ids = {
        trajectory.id
        for trajectory in committed.trajectories
        if judged_success(trajectory) is not None
    }
    for key, version in committed.versions.items():
        output = TRAJECTORIES_STAGE.output(key)
        graph.required_version(output)
        if key in judged_ids:
            staging.hardlink_sources.append(version)
        else:
            staging.link(output, version)


def _looked_for(privacy: PrivacySettings) -> dict[str, str]:
    """Returns a hash of the privacy settings under the key `LOOKED_FOR`.

    Returns an empty dictionary if screenshots are not searched for private data.
    """
    return {LOOKED_FOR: hash_of_settings(privacy)} if privacy.reads_pictures else {}


def files_of_records(stage: Stage[DatasetInputs]) -> tuple[str, ...]:
    """Returns the files of each demonstration's records that a dataset reads.

    A file for the dataset's own format, such as `sft`, comes last.
    """
    export = export_of_stage(stage)
    form = (export.kept,) if export and export.kept else ()
    return (TRAJECTORY_FILE, CORRECTIONS_FILE, NOTES_FILE, *form)


# States of the training exports, which the index shows


def export_states(graph: Graph) -> tuple[ExportState, ...]:
    """Returns the state of every training export.

    The asset names of disabled exports are left empty, because importing their modules would take
    time. `with_assets` adds the names.
    """
    return tuple(_export_state(graph, name) for name in export_names())


def with_assets(states: Sequence[ExportState]) -> tuple[ExportState, ...]:
    """Adds the names of assets to the states of exports, including disabled exports."""
    return tuple(replace(state, asset=training_export(state.name).stage.name) for state in states)


def _export_state(graph: Graph, name: str) -> ExportState:
    if name not in graph.workspace.settings.datasets.exports:
        return ExportState(name, "", "disabled")
    stage = training_export(name).stage
    state = graph.state(DatasetOutput(graph, stage))
    reason = state.why if isinstance(state, Refused) else ""
    version = state.version
    if isinstance(state, Stale) and Cause.FILES in state.causes:
        version = None
    status: ExportStatus
    if version is None:
        status = "failed" if reason else "missing"
        return ExportState(name, stage.name, status, reason=reason)
    if isinstance(state, Current):
        status = "built"
    elif reason:
        status = "failed"
    else:
        status = "outdated"
    records: Any = version.manifest.summary.get(BY_TRAJECTORY, {})
    return ExportState(
        name=name,
        asset=stage.name,
        status=status,
        output=version.output,
        version=version.id,
        size=version.manifest.size,
        records=records,
        reason=reason,
    )


def failed_before(store: Store, stage: Stage[DatasetInputs]) -> str:
    """Returns why the last build of a training export failed, or an empty string."""
    if not stage.export:
        return ""
    data = store.get_document(_key_of_note(stage))
    if not data:
        return ""
    try:
        return str(unsealed(data, _key_of_note(stage)).get("reason"))
    except DamagedDocument:  # the export failed; its next build reports why
        return "its note is damaged"


def _key_of_note(stage: Stage[DatasetInputs]) -> str:
    return f"{_FAILED_EXPORTS}/{stage.name}.json"
