"""Starts Dagster's UI with six uploads, of which one is broken, and clicks to process them.

`test_ui_paths.py` checks the resulting runs; `pictures/ui.py` takes screenshots of the pages.
"""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline_tests.doors.checkout import INBOX, SERVER, fresh_checkout
from demo_pipeline_tests.sample_workspace import DEMOS, write_demos
from demo_pipeline_tests.uploads import spoil_log, upload

UPLOADS = tuple(f"2026110{day}_090000" for day in range(1, 7))
BROKEN = UPLOADS[3]  # the stage `events` rejects this upload, because its log is damaged
PATIENCE = 60_000.0  # timeout of an action on a page, ms; long, because the machine may be busy
ENDED = {"SUCCESS", "FAILURE", "CANCELED"}
_DEADLINE = 900.0  # seconds until all runs must have ended; Dagster advances a backfill every 30 s
_RUNS = "{ runsOrError { ... on Runs { results { runId jobName status tags { key value } } } } }"


@dataclass(frozen=True)
class UiRun:
    """A run of a demonstration, as listed by Dagster's server."""

    id: str
    job: str
    status: str
    demonstration: str


@contextmanager
def ui_with_six_uploads(folder: Path) -> Iterator[str]:
    """Runs `make ui` in a checkout with the uploads; the block gets the address of the UI.

    The sensor requests no runs, because it considers an upload complete only after an hour.
    """
    demos = folder / "demos"
    write_demos(demos)
    samples = folder / "samples"
    for number, name in enumerate(UPLOADS):
        upload(demos / list(DEMOS)[number % len(DEMOS)], samples, name)
    spoil_log(samples / BROKEN)
    checkout = fresh_checkout(folder / "checkout", samples)
    samples.rename(checkout.root / INBOX)
    registered = checkout.type('DAGSTER_HOME="$PWD" .venv/bin/demo-pipeline register')
    assert registered.code == 0, registered.output
    checkout.variables["DEMO_PIPELINE_DISCOVERY__STABLE_SECONDS"] = "3600"
    with checkout.serving(SERVER) as address:
        yield address


def demonstration_runs(address: str) -> list[UiRun]:
    """Returns all runs of demonstrations, newest first."""
    with urllib.request.urlopen(address, timeout=60) as page:  # noqa: S310 - our own server
        own_page = page.geturl()  # with this machine's secret token in the path, as in a browser
    body = json.dumps({"query": _RUNS}).encode()
    headers = {"content-type": "application/json", "origin": address}
    request = urllib.request.Request(f"{own_page}graphql", body, headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        data: Any = json.load(answer)["data"]
    runs = []
    for run in data["runsOrError"]["results"]:
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        if PARTITION_TAG in tags:
            runs.append(UiRun(run["runId"], run["jobName"], run["status"], tags[PARTITION_TAG]))
    return runs


def runs_since(address: str, before: set[str]) -> list[UiRun]:
    """Waits until each upload has a new run and all new runs have ended; returns the new runs.

    Args:
        address: the address of the UI.
        before: the ids of older runs.
    """
    end = time.monotonic() + _DEADLINE
    while True:
        runs = [run for run in demonstration_runs(address) if run.id not in before]
        if len(runs) >= len(UPLOADS) and {run.status for run in runs} <= ENDED:
            return runs
        assert time.monotonic() < end, f"not all runs have ended: {runs}"
        time.sleep(2)


def choose_all_partitions(page: Page) -> None:
    """Clicks *All* and *Launch backfill* in the dialog for partitions."""
    page.get_by_role("button", name="All", exact=True).click()
    count = page.get_by_text(f"{len(UPLOADS)} partitions", exact=True)
    expect(count).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Launch backfill").click()


def materialize_the_lineage(page: Page, address: str) -> None:
    """Clicks Lineage → Materialize all."""
    page.goto(f"{address}/asset-groups")
    page.get_by_role("button", name="Materialize all").click()
    choose_all_partitions(page)


def backfill_the_job(page: Page, address: str) -> None:
    """Clicks Jobs → process_demonstration → Partitions → Materialize."""
    page.goto(f"{address}/locations/demo_pipeline/jobs/process_demonstration/partitions")
    page.get_by_role("button", name="Materialize").first.click()
    choose_all_partitions(page)


def materialize_the_asset(page: Page, address: str) -> None:
    """Clicks Materialize on the page of the asset `events`."""
    page.goto(f"{address}/assets/events?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    choose_all_partitions(page)
