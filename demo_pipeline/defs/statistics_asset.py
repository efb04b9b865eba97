"""The statistics of the datasets, counted again whenever one of them changed.

Belongs here: one thin, unpartitioned asset. What is counted is written elsewhere.
"""

from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_assets import OWNERS
from demo_pipeline.defs.tags import FORCE_TAG
from demo_pipeline.pipeline import dataset_statistics
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_statistics import CHECK, CODE_VERSION, DATASET_STATISTICS
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.storage.errors import MissingOutput


@dg.asset(
    name=DATASET_STATISTICS,
    deps=["trajectory_index", "sft_samples", "messages_dataset"],
    group_name="datasets",
    kinds={"duckdb"},
    owners=OWNERS,
    code_version=CODE_VERSION,
    description=(
        "Tables about the datasets, by SQL over their Parquet files, and the views to query the "
        "store with; the same as `demo-pipeline stats`."
    ),
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=DATASET_STATISTICS,
            description="Index, SFT samples and messages hold the same steps and splits.",
        )
    ],
)
def statistics_asset(
    context: dg.AssetExecutionContext, pipeline: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult]:
    """Count what is committed; a disagreement is shown and stops nothing."""
    force = context.run.tags.get(FORCE_TAG) == "true"
    try:
        made = dataset_statistics.run_statistics(pipeline, force=force)
    except MissingOutput as error:
        raise dg.Failure(storage_message(error), allow_retries=False) from None
    if made.version is None:
        raise dg.Failure(f"{DATASET_STATISTICS}: rejected", allow_retries=False)
    metadata = reporting.made_metadata(made, f"{pipeline.store.url}/{made.output}")
    for name, rows in dataset_statistics.committed(pipeline).items():
        metadata[name] = reporting.records(rows)
    yield dg.MaterializeResult(
        metadata=metadata,
        check_results=[reporting.check_result(outcome) for outcome in made.checks],
        data_version=dg.DataVersion(made.version.content[:16]),
    )
