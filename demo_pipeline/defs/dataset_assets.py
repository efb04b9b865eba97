"""The dataset assets: unpartitioned, made from every committed trajectory.

Belongs here: one thin asset an aggregate. They read the store, not an IO manager, so that one
missing demonstration costs nobody a dataset.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from demo_pipeline.datasets.charts import read_charts
from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_assets import OWNERS
from demo_pipeline.defs.error_redaction import redacted_errors
from demo_pipeline.defs.freshness import SEEN, latest_trajectory
from demo_pipeline.defs.tags import FORCE_TAG
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_stages import (
    CODE_VERSION,
    DATASET_STAGES,
    TRAJECTORIES,
    DatasetStage,
    run_dataset_stage,
)
from demo_pipeline.problems import Problem

_DESCRIPTIONS: Mapping[str, tuple[set[str], str]] = {
    "sft_samples": (
        {"json", "parquet"},
        (
            "Seed 001 section 6: one sample a step with instruction, screenshot, tree, history, "
            "action and reasoning, together and by split. Failed demonstrations are left out and "
            "counted."
        ),
    ),
    "messages_dataset": (
        {"json", "parquet"},
        (
            "The same steps as chats of role and content with image and text parts, as TRL and "
            "Axolotl take them; the splits are those of the other exports."
        ),
    ),
    "cudag_dataset": (
        {"json"},
        (
            "Seed 003: data, train and val as JSONL, test with pictures; no task and no "
            "demonstration lies in two splits."
        ),
    ),
    "trajectory_index": (
        {"json", "parquet"},
        (
            "Seed 001's dataset root: index.json, metadata.json, all provenance in "
            "steps.parquet, and links to the exact trajectories."
        ),
    ),
    "osworld_quests": (
        {"json"},
        (
            "Seed 002: each quest as an OSWorld task file without an evaluator, in "
            "`examples/<application>/`, listed by `test_all.json`."
        ),
    ),
}


def build_dataset_assets() -> list[dg.AssetsDefinition]:
    """One asset an aggregate."""
    return [_asset(aggregate) for aggregate in DATASET_STAGES]


def _asset(aggregate: DatasetStage) -> dg.AssetsDefinition:
    kinds, description = _DESCRIPTIONS[aggregate.name]

    @dg.asset(
        name=aggregate.name,
        deps=["trajectories"],
        group_name="datasets",
        kinds=kinds,
        owners=OWNERS,
        description=description,
        code_version=CODE_VERSION,
        check_specs=[
            dg.AssetCheckSpec(
                aggregate.check_name,
                asset=aggregate.name,
                description=aggregate.description,
                blocking=True,
            ),
            *(
                dg.AssetCheckSpec(one.name, asset=aggregate.name, description=one.description)
                for one in aggregate.watches
            ),
        ],
    )
    def compute(
        context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        if not pipeline.store.outputs(TRAJECTORIES):
            raise _nothing_yet(aggregate.name)
        seen = latest_trajectory(context.instance)  # before the store is read, never after
        force = context.run.tags.get(FORCE_TAG) == "true"
        with redacted_errors(aggregate.name, "the datasets"):
            made = run_dataset_stage(pipeline, aggregate, force=force)
        results = [reporting.check_result(outcome) for outcome in made.checks]
        if made.version is None:
            yield from results
            found = [problem for outcome in made.checks for problem in outcome.problems]
            raise _rejected(aggregate.name, reporting.worst(found))
        metadata = reporting.made_metadata(made, f"{pipeline.store.url}/{made.output}")
        metadata[SEEN] = dg.MetadataValue.int(seen)
        with pipeline.store.open(made.output) as (folder, _):
            if drawn := read_charts(folder):
                metadata["plots"] = reporting.pictures(drawn)
        yield dg.MaterializeResult(
            metadata=metadata,
            check_results=results,
            data_version=dg.DataVersion(made.version.content[:16]),
        )

    return compute


def _nothing_yet(name: str) -> dg.Failure:
    message = (
        f"{name}: no trajectory is committed yet; materialise `trajectories` of a demonstration "
        "first, or run `demo-pipeline run`"
    )
    return dg.Failure(message, allow_retries=False)


def _rejected(name: str, found: list[Problem]) -> dg.Failure:
    message = f"{name}: the check failed; the last good version stays: {found[0]}"
    table = reporting.problem_table(found)
    return dg.Failure(message, metadata={"found": table}, allow_retries=False)
