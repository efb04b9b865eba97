"""Processes a recording in the documented format, from an upload to a bucket to the datasets."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs import build_defs, upload_sensor
from demo_pipeline.desktopd.validator import validate_dataset
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.exports.sft import validate_sft_folder
from demo_pipeline.files.recording_files import LOG_FILE, META_FILE, VIDEO_FILE
from demo_pipeline.problems import errors
from demo_pipeline.settings import DatasetSettings, DiscoverySettings, Settings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline_tests.datasets.builders import read_lines
from demo_pipeline_tests.defs.bench import Bench, launched, ticked
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, drag, hotkey, scroll, think, type_text

ID = "20250304_151816"
# The keys of events and of meta.json in the document of the format.
DATA_KEYS: Mapping[str, set[str]] = {
    "axtree": {"duration", "focused_element", "queries", "tree"},
    "mousemove": {"x", "y"},
    "mousedown": {"x", "y", "button"},
    "mouseup": {"x", "y", "button"},
    "mousewheel": {"delta"},
    "keydown": {"key"},
    "keyup": {"key"},
}
NODE_KEYS = {"bbox", "children", "description", "name", "role", "states", "value"}
META_KEYS = {
    *("id", "timestamp", "duration_seconds", "status", "title", "description"),
    *("platform", "arch", "version", "locale", "primary_monitor", "reason", "quest"),
}
QUEST_KEYS = {"title", "app", "icon_url", "objectives", "content", "pool_id", "reward"}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with exactly the documented events and keys."""
    acts = (
        click("Agree"),
        click("Name"),
        type_text("Kendrick"),
        hotkey("ctrl", "a"),
        scroll("Rows", 2),
        think(2.5),
        drag("Form/title bar", 60, 40),
    )
    documented = replace(
        script(*acts),
        title="Find Kendrick Lamar concert tickets",
        app="StubHub",
        content="Hi! I need to find 4 tickets to the Kendrick Lamar concert in Inglewood.",
        objectives=("Open <app>StubHub</app> website in your browser", "Search for the concert"),
        timestamp="2025-03-04T15:18:16.813394600-05:00",
    )
    folder = tmp_path / ID
    write_recording(folder, documented, SMALL)
    return folder


@pytest.fixture
def bench(tmp_path: Path, seaweedfs_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Uploads and store in one bucket of a real S3 server."""
    monkeypatch.setattr(upload_sensor, "_settled", {})
    (tmp_path / "tasks").mkdir()
    settings = Settings(
        uploads=f"{seaweedfs_url}/uploads",
        store=f"{seaweedfs_url}/store",
        cache=str(tmp_path / "cache"),
        osworld_tasks=str(tmp_path / "tasks"),
        discovery=DiscoverySettings(stable_seconds=0),
        datasets=DatasetSettings(train_ratio=1, val_ratio=0),
    )
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Bench(settings, build_defs(settings), instance)


def test_the_recording_has_the_documented_keys_alone(recording):
    events = read_lines(recording / LOG_FILE)
    assert {event["event"] for event in events} == DATA_KEYS.keys()
    for event in events:
        assert event.keys() == {"event", "data", "time"}
        assert event["data"].keys() == DATA_KEYS[event["event"]]
    scans = [event["data"] for event in events if event["event"] == "axtree"]
    assert scans[0]["tree"][0].keys() == NODE_KEYS
    assert {"cursor"} <= scans[0]["queries"].keys()
    assert {abs(e["data"]["delta"]) for e in events if e["event"] == "mousewheel"} == {120}
    meta = json.loads((recording / META_FILE).read_text())
    assert meta.keys() == META_KEYS
    assert meta["quest"].keys() == QUEST_KEYS


def test_a_documented_upload_in_a_bucket_becomes_datasets(bench, recording, tmp_path):
    """The sensor, the run and the datasets read from a bucket and write to it."""
    bench.catalogue()
    uploads = Bucket(bench.settings.uploads, tmp_path / "other_cache")
    assert ticked(bench, "new_uploads").keys == []
    for name in (META_FILE, VIDEO_FILE, LOG_FILE):
        uploads.put(f"{ID}/{name}", recording / name)
    evaluation = ticked(bench, "new_uploads")
    if not evaluation.keys:  # the first evaluation may have seen an incomplete upload
        evaluation = ticked(bench, "new_uploads", evaluation.cursor)
    assert evaluation.keys == [ID]
    assert launched(bench, evaluation.requests[0]).success
    assert bench.run("build_datasets").success

    store = bench.workspace.store
    dataset = store.open("dataset")[0]
    assert errors(validate_dataset(dataset)) == []
    [entry] = json.loads((dataset / "index.json").read_text())["trajectories"]
    assert (entry["id"], entry["success"], entry["application"]) == (ID, True, "stubhub")
    samples = read_lines(store.open("sft")[0] / "train.jsonl")
    actions = [sample["output"]["action"] for sample in samples]
    assert [action["action_type"] for action in actions] == [
        *("click", "click", "type", "hotkey", "scroll", "drag"),
    ]
    assert actions[2]["parameters"] == {"text": "Kendrick"}
    assert actions[4]["parameters"] | {"direction": "down", "amount": 2} == actions[4]["parameters"]
    assert {sample["input"]["instruction"] for sample in samples} == {
        "Hi! I need to find 4 tickets to the Kendrick Lamar concert in Inglewood."
    }
    assert errors(validate_sft_folder(store.open("sft")[0])) == []
    [cudag] = [name for name in store.outputs() if name.startswith("datasets/")]
    folder = store.open(cudag)[0]
    assert errors(validate_cudag(folder)) == []
    # The last record, `terminate`, is not made from a step.
    assert len(read_lines(folder / "train.jsonl")) == len(samples) + 1
    assert ticked(bench, "new_uploads", evaluation.cursor).keys == []
