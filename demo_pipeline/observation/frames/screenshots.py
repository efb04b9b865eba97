"""The `screenshots` stage: writes a PNG of the screen before each action, and evidence.json.

Actions that started or stopped the recorder get no screenshot.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from demo_pipeline.actions.action_tables import Action, read_actions
from demo_pipeline.actions.build_actions import known_stop_ms, last_action, possible_stop
from demo_pipeline.actions.inputs import inputs_of
from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.files.parquet import (
    write_rows,
)
from demo_pipeline.observation.clock.calibrate import Calibration, calibrate
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.clock.clock_evidence import typed_keys
from demo_pipeline.observation.clock.clock_votes import answered_inputs
from demo_pipeline.observation.clock.screen_changes import find_parts_by_scans
from demo_pipeline.observation.frames.decode_pass import (
    DecodeResult,
    RecorderFacts,
    run_decode_pass,
)
from demo_pipeline.observation.frames.evidence import EVIDENCE_FILE
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline.observation.frames.frame_requests import FrameRequest, request_frames
from demo_pipeline.observation.frames.frames_table import FRAMES_FILE, FRAMES_SCHEMA
from demo_pipeline.observation.frames.pointer_path import PointerPath, pointer_path
from demo_pipeline.observation.frames.private_screen import PrivateScreen
from demo_pipeline.observation.frames.screenshot_files import (
    DIGESTS_FILE,
    digest_lines,
)
from demo_pipeline.observation.frames.screenshot_writer import Screenshot
from demo_pipeline.observation.frames.video_reader import RecordedVideo
from demo_pipeline.observation.trees.recorder_control import actions_on_recorder, unmentioned
from demo_pipeline.observation.trees.scanned_targets import ScannedTargets, scan_targets
from demo_pipeline.observation.trees.step_tree import TreeReader
from demo_pipeline.recording.clock_steps import read_clock_steps
from demo_pipeline.recording.events import read_events
from demo_pipeline.recording.input_log import EventType
from demo_pipeline.recording.logged_scans import LoggedScan, read_logged_scans
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline.settings import ObservationSettings


def without_recorder(
    observed: DecodeResult, actions: Sequence[Action], on_windows: Collection[int], folder: Path
) -> DecodeResult:
    """Returns the results of the decode pass without actions that started or stopped the recorder.

    Their screenshots are removed from `folder`. If the last action stopped the recorder, its
    screenshot becomes final.png. If no action would remain, nothing is left out: a person has to
    judge such a recording.

    Args:
        actions: the actions, in time order.
        on_windows: indexes of the actions on a window of the recorder.
    """
    control = set(on_windows)
    last = last_action(actions)
    if last is not None and observed.stopped:
        control.add(last.action_index)
    kept = {action.action_index for action in actions if action.action_type != "pause"} - control
    if not control or not kept:
        return observed
    digests = dict(observed.digests)
    screenshots = []
    final = last.action_index if last is not None else None
    for shot in observed.screenshots:
        index = shot.action_index
        is_control = shot.action_index in control
        screenshots.append(Screenshot(index, Reason.RECORDER) if is_control else shot)
        if is_control and shot.file is not None:
            _take_away(folder, shot.file, digests, last=index == final)
    evidence = observed.evidence
    waits = [wait for wait in evidence.waits if min(kept) < wait.action_index < max(kept)]
    update = {"waits": tuple(waits), "recorder_control": tuple(sorted(control))}
    evidence = evidence.model_copy(update=update)
    return replace(observed, screenshots=screenshots, evidence=evidence, digests=digests)


def _take_away(folder: Path, name: str, digests: dict[str, str], *, last: bool) -> None:
    """Removes a screenshot and its copy in the screen's own size.

    If `last` is true, they replace final.png and its copy instead.
    """
    for path_of in (Path, native_of):
        screenshot = path_of(folder / name)
        final = path_of(folder / FINAL_FILE)
        digest = digests.pop(screenshot.name, "")
        if last and digest:
            screenshot.replace(final)
            digests[final.name] = digest
        elif digest:
            screenshot.unlink()
        elif last and digests.pop(final.name, ""):
            final.unlink()


def build_screenshots(  # noqa: PLR0917 - the inputs of the stage, in the order of the stages
    log: Path,
    video: Path,
    manifest: RecordingManifest,
    events_folder: Path,
    actions_folder: Path,
    out: Path,
    settings: ObservationSettings,
    *,
    native: bool = False,
) -> dict[str, Any]:
    """Calibrates the recording, decodes its video and writes the outputs of the stage into `out`.

    Returns the summary of the stage.

    Args:
        events_folder, actions_folder: outputs of earlier stages.
        out: folder for the screenshots, their tables and evidence.json.
        settings: the names of the recorder's windows.
        native: whether to write screenshots in the screen's own size, too.
    """
    events = read_events(events_folder)
    actions = read_actions(actions_folder)
    inputs = inputs_of(_without_early_moves(events, actions))
    meta = manifest.parsed_meta()
    path = pointer_path(events)
    scans = read_logged_scans(events_folder)
    reader = TreeReader(log, meta.platform)
    packets = read_packets(video)
    recorded = RecordedVideo(video, packets, (manifest.video.width, manifest.video.height))
    calibration = calibrate(
        recorded,
        manifest,
        events=events,
        path=path,
        actions=actions,
        keys=typed_keys(inputs),
        answered=answered_inputs(inputs),
        steps=read_clock_steps(events_folder),
    )
    del events  # frees memory for the decode pass
    observation = _Observation(
        recorded,
        _with_elapsed(path, calibration.clock),
        actions,
        scans,
        reader,
        private=PrivateScreen(actions, inputs, meta.platform, calibration.clock, packets),
        out=out,
        recorder=RecorderFacts(
            possible_stop(actions, inputs),
            known_stop_ms(actions_folder, inputs),
            several_displays=meta.has_several_displays,
        ),
        native=native,
    )
    observed = observation.run(calibration, unmentioned(settings.recorder_windows, meta))
    rows = _write_tables(observed, out)
    return _summary(rows, calibration, observed)


def _with_elapsed(path: PointerPath, clock: Clock) -> PointerPath:
    """Returns the path, with `elapsed` filled in if somebody set the recorder's clock."""
    if not clock.shifts:
        return path
    elapsed = np.array([clock.elapsed_ms(time) for time in path.times.tolist()])
    return replace(path, elapsed=elapsed)


