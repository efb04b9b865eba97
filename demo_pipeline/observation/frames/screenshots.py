"""The `screenshots` stage: the frame before each action as a PNG, and the evidence for its time.

Belongs here: the order of the stage's steps, frames.parquet and its reader. Not here: the stage's
checks (screenshot_checks.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action, read_actions
from demo_pipeline.actions.inputs import inputs_of
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.common.parquet import (
    described_schema,
    read_rows,
    write_rows,
)
from demo_pipeline.common.python_gc import reduced_python_gc
from demo_pipeline.observation.calibration.calibrate import Calibration, calibrate
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.frames.decode_pass import DecodeResult, run_decode_pass
from demo_pipeline.observation.frames.evidence import Evidence, evidence_of
from demo_pipeline.observation.frames.frame_requests import ScannedTarget, request_frames
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath, PointerTrack
from demo_pipeline.observation.frames.recorded_video import RecordedVideo
from demo_pipeline.observation.frames.screenshot_writer import Screenshot
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.scans import LoggedScan, current_scan
from demo_pipeline.observation.trees.ui_trees import TreeReader
from demo_pipeline.recording.events import read_events, read_scans
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.video_probe import PacketScan, scan_packets
from demo_pipeline.settings import ObservationSettings

FRAMES_FILE = "frames.parquet"
EVIDENCE_FILE = "evidence.json"
LARGEST_TARGET_SHARE = 0.05  # of the canvas; the pointer inside a larger element shows no target

_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "row of actions.parquet"),
    ("file", pa.string(), True, "NNN.png; null: no frame, or a pause that was not a wait"),
    ("pts", pa.float64(), True, "presentation time of the frame, seconds"),
    ("frame", pa.int64(), True, "0-based number of the frame in presentation order"),
    ("lead_ms", pa.float64(), True, "frame to press, milliseconds"),
    ("settle_ms", pa.float64(), True, "how long the screen had been still, within the span"),
    ("reason_code", pa.string(), False, "pre_move, settled, backoff, first_frame, missing, pause"),
    ("leak", pa.bool_(), False, "the pointer is already at the target, or the frame too late"),
    ("unavoidable", pa.bool_(), False, "a leak; the pointer was at the target all the time before"),
    (
        "pointer_distance_px",
        pa.float64(),
        True,
        "pointer in the frame to the press, event space",
    ),
)

FRAMES_SCHEMA = described_schema(_COLUMNS)


def build_screenshots(  # noqa: PLR0917 - the inputs of the stage, in the order of the chain
    log: Path,
    video: Path,
    manifest: RecordingManifest,
    events_folder: Path,
    actions_folder: Path,
    out: Path,
    settings: ObservationSettings,
) -> dict[str, Any]:
    """Calibrate, decode the wanted frames once; write PNGs, frames.parquet, evidence.json.

    The first stretch of the video is read twice, once for the calibration. Returns a summary.
    """
    events = read_events(events_folder)
    actions = read_actions(actions_folder)
    path = PointerPath(inputs_of(events))
    size = (manifest.video.width, manifest.video.height)
    recorded = RecordedVideo(video, scan_packets(video), size)
    presses = _presses(actions)
    calibration = calibrate(
        recorded, manifest, events=events, path=path, presses=presses, settings=settings
    )
    scans = [LoggedScan(**row) for row in read_scans(events_folder)]
    reader = TreeReader(log, manifest.parsed_meta().platform)
    targets = _scanned_targets(actions, scans, reader, calibration.canvas)
    requests = request_frames(
        actions, targets, path, calibration=calibration, frame_s=recorded.frame_s, settings=settings
    )
    observed = run_decode_pass(
        recorded, requests, calibration=calibration, path=path, actions=actions, folder=out
    )
    rows = [_row(screenshot, recorded.packets) for screenshot in observed.screenshots]
    write_rows(out / FRAMES_FILE, rows, FRAMES_SCHEMA)
    dump_json(out / EVIDENCE_FILE, evidence_of(calibration, observed))
    return _summary(rows, calibration, observed)


def _presses(actions: Sequence[Action]) -> PointerTrack:
    """When and where buttons were pressed."""
    placed = [
        (action.press_ms, action.x, action.y)
        for action in actions
        if action.action_type in POINTER_TYPES - {"scroll"}
        if action.x is not None and action.y is not None
    ]
    times, x, y = np.array(placed, float).reshape(-1, 3).T
    return PointerTrack(times, x, y)


@reduced_python_gc()
def _scanned_targets(
    actions: Sequence[Action], scans: Sequence[LoggedScan], reader: TreeReader, canvas: Canvas
) -> Mapping[int, ScannedTarget]:
    """Action index → the element that the current scan has under a pointer action."""
    targets: dict[int, ScannedTarget] = {}
    since = float("-inf")
    for action in actions:
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            scan = current_scan(scans, action.press_ms, since).scan
            node = node_at(reader.tree(scan, action.press_ms, canvas), action.x, action.y)
            box = PixelBox(*node.box) if node and node.box else None
            if scan is not None and box is not None and _is_small(box, canvas):
                targets[action.action_index] = ScannedTarget(box, scan.time_ms)
        since = max(since, action.end_ms)
    return targets


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """Whether a pointer inside the box points at it; not so in a page or a text area."""
    area = box.width * box.height * canvas.event_to_canvas**2
    return area <= LARGEST_TARGET_SHARE * canvas.width * canvas.height


def _row(screenshot: Screenshot, packets: PacketScan) -> dict[str, Any]:
    number = None if screenshot.pts is None else int(np.searchsorted(packets.pts, screenshot.pts))
    return {
        "action_index": screenshot.action_index,
        "file": screenshot.file,
        "pts": None if screenshot.time is None else round(screenshot.time, 6),
        "frame": number,
        "lead_ms": None if screenshot.lead_ms is None else round(screenshot.lead_ms, 3),
        "settle_ms": None if screenshot.settle_ms is None else round(screenshot.settle_ms, 3),
        "reason_code": screenshot.reason,
        "leak": screenshot.leak,
        "unavoidable": screenshot.unavoidable,
        "pointer_distance_px": screenshot.pointer_distance_px,
    }


def _summary(
    rows: Sequence[dict[str, Any]], calibration: Calibration, observed: DecodeResult
) -> dict[str, Any]:
    clock, canvas = calibration.clock, calibration.canvas
    leads = sorted(row["lead_ms"] for row in rows if row["lead_ms"] is not None)
    return {
        "pictures": sum(row["file"] is not None for row in rows),
        "reasons": dict(sorted(Counter(row["reason_code"] for row in rows).items())),
        "leaks": sum(row["leak"] for row in rows),
        "avoidable_leaks": sum(row["leak"] and not row["unavoidable"] for row in rows),
        "median_lead_ms": leads[len(leads) // 2] if leads else None,
        "waits": len(observed.waits),
        "frames_decoded": observed.decoded,
        "clock": f"{clock.method}: {clock.documented_offset_ms:+.0f} ms against meta.timestamp, "
        f"± {clock.uncertainty_ms:.0f} ms",
        "canvas": f"{canvas.video_width}x{canvas.video_height} "
        f"x {canvas.scale:.4f} + ({canvas.pad_x}, {canvas.pad_y})",
    }


def read_frames(folder: Path) -> list[dict[str, Any]]:
    """Rows of frames.parquet, one for each action."""
    return read_rows(folder / FRAMES_FILE, FRAMES_SCHEMA)


def read_evidence(folder: Path) -> Evidence:
    """evidence.json as a model."""
    return Evidence.model_validate_json((folder / EVIDENCE_FILE).read_bytes())
