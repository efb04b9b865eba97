"""The stages of a demonstration as one asset function, and the job for any ids.

Belongs here: both call `runs/batch.py` and say what became of each demonstration: explicit
materialisations, check results and failures per partition, for one partition and for many by the
same code.
"""

import hashlib
import logging
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Any

import dagster as dg

# Dagster knows what is out of date by tags of materialisations, whose names it does not export.
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

# A partition that a job without partitions did not make is red by this event, and by no public one.
from dagster._core.events import AssetMaterializationPlannedData
from pydantic import Field

from demo_pipeline.defs import reporting
from demo_pipeline.defs.dataset_assets import parents_of, told_of_dataset
from demo_pipeline.defs.demonstration_runs import (
    BatchMember,
    launched_for,
    members_of,
    note_outcomes,
    open_table,
    waiting_failure,
)
from demo_pipeline.defs.jobs import BATCH_JOB, DEMONSTRATIONS
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.tags import (
    FORCE_TAG,
    OUTCOME_TAG,
    OWNERS,
    PARTITIONS_NAME,
    SUPERSEDED_OUTCOME,
    WAITING_OUTCOME,
)
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.problems import Problem
from demo_pipeline.runs.batch import DemonstrationTask, process
from demo_pipeline.runs.dataset_builds import failure_text
from demo_pipeline.runs.discovery import Ending
from demo_pipeline.runs.failures import SupersededError, transient_reason
from demo_pipeline.runs.quarantine import record_crash
from demo_pipeline.runs.results import (
    IN_RUNS,
    BatchProgress,
    BuildResult,
    DemonstrationResult,
    Status,
)
from demo_pipeline.runs.stage_runs import AStage
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, STAGE_BY_NAME, STAGES, group_of
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import RECORDS, Need, Stage
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.versions import CheckOutcome

STEP, _BATCH_STEP, DECODING_POOL = "demonstrations", "all_stages", "decoding"
_COMPARED_PARTITIONS = 100  # of an input, by Dagster
_LOG = logging.getLogger(__package__)
_SHOWN, _LONGEST_REASON = 20, 500  # problems; characters
_EMPTY_RANGE = (
    "no demonstration is in this range; partitions are in the order of their registration, so the "
    "first of the range must be the one that was registered first"
)
_CORRECT = (
    "correct the upload, then materialize raw_recordings and the later stages again; other "
    "demonstrations are not affected"
)
_REMEDY = {
    Status.SUPERSEDED: "none: the upload changed during the run, and a new run follows",
    Status.WAITING: "none, if that passes: it is tried again by itself",
    Status.FAILED: "report it; then materialise its partition again",
}
_SUPERSEDED = "superseded: the upload changed during the run; a new run will process the new upload"
_MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION
_PLANNED = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED
_Context = dg.AssetExecutionContext | dg.OpExecutionContext
_Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation | dg.Output[None]
_Events = Iterator[_Event]
LogLine = tuple[int, str]  # level and message


@dataclass
class Report:
    """What a command built, for the run in its process that only tells Dagster of it.

    Attributes:
        results: of demonstrations, and of datasets with their names, in the order of their ends.
        lines: level and message of what was logged meanwhile.
        seen: storage id of the newest trajectory that Dagster knew before datasets were built.
    """

    results: list[DemonstrationResult | tuple[str, BuildResult | Exception]]
    lines: list[LogLine]
    seen: int | None = None


reports: dict[str, Report] = {}
"""Run id → what that run reports."""