def _write_tables(observed: DecodeResult, out: Path) -> list[dict[str, Any]]:
    """Writes frames.parquet, evidence.json and the digests. Returns the rows of frames.parquet."""
    rows = [asdict(screenshot) for screenshot in observed.screenshots]
    write_rows(out / FRAMES_FILE, rows, FRAMES_SCHEMA)
    dump_json(out / EVIDENCE_FILE, observed.evidence.to_json())
    (out / DIGESTS_FILE).write_text(digest_lines(out, observed.digests), encoding="utf-8")
    return rows


@dataclass(frozen=True)
class _Observation:
    """Runs the decode pass on the video of a calibrated recording.

    Attributes that are not listed here are arguments of `run_decode_pass`.

    Attributes:
        scans: all accessibility scans of the log.
        out: folder for the files of the decode pass.
    """

    video: RecordedVideo
    path: PointerPath
    actions: Sequence[Action]
    scans: Sequence[LoggedScan]
    reader: TreeReader
    private: PrivateScreen
    out: Path
    recorder: RecorderFacts
    native: bool

    def run(self, calibration: Calibration, recorder_windows: Collection[str]) -> DecodeResult:
        """Runs the decode pass, and leaves out the actions that started or stopped the recorder.

        `recorder_windows` are names of the recorder's windows.
        """
        targets = self._targets(calibration)
        find_parts_by_scans(self.video, calibration, self.path, targets.desktops)
        if len(calibration.screen) > 1:
            targets = self._targets(calibration)
        observed = self._decode(calibration, targets)
        control = actions_on_recorder(
            self.actions,
            self.scans,
            self.reader,
            calibration.canvas,
            recorder_windows,
            fronts={target.action_index: target.window for target in observed.evidence.targets},
        )
        return without_recorder(observed, self.actions, control, self.out)

    def _targets(self, calibration: Calibration) -> ScannedTargets:
        return scan_targets(self.actions, self.scans, self.reader, calibration)

    def _decode(self, calibration: Calibration, scanned: ScannedTargets) -> DecodeResult:
        parts = len(calibration.screen)

        def requests(scale: float | None) -> Sequence[FrameRequest]:
            """Creates the requests for trees whose boxes must be multiplied by `scale`.

            If `scale` is None, the targets have no boxes.
            """
            targets = scanned.by_action
            if scale is None:
                targets = {index: replace(target, box=None) for index, target in targets.items()}
            elif scale != 1.0 or len(calibration.screen) > parts:
                reader = TreeReader(self.reader.log, self.reader.platform, {0: scale})
                targets = scan_targets(self.actions, self.scans, reader, calibration).by_action
            return request_frames(
                self.actions,
                targets,
                self.path,
                calibration=calibration,
                frame_s=self.video.frame_s,
                grab_s=self.video.grab_s,
            )

        return run_decode_pass(
            self.video,
            requests(1.0),
            requests,
            calibration=calibration,
            path=self.path,
            actions=self.actions,
            desktops=scanned.desktops,
            folder=self.out,
            private=self.private,
            recorder=self.recorder,
            native=self.native,
        )


def _without_early_moves(events: Any, actions: Sequence[Action]) -> Any:
    """Returns the events table without the pointer moves up to the end of the last action."""
    last = last_action(actions)
    after = pc.greater(events["time_ms"], last.end_ms if last else 0)
    return events.filter(pc.or_(after, pc.not_equal(events["event"], EventType.MOUSEMOVE)))


def _summary(
    rows: Sequence[dict[str, Any]], calibration: Calibration, observed: DecodeResult
) -> dict[str, Any]:
    clock = calibration.clock
    canvas = calibration.canvas
    leads = sorted(row["lead_ms"] for row in rows if row["lead_ms"] is not None)
    return {
        "pictures": sum(row["file"] is not None for row in rows),
        "reasons": dict(sorted(Counter(row["reason_code"] for row in rows).items())),
        "leaks": sum(row["leak"] for row in rows),
        "unproven_clock": sum(bool(row["unproven_clock"]) for row in rows),
        "avoidable_leaks": sum(row["leak"] and not row["unavoidable"] for row in rows),
        "median_lead_ms": leads[len(leads) // 2] if leads else None,
        "waits": len(observed.evidence.waits),
        "recorder_control": len(observed.evidence.recorder_control),
        "frames_decoded": observed.decoded,
        "clock": f"{clock.method}: {clock.documented_offset_ms:+.0f} ms against meta.timestamp, "
        f"± {clock.uncertainty_ms:.0f} ms",
        "clock_shifts": [shift.shift_ms if shift.is_known else "unknown" for shift in clock.shifts],
        "screen_parts": len(calibration.screen),
        "canvas": f"{canvas.video_width}x{canvas.video_height} "
        f"x {canvas.scale:.4f} + ({canvas.pad_x}, {canvas.pad_y})",
    }
