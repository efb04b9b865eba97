"""The assets that are observed: the OSWorld task files and the decisions of people.

Dagster cannot materialize these assets, so "Materialize all" and backfills leave them out.
"""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import ASSET_GROUP, FORCE_TAG, OWNERS
from demo_pipeline.defs.resources import Roots
from demo_pipeline.review.review_store import REVIEWS, judged_decisions
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.failures import DefectError, RefusedError, TransientError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.results import REFUSED
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.stage import TASKS_JOB
from demo_pipeline.store.errors import StorageError


def _observe_tasks(context: dg.AssetExecutionContext, roots: Roots) -> Any:
    """Writes the catalog of task files to the store, unless it is up to date."""
    workspace = roots.workspace
    force = context.run.tags.get(FORCE_TAG) == "true"
    try:
        with reporting.package_log(context.log.log):
            graph = Graph(workspace)
            result = graph.build(DatasetOutput(graph, TASKS_STAGE), force=force)
    except TransientError as error:
        raise reporting.retried(context, error, roots.vain_waits) from None
    except RefusedError as error:
        yield from (reporting.check_result(outcome) for outcome in error.checks)
        raise reporting.failure(error.problems, REFUSED, reporting.KEPT_VERSION) from None
    except (StorageError, DefectError) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    location = f"{workspace.store.url}/{result.output}"
    yield dg.ObserveResult(
        asset_key=TASKS_STAGE.name,
        metadata={
            **reporting.dataset_metadata(result, location),
            "task_files": dg.MetadataValue.path(str(workspace.tasks)),
            "task_files_found": workspace.tasks.is_dir(),
        },
        check_results=list(reporting.stage_check_results(TASKS_STAGE, result)),
        data_version=reporting.data_version(result),
    )


def _observe_reviews(roots: Roots) -> dg.ObserveResult:
    """Counts the decisions of reviewers by state and kind, without any text that they wrote."""
    decisions = list(judged_decisions(roots.workspace.store, ()))
    decision_ids = sorted(decision.id for decision, _ in decisions)
    digest = hashlib.sha256("".join(decision_ids).encode()).hexdigest()
    counts = {
        "decisions": len(decisions),
        "demonstrations": len({decision.demonstration for decision, _ in decisions}),
        **_counted(state for _, state in decisions),
        **_counted(decision.kind for decision, state in decisions if state == "holds"),
    }
    metadata = {name: dg.MetadataValue.int(number) for name, number in counts.items()}
    return dg.ObserveResult(metadata=metadata, data_version=dg.DataVersion(digest[:16]))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return {name.replace(" ", "_"): count for name, count in sorted(Counter(names).items())}


_TASKS_SPEC = dg.AssetSpec(
    TASKS_STAGE.name,
    group_name=ASSET_GROUP,
    owners=OWNERS,
    kinds=set(TASKS_STAGE.kinds),
    code_version=TASKS_STAGE.code_version,
    description=f"{TASKS_STAGE.description} The sensor `tasks_changed`, the job "
    "`read_osworld_tasks` and `demo-pipeline run` read the task files.",
    metadata=reporting.columns_metadata(TASKS_STAGE.columns),
)
_REVIEWS_SPEC = dg.AssetSpec(
    REVIEWS,
    group_name=ASSET_GROUP,
    owners=OWNERS,
    kinds={"json"},
    code_version="1",
    description="The decisions of reviewers: approvals, rejections, corrections, bad steps "
    "and notes. People make them with `demo-pipeline review`. The sensor "
    "`new_uploads` or `demo-pipeline run` applies corrections in `records`, and "
    "approvals and rejections in the datasets. An observation of this asset "
    "counts the decisions.",
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", dg.BetaWarning)  # a test notices if the beta feature changes
    observed_tasks = dg.multi_observable_source_asset(
        name=TASKS_STAGE.name,
        specs=[_TASKS_SPEC],
        check_specs=reporting.check_specs(TASKS_STAGE.name, TASKS_STAGE.checks),
    )(_observe_tasks)
    observed_reviews = dg.multi_observable_source_asset(
        name="observe_reviews", specs=[_REVIEWS_SPEC]
    )(_observe_reviews)

tasks_job = dg.define_asset_job(
    TASKS_JOB,
    [TASKS_STAGE.name],
    description="Reads the OSWorld task files into the catalog with which trajectories are "
    "compared.",
)