def build_demonstration_assets(partitions_per_run: int) -> dg.AssetsDefinition:
    """The partitioned assets. A backfill launches up to `partitions_per_run` demonstrations a run.

    With one per run, each demonstration has its own check results; a batch has one result per
    check.
    """
    partitions = DEMONSTRATIONS if partitions_per_run == 1 else None
    with warnings.catch_warnings():
        # Marked as subject to change; tests pin the behaviour that this relies on.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        check_specs = [
            spec
            for stage in STAGES
            for spec in reporting.check_specs(stage.name, stage.checks, partitions)
        ]

    @dg.multi_asset(
        name=STEP,
        specs=[_spec(stage) for stage in STAGES],
        check_specs=check_specs,
        can_subset=True,
        partitions_def=DEMONSTRATIONS,
        backfill_policy=dg.BackfillPolicy.multi_run(partitions_per_run),
        pool=DECODING_POOL,
    )
    def demonstrations(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> _Events:
        keys = list(context.partition_keys)
        if not keys:
            raise dg.Failure(_EMPTY_RANGE, allow_retries=False)
        chosen = context.selected_asset_keys
        stages = [stage for stage in STAGES if dg.AssetKey(stage.name) in chosen]
        members = [BatchMember(key, launched_for(context.run, key) or "") for key in keys]
        yield from _Run(context, workspace, stages, members, planned=True).events()
        for spec in context.assets_def.check_specs:  # what they say was said already
            if spec.key in context.selected_asset_check_keys:
                yield dg.Output(None, spec.get_python_identifier())

    return demonstrations


def _parents_of(stage: AStage) -> list[str]:
    return [*stage.inputs, *([OSWORLD_TASKS] if Need.TASK in stage.needs else [])]


def _spec(stage: AStage) -> dg.AssetSpec:
    return dg.AssetSpec(
        stage.name,
        deps=_parents_of(stage),
        skippable=True,  # a run whose upload changes meanwhile has no output
        group_name=group_of(stage),
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
    )


class _BatchConfig(dg.Config):
    """Ids of the demonstrations to process, for a run that a person launches."""

    ids: list[str] = Field(default_factory=list)


@dg.op(
    name=_BATCH_STEP,
    out={"done": dg.Out(dg.Nothing, is_required=False)},
    pool=DECODING_POOL,
    description="Takes each demonstration through every stage, in worker processes, and reports "
    "each by itself: one that fails changes nothing for the others.",
)
def _all_stages(
    context: dg.OpExecutionContext, config: _BatchConfig, workspace: dg.ResourceParam[Workspace]
) -> _Events:
    members = members_of(context.run) or [BatchMember(key) for key in dict.fromkeys(config.ids)]
    if not members and context.run_id not in reports:
        raise dg.Failure("no demonstration is named; list their `ids`", allow_retries=False)
    yield from _Run(context, workspace, STAGES, members, planned=False).events()


@dg.graph(
    name=BATCH_JOB,
    description="Processes many demonstrations in one run, from the uploaded files to the contact "
    "sheets (config: `ids`). The sensor new_uploads launches it when many uploads arrive at once; "
    "`demo-pipeline run` reports what it built by a run of it.",
)
def _batch_graph() -> None:
    """One step; see its description."""
    _all_stages()


def build_batch_job(workspace: Workspace) -> dg.JobDefinition:
    """The job over these roots.

    With its resource from the start: a sensor of several jobs cannot be given it later.
    """
    return _batch_graph.to_job(
        resource_defs={"workspace": dg.ResourceDefinition.hardcoded_resource(workspace)},
        executor_def=dg.in_process_executor,
    )


class _Run:
    """One run over some demonstrations: what is done, and what is said of each.

    `planned`: Dagster wrote down that each of these partitions was to be materialized.
    """

    def __init__(
        self,
        context: _Context,
        workspace: Workspace,
        stages: Sequence[AStage],
        members: Sequence[BatchMember],
        *,
        planned: bool,
    ) -> None:
        self._log, self._instance, self._run = context.log, context.instance, context.run
        self._workspace, self._stages, self._members = workspace, stages, members
        self._planned, self._alone = planned, planned and len(members) == 1
        # Of a few as much is said as in runs of their own.
        self._few = len(members) < workspace.settings.execution.batch_from or self._alone
        self._progress = BatchProgress(len(members))
        self._versions = _Versions(self._instance, [one.demonstration for one in members])
        self._made: defaultdict[str, dict[str, BuildResult]] = defaultdict(dict)  # by stage, id
        self._left: list[DemonstrationResult] = []  # those that are not done
        self._seen, self._reports = 0, False
        self._failed: list[str] = []  # why datasets were not built

    def events(self) -> _Events:
        """Process the demonstrations; yield what is said of each.

        Raises:
            Failure: at the end, when a demonstration is not done.
        """
        claim_run(self._instance, self._run)
        try:
            for found in self._found():
                if isinstance(found, tuple):
                    yield from self._said_of_dataset(*found)
                    continue
                if isinstance(found, BuildResult):
                    yield from self._said_of_stage(found)
                    continue
                self._progress.add(found)
                if not found.status.is_done:
                    self._left.append(found)
                    yield from self._said_of_undone(found)
        except Exception as error:
            reason = transient_reason(error)
            if reason is None:
                raise
            raise waiting_failure(self._instance, self._run.run_id, reason) from None
        for stage in self._stages:
            yield from (self._evaluation(stage.name, one) for one in self._outcomes(stage))
        self._end()

    def _found(
        self,
    ) -> Iterator[BuildResult | DemonstrationResult | tuple[str, BuildResult | Exception]]:
        """What a command built, else what is built now."""
        report = reports.pop(self._run.run_id, None)
        if report is not None:
            self._seen, self._reports = report.seen or 0, True
            for level, lines in groupby(report.lines, lambda line: line[0]):
                self._log.log(level, "\n".join(text for _, text in lines))
            for result in report.results:
                if isinstance(result, DemonstrationResult):
                    yield from result.stages
                yield result
            return
        force = self._run.tags.get(FORCE_TAG) == "true"
        tasks = [
            DemonstrationTask(m.demonstration, m.fingerprint or None, force) for m in self._members
        ]
        workers = min(self._workspace.settings.execution.workers, len(tasks))
        if not self._alone:
            self._log.info("%d demonstrations, %d processes", len(tasks), workers)
        log = self._log.log if self._few else None
        yield from process(
            self._workspace, tasks, self._stages, workers=workers, log=log, tick=self._tick
        )

    def _tick(self) -> None:
        if not self._alone and (line := self._progress.due_line()):
            self._log.info(line)

    def _said_of_stage(self, made: BuildResult) -> _Events:
        """Say what a stage gave; the store has outputs without an event of a killed process."""
        stage, key = STAGE_BY_NAME[made.stage], made.demonstration
        counts = {n: v for check in stage.checks for n, v in check.counts(made.summary).items()}
        self._made[made.stage][key] = replace(made, summary=counts)
        told_before = self._versions.shown[made.stage].get(key) == made.content[:16]
        if made.status is Status.CACHED and told_before and not self._planned:
            return  # in a backfill, one without an event counts as failed
        location = f"{self._workspace.store.url}/{stage.output(key)}"
        metadata = reporting.report_metadata(made, location, short=not self._few)
        tags = self._versions.tags(stage, _parents_of(stage), made.content, key)
        yield dg.AssetMaterialization(made.stage, partition=key, metadata=metadata, tags=tags)
        self._versions.note(made.stage, made.content, key)

    def _said_of_dataset(self, name: str, result: BuildResult | Exception) -> _Events:
        """Say what a dataset that a command built gave; one that failed is red."""
        stage = DATASET_STAGE_BY_NAME[name]
        if stage.reads_trajectories:
            self._seen = self._newest_in_datasets()
        metadata, outcomes = told_of_dataset(
            self._instance, self._workspace, stage, result, self._seen
        )
        if isinstance(result, BuildResult) and result.version is not None:
            parents = parents_of(stage, self._workspace.settings)
            tags = self._versions.tags(stage, parents, result.content)
            yield dg.AssetMaterialization(name, metadata=metadata, tags=tags)
            self._versions.note(name, result.content)
        else:
            self._plan(name)
            self._failed.append(f"{name}: {failure_text(result)}")
        yield from (self._evaluation(name, outcome) for outcome in outcomes)

    def _newest_in_datasets(self) -> int:
        """Storage id of the newest trajectory that they contain: with those that this run told of.

        Not beyond one of another run, which may be newer than the datasets.
        """
        newer = dg.AssetRecordsFilter(dg.AssetKey(RECORDS), after_storage_id=self._seen)
        limit = len(self._members) + 1
        found = self._instance.fetch_materializations(newer, limit=limit, ascending=True).records
        own = takewhile(lambda record: record.run_id == self._run.run_id, found)
        return max((record.storage_id for record in own), default=self._seen)

    def _said_of_undone(self, result: DemonstrationResult) -> _Events:
        """Say why a demonstration is not done, where people look for it."""
        key, status = result.demonstration, result.status
        if status is Status.FAILED and not self._reports:
            self._record_defect(result)
        if not self._alone:
            why = str(_problems(result)[0]).removeprefix(f"{key}: ")
            self._log.warning("%s: %s in %s: %s", key, IN_RUNS[status], result.stage, why)
        if status is Status.SUPERSEDED:  # the run succeeds, and another follows for the new upload
            if self._alone:
                self._log.warning("%s of %s: %s", result.stage, key, _SUPERSEDED)
                self._instance.add_run_tags(self._run.run_id, {OUTCOME_TAG: SUPERSEDED_OUTCOME})
            told = {"outcome": SUPERSEDED_OUTCOME, "why": _SUPERSEDED}
            yield dg.AssetObservation(result.stage, partition=key, metadata=told)
        elif not self._planned:
            for stage in self._stages[len(result.stages) :]:
                self._plan(stage.name, key)
        elif status is Status.WAITING and not self._alone:
            try:
                with open_table(self._instance, self._workspace) as table:
                    table.request_rerun(key, WAITING_OUTCOME)
            except Exception as error:  # noqa: BLE001 - the next sweep of discovery does it
                self._log.warning("%s cannot be requested again: %s", key, type(error).__name__)

    def _record_defect(self, result: DemonstrationResult) -> None:
        """Quarantine it here: until there is a record, discovery waits for one."""
        key, cause = result.demonstration, result.reason.partition(":")[0]
        listed = launched_for(self._run, key)
        try:
            record_crash(self._workspace, key, result.stage, cause, listed)
        except (SupersededError, StorageError, OSError) as error:  # discovery requests another run
            self._log.warning("%s cannot be quarantined: %s", key, error)

    def _plan(self, asset: str, partition: str | None = None) -> None:
        """Note that an asset was to be materialized: when its run fails, it failed."""
        event = dg.DagsterEvent(
            event_type_value=_PLANNED.value,
            job_name=self._run.job_name,
            step_key=_BATCH_STEP,
            event_specific_data=AssetMaterializationPlannedData(
                dg.AssetKey(asset), partition=partition
            ),
        )
        self._instance.report_dagster_event(event, self._run.run_id)

    def _evaluation(self, stage: str, outcome: CheckOutcome) -> dg.AssetCheckEvaluation:
        said = reporting.check_result(outcome)
        own = self._alone and self._workspace.settings.execution.partitions_per_run == 1
        return dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(stage),
            check_name=outcome.name,
            passed=outcome.passed,
            severity=said.severity,
            description=said.description,
            metadata=said.metadata,
            blocking=False,  # a failed one is red; what it stops was stopped before
            partition=self._members[0].demonstration if own else None,
        )

    def _outcomes(self, stage: AStage) -> list[CheckOutcome]:
        """One verdict for each check of a stage, over all demonstrations that came to it.

        It fails for every one that the stage stopped; a run of one has the verdicts of its own.
        """
        stopped = [result for result in self._left if result.stage == stage.name]
        built = list(self._made[stage.name].values())
        if self._alone and stopped:
            return _own_outcomes(stage, stopped[0])
        if not stopped and not built:
            return []  # no check ran
        outcomes = []
        for check in stage.checks:
            found = [problem for result in stopped for problem in _problems(result)]
            own = [one for made in built for one in made.checks if one.name == check.name]
            found += (problem for one in own for problem in one.problems)
            counts = Counter({"demonstrations": len(built)})
            for made in built:
                counts.update(check.counts(made.summary))
            compared = reporting.compared(check, built[0]) if self._alone else counts
            passed = not stopped and all(one.passed for one in own)
            said = CheckOutcome(check.name, passed, tuple(found), compared, blocking=check.blocking)
            outcomes.append(said)
        return outcomes

    def _end(self) -> None:
        """Write down what is not done, and end the run with it; inputs at fault are not retried."""
        left = sorted(self._left, key=lambda one: one.demonstration)
        if not self._alone and self._members:
            self._log.info(self._progress.last_line())
        if left or not self._alone:
            with best_effort(_LOG, "noting how the run ended"):
                endings = {one.demonstration: _ending(one) for one in left}
                note_outcomes(self._instance, self._run.run_id, endings)
        left = [one for one in left if one.status is not Status.SUPERSEDED]
        if not left and not self._failed:
            return
        metadata = dict[str, Any](self._progress.numbers())
        found = [problem for one in left for problem in _problems(one)]
        if not self._alone:
            heading = f"{self._progress.last_line()}:" if left else "datasets were not built:"
            heads = [(f"{IN_RUNS[one.status]} in {one.stage}: ", _problems(one)[0]) for one in left]
        elif left[0].status is Status.WAITING:
            raise waiting_failure(self._instance, self._run.run_id, left[0].reason)
        else:
            first = left[0]
            heading = f"{first.demonstration} failed in {first.stage}:"
            heads = [("", problem) for problem in found]
            metadata = {"demonstration": first.demonstration, "stage": first.stage}
            metadata |= {"what_to_do": _CORRECT}
        lines = [f"  {head}{plain_line(str(problem))}" for head, problem in heads[:_SHOWN]]
        more = [f"  … and {len(heads) - _SHOWN} more"] if len(heads) > _SHOWN else []
        raise dg.Failure(
            description="\n".join([heading, *lines, *more, *(f"  {why}" for why in self._failed)]),
            metadata={**metadata, "found": reporting.problem_table(found)},
            allow_retries=False,
        )


