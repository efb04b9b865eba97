"""The stages of a demonstration as one asset function, and the job for any ids.

Belongs here: both call `pipeline/batch.py` and say what became of each demonstration: explicit
materialisations, check results and failures per partition, for one partition and for many by the
same code.
"""

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent
from pydantic import Field

from demo_pipeline.defs import reporting
from demo_pipeline.defs.jobs import BATCH_JOB, DEMONSTRATIONS
from demo_pipeline.defs.run_history import (
    BatchMember,
    MemberOutcome,
    launched_for,
    members_of,
    note_outcomes,
    open_table,
    waiting_failure,
)
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.tags import (
    FORCE_TAG,
    OUTCOME_TAG,
    OWNERS,
    SUPERSEDED_OUTCOME,
    WAITING_OUTCOME,
)
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.problems import Problem
from demo_pipeline.runs.batch import AStage, DemonstrationTask, process
from demo_pipeline.runs.failures import transient_reason
from demo_pipeline.runs.quarantine import record_crash
from demo_pipeline.runs.results import (
    IN_RUNS,
    BatchProgress,
    DemonstrationResult,
    StageReport,
    Status,
)
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import Check
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.version_manifest import CheckOutcome

CRASH_ENTRY = "crash"  # of a failure's metadata: the type of a defect
STEP, _BATCH_STEP, DECODING_POOL = "demonstrations", "all_stages", "decoding"
_SHOWN, _LONGEST_REASON = 20, 500  # problems; characters
_EMPTY_RANGE = (
    "no demonstration is in this range; partitions are in the order of their registration, so the "
    "first of the range must be the one that was registered first"
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
processed: dict[str, tuple[Sequence[DemonstrationResult], Sequence[LogLine]]] = {}
"""Run id → results and log of a command, for the run in this process that only reports them."""


def build_demonstration_assets(partitions_per_run: int) -> dg.AssetsDefinition:
    """The partitioned assets. A backfill launches up to `partitions_per_run` demonstrations a run.

    With one per run, each demonstration has its own check results; a batch has one result per
    check.
    """

    @dg.multi_asset(
        name=STEP,
        specs=[_spec(stage) for stage in STAGES],
        check_specs=_check_specs(DEMONSTRATIONS if partitions_per_run == 1 else None),
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


def _check_specs(partitions_def: dg.PartitionsDefinition[str] | None) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Marked as subject to change; tests pin the behaviour that this relies on.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            spec
            for stage in STAGES
            for spec in reporting.check_specs(stage.name, stage.checks, partitions_def)
        ]


def parents_of(stage: AStage) -> list[str]:
    """The assets that a stage's asset depends on."""
    return [*stage.inputs, *([OSWORLD_TASKS] if stage.matches_task else [])]


def _spec(stage: AStage) -> dg.AssetSpec:
    return dg.AssetSpec(
        stage.name,
        deps=parents_of(stage),
        skippable=True,  # a run whose upload changes meanwhile has no output
        group_name=stage.group,
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
    )


class BatchConfig(dg.Config):
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
    context: dg.OpExecutionContext, config: BatchConfig, workspace: dg.ResourceParam[Workspace]
) -> _Events:
    members = members_of(context.run) or [BatchMember(key) for key in dict.fromkeys(config.ids)]
    if not members:
        raise dg.Failure("no demonstration is named; list their `ids`", allow_retries=False)
    yield from _Run(context, workspace, STAGES, members, planned=False).events()


