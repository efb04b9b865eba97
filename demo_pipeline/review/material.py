"""What the review page shows: the queue, a demonstration with everything known about it, its film.

Belongs here: reading the store for the page, as JSON values. What was read of a version is kept,
since versions never change.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.desktopd.reader import read_trajectory
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.files.recording_files import VIDEO_FILE
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.screenshots import read_evidence
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.events import read_scans
from demo_pipeline.recording.manifest import read_manifest
from demo_pipeline.recording.video_probe import scan_packets
from demo_pipeline.review.decisions import Decision, Judgement, Subject, by_demonstration, judge
from demo_pipeline.review.pictures import groups
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import TRIAGE_STAGE, likeness, read_demonstration, read_steps
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.store.uploads import Uploads
from demo_pipeline.trajectories.provenance import read_hidden_actions, read_provenance
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_MOST_KEPT = 5000  # opened versions; each is a few kB
_PROVENANCE = (
    *("pts", "lead_ms", "reason_code", "leak", "unavoidable", "freshness", "tree_agreement"),
    *("tree_age_ms", "target_x", "target_y", "target_width", "target_height"),
)
_CLOCK = ("clock_method", "clock_uncertainty_ms", "platform", "recorded_at", "status", "reason")
Json = dict[str, Any]


@dataclass(frozen=True)
class Opened:
    """A version of a trajectory: its folder, and what decisions about it refer to."""

    folder: Path
    subject: Subject


class Material:
    """Reads a store for the page; safe between threads.

    Args:
        store: of the pipeline.
        uploads: have the films.
    """

    def __init__(self, store: Store, uploads: Uploads) -> None:
        self._store, self._uploads = store, uploads
        self.reviews = Reviews(store)
        self._opened: OrderedDict[tuple[str, str], Opened] = OrderedDict()
        self._rows: dict[str, tuple[str, Json]] = {}
        self._lock = Lock()

    def opened(self, demonstration: str, version: str = "") -> Opened | None:
        """A version of a trajectory; the published one for an empty `version`.

        None when it is not published, and was not while this process ran.
        """
        known = self._opened.get((demonstration, version))
        if known:
            return known
        output = TRAJECTORIES_STAGE.output(demonstration)
        try:
            with self._store.open(output) as (folder, current):
                found = Opened(folder, subject_of(current, demonstration))
        except MissingOutput:
            return None
        with self._lock:
            self._opened[demonstration, current.id] = found
            while len(self._opened) > _MOST_KEPT:
                self._opened.popitem(last=False)
        return found if version in {"", current.id} else None

    def queue(self) -> Json:
        """Every demonstration with a trajectory, the most doubtful ones first."""
        self.reviews.refresh()
        of = by_demonstration(self.reviews.all())
        names = [name.partition("/")[2] for name in self._store.outputs(TRAJECTORIES_STAGE.folder)]
        rows = [self._row(name) for name in names]
        near = {name: sorted(group) for group in groups(map(likeness, rows)) for name in group}
        shown = [self._queue_row(row, of.get(row["trajectory_id"], ()), near) for row in rows]
        shown.sort(key=lambda row: (-row["doubt"], row["id"]))
        gone = sorted(of.keys() - set(names))
        return {"rows": shown, "orphans": gone, "damaged": self.reviews.damaged()}

    def _queue_row(
        self, row: Json, decisions: Sequence[Decision], near: Mapping[str, Sequence[str]]
    ) -> Json:
        name = row["trajectory_id"]
        keys = ("application", "instruction", "success", "steps", "doubt", "flagged")
        shown = {"id": name, **{key: row[key] for key in keys}}
        shown["signals"] = _named_signals(row) + self._disagreements(name)
        shown["near"] = [one for one in near.get(name, ()) if one != name]
        opened = self.opened(name) if decisions else None
        judgement = judge(decisions, opened.subject) if opened else Judgement()
        bad, stale = len(judgement.bad_steps), len(judgement.stale)
        corrected = bool(judgement.corrections.decisions)
        return shown | {
            "review": judgement.status,
            "bad": bad,
            "stale": stale,
            "corrected": corrected,
        }

    def _row(self, demonstration: str) -> Json:
        """The triage of a demonstration, or its task alone when it has none."""
        output = TRIAGE_STAGE.output(demonstration)
        version = self._store.published(output)
        known = self._rows.get(demonstration)
        if known and version and known[0] == version.id:
            return known[1]
        if version is None:
            return self._untriaged(demonstration)
        with self._store.open(output) as (folder, current):
            row = read_demonstration(folder)
        self._rows[demonstration] = (current.id, row)
        return row

    def _untriaged(self, demonstration: str) -> Json:
        names = [signal.name for signal in DEMONSTRATION_SIGNALS]
        names += [f"{signal.name}_steps" for signal in STEP_SIGNALS]
        row: Json = dict.fromkeys(names, 0) | {"trajectory_id": demonstration, "task_group": ""}
        row |= {"doubt": 0.0, "flagged": False, "action_types": [], "picture_hashes": []}
        row |= {"application": "", "instruction": "", "success": False, "steps": 0}
        opened = self.opened(demonstration)
        if opened:
            trajectory = read_trajectory(opened.folder)
            row |= {"application": trajectory.task.application, "steps": len(trajectory.steps)}
            row |= {"instruction": trajectory.task.instruction}
            row |= {"success": trajectory.result.success, "task_group": demonstration}
        return row

    def demonstration(self, name: str) -> Json | None:
        """All that the page shows of a demonstration; None: it has no trajectory."""
        opened = self.opened(name)
        if opened is None:
            return None
        trajectory = read_trajectory(opened.folder)
        rows = {
            row["step_index"]: row for row in read_provenance(opened.folder / "provenance.parquet")
        }
        triage = self._triage(name)
        steps = [
            {
                "index": step.index,
                "folder": step.folder.name,
                "action": step.action.model_dump(mode="json"),
                **{key: rows[step.index][key] for key in _PROVENANCE},
                "triage": triage.get(step.index, {}),
            }
            for step in trajectory.steps
        ]
        first = rows[trajectory.steps[0].index]
        return {
            "id": name,
            "version": opened.subject.version,
            "task": trajectory.task.model_dump(mode="json"),
            "result": trajectory.result.model_dump(mode="json"),
            "steps": steps,
            "hidden": [asdict(one) for one in read_hidden_actions(opened.folder).actions],
            "about": {key: first[key] for key in _CLOCK},
            "signals": _named_signals(self._row(name)),
            "annotations": self._annotations(name),
            **self._recorded(name, rows.values()),
            **self.judged(opened.subject),
        }

    def _disagreements(self, name: str) -> list[list[Any]]:
        version = self._store.published(f"annotated/{name}")
        number = version.manifest.summary.get("disagreements") if version else 0
        return [["disagreements", number]] if number else []

    def _annotations(self, name: str) -> list[Json]:
        """The rows of the stage `annotations`, as they were when it ran."""
        try:
            with self._store.open(f"annotated/{name}") as (folder, _):
                return read_rows(folder / "annotations.parquet")
        except MissingOutput:
            return []

    def _triage(self, name: str) -> dict[int, Json]:
        try:
            with self._store.open(TRIAGE_STAGE.output(name)) as (folder, _):
                rows = read_steps(folder)
        except MissingOutput:
            return {}
        names = [signal.name for signal in STEP_SIGNALS]
        return {
            row["step_index"]: {
                "doubt": row["doubt"],
                "signals": [one for one in names if row[one]],
                "idle_s": row["idle_s"],
                "changed_share": row["changed_share"],
            }
            for row in rows
        }

    def _recorded(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Json:
        """The time line and the clock's evidence, in seconds of the film."""
        folders = ("recordings", "events", "actions", "screenshots")
        try:
            with (
                self._store.open(f"{folders[0]}/{name}", "manifest.json") as (raw, _),
                self._store.open(f"{folders[1]}/{name}") as (events, _),
                self._store.open(f"{folders[2]}/{name}") as (actions, _),
                self._store.open(f"{folders[3]}/{name}", "evidence.json") as (shots, _),
            ):
                video, evidence = read_manifest(raw).video, read_evidence(shots)
                scans, performed = read_scans(events), read_actions(actions)
        except MissingOutput:  # made elsewhere, or damaged: the steps are shown without it
            return {"film": None, "timeline": None, "clock": None}
        clock = evidence.clock
        step_of = {row["action_index"]: row["step_index"] for row in rows}
        line = [
            {
                "type": one.action_type,
                "from": clock.video_time(one.press_ms),
                "to": clock.video_time(one.end_ms),
                "step": step_of.get(one.action_index),
            }
            for one in performed
        ]
        return {
            "film": {"first": video.first_pts_s, "last": video.last_pts_s, **_size(video)},
            "timeline": {"actions": line, "scans": [_scan(one, clock) for one in scans]},
            "clock": evidence.to_json()["clock"],
        }

    def judged(self, subject: Subject) -> Json:
        """The decisions about a demonstration and what holds; reads those written meanwhile."""
        self.reviews.refresh(subject.id)
        decisions = self.reviews.of(subject.id)
        judgement = judge(decisions, subject)
        stale, undone = ({one.id for one in some} for some in (judgement.stale, judgement.undone))
        shown = [
            one.model_dump(mode="json", exclude={"judged"})
            | {"stale": one.id in stale, "undone": one.id in undone}
            for one in decisions
        ]
        return {
            "decisions": shown,
            "judgement": {
                "status": judgement.status,
                "success": judgement.success,
                "instruction": judgement.instruction,
                "bad_steps": sorted(judgement.bad_steps),
                "trim": judgement.trim,
                "actions": {
                    str(step): action.model_dump(mode="json")
                    for step, action in judgement.actions.items()
                },
            },
        }

    def film(self, name: str) -> Path | None:
        """The film of a demonstration; None when it is not here any more, or another one is."""
        try:
            with self._store.open(f"recordings/{name}") as (folder, _):
                manifest, kept = read_manifest(folder), folder / VIDEO_FILE
        except MissingOutput:
            return None
        size = next(file.size for file in manifest.files if file.name == VIDEO_FILE)
        if not kept.is_file():
            try:
                with self._uploads.open(name) as upload:
                    kept = upload / VIDEO_FILE
            except DemonstrationError:
                return None
        return kept if kept.is_file() and kept.stat().st_size == size else None

    def frames(self, name: str) -> list[float] | None:
        """Presentation time of every frame, seconds; None without a film."""
        film = self.film(name)
        return None if film is None else [round(float(t), 6) for t in scan_packets(film).times]


def _size(video: Any) -> Json:
    turned = video.rotation % 180 != 0
    width, height = (video.height, video.width) if turned else (video.width, video.height)
    return {"width": width, "height": height}


def _scan(row: Mapping[str, Any], clock: Clock) -> Json:
    start = row["time_ms"]
    return {"from": clock.video_time(start), "to": clock.video_time(start + row["duration_ms"])}


def _named_signals(row: Mapping[str, Any]) -> list[list[Any]]:
    """Name and number of steps of every signal found, those with most points first."""
    of_steps = [
        (s.points * row[f"{s.name}_steps"], s.name, row[f"{s.name}_steps"]) for s in STEP_SIGNALS
    ]
    whole = [(s.points, s.name, 1) for s in DEMONSTRATION_SIGNALS if row[s.name]]
    found = sorted(
        (one for one in (*of_steps, *whole) if one[2]), key=lambda one: (-one[0], one[1])
    )
    return [[name, count] for _, name, count in found]