def _ending(result: DemonstrationResult) -> Ending:
    """What the end of the run means for a demonstration that is not done."""
    if result.status is Status.WAITING:
        return Ending(Status.WAITING, result.reason[:_LONGEST_REASON])
    return Ending(Status.LOST if result.status is Status.FAILED else result.status)


def _problems(result: DemonstrationResult) -> list[Problem]:
    """Why a demonstration is not done, each with its id and what to do."""
    key, remedy = result.demonstration, _REMEDY.get(result.status, "")
    return [
        replace(one, demonstration=one.demonstration or key, remedy=one.remedy or remedy)
        for one in result.problems
    ] or [Problem(result.status, ".", "ended without a reason", demonstration=key)]


def _own_outcomes(stage: AStage, result: DemonstrationResult) -> list[CheckOutcome]:
    """The verdicts of the stage that stopped the only demonstration of a run."""
    if result.status is Status.SUPERSEDED:
        said = Problem("superseded", ".", _SUPERSEDED, demonstration=result.demonstration)
        return [CheckOutcome(one.name, False, (said,), blocking=False) for one in stage.checks]
    if result.status is Status.WAITING:
        return []
    first = CheckOutcome(stage.checks[0].name, False, tuple(_problems(result)))
    return list(result.checks) or [first]