@dg.graph(
    name=BATCH_JOB,
    description="Processes many demonstrations in one run, from the uploaded files to the contact "
    "sheets (config: `ids`). The sensor new_uploads launches it when many uploads arrive at once.",
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

    Args:
        context: of the step.
        workspace: roots and settings.
        stages: to run, in order.
        members: the demonstrations.
        planned: whether Dagster wrote down that each of these partitions was to be materialized.
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
        self._context, self._instance, self._run = context, context.instance, context.run
        self._workspace, self._stages, self._members = workspace, stages, members
        self._planned, self._alone = planned, planned and len(members) == 1
        # Of a few as much is said as in runs of their own.
        few = len(members) < workspace.settings.execution.batch_from
        self._in_full = few or self._alone
        limits = workspace.settings.execution
        self._each_checked = self._alone and limits.partitions_per_run == 1
        self._progress = BatchProgress(len(members), time.monotonic)
        self._results: list[DemonstrationResult] = []

    def events(self) -> _Events:
        """Process the demonstrations; yield what is said of each.

        Raises:
            Failure: at the end, when a demonstration is not done.
        """
        claim_run(self._instance, self._run)
        versions = _Versions(
            self._instance, self._stages, [member.demonstration for member in self._members]
        )
        try:
            for found in self._processed():
                result = self._recorded(found)
                self._progress.add(result)
                self._results.append(_slim(result))
                yield from self._said(result, versions)
        except Exception as error:
            reason = transient_reason(error)
            if reason is None:
                raise
            raise waiting_failure(self._instance, self._run.run_id, reason) from None
        for stage in self._stages:
            yield from self._checks(stage)
        self._end()

    def _processed(self) -> Iterator[DemonstrationResult]:
        before = processed.pop(self._run.run_id, None)
        if before is not None:
            results, lines = before
            for level, text in lines:
                self._context.log.log(level, text)
            yield from results
            return
        force = self._run.tags.get(FORCE_TAG) == "true"
        tasks = [
            DemonstrationTask(m.demonstration, m.fingerprint or None, force) for m in self._members
        ]
        workers = min(self._workspace.settings.execution.workers, len(tasks))
        if not self._alone:
            self._context.log.info("%d demonstrations, %d processes", len(tasks), workers)

        def tick() -> None:
            line = None if self._alone else self._progress.due_line()
            if line is not None:
                self._context.log.info(line)

        log = self._context.log.log if self._in_full else None
        yield from process(
            self._workspace, tasks, self._stages, workers=workers, log=log, tick=tick
        )

    def _recorded(self, result: DemonstrationResult) -> DemonstrationResult:
        """The result; a crash in a run that Dagster launched is quarantined first."""
        if result.status is Status.FAILED and self._run.remote_job_origin is not None:
            cause = result.reason.partition(":")[0]
            try:
                record_crash(self._workspace, result.demonstration, result.stage, cause)
            except (StorageError, OSError) as error:  # discovery requests another run
                key = result.demonstration
                self._context.log.warning("%s cannot be quarantined: %s", key, error)
        return result

    def _said(self, result: DemonstrationResult, versions: "_Versions") -> _Events:
        """Say what became of one demonstration, where people look for it."""
        key = result.demonstration
        made_of = {made.stage: made.content[:16] for made in result.stages}
        for made in result.stages:
            # Of a process that was killed, the store has outputs without an event.
            told_before = versions.shown[made.stage].get(key) == made_of[made.stage]
            if made.status is Status.CACHED and told_before and not self._planned:
                continue  # in a backfill, one without an event counts as failed
            stage = STAGE_BY_NAME[made.stage]
            yield dg.AssetMaterialization(
                made.stage,
                partition=key,
                metadata=self._metadata(stage, key, made),
                tags=versions.tags(stage, key, made_of),
            )
            versions.note(made.stage, key)
        if result.status.is_done:
            return
        if not self._alone:
            why = str(_problems(result)[0]).removeprefix(f"{key}: ")
            words = IN_RUNS[result.status], result.stage, why
            self._context.log.warning("%s: %s in %s: %s", key, *words)
        if result.status is Status.SUPERSEDED:
            yield self._superseded(result)
            return
        if result.status is Status.WAITING and self._planned and not self._alone:
            self._request_again(key, WAITING_OUTCOME)
        if not self._planned:
            for stage in self._stages[len(result.stages) :]:
                self._plan(stage.name, key)

    def _metadata(
        self, stage: AStage, key: str, made: StageReport
    ) -> Mapping[str, dg.MetadataValue]:
        location = f"{self._workspace.store.url}/{stage.output(key)}"
        if not self._in_full:
            return reporting.short_metadata(made, location)
        entries = reporting.report_metadata(made, location)
        return reporting.preview(self._workspace, stage.name, key) | entries

    def _plan(self, asset: str, partition: str) -> None:
        """Note that a partition was to be materialized: when its run fails, it failed."""
        event = DagsterEvent(
            event_type_value=_PLANNED.value,
            job_name=self._run.job_name,
            step_key=_BATCH_STEP,
            event_specific_data=AssetMaterializationPlannedData(
                dg.AssetKey(asset), partition=partition
            ),
        )
        self._instance.report_dagster_event(event, self._run.run_id)

    def _superseded(self, result: DemonstrationResult) -> dg.AssetObservation:
        """The run succeeds without an output, and another follows for the new upload."""
        if self._alone:
            words = result.stage, result.demonstration, _SUPERSEDED
            self._context.log.warning("%s of %s: %s", *words)
            self._instance.add_run_tags(self._run.run_id, {OUTCOME_TAG: SUPERSEDED_OUTCOME})
        return dg.AssetObservation(
            result.stage,
            partition=result.demonstration,
            metadata={"outcome": SUPERSEDED_OUTCOME, "why": _SUPERSEDED},
        )

    def _request_again(self, key: str, reason: str) -> None:
        """Have discovery look at a demonstration again; when that fails, its next sweep does."""
        try:
            with open_table(self._instance, self._workspace) as table:
                table.request_rerun(key, reason)
        except Exception as error:  # noqa: BLE001 - the other demonstrations go on
            self._context.log.warning("%s cannot be requested again: %s", key, type(error).__name__)

    def _checks(self, stage: AStage) -> _Events:
        """One verdict for each check of a stage, over all demonstrations that came to it."""
        for outcome in self._outcomes(stage):
            said = reporting.check_result(outcome)
            yield dg.AssetCheckEvaluation(
                asset_key=dg.AssetKey(stage.name),
                check_name=outcome.name,
                passed=outcome.passed,
                severity=said.severity,
                description=said.description,
                metadata=said.metadata,
                blocking=False,  # a failed one is red; what it stops was stopped before
                partition=self._members[0].demonstration if self._each_checked else None,
            )

    def _outcomes(self, stage: AStage) -> list[CheckOutcome]:
        stopped = [
            result
            for result in self._results
            if not result.status.is_done and result.stage == stage.name
        ]
        built = [made for one in self._results for made in one.stages if made.stage == stage.name]
        if self._alone and stopped:
            [result] = stopped
            return _own_outcomes(stage, result)
        if not stopped and not built:
            return []  # no check ran
        problems = [problem for result in stopped for problem in _problems(result)]
        return [_joint(check, built, problems, alone=self._alone) for check in stage.checks]

    def _end(self) -> None:
        """Write down what is not done, and end the run with it."""
        left = [one for one in self._results if not one.status.is_done]
        if not self._alone:
            self._context.log.info(self._progress.last_line())
            outcomes = {
                one.demonstration: MemberOutcome(
                    one.status, one.reason[:_LONGEST_REASON] if one.status == "waiting" else ""
                )
                for one in left
            }
            note_outcomes(self._instance, self._run.run_id, outcomes)
        left = [one for one in left if one.status is not Status.SUPERSEDED]
        if not left:
            return
        if not self._alone:
            raise self._failure(sorted(left, key=lambda one: one.demonstration))
        [result] = left
        if result.status is Status.WAITING:
            raise waiting_failure(self._instance, self._run.run_id, result.reason)
        crash = {CRASH_ENTRY: result.reason.partition(":")[0]}
        raise reporting.failure(
            _problems(result),
            result.stage,
            result.demonstration,
            crash if result.status is Status.FAILED else {},
        )

    def _failure(self, left: Sequence[DemonstrationResult]) -> dg.Failure:
        lines = [
            f"  {IN_RUNS[one.status]} in {one.stage}: {plain_line(str(_problems(one)[0]))}"
            for one in left[:_SHOWN]
        ]
        more = [f"  … and {len(left) - _SHOWN} more"] if len(left) > _SHOWN else []
        found = [problem for one in left for problem in _problems(one)]
        numbers = self._progress.numbers()
        return dg.Failure(
            description="\n".join([f"{self._progress.last_line()}:", *lines, *more]),
            metadata={**numbers, "found": reporting.problem_table(found)},
            allow_retries=False,
        )


def _slim(result: DemonstrationResult) -> DemonstrationResult:
    """A result of whose outputs only the checks and their counts are kept."""
    return replace(
        result,
        stages=tuple(
            replace(
                made,
                summary={
                    name: number
                    for check in STAGE_BY_NAME[made.stage].checks
                    for name, number in check.counts(made.summary).items()
                },
            )
            for made in result.stages
        ),
    )


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


def _joint(
    check: Check[Any], built: Sequence[StageReport], stopped: Sequence[Problem], *, alone: bool
) -> CheckOutcome:
    """One verdict over all demonstrations; it fails for every one that this stage stopped."""
    outcomes = [found for made in built for found in made.checks if found.name == check.name]
    problems = [*stopped, *(problem for outcome in outcomes for problem in outcome.problems)]
    passed = not stopped and all(outcome.passed for outcome in outcomes)
    counts: Mapping[str, int] = reporting.compared(check, built[0]) if alone else {}
    if not alone:
        compared = Counter(demonstrations=len(built))
        for made in built:
            compared.update(check.counts(made.summary))
        counts = compared
    return CheckOutcome(check.name, passed, tuple(problems), counts, blocking=check.blocking)


class _Versions:
    """The data versions that Dagster shows, and the tags by which it knows what is out of date.

    Args:
        instance: to ask.
        stages: of the run.
        ids: its demonstrations.

    Attributes:
        shown: stage → demonstration of the run → data version of its latest materialisation.
    """

    def __init__(
        self, instance: dg.DagsterInstance, stages: Sequence[AStage], ids: Sequence[str]
    ) -> None:
        self._storage = instance.event_log_storage
        names = dict.fromkeys(name for stage in stages for name in (*parents_of(stage), stage.name))
        records = [
            record.asset_entry.last_materialization_record
            for record in instance.get_asset_records([dg.AssetKey(name) for name in names])
        ]
        latest = {
            record.asset_key.path[-1]: record for record in records if record and record.asset_key
        }
        self._pointers: dict[tuple[str, str], int] = {
            (name, ""): record.storage_id for name, record in latest.items()
        }
        tasks = latest.get(OSWORLD_TASKS)
        materialized = tasks.asset_materialization if tasks else None
        tags = (materialized.tags if materialized else None) or {}
        self._tasks = tags.get(DATA_VERSION_TAG, DEFAULT_DATA_VERSION.value)
        self.shown = {name: self._shown(name, ids) for name in names if name in STAGE_BY_NAME}

    def tags(self, stage: AStage, demonstration: str, made: Mapping[str, str]) -> dict[str, str]:
        """The tags of a materialisation.

        Args:
            stage: that was built.
            demonstration: that it was built for.
            made: stage → data version, of every stage of the run so far.
        """
        tags = {
            CODE_VERSION_TAG: stage.code_version,
            DATA_VERSION_TAG: made[stage.name],
            DATA_VERSION_IS_USER_PROVIDED_TAG: "true",
        }
        for name in parents_of(stage):
            version = self._tasks
            if name in STAGE_BY_NAME:
                version = made.get(name) or self.shown[name].get(demonstration, "")
            tags[get_input_data_version_tag(dg.AssetKey(name))] = version
            pointer = self._pointers.get((name, demonstration), self._pointers.get((name, "")))
            tags[get_input_event_pointer_tag(dg.AssetKey(name))] = (
                NULL_EVENT_POINTER if pointer is None else str(pointer)
            )
        return tags

    def note(self, stage: str, demonstration: str) -> None:
        """Take in that its materialisation was written, before what is made from it."""
        self._pointers[stage, demonstration] = self._storage.get_maximum_record_id() or 0

    def _shown(self, stage: str, ids: Sequence[str]) -> Mapping[str, str]:
        """Demonstration → data version that Dagster shows."""
        latest = self._storage.get_latest_tags_by_partition
        found = latest(dg.AssetKey(stage), _MATERIALIZATION, [DATA_VERSION_TAG], ids)
        return {key: tags[DATA_VERSION_TAG] for key, tags in found.items()}
