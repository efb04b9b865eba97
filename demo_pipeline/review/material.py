"""What the review page shows: the queue, a demonstration with everything known about it, its film.

Belongs here: reading the store for the page, as JSON values. What was read of a version is kept,
since versions never change.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from demo_pipeline.actions.action_tables import read_actions
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
from demo_pipeline.review.pictures import groups
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import TRIAGE_STAGE, TRIAGE_STEPS_FILE, read_demonstration
from demo_pipeline.store.documents import DamagedDocument
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.split_memory import KnownDemonstration, read_split_memory
from demo_pipeline.store.store import Store
from demo_pipeline.store.uploads import Uploads
from demo_pipeline.trajectories.provenance import read_hidden_actions, read_provenance
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_MOST_KEPT = 5000  # opened versions; each is a few kB
_SHOWN = (
    *("pts", "lead_ms", "reason_code", "leak", "freshness", "tree_agreement", "tree_age_ms"),
    *("text_evidence", "text_source", "keyboard_layout", "doubtful_text"),
)
_ABOUT = ("platform", "recorded_at", "status", "reason")
Json = dict[str, Any]


Opened = tuple[Path, Subject]
"""A version of a trajectory: its folder, and what decisions about it refer to."""


class Material:
    """Reads a store for the page; safe between threads.

    Args:
        store: of the pipeline.
        uploads: have the films.
    """

    def __init__(self, store: Store, uploads: Uploads) -> None:
        self._store = store
        self._uploads = uploads
        self.reviews = Reviews(store)
        self._opened: dict[tuple[str, str], Opened] = {}
        self._rows: dict[str, tuple[str, Json]] = {}
        self._steps: dict[str, tuple[str, list[Json]]] = {}

    def opened(self, demonstration: str, version: str = "") -> Opened | None:
        """A version of a trajectory; the published one for an empty `version`.

        None when it is not published, and was not while this process ran.
        """
        if known := self._opened.get((demonstration, version)):
            return known
        try:
            folder, current = open_shown(self._store, demonstration)
            found = folder, subject_of(current, demonstration)
        except MissingOutput:
            return None
        self._opened[demonstration, current.id] = found
        if len(self._opened) > _MOST_KEPT:
            self._opened.pop(next(iter(list(self._opened))), None)
        return found if version in {"", current.id} else None

    def queue(self) -> Json:
        """Every demonstration with a trajectory, the most doubtful ones first."""
        self.reviews.refresh()
        of = self.reviews.by_demonstration()
        names = [name.partition("/")[2] for name in self._store.outputs(TRAJECTORIES_STAGE.folder)]
        rows = list(filter(None, map(self._row, names)))
        near = {name: sorted(group) for group in groups(rows) for name in group}
        known: Mapping[str, KnownDemonstration] = {}
        with suppress(DamagedDocument):  # the page has no use for it but this hint
            known = read_split_memory(self._store).demonstrations
        twins = {name: one.duplicate_of for name, one in known.items() if one.duplicate_of}
        shown = [self._queue_row(row, of.get(row["trajectory_id"], ()), near) for row in rows]
        for row in shown:
            if row["id"] in twins:
                row["signals"].append([f"same upload as {twins[row['id']]}", 1])
        shown.sort(key=lambda row: (-row["doubt"], row["id"]))
        return {"rows": shown}

    def _queue_row(
        self, row: Json, decisions: Sequence[Decision], near: Mapping[str, Sequence[str]]
    ) -> Json:
        name = row["trajectory_id"]
        keys = ("application", "instruction", "doubt", "flagged")
        annotated = self._store.published(f"annotated/{name}")
        differing = annotated.manifest.summary.get("disagreements") if annotated else 0
        opened = self.opened(name) if decisions else None
        judgement = judge(decisions, opened[1]) if opened else Judgement()
        return {
            "id": name,
            **{key: row[key] for key in keys},
            "signals": _named_signals(row) + ([["disagreements", differing]] if differing else []),
            "near": [one for one in near.get(name, ()) if one != name],
            "review": judgement.status,
            "stale": len(judgement.stale),
            "corrected": judgement.corrections != NO_CORRECTIONS,
        }

    def steps(self) -> list[Json]:
        """Every step of every demonstration, for the grid: what its filters ask for."""
        self.reviews.refresh()
        of = self.reviews.by_demonstration()
        found = list[Json]()
        for output in sorted(self._store.outputs(TRAJECTORIES_STAGE.folder)):
            name = output.partition("/")[2]
            if (opened := self.opened(name)) is not None:
                judged = judge(of.get(name, ()), opened[1])
                bad = judged.corrections.bad_steps
                known = self._known_steps(name, opened)
                found += [
                    one | {"review": judged.status, "bad": one["index"] in bad} for one in known
                ]
        return found

    def _known_steps(self, name: str, opened: tuple[Path, Subject]) -> list[Json]:
        """The steps of a version, which are read once."""
        folder, subject = opened
        if self._steps.get(name, ("", []))[0] != subject.version:
            row = self._row(name) or {}
            doubt = {
                one["step_index"]: one["doubt"]
                for one in self._table(TRIAGE_STAGE.output(name), TRIAGE_STEPS_FILE)
            }
            rows = [
                {
                    "demo": name,
                    "version": subject.version,
                    "place": place,
                    "index": one["step_index"],
                    "action": one["action_type"],
                    "application": row.get("application", ""),
                    "leak": one["leak"],
                    "says": one["target_name"] or one["text"] or " ".join(one["keys"] or ()),
                    "doubt": doubt.get(one["step_index"], 0.0),
                }
                for place, one in enumerate(read_provenance(folder / "provenance.parquet"))
            ]
            self._steps[name] = subject.version, rows
        return self._steps[name][1]

    def _row(self, demonstration: str) -> Json | None:
        """The triage of a demonstration, or its task alone when it has none; None: it is gone."""
        output = TRIAGE_STAGE.output(demonstration)
        version = self._store.published(output)
        known = self._rows.get(demonstration)
        if known and version and known[0] == version.id:
            return known[1]
        if version is not None:
            folder, current = self._store.open(output)
            row = read_demonstration(folder)
            self._rows[demonstration] = (current.id, row)
            return row
        if (opened := self.opened(demonstration)) is None:
            return None
        trajectory = read_trajectory(opened[0])
        return {
            "trajectory_id": demonstration,
            "application": trajectory.task.application,
            "instruction": trajectory.task.instruction,
            "doubt": 0.0,
            "flagged": False,
        }

    def demonstration(self, name: str) -> Json | None:
        """All that the page shows of a demonstration; None: it has no trajectory."""
        opened = self.opened(name)
        if opened is None:
            return None
        folder, subject = opened
        trajectory = read_trajectory(folder)
        provenance = read_provenance(folder / "provenance.parquet")
        rows = {row["step_index"]: row for row in provenance}
        triage = {
            row["step_index"]: row
            for row in self._table(TRIAGE_STAGE.output(name), TRIAGE_STEPS_FILE)
        }
        steps = [
            {
                "index": step.index,
                "action": step.action.model_dump(mode="json"),
                **{key: rows[step.index][key] for key in _SHOWN},
                "triage": _step_triage(triage.get(step.index, {})),
            }
            for step in trajectory.steps
        ]
        first = rows[trajectory.steps[0].index]
        return {
            "id": name,
            "version": subject.version,
            "task": trajectory.task.model_dump(mode="json"),
            "result": trajectory.result.model_dump(mode="json"),
            "steps": steps,
            "hidden": len(read_hidden_actions(folder).actions),
            "about": {key: first[key] for key in _ABOUT},
            "signals": _named_signals(self._row(name) or {}),
            "private": self._private_parts(name),
            "annotations": self._table(f"annotated/{name}", "annotations.parquet"),
            **self._recorded(name, provenance),
            "redacted": is_shown_redacted(self._store, name),
            **self.judged(subject),
        }

    def _private_parts(self, name: str) -> list[Json]:
        """The boxes in pictures that detectors found, with step and kind."""
        rows = self._table(f"{REDACTIONS}/{name}", REDACTIONS_FILE)
        keys = ("step", "kind", "x", "y", "width", "height")
        return [{key: row[key] for key in keys} for row in rows if row["x"] is not None]

    def _table(self, output: str, file: str) -> list[Json]:
        """The rows of a table of an output; none without it."""
        try:
            folder = self._store.open(output)[0]
            return read_rows(folder / file)
        except MissingOutput:
            return []

    def _recorded(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Json:
        """The time line and the clock's evidence, in seconds of the film."""
        try:
            raw = self._store.open(f"recordings/{name}", "manifest.json")[0]
            events = self._store.open(f"events/{name}")[0]
            actions = self._store.open(f"actions/{name}")[0]
            shots = self._store.open(f"screenshots/{name}", "evidence.json")[0]
            video = read_manifest(raw).video
            evidence = read_evidence(shots)
            scans = read_scans(events)
            performed = read_actions(actions)
        except MissingOutput:  # made elsewhere, or damaged: the steps are shown without it
            return {"film": None, "timeline": None, "clock": None}
        step_of = {row["action_index"]: row["step_index"] for row in rows}

        def bar(start: float, end: float, **more: Any) -> Json:
            at = evidence.clock.video_time
            return {"from": at(start), "to": at(end), **more}

        acted = [
            bar(one.press_ms, one.end_ms, type=one.action_type, step=step_of.get(one.action_index))
            for one in performed
        ]
        seen = [bar(one["time_ms"], one["time_ms"] + one["duration_ms"]) for one in scans]
        return {
            "film": {"first": video.first_pts_s, "last": video.last_pts_s},
            "timeline": {"actions": acted, "scans": seen},
            "clock": evidence.to_json()["clock"],
        }

    def judged(self, subject: Subject) -> Json:
        """The decisions about a demonstration, and which count; reads those written meanwhile."""
        self.reviews.refresh(subject.id)
        decisions = self.reviews.of(subject.id)
        judgement = judge(decisions, subject)
        stale, undone = ({one.id for one in some} for some in (judgement.stale, judgement.undone))
        shown = [
            one.model_dump(mode="json", exclude={"judged"})
            | {"stale": one.id in stale, "undone": one.id in undone}
            for one in decisions
        ]
        return {"decisions": shown}

    def film(self, name: str) -> Path | None:
        """The film of a demonstration; None when it is not here any more, or another one is.

        None also where something is redacted: the film shows it.
        """
        if is_shown_redacted(self._store, name):
            return None
        try:
            folder = self._store.open(f"recordings/{name}")[0]
            sizes = {file.name: file.size for file in read_manifest(folder).files}
            kept = folder / VIDEO_FILE
            if not kept.is_file():
                with self._uploads.open(name) as upload:
                    kept = upload / VIDEO_FILE
        except (MissingOutput, DemonstrationError):
            return None
        return kept if kept.is_file() and kept.stat().st_size == sizes[VIDEO_FILE] else None

    def frames(self, name: str) -> list[float] | None:
        """Presentation time of every frame, seconds; None without a film."""
        film = self.film(name)
        return None if film is None else [round(float(t), 6) for t in read_packets(film).times]


def _step_triage(row: Mapping[str, Any]) -> Json:
    found = [signal.name for signal in STEP_SIGNALS if row.get(signal.name)]
    shown = {key: row[key] for key in ("doubt", "idle_s", "changed_share") if key in row}
    return {**shown, "signals": found}


def _named_signals(row: Mapping[str, Any]) -> list[list[Any]]:
    """Name and number of steps of every signal found, those with most points first."""
    counts = [(s, row.get(f"{s.name}_steps", 0)) for s in STEP_SIGNALS]
    counts += [(s, int(row.get(s.name, False))) for s in DEMONSTRATION_SIGNALS]
    found = sorted((-s.points * number, s.name, number) for s, number in counts if number)
    return [[name, number] for _, name, number in found]
