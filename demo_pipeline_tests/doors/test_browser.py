"""Tests `make ui` with a bucket of uploads, and the paths through the UI in Chromium.

Dagster's daemon turns uploads into datasets. One upload is broken, and one is changed later. The
tests look in a browser at everything that the pages describe, and ask the server for the rest.
"""

import json
import shutil
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from demo_pipeline.defs.partitions import PARTITION_TAG, REASON_TAG
from demo_pipeline.files.recording_files import META_FILE, RECORDING_FILES
from demo_pipeline.store.bucket import Bucket
from demo_pipeline_tests.browser import opened_browser
from demo_pipeline_tests.doors.checkout import INBOX, SERVER, Checkout, fresh_checkout
from demo_pipeline_tests.doors.test_shell_lines import INSTANCE, SAMPLES, small_samples
from demo_pipeline_tests.simulator.s3_server import SECRET_KEY, S3Server
from demo_pipeline_tests.uploads import tear_meta

GOOD, TORN = SAMPLES[:2]
# A test fails if runs and backfills do not change for this time. Dagster checks backfills every 30
# seconds.
QUIET_SECONDS = 240.0
PATIENCE = 60_000.0  # maximum milliseconds until something appears on a page of a busy machine
KEPT = {".db", ".out", ".err"}  # suffixes of files that Dagster writes
ENDED = {"SUCCESS", "FAILURE", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}
STATE = """{
  runsOrError { ... on Runs { results { jobName status updateTime tags { key value } } } }
  partitionBackfillsOrError { ... on PartitionBackfills { results { id status numPartitions } } }
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(PATIENCE)
        yield page


@contextmanager
def ui(checkout: Checkout, stable_seconds: int) -> Iterator[str]:
    """Runs `make ui`, and yields its address.

    An upload counts as complete after it has not changed for `stable_seconds`.
    """
    checkout.variables["DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS"] = str(stable_seconds)
    checkout.variables["DEMO_PIPELINE_DISCOVERY__INTERVAL_SECONDS"] = "3"
    with checkout.serving(SERVER) as address:
        yield address


def state(address: str) -> dict[str, Any]:
    """Returns the runs and the backfills, newest first."""
    body = json.dumps({"query": STATE}).encode()
    with urllib.request.urlopen(address, timeout=60) as page:  # noqa: S310 - our own server
        own_page = page.geturl()  # the server redirects to a path with its token
    headers = {"content-type": "application/json", "origin": address}
    request = urllib.request.Request(f"{own_page}graphql", body, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        data = json.load(answer)["data"]
    return {name.removesuffix("OrError"): value["results"] for name, value in data.items()}


def when(address: str, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Waits for a state for which `done` is true, and returns it.

    Fails if nothing changes for `QUIET_SECONDS`.
    """
    seen = state(address)
    end = time.monotonic() + QUIET_SECONDS
    while not done(seen):
        assert time.monotonic() < end, f"nothing changes any more: {seen}"
        time.sleep(1)
        if (now := state(address)) != seen:
            seen = now
            end = time.monotonic() + QUIET_SECONDS
    return seen


def outcome(seen: dict[str, Any], demonstration: str) -> str:
    """Returns the status of the sensor's last run for a demonstration, or "" without a run."""
    statuses = [status for key, _, status in requested(seen) if key == demonstration]
    return statuses[-1] if statuses else ""


