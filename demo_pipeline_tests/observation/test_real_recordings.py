"""Tests the clocks, leaks and scrolls of the two committed recordings of a real desktop."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.observation.clock.clock import Clock, documented_clock
from demo_pipeline.observation.clock.clock_evidence import clock_from_pointer
from demo_pipeline.observation.clock.clock_search import MAX_OFFSET_S
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.evidence import Evidence, read_evidence
from demo_pipeline.observation.frames.frames_table import read_frames
from demo_pipeline.observation.frames.pointer_path import PointerPath, pointer_path
from demo_pipeline.observation.frames.video_reader import Span, decode_spans
from demo_pipeline.recording.events import build_events, read_events
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.sample_workspace import open_workspace
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth
from demo_pipeline_tests.simulator.script import click
from demo_pipeline_tests.simulator.video import VideoOptions, encode

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"
TICKETS = "20261121_212358"
SHOPPING = "20261121_212801"
FRAME_MS = 1000 / 15
LAGS_MS = (-3000, -2311, -1480, -777, -133, 42, 650, 1219, 2004, 3000)
# Index of the action, reason code, and whether the leak is unavoidable. The leak is a right click
# where the previous drag had ended.
LEAKS: dict[str, list[tuple[int, str, bool]]] = {TICKETS: [], SHOPPING: [(11, "pre_move", True)]}


@dataclass(frozen=True)
class Seen:
    """The outputs for a recording: rows of frames.parquet, evidence, and actions of steps."""

    rows: list[dict[str, Any]]
    evidence: Evidence
    steps: list[dict[str, Any]]


@pytest.fixture(scope="module")
def seen(real_root: Path) -> dict[str, Seen]:
    pipeline = open_workspace(real_root)
    seen_by_name = {}
    for name in (TICKETS, SHOPPING):
        folder = pipeline.store.open(f"screenshots/{name}")[0]
        rows = read_frames(folder)
        evidence = read_evidence(folder)
        folder = pipeline.store.open(f"trajectories/{name}")[0]
        steps = sorted((folder / "steps").iterdir())
        actions = [json.loads((step / "action.json").read_bytes()) for step in steps]
        seen_by_name[name] = Seen(rows, evidence, actions)
    return seen_by_name


@dataclass(frozen=True)
class Watched:
    """The changes in the video of a recording, and the pointer's path in the log."""

    changes: ChangeMap
    track: PointerPath
    documented: Clock

    def clock(self, lag_ms: float) -> Clock | None:
        """Returns the clock that the frames show after all events are shifted by `lag_ms`."""
        track = replace(self.track, times=self.track.times + lag_ms)
        return clock_from_pointer(self.changes, track, self.documented, [1.0], MAX_OFFSET_S)


@pytest.fixture(scope="module", params=[TICKETS, SHOPPING])
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A recording, decoded only once for all tests with different lags."""
    folder = RECORDINGS / request.param
    out = tmp_path_factory.mktemp("events")
    build_events(folder / "input_log.jsonl", out)
    track = pointer_path(read_events(out))
    changes = ChangeMap()
    video = folder / "recording.mp4"
    for frame in decode_spans(video, read_packets(video), [Span(0, 99)]):
        changes.add(frame)
    meta = json.loads((folder / "meta.json").read_bytes())
    start = datetime.fromisoformat(meta["timestamp"]).timestamp()
    return Watched(changes, track, documented_clock(start * 1000))


def test_events_that_are_off_by_any_lag_are_found_within_a_frame(watched: Watched) -> None:
    base = watched.clock(0)
    assert base is not None
    for lag_ms in LAGS_MS:
        clock = watched.clock(lag_ms)
        assert clock is not None, lag_ms
        offset = clock.documented_offset_ms - base.documented_offset_ms
        assert offset == pytest.approx(lag_ms, abs=FRAME_MS)
        assert abs(offset - lag_ms) <= clock.uncertainty_ms + base.uncertainty_ms


@pytest.mark.parametrize("name", [TICKETS, SHOPPING])
def test_the_chain_finds_the_same_clock(name: str, seen: dict[str, Seen]) -> None:
    """The recorder ran on the same machine, so the clock's offset to meta.timestamp is small."""
    clock = seen[name].evidence.clock
    assert clock.method == "pixels"
    assert clock.uncertainty_ms < 2 * FRAME_MS
    assert -200 < clock.documented_offset_ms < 0


def test_a_still_video_is_no_evidence_however_much_the_pointer_moves(tmp_path: Path) -> None:
    """The recorder recorded another display: twenty seconds of a single frame."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        image = painter.planes(truth.timeline.at(truth.timestamp_ms), None)
        frames = ((frame.pts, image) for frame in truth.frames)
        encode(path, frames, truth.screen, VideoOptions(preset="ultrafast"))

    there_and_back = (click("Agree"), click("Rows/d"), click("Load"), click("Form/title bar"))
    story = script(*there_and_back * 4)
    observed = videos.painted(tmp_path, SMALL, write, story)
    assert len(observed.truth.timeline.move_ms) > 200
    assert observed.truth.frames[-1].wall_ms - observed.truth.timestamp_ms > 19_000
    clock = observed.evidence.clock
    assert (clock.method, clock.documented_offset_ms) == ("meta_timestamp", 0)
    assert clock.uncertainty_ms >= 2000
    assert clock.score is None


@pytest.mark.parametrize("name", [TICKETS, SHOPPING])
def test_every_leak_is_known_and_none_was_avoidable(name: str, seen: dict[str, Seen]) -> None:
    rows = seen[name].rows
    leaks = [(r["action_index"], r["reason_code"], r["unavoidable"]) for r in rows if r["leak"]]
    assert leaks == LEAKS[name]
    assert all(unavoidable for _, _, unavoidable in leaks)
    assert "missing" not in {row["reason_code"] for row in rows}


@pytest.mark.parametrize("name", [TICKETS, SHOPPING])
def test_scrolling_down_becomes_an_action_that_scrolls_down(
    name: str, seen: dict[str, Seen]
) -> None:
    """In both logs, negative deltas scroll down, contrary to the documented rule."""
    lines = (RECORDINGS / name / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines if '"mousewheel"' in line]
    assert {event["data"]["delta"] for event in events} == {-1}
    scrolls = [step for step in seen[name].steps if step["action_type"] == "scroll"]
    assert [step["parameters"]["direction"] for step in scrolls] == ["down"]
    assert [step["parameters"]["amount"] for step in scrolls] == [len(events)]
