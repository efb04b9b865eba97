"""Six uploads, one of them broken, processed by each path that a person finds in Dagster's UI.

Each path gives one run for each upload: five green, and one that is red from the stage that refuses
the upload. The reason is one click away.
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
    pytest.mark.minutes,  # Dagster looks after a backfill every 30 s; 18 runs have own processes
]
REASON = re.compile(rf"{BROKEN}: input_log\.jsonl:1: no line could be read.*upload the log again")
AFTER_THE_FAILURE = [stage.name for stage in STAGES if stage.name != "raw_recordings"]


@dataclass(frozen=True)
class OpenUi:
    """A browser's page on the UI; the paths share it, because starting the UI takes long."""

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
    """Take the path, and check the runs that it gives."""
    before = {run.id for run in demonstration_runs(ui.address)}
    path(ui.page, ui.address)
    runs = runs_since(ui.address, before)
    assert sorted(run.demonstration for run in runs) == list(UPLOADS)
    assert {run.demonstration for run in runs if run.status != "SUCCESS"} == {BROKEN}
    assert {run.job for run in runs} == {job}


def expect_failure_with_reason(ui: OpenUi, asset: str) -> None:
    """The broken upload is red in the asset, and one click shows why."""
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
