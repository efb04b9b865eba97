"""The `screenshots` stage: the picture before each action, and the proof of when it was taken.

Belongs here: the one decode pass, the frames table, the stage's check. What is asked of the video
is planned in plan.py and answered in choose.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action, read_actions
from demo_pipeline.actions.inputs import inputs_of
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.common.png import png_size
from demo_pipeline.common.python_gc import reduced_python_gc
from demo_pipeline.observation.calibration.calibrate import settle
from demo_pipeline.observation.calibration.canvas import Canvas
from demo_pipeline.observation.calibration.clock import PointerTrack
from demo_pipeline.observation.calibration.evidence import Calibration, Evidence
from demo_pipeline.observation.frames.decode_pass import DecodePass, FrameChoice
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frame_requests import Target, plan
from demo_pipeline.observation.frames.pointer_path import PixelBox, PointerPath
from demo_pipeline.observation.trees.hit_test import node_at
from demo_pipeline.observation.trees.scans import ScanAt, scan_in_force
from demo_pipeline.observation.trees.ui_trees import TreeReader
from demo_pipeline.problems import Problem
from demo_pipeline.recording.event_tables import described_schema, read_table
from demo_pipeline.recording.events import read_events, read_scans, schema_problems
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.video_probe import VIDEO_FILE, PacketScan, scan_packets
from demo_pipeline.settings import ObservationSettings

FRAMES_FILE = "frames.parquet"
EVIDENCE_FILE = "evidence.json"

_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "row of actions.parquet"),
    ("file", pa.string(), True, "NNN.png; null: no picture (missing, or a pause without a wait)"),
    ("pts", pa.float64(), True, "presentation time of the frame, seconds"),
    ("frame", pa.int64(), True, "0-based number of the frame in presentation order"),
    ("lead_ms", pa.float64(), True, "frame to press, milliseconds"),
    ("settle_ms", pa.float64(), True, "how long the screen had been still by then, as looked"),
    ("reason_code", pa.string(), False, "pre_move, settled, backoff, first_frame, missing, pause"),
    ("leak", pa.bool_(), False, "the pointer is at the target already, or the frame too late"),
    ("unavoidable", pa.bool_(), False, "a leak, but the pointer was there all along"),
    ("pointer_distance_px", pa.float64(), True, "pointer to press point at the frame, event px"),
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
    """Decode the video once for the wanted frames; write PNGs, frames.parquet, evidence.json.

    The first stretch of the video is read once more, to settle the clock. Returns a summary.
    """
    events = read_events(events_folder)
    actions = read_actions(actions_folder)
    path = PointerPath(inputs_of(events))
    scan = scan_packets(video)
    settled = settle(
        video,
        scan,
        manifest,
        events=events,
        path=path,
        presses=_presses(actions),
        settings=settings,
    )
    scans = [ScanAt(**row) for row in read_scans(events_folder)]
    targets = _targets(actions, scans, TreeReader(log, manifest.parsed_meta().platform), settled)
    frame_s = _frame_seconds(scan.times)
    asked = plan(actions, targets, path, settled=settled, frame_s=frame_s, settings=settings)
    work = DecodePass(
        video, scan, settled=settled, path=path, actions=actions, out=out, frame_s=frame_s
    )
    answers = work.run(asked)
    rows = [_row(answer, scan) for answer in answers]
    table = pa.Table.from_pylist(rows, schema=FRAMES_SCHEMA)
    pq.write_table(table, out / FRAMES_FILE, compression="zstd", compression_level=3)
    dump_json(out / EVIDENCE_FILE, settled.evidence(work))
    return _summary(rows, settled, work)


def _presses(actions: Sequence[Action]) -> PointerTrack:
    """When and where buttons went down."""
    placed = [
        (action.press_ms, action.x, action.y)
        for action in actions
        if action.action_type in POINTER_TYPES - {"scroll"}
        if action.x is not None and action.y is not None
    ]
    times, x, y = np.array(placed, float).reshape(-1, 3).T
    return PointerTrack(times, x, y)


def _frame_seconds(times: Any) -> float:
    """The usual distance of two frames; a tenth of a second where there is only one."""
    return float((times[-1] - times[0]) / (len(times) - 1)) if len(times) > 1 else 0.1


@reduced_python_gc()
def _targets(
    actions: Sequence[Action], scans: Sequence[ScanAt], reader: TreeReader, settled: Calibration
) -> Mapping[int, Target]:
    """What pointer actions hit, from the scan in force at each."""
    found: dict[int, Target] = {}
    since = float("-inf")
    for action in actions:
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            scan = scan_in_force(scans, action.press_ms, since).scan
            tree = reader.tree(scan, action.press_ms, settled.canvas)
            node = node_at(tree, action.x, action.y)
            box = PixelBox(*node.box) if node and node.box else None
            if scan is not None and box is not None and _is_small(box, settled.canvas):
                found[action.action_index] = Target(box, scan.time_ms)
        since = max(since, action.end_ms)
    return found


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """A page or a text area fills half the screen: being inside it gives nothing away."""
    factor = canvas.event_to_canvas**2
    return box.width * box.height * factor <= 0.05 * canvas.width * canvas.height


def _row(answer: FrameChoice, scan: PacketScan) -> dict[str, Any]:
    number = None if answer.pts is None else int(np.searchsorted(scan.pts, answer.pts))
    return {
        "action_index": answer.action_index,
        "file": answer.file,
        "pts": None if answer.time is None else round(answer.time, 6),
        "frame": number,
        "lead_ms": None if answer.lead_ms is None else round(answer.lead_ms, 3),
        "settle_ms": None if answer.settle_ms is None else round(answer.settle_ms, 3),
        "reason_code": answer.reason,
        "leak": answer.leak,
        "unavoidable": answer.unavoidable,
        "pointer_distance_px": answer.pointer_distance_px,
    }


def _summary(
    rows: Sequence[dict[str, Any]], settled: Calibration, work: DecodePass
) -> dict[str, Any]:
    clock = settled.clock
    leads = sorted(row["lead_ms"] for row in rows if row["lead_ms"] is not None)
    return {
        "pictures": sum(row["file"] is not None for row in rows),
        "reasons": dict(sorted(Counter(row["reason_code"] for row in rows).items())),
        "leaks": sum(row["leak"] for row in rows),
        "avoidable_leaks": sum(row["leak"] and not row["unavoidable"] for row in rows),
        "median_lead_ms": leads[len(leads) // 2] if leads else None,
        "waits": len(work.waits),
        "frames_decoded": work.decoded,
        "clock": f"{clock.method}: {clock.documented_offset_ms:+.0f} ms against meta.timestamp, "
        f"± {clock.uncertainty_ms:.0f} ms",
        "canvas": f"{settled.canvas.video_width}x{settled.canvas.video_height} "
        f"x {settled.canvas.scale:.4f} + ({settled.canvas.pad_x}, {settled.canvas.pad_y})",
    }


def read_frames(folder: Path) -> list[dict[str, Any]]:
    """Rows of frames.parquet, one an action."""
    table = read_table(folder / FRAMES_FILE, FRAMES_SCHEMA)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def read_evidence(folder: Path) -> Evidence:
    """evidence.json as its model."""
    return Evidence.model_validate_json((folder / EVIDENCE_FILE).read_bytes())


def check_pictures(
    folder: Path, actions_folder: Path, settings: ObservationSettings
) -> list[Problem]:
    """The table fits its schema and names, for each action, a PNG of the canvas's size."""
    problems = schema_problems(folder / FRAMES_FILE, FRAMES_SCHEMA)
    try:
        read_evidence(folder)
    except (OSError, ValidationError) as error:
        problems.append(Problem("wrong_schema", EVIDENCE_FILE, type(error).__name__))
    if problems:
        return problems
    rows = read_frames(folder)
    expected = [action.action_index for action in read_actions(actions_folder)]
    if [row["action_index"] for row in rows] != expected:
        message = f"{len(rows)} rows for {len(expected)} actions, or in another order"
        problems.append(Problem("frames_rows", FRAMES_FILE, message))
    names = [row["file"] for row in rows if row["file"]] + [FINAL_FILE]
    size = (settings.canvas_width, settings.canvas_height)
    for name in names:
        try:
            found = png_size(folder / name)
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)  # without the path
            problems.append(Problem("bad_picture", name, f"cannot be read: {reason}"))
            continue
        if found != size:
            problems.append(Problem("bad_picture", name, f"is {found}, expected {size}"))
    return problems


def check_frames_present(folder: Path) -> list[Problem]:
    """Every action has its frame: a video shorter than its events is reported with numbers."""
    rows = [row for row in read_frames(folder) if row["reason_code"] == "missing"]
    if not rows:
        return []
    indexes = ", ".join(str(row["action_index"]) for row in rows[:10])
    message = f"{len(rows)} actions have no frame (actions {indexes}): no picture of before them"
    remedy = "upload the whole video; steps without a picture are left out and counted"
    return [Problem("missing_frames", VIDEO_FILE, message, remedy=remedy)]


def check_screenshot_leaks(folder: Path) -> list[Problem]:
    """No picture gives its answer away when an earlier one would not have."""
    leaks = [row for row in read_frames(folder) if row["leak"] and not row["unavoidable"]]
    return [
        Problem(
            "avoidable_leak",
            row["file"] or FRAMES_FILE,
            f"action {row['action_index']}: the pointer is at its target already "
            f"({row['reason_code']}, {row['lead_ms']:.0f} ms before the press)",
            remedy="look at the contact sheet; leaky steps can be filtered by provenance.parquet",
        )
        for row in leaks
    ]
