"""Reads from the store what the review page shows, as JSON.

Versions that were read are cached, because they never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.desktopd.models import points
from demo_pipeline.desktopd.target_box import TARGET_BOX
from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.observation.frames.evidence import read_evidence
from demo_pipeline.privacy.redaction_stage import (
    REDACTIONS,
    REDACTIONS_FILE,
    is_shown_redacted,
    open_shown,
)
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.events import read_scans
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline.review.decisions import NO_CORRECTIONS, Decision, Judgement, Subject, judge
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.review.screenshot_comparison import near_duplicates
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import (
    TRIAGE_STAGE,
    TRIAGE_STEPS_FILE,
    read_demonstration,
    whole_actions,
)
from demo_pipeline.store.documents import DamagedDocument
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.split_memory import KnownDemonstration, read_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.uploads import Uploads
from demo_pipeline.trajectories.provenance import (
    HiddenAction,
    ProvenanceRow,
    read_hidden_actions,
    read_provenance,
)
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_MOST_CACHED = 5000  # maximum number of cached versions of trajectories; each takes a few kB
# Columns of provenance.parquet that the page shows for a step.
_STEP_COLUMNS = (
    *("pts", "lead_ms", "reason_code", "leak", "unavoidable"),
    *("freshness", "tree_agreement", "tree_age_ms"),
    *("clock_method", "clock_uncertainty_ms", "unproven_clock"),
    *("text_evidence", "text_scan_event", "text_source", "keyboard_layout", "doubtful_text"),
)
# Columns of provenance.parquet that the page shows for the whole demonstration.
_DEMONSTRATION_COLUMNS = ("platform", "recorded_at", "status", "reason")
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReviewedVersion:
    """A version of a trajectory: its folder, and the ids and hashes for decisions about it."""

    folder: Path
    subject: Subject


class ReviewData:
    """Reads a store for the review page. Threads may share an instance.

    Args:
        uploads: the uploaded recordings, which contain the videos.
    """

    def __init__(self, store: Store, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads
        self.reviews = Reviews(store)
        # Maps (demonstration, version of its trajectory) to the opened version.
        self._versions: dict[tuple[str, str], ReviewedVersion] = {}
        # Rows that were read for each demonstration, with the id of the version that they are from.
        self._triage_rows: dict[str, tuple[str, Json]] = {}
        self._step_rows: dict[str, tuple[str, list[Json]]] = {}

    def opened(self, demonstration: str, version: str = "") -> ReviewedVersion | None:
        """Opens a version of a trajectory, or the published version if `version` is empty.

        Returns None if it is neither published nor cached.
        """
        if cached := self._versions.get((demonstration, version)):
            return cached
        try:
            folder, current = open_shown(self._store, demonstration)
            reviewed = ReviewedVersion(folder, subject_of(current, demonstration))
        except MissingOutput:
            return None
        self._versions[demonstration, current.id] = reviewed
        if len(self._versions) > _MOST_CACHED:
            self._versions.pop(next(iter(list(self._versions))), None)
        return reviewed if version in {"", current.id} else None

    def queue(self) -> Json:
        """Returns the rows of all demonstrations with a trajectory, the most doubtful first."""
        self.reviews.refresh()
        decisions = self.reviews.by_demonstration()
        triage_rows = []
        for name in self._trajectory_ids():
            row = self._triage_row(name)
            if row is not None:
                triage_rows.append(row)
        near: dict[str, list[str]] = {}
        for group in near_duplicates(triage_rows):
            for name in group:
                near[name] = sorted(group - {name})
        remembered: Mapping[str, KnownDemonstration] = {}
        # If the document that remembers the splits is damaged, repeated uploads are not marked.
        with suppress(DamagedDocument):
            remembered = read_split_memory(self._store).demonstrations
        rows = []
        for triage_row in triage_rows:
            name = triage_row["trajectory_id"]
            row = self._queue_row(triage_row, decisions.get(name, ()), near.get(name, ()))
            if name in remembered and remembered[name].duplicate_of:
                row["signals"].append([f"same upload as {remembered[name].duplicate_of}", 1])
            rows.append(row)
        rows.sort(key=lambda row: (-row["doubt"], row["id"]))
        return {"rows": rows}

    def _trajectory_ids(self) -> list[str]:
        outputs = self._store.outputs(TRAJECTORIES_STAGE.folder)
        return [output.partition("/")[2] for output in outputs]

    def _queue_row(
        self, triage_row: Json, decisions: Sequence[Decision], near: Sequence[str]
    ) -> Json:
        """Returns the row of a demonstration in the queue.

        Args:
            triage_row: the demonstration's row in the triage.
            near: ids of the demonstration's near-duplicates.
        """
        name = triage_row["trajectory_id"]
        judgement = Judgement()
        if decisions and (reviewed := self.opened(name)):
            judgement = judge(decisions, reviewed.subject)
        signals = _signal_counts(triage_row)
        annotated = self._store.published(f"annotated/{name}")
        if annotated and (disagreements := annotated.manifest.summary.get("disagreements")):
            signals.append(["disagreements", disagreements])
        return {
            "id": name,
            "application": triage_row["application"],
            "instruction": triage_row["instruction"],
            "doubt": triage_row["doubt"],
            "flagged": triage_row["flagged"],
            "signals": signals,
            "near": list(near),
            "review": judgement.status,
            "stale": len(judgement.stale),
            "corrected": judgement.corrections != NO_CORRECTIONS,
        }

    def steps(self) -> list[Json]:
        """Returns the steps of all demonstrations for the page's grid, sorted by demonstration."""
        self.reviews.refresh()
        decisions = self.reviews.by_demonstration()
        rows: list[Json] = []
        for name in sorted(self._trajectory_ids()):
            reviewed = self.opened(name)
            if reviewed is None:
                continue
            judgement = judge(decisions.get(name, ()), reviewed.subject)
            corrections = judgement.corrections
            marks = {action.step_index: points(action) for action in corrections.actions}
            for recorded in self._cached_steps(name, reviewed):
                index = recorded["index"]
                is_bad = index in corrections.bad_steps
                row = {**recorded, "review": judgement.status, "bad": is_bad}
                if index in marks:
                    # The box of a corrected target is in the UI tree, which is not read here.
                    row |= {"points": marks[index], "box": None}
                rows.append(row)
        return rows

    def _cached_steps(self, name: str, reviewed: ReviewedVersion) -> list[Json]:
        """Returns the steps of a version as recorded, without the decisions about them."""
        version = reviewed.subject.version
        cached_version, cached_rows = self._step_rows.get(name, ("", []))
        if cached_version == version:
            return cached_rows
        application = (self._triage_row(name) or {}).get("application", "")
        triage = self._triage_of_steps(name)
        rows = []
        for place, row in enumerate(read_provenance(reviewed.folder / "provenance.parquet")):
            triage_row = triage.get(row["step_index"], {})
            rows.append(
                {
                    "demo": name,
                    "version": version,
                    "place": place,
                    "index": row["step_index"],
                    "application": application,
                    "leak": row["leak"],
                    "doubt": triage_row.get("doubt", 0.0),
                    "signals": _step_signals(triage_row),
                    **_pictured_action(row),
                }
            )
        self._step_rows[name] = (version, rows)
        return rows

    def _triage_of_steps(self, name: str) -> dict[int, Json]:
        """Maps step numbers to rows of the triage. The result is empty without a triage."""
        rows = self._table(TRIAGE_STAGE.output(name), TRIAGE_STEPS_FILE)
        return {row["step_index"]: row for row in rows}

    def _triage_row(self, demonstration: str) -> Json | None:
        """Returns the triage row of a demonstration, with its doubt score and its signals.

        If the triage is missing, the row contains the task and a score of 0. Returns None if the
        trajectory is missing, too.
        """
        output = TRIAGE_STAGE.output(demonstration)
        version = self._store.published(output)
        cached = self._triage_rows.get(demonstration)
        if cached and version and cached[0] == version.id:
            return cached[1]
        if version is not None:
            folder, current = self._store.open(output)
            row = read_demonstration(folder)
            self._triage_rows[demonstration] = (current.id, row)
            return row
        reviewed = self.opened(demonstration)
        if reviewed is None:
            return None
        trajectory = read_trajectory(reviewed.folder)
        return {
            "trajectory_id": demonstration,
            "application": trajectory.task.application,
            "instruction": trajectory.task.instruction,
            "doubt": 0.0,
            "flagged": False,
        }

    def demonstration(self, name: str) -> Json | None:
        """Returns all that the page shows about a demonstration; None without a trajectory."""
        reviewed = self.opened(name)
        if reviewed is None:
            return None
        trajectory = read_trajectory(reviewed.folder)
        provenance = read_provenance(reviewed.folder / "provenance.parquet")
        hidden = read_hidden_actions(reviewed.folder).actions
        row_of_step = {row["step_index"]: row for row in provenance}
        triage = self._triage_of_steps(name)
        steps = []
        for step in trajectory.steps:
            row = row_of_step[step.index]
            shown_step: Json = {
                "index": step.index,
                "action": step.action.model_dump(mode="json"),
            }
            for column in _STEP_COLUMNS:
                shown_step[column] = row[column]
            triage_row = triage.get(step.index, {})
            shown_triage = dict[str, Any]()
            for column in ("doubt", "idle_s", "changed_share"):
                if column in triage_row:
                    shown_triage[column] = triage_row[column]
            shown_triage["signals"] = _step_signals(triage_row)
            steps.append({**shown_step, "triage": shown_triage})
        first_row = row_of_step[trajectory.steps[0].index]
        return {
            "id": name,
            "version": reviewed.subject.version,
            "task": trajectory.task.model_dump(mode="json"),
            "result": trajectory.result.model_dump(mode="json"),
            "steps": steps,
            "hidden": len(hidden),
            "about": {column: first_row[column] for column in _DEMONSTRATION_COLUMNS},
            "signals": _signal_counts(self._triage_row(name) or {}),
            "private": self._private_boxes(name),
            "annotations": self._table(f"annotated/{name}", "annotations.parquet"),
            **self._timeline(name, provenance, hidden),
            "redacted": is_shown_redacted(self._store, name),
            **self.judged(reviewed.subject),
        }

    def _private_boxes(self, name: str) -> list[Json]:
        """Returns the boxes with private data in screenshots, with each box's step and kind."""
        boxes = list[Json]()
        for row in self._table(f"{REDACTIONS}/{name}", REDACTIONS_FILE):
            if row["x"] is not None:
                columns = ("step", "kind", "x", "y", "width", "height")
                boxes.append({column: row[column] for column in columns})
        return boxes

    def _table(self, output: str, file: str) -> list[Json]:
        """Returns the rows of a table in an output; empty if the output is missing."""
        try:
            folder = self._store.open(output)[0]
            return read_rows(folder / file)
        except MissingOutput:
            return []

    def _timeline(
        self, name: str, provenance: Iterable[ProvenanceRow], hidden: Iterable[HiddenAction]
    ) -> Json:
        """Returns the bars of the timeline in seconds of the video, and the evidence for the clock.

        There is a bar for each step, hidden action, and accessibility scan. Typing with pauses is a
        single bar.
        """
        try:
            raw = self._store.open(f"recordings/{name}", "manifest.json")[0]
            events = self._store.open(f"events/{name}")[0]
            actions = self._store.open(f"actions/{name}")[0]
            shots = self._store.open(f"screenshots/{name}", "evidence.json")[0]
            video = read_manifest(raw).video
            evidence = read_evidence(shots)
            scans = read_scans(events)
            recorded = read_actions(actions)
        except MissingOutput:  # an imported trajectory has no recording, or an output is damaged
            return {"video": None, "timeline": None, "clock": None}
        seconds = evidence.clock.video_time
        step_of = {row["action_index"]: row["step_index"] for row in provenance}
        reason_of = {action.action_index: str(action.reason) for action in hidden}
        action_bars = []
        for action in whole_actions(recorded, step_of.keys() | reason_of.keys()):
            step = step_of.get(action.action_index)
            reason = reason_of.get(action.action_index)
            if step is None and reason is None:
                continue
            bar = {"from": seconds(action.press_ms), "to": seconds(action.end_ms)}
            action_bars.append({**bar, "step": step, "hidden": reason})
        scan_bars = []
        for scan in scans:
            end_ms = scan["time_ms"] + scan["duration_ms"]
            scan_bars.append({"from": seconds(scan["time_ms"]), "to": seconds(end_ms)})
        return {
            "video": {"first": video.first_pts_s, "last": video.last_pts_s},
            "timeline": {"actions": action_bars, "scans": scan_bars},
            "clock": evidence.to_json()["clock"],
        }

    def judged(self, subject: Subject) -> Json:
        """Returns all decisions about a demonstration, each with the flags `stale` and `undone`.

        New decisions are read from the store first.
        """
        self.reviews.refresh(subject.id)
        decisions = self.reviews.about(subject.id)
        judgement = judge(decisions, subject)
        stale_ids = {decision.id for decision in judgement.stale}
        undone_ids = {decision.id for decision in judgement.undone}
        rows = []
        for decision in decisions:
            row = decision.model_dump(mode="json", exclude={"judged"})
            row |= {"stale": decision.id in stale_ids, "undone": decision.id in undone_ids}
            rows.append(row)
        return {"decisions": rows}

    def video_file(self, name: str) -> Path | None:
        """Returns the path of the video of a demonstration.

        Returns None if the video was removed or replaced, or if it would show a redacted part of
        the demonstration.
        """
        if is_shown_redacted(self._store, name):
            return None
        try:
            folder = self._store.open(f"recordings/{name}")[0]
            sizes = {file.name: file.size for file in read_manifest(folder).files}
            path = folder / VIDEO_FILE
            if not path.is_file():
                with self._uploads.open(name) as upload:
                    path = upload / VIDEO_FILE
        except (MissingOutput, DemonstrationError):
            return None
        is_processed_video = path.is_file() and path.stat().st_size == sizes[VIDEO_FILE]
        return path if is_processed_video else None

    def frame_times(self, name: str) -> list[float] | None:
        """Returns the presentation time of each frame in seconds, or None without a video."""
        path = self.video_file(name)
        if path is None:
            return None
        return [round(float(time), 6) for time in read_packets(path).times]


