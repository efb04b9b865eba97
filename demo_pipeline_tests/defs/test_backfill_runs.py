"""Tests that Dagster plans a run for each demonstration in the backfills of the UI.

No run is executed: the planned runs stay in the queue. `doors/test_ui_paths.py` clicks the same
backfills in a browser and waits for their runs, which takes minutes.
"""

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster_graphql.cli import execute_query

from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline.runs.stages import STAGES
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT_YAML
from demo_pipeline_tests.defs.bench import open_bench

# Dagster itself calls functions that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DEMONSTRATIONS = ["20261101_090000", "20261102_090000", "20261103_090000"]
CHAIN = {stage.name for stage in STAGES}
_MATERIALIZABLE = "{ assetNodes { assetKey { path } isMaterializable } }"
_LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkspaceProcessContext]:
    """A code location over an empty store, with registered demonstrations."""
    root = tmp_path_factory.mktemp("location")
    with open_bench(root, kept=True) as bench:
        bench.instance.add_dynamic_partitions("demonstrations", DEMONSTRATIONS)
        settings = bench.settings.model_dump_json()
        file = root / "defs.py"
        file.write_text(
            "from demo_pipeline.defs import build_defs\n"
            "from demo_pipeline.settings import Settings\n"
            f"defs = build_defs(Settings.model_validate_json({settings!r}))\n"
        )
        (root / "home" / "dagster.yaml").write_text(WITHOUT_OUTPUT_YAML)
        target = PythonFileTarget(str(file), None, str(root), "demo_pipeline")
        with WorkspaceProcessContext(bench.instance, target) as context:
            yield context


def answer(location: WorkspaceProcessContext, query: str, **variables: Any) -> Any:
    result = execute_query(location, query, variables)
    assert "errors" not in result, result
    return result["data"]


def planned_runs(location: WorkspaceProcessContext, assets: set[str]) -> dict[str, list[set[str]]]:
    """Launches a backfill of assets, and returns the assets of each run that it queues.

    The key of the result is the demonstration.
    """
    params = {
        "assetSelection": [{"path": [name]} for name in sorted(assets)],
        "partitionNames": DEMONSTRATIONS,
    }
    launched = answer(location, _LAUNCH, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    list(execute_backfill_iteration(location, logging.getLogger("backfill")))
    planned: dict[str, list[set[str]]] = {name: [] for name in DEMONSTRATIONS}
    of_backfill = dg.RunsFilter(tags={"dagster/backfill": launched["backfillId"]})
    for run in location.instance.get_runs(of_backfill):
        selection = {key.to_user_string() for key in run.asset_selection or ()}
        planned[run.tags[PARTITION_TAG]].append(selection)
    return planned


def test_lineage_materialize_all_plans_one_run_with_the_whole_chain(location):
    nodes = answer(location, _MATERIALIZABLE)["assetNodes"]
    assets = {node["assetKey"]["path"][-1] for node in nodes if node["isMaterializable"]}
    assert assets > CHAIN
    assert planned_runs(location, assets) == {name: [CHAIN] for name in DEMONSTRATIONS}


def test_the_jobs_partitions_plan_one_run_with_the_whole_chain(location):
    assert planned_runs(location, CHAIN) == {name: [CHAIN] for name in DEMONSTRATIONS}


def test_an_assets_page_plans_one_run_with_this_asset(location):
    assert planned_runs(location, {"events"}) == {name: [{"events"}] for name in DEMONSTRATIONS}