def requested(seen: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Returns demonstration, reason and status of each run of `new_uploads`, oldest first."""
    runs = reversed(seen["runs"])
    tags = [({tag["key"]: tag["value"] for tag in run["tags"]}, run["status"]) for run in runs]
    return [
        (of[PARTITION_TAG], of[REASON_TAG], status)
        for of, status in tags
        if of.get("dagster/sensor_name") == "new_uploads"
    ]


def all_ended(seen: dict[str, Any]) -> bool:
    return {backfill["status"] for backfill in seen["partitionBackfills"]} <= ENDED


def launch_backfill(page: Page, *, without_last: bool = False) -> None:
    """Launches a backfill in the dialog of partitions, of all partitions or all except the last."""
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
    inbox: Bucket


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, seaweedfs: S3Server) -> Iterator[Watched]:
    """The UI of a checkout. While it runs, a good and a broken recording are uploaded."""
    folder = tmp_path_factory.mktemp("watched")
    samples = small_samples(folder, (GOOD, TORN))
    checkout = fresh_checkout(folder / "checkout", samples)
    tear_meta(samples / TORN)
    with seaweedfs.connected():
        inbox = Bucket(seaweedfs.make_bucket(), folder / "cache")
        checkout.variables |= {**seaweedfs.environment(), "DEMO_PIPELINE_UPLOADS": inbox.url}
        with ui(checkout, stable_seconds=0) as address:
            for name in (GOOD, TORN):
                for file in RECORDING_FILES:
                    inbox.put(f"{name}/{file}", samples / name / file)
            yield Watched(checkout, address, inbox)


@pytest.mark.browser
def test_an_upload_is_processed_while_the_ui_runs(watched, page):
    address = watched.address
    seen = when(address, lambda seen: outcome(seen, GOOD) in ENDED)
    assert outcome(seen, GOOD) == "SUCCESS"
    page.goto(f"{address}/assets/trajectories?view=partitions&partition={GOOD}")
    expect(page.get_by_text("Materialized (1)")).to_be_visible(timeout=PATIENCE)
    page.goto(f"{address}/locations/demo_pipeline/jobs/process_demonstration/runs")
    expect(page.get_by_text(GOOD).first).to_be_visible(timeout=PATIENCE)


@pytest.mark.browser
def test_a_quarantined_upload_is_red_and_says_why(watched, page):
    address = watched.address
    seen = when(address, lambda seen: outcome(seen, TORN) in ENDED)
    assert outcome(seen, TORN) == "FAILURE"
    page.goto(f"{address}/assets/raw_recordings?view=partitions&partition={TORN}")
    expect(page.get_by_text("Failed (1)")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("did not materialize this asset")).to_be_visible(timeout=PATIENCE)
    # Results of checks have no partition, so the overview shows only that of the latest upload.
    page.goto(f"{address}/assets/raw_recordings?view=checks&checkDetail=files_verified")
    page.get_by_text("Execution history").click()
    reason = page.get_by_text(f"{TORN}: meta.json:3: not valid JSON")
    expect(reason).to_be_visible(timeout=PATIENCE)
    expect(reason).to_contain_text("restore meta.json from the recorder")


def test_the_datasets_contain_the_good_upload_and_no_other_run_is_launched(watched):
    ended = jobs(when(watched.address, lambda seen: jobs(seen)["build_datasets"] > 0))
    assert ended["process_demonstration"] == 2
    assert ended["build_datasets"] == 1
    assert set(ended) <= {*("process_demonstration", "build_datasets", "read_osworld_tasks")}
    dataset = watched.checkout.root / "data/store/dataset"
    assert [path.name for path in (dataset / "trajectories").iterdir()] == [GOOD]
    well = watched.checkout.type(
        'DAGSTER_HOME="$PWD" .venv/bin/demo-pipeline doctor --expect-daemon'
    )
    assert "the daemon runs" in well.output
    assert well.output.count("last evaluated at") == 3  # once for each sensor


def jobs(seen: dict[str, Any]) -> Counter[str]:
    """Returns the number of ended runs by job."""
    return Counter(run["jobName"] for run in seen["runs"] if run["status"] in ENDED)


def test_a_changed_upload_makes_one_run_more_and_no_secret_is_kept(watched):
    meta = watched.inbox.read(f"{GOOD}/{META_FILE}")
    assert meta is not None
    watched.inbox.put(f"{GOOD}/{META_FILE}", meta.replace(b"Please do", b"Do"))
    seen = when(
        watched.address, lambda seen: len(requested(seen)) > 2 and outcome(seen, GOOD) in ENDED
    )
    runs = sorted(requested(seen))
    good = [(GOOD, "changed", "SUCCESS"), (GOOD, "new", "SUCCESS")]
    assert runs == [*good, (TORN, "new", "FAILURE")]
    folders = [watched.checkout.root / name for name in INSTANCE]
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in {".db", ".out", ".err"}
    ]
    assert any(path.suffix == ".db" for path in files)
    assert [path for path in files if SECRET_KEY.encode() in path.read_bytes()] == []


@pytest.mark.browser
@pytest.mark.minutes  # Dagster has to check backfills four times, once every 30 s
def test_backfills_of_everything_and_of_several_partitions(tmp_path, page):
    checkout = fresh_checkout(tmp_path / "checkout", small_samples(tmp_path))
    shutil.copytree(checkout.root / "data/samples", checkout.root / INBOX)
    registered = checkout.type('DAGSTER_HOME="$PWD" .venv/bin/demo-pipeline register')
    assert registered.code == 0, registered.output
    # With this setting, the sensor requests no runs.
    with ui(checkout, stable_seconds=3600) as address:
        page.goto(f"{address}/asset-groups")  # Lineage
        page.get_by_role("button", name="Materialize all").click()
        launch_backfill(page)
        when(address, lambda seen: len(seen["partitionBackfills"]) == 1)
        page.goto(f"{address}/assets/raw_recordings?view=partitions")
        page.get_by_role("button", name="Materialize").first.click()
        launch_backfill(page, without_last=True)
        when(address, lambda seen: len(seen["partitionBackfills"]) == 2)
        seen = when(address, all_ended)
        ended = {
            backfill["numPartitions"]: backfill["status"] for backfill in seen["partitionBackfills"]
        }
        assert ended == {4: "COMPLETED_SUCCESS", 3: "COMPLETED_SUCCESS"}
        page.goto(f"{address}/assets/trajectories?view=partitions")
        expect(page.get_by_text("Materialized (4)")).to_be_visible(timeout=PATIENCE)