def _pictured_action(row: ProvenanceRow) -> Json:
    """Returns the parts of a step's action that the page's grid of screenshots shows."""
    marks = []
    for x, y in (("x", "y"), ("end_x", "end_y")):
        if row[x] is not None and row[y] is not None:
            marks.append((row[x], row[y]))
    box = None
    if row["target_x"] is not None:
        box = [row[column] for column in TARGET_BOX]
    values = ("text", "keys", "direction", "amount", "target_role", "target_name")
    return {
        "action": row["action_type"],
        **{column: row[column] for column in values},
        "points": marks,
        "box": box,
    }


def _step_signals(triage_row: Mapping[str, Any]) -> list[str]:
    return [signal.name for signal in STEP_SIGNALS if triage_row.get(signal.name)]


def _signal_counts(triage_row: Mapping[str, Any]) -> list[list[Any]]:
    """Returns the name of each doubt signal and the number of steps that have the signal.

    The signal that adds most to the doubt score is first. The number is 1 for a signal of the whole
    demonstration.
    """
    by_points = []
    for signal in (*STEP_SIGNALS, *DEMONSTRATION_SIGNALS):
        if signal in STEP_SIGNALS:
            count = triage_row.get(f"{signal.name}_steps", 0)
        else:
            count = int(triage_row.get(signal.name, False))
        if count:
            by_points.append((-signal.points * count, signal.name, count))
    return [[name, count] for _, name, count in sorted(by_points)]
