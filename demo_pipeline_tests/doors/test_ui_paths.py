"""Tests each way to process uploads in Dagster's UI, with six uploads of which one is broken.

Each way starts one run per upload. Five runs are green. The run of the broken upload is red from
the stage that rejects it, and one click shows the reason.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from demo_pipeline.runs.stages import STAGES
from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.doors.ui_walk import (
    BROKEN,
    PATIENCE,
    UPLOADS,
    backfill_the_job,
    demonstration_runs,
    materialize_the_asset,
    materialize_the_lineage,
    runs_since,
    ui_with_six_uploads,
)

pytestmark = [
    pytest.mark.browser,
    # Dagster advances a backfill only every 30 s, and each of the 18 runs is a process.
    pytest.mark.minutes,
]
REASON = re.compile(rf"{BROKEN}: input_log\.jsonl:1: no line could be read.*upload the log again")
AFTER_THE_FAILURE = [stage.name for stage in STAGES if stage.name != "raw_recordings"]


@dataclass(frozen=True)
class OpenUi:
    """A browser page with the UI, shared by all tests, because the UI is slow to start."""

    page: Page
    address: str


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenUi]:
    folder = tmp_path_factory.mktemp("paths")
    with ui_with_six_uploads(folder) as address, opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        yield OpenUi(page, address)


def run_each_upload_once(ui: OpenUi, path: Callable[[Page, str], None], job: str) -> None:
    """Performs the clicks of `path` and checks the resulting runs."""
    before = {run.id for run in demonstration_runs(ui.address)}
    path(ui.page, ui.address)
    runs = runs_since(ui.address, before)
    assert sorted(run.demonstration for run in runs) == list(UPLOADS)
    assert {run.demonstration for run in runs if run.status != "SUCCESS"} == {BROKEN}
    assert {run.job for run in runs} == {job}


def expect_failure_with_reason(ui: OpenUi, asset: str) -> None:
    """Checks that the broken upload failed in the asset, and that one click shows the reason."""
    ui.page.goto(f"{ui.address}/assets/{asset}?view=partitions&partition={BROKEN}")
    for text in ("Failed (1)", "Materialized (5)", "Missing (0)"):
        expect(ui.page.get_by_text(text)).to_be_visible(timeout=PATIENCE)
    ui.page.get_by_role("button", name="View logs").click()
    expect(ui.page.get_by_text(REASON).first).to_be_visible(timeout=PATIENCE)


def test_lineage_materialize_all(ui):
    run_each_upload_once(ui, materialize_the_lineage, "__ASSET_JOB")
    for asset in AFTER_THE_FAILURE:
        expect_failure_with_reason(ui, asset)
    ui.page.goto(f"{ui.address}/assets/raw_recordings?view=partitions")
    expect(ui.page.get_by_text("Materialized (6)")).to_be_visible(timeout=PATIENCE)


def test_jobs_partitions_materialize(ui):
    run_each_upload_once(ui, backfill_the_job, "process_demonstration")
    ui.page.goto(f"{ui.address}/locations/demo_pipeline/jobs/process_demonstration/runs")
    for demonstration in UPLOADS:
        expect(ui.page.get_by_text(demonstration).first).to_be_visible(timeout=PATIENCE)
    expect_failure_with_reason(ui, "events")


def test_asset_page_materialize(ui):
    run_each_upload_once(ui, materialize_the_asset, "__ASSET_JOB")
    expect_failure_with_reason(ui, "events")
