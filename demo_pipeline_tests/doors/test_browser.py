"""The paths through the UI that the pages describe in words, walked in Chromium."""

import json
import shutil
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from demo_pipeline_tests.browser import chromium
from demo_pipeline_tests.doors.checkout import SERVER, Checkout, fresh_checkout
from demo_pipeline_tests.doors.test_shell_lines import INBOX, small_samples
from demo_pipeline_tests.uploads import tear_meta

# The UI runs in processes of its own.
pytestmark = [pytest.mark.no_cover, pytest.mark.browser]
SAMPLES = ["20260105_090000", "20260106_140000", "20261121_212358", "20261121_212801"]
GOOD, TORN = SAMPLES[:2]
QUIET_SECONDS = 240.0  # without any change; Dagster looks after a backfill every 30 s
PATIENCE = 60_000.0  # ms for something on a page of a busy machine
ENDED = {"SUCCESS", "FAILURE", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}
STATE = """{
  runsOrError { ... on Runs { results { jobName status updateTime tags { key value } } } }
  partitionBackfillsOrError { ... on PartitionBackfills { results { id status numPartitions } } }
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, as whom containers run.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


@contextmanager
def ui(checkout: Checkout, stable_seconds: int) -> Iterator[str]:
    """The address of `make ui`, where an upload is complete after these seconds."""
    checkout.variables["DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS"] = str(stable_seconds)
    checkout.variables["DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS"] = "3"
    with checkout.serving(SERVER) as address:
        yield address


def state(address: str) -> dict[str, Any]:
    """Runs and backfills, newest first."""
    body = json.dumps({"query": STATE}).encode()
    request = urllib.request.Request(  # noqa: S310 our own server
        f"{address}/graphql", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        data = json.load(answer)["data"]
    return {name.removesuffix("OrError"): value["results"] for name, value in data.items()}


def when(address: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first state that is `done`; fails once nothing changes any more."""
    seen = state(address)
    end = time.monotonic() + QUIET_SECONDS
    while not done(seen):
        assert time.monotonic() < end, f"nothing changes any more: {seen}"
        time.sleep(1)
        if (now := state(address)) != seen:
            seen, end = now, time.monotonic() + QUIET_SECONDS
    return seen


def outcome(seen: dict[str, Any], demonstration: str) -> str:
    """How the run that the sensor launched for a demonstration stands; empty without one."""
    wanted = {("dagster/sensor_name", "new_uploads"), ("dagster/partition", demonstration)}
    for run in seen["runs"]:
        if wanted <= {(tag["key"], tag["value"]) for tag in run["tags"]}:
            return run["status"]
    return ""


def all_ended(seen: dict[str, Any]) -> bool:
    return {one["status"] for one in seen["partitionBackfills"]} <= ENDED


def launch_backfill(page: Page, *, without_last: bool = False) -> None:
    """What a person does in the dialog of partitions: All, less one if so, Launch backfill."""
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.get_by_text("4 partitions", exact=True)).to_be_visible(timeout=PATIENCE)
    if without_last:
        page.get_by_role("dialog").get_by_role("img", name="close").last.click()
        expect(page.get_by_text("3 partitions", exact=True)).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Launch backfill").click()


@dataclass(frozen=True)
class Watched:
    checkout: Checkout
    address: str


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The UI of a checkout into whose inbox a good and a torn upload come while it runs."""
    folder = tmp_path_factory.mktemp("watched")
    samples = small_samples(folder)
    checkout = fresh_checkout(folder / "checkout", samples)
    tear_meta(samples / TORN)
    with ui(checkout, stable_seconds=1) as address:
        for name in (GOOD, TORN):
            shutil.copytree(samples / name, checkout.root / INBOX / name)
        yield Watched(checkout, address)


def test_an_upload_is_processed_while_the_ui_runs(watched: Watched, page: Page) -> None:
    address = watched.address
    seen = when(address, lambda seen: outcome(seen, GOOD) in ENDED)
    assert outcome(seen, GOOD) == "SUCCESS"
    page.goto(f"{address}/assets/trajectories?view=partitions&partition={GOOD}")
    expect(page.get_by_text("Materialized (1)")).to_be_visible(timeout=PATIENCE)
    page.goto(f"{address}/locations/demo_pipeline/jobs/process_demonstration/runs")
    expect(page.get_by_text(GOOD).first).to_be_visible(timeout=PATIENCE)


def test_a_quarantined_upload_is_red_and_says_why(watched: Watched, page: Page) -> None:
    address = watched.address
    seen = when(address, lambda seen: outcome(seen, TORN) in ENDED)
    assert outcome(seen, TORN) == "FAILURE"
    page.goto(f"{address}/assets/raw_recordings?view=partitions&partition={TORN}")
    expect(page.get_by_text("Failed (1)")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("did not materialize this asset")).to_be_visible(timeout=PATIENCE)
    # Checks have no partitions: of two uploads, the overview shows the one that came last.
    page.goto(f"{address}/assets/raw_recordings?view=checks&checkDetail=files_verified")
    page.get_by_text("Execution history").click()
    reason = page.get_by_text(f"{TORN}: meta.json:3: not valid JSON")
    expect(reason).to_be_visible(timeout=PATIENCE)
    expect(reason).to_contain_text("restore meta.json from the recorder")


def test_the_datasets_are_built_of_what_is_good_and_no_other_run_is_launched(
    watched: Watched,
) -> None:
    def jobs(seen: dict[str, Any]) -> Counter[str]:
        return Counter(run["jobName"] for run in seen["runs"] if run["status"] in ENDED)

    found = jobs(when(watched.address, lambda seen: jobs(seen)["build_datasets"] > 0))
    assert found["process_demonstration"] == 2
    assert set(found) <= {
        *("process_demonstration", "build_datasets", "read_osworld_tasks", "report_quarantine")
    }
    dataset = watched.checkout.root / "data/store/dataset"
    assert [path.name for path in (dataset / "trajectories").iterdir()] == [GOOD]
    well = watched.checkout.type(
        'DAGSTER_HOME="$PWD" .venv/bin/demo-pipeline doctor --expect-daemon'
    )
    assert "daemon: running" in well.output


@pytest.mark.minutes  # Dagster looks after a backfill every 30 s, four times
def test_backfills_of_everything_and_of_several_partitions(tmp_path: Path, page: Page) -> None:
    checkout = fresh_checkout(tmp_path / "checkout", small_samples(tmp_path))
    shutil.copytree(checkout.root / "data/samples", checkout.root / INBOX)
    registered = checkout.type('DAGSTER_HOME="$PWD" .venv/bin/demo-pipeline register')
    assert registered.code == 0, registered.output
    with ui(checkout, stable_seconds=3600) as address:  # nothing is left to the sensor
        page.goto(f"{address}/asset-groups")  # Lineage
        page.get_by_role("button", name="Materialize all").click()
        launch_backfill(page)
        when(address, lambda seen: len(seen["partitionBackfills"]) == 1)
        page.goto(f"{address}/assets/raw_recordings?view=partitions")
        page.get_by_role("button", name="Materialize").first.click()
        launch_backfill(page, without_last=True)
        when(address, lambda seen: len(seen["partitionBackfills"]) == 2)
        seen = when(address, all_ended)
        ended = {one["numPartitions"]: one["status"] for one in seen["partitionBackfills"]}
        assert ended == {4: "COMPLETED_SUCCESS", 3: "COMPLETED_SUCCESS"}
        page.goto(f"{address}/assets/trajectories?view=partitions")
        expect(page.get_by_text("Materialized (4)")).to_be_visible(timeout=PATIENCE)