class _Versions:
    """The data versions that Dagster shows, and the tags by which it knows what is out of date.

    Attributes:
        shown: asset → demonstration of the run, or "" → data version of its latest materialisation.
    """

    def __init__(self, instance: dg.DagsterInstance, ids: Sequence[str]) -> None:
        self._instance, self._storage = instance, instance.event_log_storage
        self._pointers: dict[tuple[str, str], int] = {}  # (asset, demonstration) → storage id
        self._whole: dict[str, str] = {}  # of stages of demonstrations, over all of these
        self.shown: dict[str, dict[str, str]] = {}
        names = [*STAGE_BY_NAME, *DATASET_STAGE_BY_NAME]
        for name in STAGE_BY_NAME:
            found = self._latest(name, ids)
            self.shown[name] = {key: tags[DATA_VERSION_TAG] for key, tags in found.items()}
        for record in instance.get_asset_records([dg.AssetKey(name) for name in names]):
            last = record.asset_entry.last_materialization_record
            if last is None or last.asset_key is None:
                continue
            name, said = last.asset_key.path[-1], last.asset_materialization
            self._pointers[name, ""] = last.storage_id
            tags = (said.tags if said else None) or {}
            known = self.shown.setdefault(name, {})
            known[""] = tags.get(DATA_VERSION_TAG, DEFAULT_DATA_VERSION.value)

    def _latest(self, name: str, ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        key = dg.AssetKey(name)
        return self._storage.get_latest_tags_by_partition(
            key, _MATERIALIZATION, [DATA_VERSION_TAG], ids
        )

    def tags(
        self, stage: Stage[Any], parents: Sequence[str], content: str, demonstration: str = ""
    ) -> dict[str, str]:
        """The tags of a materialisation of a stage of a demonstration, or of a dataset."""
        tags = {
            CODE_VERSION_TAG: stage.code_version,
            DATA_VERSION_TAG: content[:16],
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        }
        for name in parents:
            key = demonstration if name in STAGE_BY_NAME else ""
            version = self.shown.get(name, {}).get(key, "" if key else DEFAULT_DATA_VERSION.value)
            if not demonstration and name in STAGE_BY_NAME:
                version = self._of_all(name) or version
            tags[get_input_data_version_tag(dg.AssetKey(name))] = version
            pointer = self._pointers.get((name, key), self._pointers.get((name, "")))
            tags[get_input_event_pointer_tag(dg.AssetKey(name))] = (
                NULL_EVENT_POINTER if pointer is None else str(pointer)
            )
        return tags

    def _of_all(self, name: str) -> str:
        """The data version of all partitions, as Dagster has it; empty for many, as it has none."""
        if name not in self._whole:
            keys = self._instance.get_dynamic_partitions(PARTITIONS_NAME)
            found = self._latest(name, keys) if len(keys) < _COMPARED_PARTITIONS else {}
            versions = "".join(found[key][DATA_VERSION_TAG] for key in sorted(found))
            whole = hashlib.sha256(versions.encode()).hexdigest()
            self._whole[name] = whole if len(keys) < _COMPARED_PARTITIONS else ""
        return self._whole[name]

    def note(self, stage: str, content: str, demonstration: str = "") -> None:
        """Take in that its materialisation was written, before what is made from it."""
        pointer = self._storage.get_maximum_record_id() or 0
        self._pointers[stage, demonstration] = self._pointers[stage, ""] = pointer
        self.shown.setdefault(stage, {})[demonstration] = content[:16]
        self._whole.pop(stage, None)
