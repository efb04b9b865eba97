"""The assets of one demonstration: raw recordings to trajectories, partitioned by demonstration.

Belongs here: one thin asset a stage, over one partition or a batch of them. What a stage reads,
makes and checks is written down in stages.py.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from demo_pipeline.datasets import contact_sheets
from demo_pipeline.defs import reporting
from demo_pipeline.defs.asset_metadata import ASSET_METADATA
from demo_pipeline.defs.error_redaction import redacted_errors
from demo_pipeline.defs.partitions import DEMONSTRATIONS
from demo_pipeline.defs.superseded_runs import superseded
from demo_pipeline.defs.tags import FINGERPRINT_TAG, FORCE_TAG
from demo_pipeline.observation.contact_sheet_image import encode_jpeg
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Stage, Workspace
from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME, STAGES
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.version_manifest import CheckOutcome

OWNERS = ["team:demonstrations"]
_EMPTY_RANGE = (
    "no demonstration lies in this range; partitions are in the order of their registration, so "
    "the first of the range has to be the one that was registered first"
)

_AGAIN = "nothing: the sensor new_uploads takes it up again when it is still"
_PREVIEWS = {
    "trajectories": contact_sheets.overview_sheet,
    "contact_sheets": contact_sheets.first_steps_sheet,
}


@dataclass
class _Batch:
    """What became of the partitions of one run."""

    made: dict[str, BuildResult] = field(default_factory=dict)
    failed: dict[str, list[Problem]] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)


def build_demonstration_assets(partitions_per_run: int) -> list[dg.AssetsDefinition]:
    """The partitioned assets. A backfill launches `partitions_per_run` demonstrations a run.

    With one a run, each demonstration has verdicts of its own; a batch has one verdict a check.
    """
    with warnings.catch_warnings():
        # Both are marked as subject to change; tests pin the behaviour that this relies on.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [_asset(stage, partitions_per_run) for stage in STAGES]


def _asset(stage: Stage, partitions_per_run: int) -> dg.AssetsDefinition:
    look = ASSET_METADATA[stage.name]
    metadata: dict[str, Any] = {}
    if look.schema is not None:
        metadata["dagster/column_schema"] = reporting.column_schema(look.schema)

    @dg.asset(
        name=stage.name,
        partitions_def=DEMONSTRATIONS,
        deps=[*stage.inputs, *([OSWORLD_TASKS] if stage.linked else [])],
        group_name=look.group,
        kinds=look.kinds,
        owners=OWNERS,
        description=look.description,
        code_version=stage.code_version,
        metadata=metadata,
        output_required=False,  # a run whose upload changed meanwhile makes nothing
        backfill_policy=dg.BackfillPolicy.multi_run(partitions_per_run),
        check_specs=[
            dg.AssetCheckSpec(
                check.name,
                asset=stage.name,
                description=check.description,
                blocking=check.blocking,
                partitions_def=DEMONSTRATIONS if partitions_per_run == 1 else None,
            )
            for check in stage.checks
        ],
    )
    def compute(
        context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        keys = list(context.partition_keys)
        if not keys:
            raise dg.Failure(_EMPTY_RANGE, allow_retries=False)
        batch = _run(context, pipeline, stage, keys)
        if len(keys) == 1 and batch.superseded:
            yield from superseded(context, pipeline, stage, keys[0])
        elif len(keys) == 1:
            yield from _one(pipeline, stage, keys[0], batch)
        else:
            yield from _many(context, pipeline, stage, batch)

    return compute


def _run(
    context: dg.AssetExecutionContext, pipeline: Workspace, stage: Stage, keys: list[str]
) -> _Batch:
    batch = _Batch()
    force = context.run.tags.get(FORCE_TAG) == "true"
    listed = context.run.tags.get(FINGERPRINT_TAG) if len(keys) == 1 else None
    for key in keys:
        held = _held(pipeline, stage, key)
        if held:
            batch.failed[key] = held
            continue
        try:
            with redacted_errors(stage.name, key):
                made = run_stage(pipeline, stage, key, force=force, listed=listed)
        except SupersededError as error:
            batch.superseded.append(key)
            batch.failed[key] = [Problem("upload_changed", ".", str(error), remedy=_AGAIN)]
            continue
        except DemonstrationError as error:
            batch.failed[key] = list(error.problems)
            continue
        except MissingOutput as error:
            remedy = f"materialise {', '.join(stage.inputs)} of this demonstration first"
            missing = Problem("missing_input", stage.folder, str(error), remedy=remedy)
            batch.failed[key] = [missing]
            continue
        batch.made[key] = made
        context.log.info("%s of %s: %s", stage.name, key, made.status)
    return batch


def _held(pipeline: Workspace, stage: Stage, key: str) -> list[Problem]:
    """Why it cannot even start: its key is no id, or an earlier stage gave it up.

    What that stage and those after it made before speaks of another upload.
    """
    if not is_safe_id(key):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        return [Problem("unsafe_id", ".", f"{key!r} is no demonstration id", remedy=remedy)]
    record = read_quarantine(pipeline.store, key)
    names = [one.name for one in STAGES]
    if record is None or record.stage not in names[: names.index(stage.name)]:
        return []
    return reporting.recorded(record)


def _one(
    pipeline: Workspace, stage: Stage, key: str, batch: _Batch
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    if key in batch.failed:
        problems = tuple(batch.failed[key])
        yield reporting.check_result(CheckOutcome(stage.checks[0].name, False, problems))
        raise reporting.failure(batch.failed[key], stage.name, key)
    made = batch.made[key]
    results = [reporting.check_result(outcome) for outcome in made.checks]
    if made.status == "rejected" or made.version is None:
        yield from results
        found = [problem for outcome in made.checks for problem in outcome.problems]
        raise reporting.failure(reporting.worst(found), stage.name, key)
    yield dg.MaterializeResult(
        metadata=_metadata(pipeline, stage, key, made),
        check_results=results,
        data_version=dg.DataVersion(made.version.content[:16]),
    )


def _many(
    context: dg.AssetExecutionContext, pipeline: Workspace, stage: Stage, batch: _Batch
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """A batch goes on without its bad ones: they are quarantined and named in every check."""
    for key, made in batch.made.items():
        if made.status == "rejected":
            found = [problem for outcome in made.checks for problem in outcome.problems]
            batch.failed[key] = reporting.worst(found)
            continue
        context.add_asset_metadata(_metadata(pipeline, stage, key, made), partition_key=key)
    for key, problems in batch.failed.items():
        context.add_asset_metadata(
            {"outcome": "quarantined", "found": reporting.problem_table(problems)},
            partition_key=key,
        )
    if len(batch.failed) == len(context.partition_keys):
        every = [problem for problems in batch.failed.values() for problem in problems]
        raise reporting.failure(every, stage.name, f"every one of {len(batch.failed)}")
    yield dg.MaterializeResult(
        check_results=[
            reporting.check_result(_joined(check.name, batch, blocking=check.blocking), halts=False)
            for check in stage.checks
        ]
    )


def _joined(name: str, batch: _Batch, *, blocking: bool) -> CheckOutcome:
    problems = [problem for found in batch.failed.values() for problem in found]
    good = [made for key, made in batch.made.items() if key not in batch.failed]
    verdicts = [check for made in good for check in made.checks if check.name == name]
    problems.extend(problem for check in verdicts for problem in check.problems)
    passed = not batch.failed and all(check.passed for check in verdicts)
    return CheckOutcome(name, passed, tuple(problems), blocking=blocking)


def _metadata(
    pipeline: Workspace, stage: Stage, key: str, made: BuildResult
) -> dict[str, dg.MetadataValue]:
    output = stage.output(key)
    entries = reporting.made_metadata(made, f"{pipeline.store.url}/{output}")
    draw = _PREVIEWS.get(stage.name)
    if draw is not None and pipeline.settings.execution.contact_sheets_in_ui:
        trajectory = pipeline.store.open(STAGE_BY_NAME["trajectories"].output(key))
        with redacted_errors(stage.name, key), trajectory as (folder, _):
            small = encode_jpeg(draw(key, folder), 60)
            entries["preview"] = reporting.picture(small, "steps")
    return entries
