"""The `trajectories` stage: a demonstration as an OSWorld-Desktopd trajectory with provenance.

Belongs here: joining actions, frames and trees into numbered steps, task.json, result.json, the
tables of provenance and hidden actions, and the stage's checks.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.actions.action_tables import DOUBTFUL_TEXT, Action, read_actions
from demo_pipeline.actions.build_actions import erased_typing
from demo_pipeline.actions.inputs import inputs_of
from demo_pipeline.actions.text_evidence import TextEvidence
from demo_pipeline.desktopd.models import ActionType, Difficulty, ModelInfo, Result, Task
from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.json_files import dump_json
from demo_pipeline.files.parquet import schema_problems
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.files.shown_text import counted, replace_surrogates
from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline.observation.frames.evidence import Evidence, read_evidence
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.frames_table import read_frames
from demo_pipeline.observation.frames.screenshot_files import read_screenshot_facts
from demo_pipeline.observation.frames.video_reader import Span
from demo_pipeline.observation.trees.secret_fields import hide_passwords, without_texts
from demo_pipeline.observation.trees.ui_trees import read_tree_rows
from demo_pipeline.osworld.task_matching import NO_CATALOG, TaskMatch
from demo_pipeline.osworld.task_text import Assignment, assignment_of, told_text
from demo_pipeline.problems import DemonstrationError, Problem, Severity
from demo_pipeline.recording.events import read_events
from demo_pipeline.recording.manifest import RecordingManifest
from demo_pipeline.recording.meta import Meta
from demo_pipeline.recording.video_probe import VideoProbe
from demo_pipeline.settings import TrajectorySettings
from demo_pipeline.trajectories.pointer_leaks import leak_rates
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    PROVENANCE_SCHEMA,
    QUEST_NAMES,
    action_columns,
    read_hidden_actions,
    write_hidden_actions,
    write_provenance,
)
from demo_pipeline.trajectories.step_effects import (
    ShownScreen,
    change_between,
    steps_taken_back,
)
from demo_pipeline.trajectories.steps import Step, Steps, build_steps

PROVENANCE_FILE = "provenance.parquet"
DIFFERING_TREES_FILE = "differing_trees.json"  # for loaders of plain OSWorld-Desktopd
MODEL_VERSION = "1"
_LATEST_MS = 2**63  # a column of whole numbers ends there
COMPLETED = "completed"
DONE = "done"
_TREE_COLUMNS = ("tree_age_ms", "freshness", "tree_agreement", "cursor_agrees")
_FRAME_COLUMNS = ("pts", "lead_ms", "reason_code", "leak", "unavoidable", "pointer_distance_px")


def build_trajectory(  # noqa: PLR0917 - the stage's inputs, in the order of the stages
    manifest: RecordingManifest,
    events_folder: Path,
    actions_folder: Path,
    screenshots_folder: Path,
    trees_folder: Path,
    out: Path,
    settings: TrajectorySettings,
    task_match: TaskMatch = NO_CATALOG,
) -> dict[str, Any]:
    """Write task.json, steps/, result.json, final_screenshot.png and the two tables.

    differing_trees.json names the steps whose tree differs from the picture, if there are any.
    Actions that no screenshot shows are not steps; they are the rows of hidden_actions.parquet.

    Raises:
        DemonstrationError: no instruction, or no action that can be a step.
    """
    frames = read_frames(screenshots_folder)
    trees = read_tree_rows(trees_folder)
    actions, secrets = hide_passwords(read_actions(actions_folder), trees)
    evidence = read_evidence(screenshots_folder)
    manifest = manifest.model_copy(update={"meta": without_texts(manifest.meta, secrets)})
    assignment = assignment_of(manifest.parsed_meta())
    filmed = Span(manifest.video.first_pts_s, manifest.video.last_pts_s)
    built = build_steps(actions, frames, trees, evidence, filmed)
    if not built.steps:
        raise DemonstrationError(_no_steps(manifest, built))
    task = _task(assignment, len(built.steps), settings, task_match)
    events = read_events(events_folder)
    result = _result(manifest, built, _milliseconds(events))
    dump_json(out / "task.json", task)
    dump_json(out / "result.json", result)
    _link_picture(screenshots_folder / FINAL_FILE, out / "final_screenshot.png")
    for step in built.steps:
        _write_step(step, screenshots_folder, trees_folder, out)
    changes = _changes(built, screenshots_folder, events, evidence)
    erased = erased_typing(actions_folder, events)
    rows = [
        {
            **changed,
            "erased_text": _shows_erased_text(step, erased, evidence.clock),
            **_provenance(step, manifest, assignment, evidence),
            **_text_columns(step.action),
            "end_filmed": is_end_filmed(step.action, evidence.clock, manifest.video),
            **_task_match_row(task_match),
        }
        for step, changed in zip(built.steps, changes, strict=True)
    ]
    write_provenance(out / PROVENANCE_FILE, rows)
    write_hidden_actions(out, manifest.id, built.hidden.actions)
    if differing := [row["step_index"] for row in rows if row["tree_agreement"] == "differs"]:
        dump_json(out / DIFFERING_TREES_FILE, {"steps": differing})
    return _summary(task, result, built, rows)


def _write_step(step: Step, screenshots: Path, trees: Path, out: Path) -> None:
    folder = out / "steps" / f"{step.written.step_index:03d}"
    folder.mkdir(parents=True)
    _link_picture(screenshots / step.frame["file"], folder / "screenshot.png")
    link_or_copy(trees / step.tree["file"], folder / "ui_tree.json")
    dump_json(folder / "action.json", step.written)


def _link_picture(picture: Path, to: Path) -> None:
    """Link a screenshot, and the screen's own picture beside it."""
    link_or_copy(picture, to)
    if native_of(picture).is_file():
        link_or_copy(native_of(picture), native_of(to))


def _changes(
    built: Steps, screenshots: Path, events: pa.Table, evidence: Evidence
) -> Iterator[dict[str, Any]]:
    """Of each step, the columns of what changed, of what undid it and of hidden actions."""
    steps = built.steps
    undone = steps_taken_back(built.steps)
    facts = read_screenshot_facts(screenshots)
    moves = [item for item in inputs_of(events) if item.x is not None and item.y is not None]
    times = [item.time for item in moves]

    def shown(step: Step) -> ShownScreen | None:
        """What the screenshot of a step shows, and where the pointer is in it."""
        picture = facts.get(step.frame["file"])
        if picture is None:
            return None
        canvas = evidence.screen().at(step.action.press_ms).canvas or evidence.canvas
        shown_ms = evidence.clock.event_time(step.frame["pts"])
        unsure_ms = evidence.clock.uncertainty_ms
        first = max(0, bisect_right(times, shown_ms - unsure_ms) - 1)
        last = max(first + 1, bisect_right(times, shown_ms + unsure_ms))
        pointers = [canvas.to_canvas(move.x or 0.0, move.y or 0.0) for move in moves[first:last]]
        return ShownScreen(picture, pointers, max(1.0, canvas.scale))

    pictures = [shown(step) for step in steps]
    for number, step in enumerate(steps):
        index = step.written.step_index
        around = [
            pictures[other] if 0 <= other < len(steps) else None
            for other in range(number - 1, number + 3)
        ]
        earlier, before, after, later = around
        if built.hidden.before(index + 1):
            after = None
        yield {
            **change_between(before, after, earlier, later),
            "taken_back_by": undone.get(index),
            "hidden_before": len(built.hidden.before(index)),
            "complete": not built.hidden,
        }


def _shows_erased_text(step: Step, erased: Sequence[tuple[int, int]], clock: Clock) -> bool:
    """Whether text that was typed and erased again stood when the screenshot was on the screen."""
    if step.frame["pts"] is None:
        return False
    shown_ms = clock.event_time(step.frame["pts"])
    unsure_ms = clock.uncertainty_ms
    return any(first - unsure_ms <= shown_ms <= last + unsure_ms for first, last in erased)


def _no_steps(manifest: RecordingManifest, built: Steps) -> Problem:
    reasons = ", ".join(f"{name}: {count}" for name, count in built.left_out.items() if count)
    return Problem(
        "no_steps",
        LOG_FILE,
        f"no action became a step ({reasons or 'the log holds no action'})",
        remedy="check that the log and the video belong together",
        demonstration=manifest.id,
    )


def _task(
    assignment: Assignment, steps: int, settings: TrajectorySettings, task_match: TaskMatch
) -> Task:
    difficulty = Difficulty.HARD
    if steps <= settings.medium_steps:
        difficulty = Difficulty.MEDIUM
    if steps <= settings.easy_steps:
        difficulty = Difficulty.EASY
    return Task(
        task_id=assignment.task_id,
        instruction=assignment.instruction,
        osworld_task_id=task_match.task_id,
        application=assignment.application,
        difficulty=difficulty,
        expected_steps=steps,
    )


def _milliseconds(events: pa.Table) -> int:
    """The time from the first event to the last, milliseconds."""
    span = pc.min_max(events["time_ms"]).as_py()
    return int(span["max"] - span["min"]) if events.num_rows else 0


def recorded_failure(manifest: RecordingManifest) -> str | None:
    """Why a recording does not count as a success, as its meta file says; None: it does."""
    meta = manifest.parsed_meta()
    if meta.status == COMPLETED and meta.reason == DONE:
        return None
    return f"status {meta.status or 'unknown'}, reason {meta.reason or 'none'}"


def _result(manifest: RecordingManifest, built: Steps, milliseconds: int) -> Result:
    """The outcome as recorded; hidden actions do not change it."""
    message = recorded_failure(manifest)
    return Result(
        trajectory_id=manifest.id,
        success=message is None,
        total_steps=len(built.steps),
        completion_time_ms=milliseconds,
        error_message=message,
        model_info=ModelInfo(name="human", version=MODEL_VERSION),
    )


def _provenance(
    step: Step, manifest: RecordingManifest, assignment: Assignment, evidence: Evidence
) -> dict[str, Any]:
    meta = manifest.parsed_meta()
    frame = step.frame
    tree = step.tree
    canvas = evidence.screen().at(step.action.press_ms).canvas or evidence.canvas
    return {
        "trajectory_id": manifest.id,
        "step_index": step.written.step_index,
        "action_index": step.action.action_index,
        "action_type": str(step.written.action_type),
        "press_ms": step.action.press_ms,
        "end_ms": step.action.end_ms,
        **{key: frame[key] for key in _FRAME_COLUMNS},
        "settle_ms": frame.get("settle_ms"),
        "clock_method": evidence.clock.method,
        "clock_uncertainty_ms": evidence.clock.uncertainty_ms,
        **{key: tree[key] for key in _TREE_COLUMNS},
        **{key: tree[key] for key in ("target_x", "target_y", "target_width", "target_height")},
        **action_columns(step.written),
        "wheel_method": step.action.wheel_method,
        "wheel_disagrees": step.wheel_disagrees,
        "off_screen": False,
        "scale": canvas.event_to_canvas,
        "pad_x": float(canvas.pad_x),
        "pad_y": float(canvas.pad_y),
        "instruction_source": assignment.source,
        "reasoning_source": "template",
        "split_group": assignment.split_group,
        "platform": meta.platform,
        "recorded_at": manifest.recorded_at.astimezone(UTC).isoformat(),
        "status": meta.status,
        "reason": meta.reason or "",
        **_quest_row(meta),
        "unproven_clock": frame.get("unproven_clock"),
        **_hover_row(step),
    }


def _text_columns(action: Action) -> dict[str, Any]:
    """The columns of typed text: where it comes from, what shows it, and whether it is in doubt."""
    doubtful = DOUBTFUL_TEXT in action.flags
    columns = ("text_evidence", "text_scan_event", "text_source", "keyboard_layout")
    return {
        "doubtful_text": doubtful or None,
        **{name: getattr(action, name) for name in columns},
    }


def _hover_row(step: Step) -> dict[str, Any]:
    """Where the pointer rested and opened what the step pressed; null where it did not."""
    *before, last = step.hovered or (None,)
    earlier = [side for place in before if place for side in (place.x, place.y)]
    return {
        "opened_by_hover": last is not None,
        "hover_x": last.x if last else None,
        "hover_y": last.y if last else None,
        "hover_ms": last.since_ms if last else None,
        "hovered_before": earlier or None,
    }


def _quest_row(meta: Meta) -> dict[str, Any]:
    if (quest := meta.quest) is None:
        return dict.fromkeys(QUEST_NAMES)
    most, time = (quest.reward.max_reward, quest.reward.time) if quest.reward else (None, None)
    return {
        "objectives": [replace_surrogates(told_text(text)) for text in quest.objectives],
        "max_reward": None if most is None else float(most),
        "reward_time_ms": int(time) if time is not None and 0 <= time < _LATEST_MS else None,
    }


def _task_match_row(match: TaskMatch) -> dict[str, Any]:
    return {
        "osworld_task_id": match.task_id,
        "osworld_match": match.match,
        "osworld_match_field": match.field,
        "osworld_task_kind": match.kind,
        "osworld_matches": match.matches,
    }


def _summary(
    task: Task, result: Result, built: Steps, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    types = Counter(str(step.written.action_type) for step in built.steps)
    return {
        "instruction_chars": len(task.instruction),
        "task_id": task.task_id,
        "osworld_task_id": task.osworld_task_id,
        "application": task.application,
        "difficulty": str(task.difficulty),
        "steps": len(built.steps),
        "by_type": dict(sorted(types.items())),
        "left_out": built.left_out,
        "complete": not built.hidden,
        "warnings": [*_wheel_warning(built), *_film_warning(rows)],
        "success": result.success,
        "error_message": result.error_message,
        "seconds": result.completion_time_ms / 1000,
        **leak_rates(rows).as_dict(),
        "unproven_clock": sum(bool(row["unproven_clock"]) for row in rows),
        "doubtful_text": sum(bool(row["doubtful_text"]) for row in rows),
        "text_evidence": _evidence_counts(rows),
        "targets": sum(row["target_x"] is not None for row in rows),
        "erased_text": sum(row["erased_text"] for row in rows),
        "opened_by_hover": sum(bool(row["opened_by_hover"]) for row in rows),
    }


def _evidence_counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many typed texts have each kind of evidence."""
    counts = Counter(row["text_evidence"] for row in rows if row["text_evidence"])
    return {str(evidence): counts[evidence] for evidence in TextEvidence}


def _wheel_warning(built: Steps) -> Iterator[str]:
    count = sum(step.wheel_disagrees is True for step in built.steps)
    if count:
        yield (
            f"the video shows the opposite direction of {count} scroll{'' if count == 1 else 's'} "
            "than the wheel's unit and platform imply; the video decides unless actions.wheel_sign "
            "is set"
        )
    if built.doubtful_scrolls:
        yield (
            f"{counted(built.doubtful_scrolls, 'scroll')} left out (`unclear_scroll`): the wheel's "
            "unit and platform imply one direction, and the only scroll that the video shows goes "
            "the other way; set actions.wheel_sign if you know the recorder's convention"
        )


def is_end_filmed(action: Action, clock: Clock, video: VideoProbe) -> bool:
    """Whether the video goes on until an action ended.

    A screen may stand for the distance of two frames after the last one, and the clock may be wrong
    by its uncertainty: what ends within both is not called cut off.
    """
    frame_s = 1 / video.mean_fps if video.mean_fps else 0.0
    latest_s = video.last_pts_s + frame_s + clock.uncertainty_ms / 1000
    return clock.video_time(action.end_ms) <= latest_s


def _film_warning(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    acted = [row["end_filmed"] for row in rows if row["action_type"] != ActionType.WAIT]
    if not all(acted[-1:]):
        yield (
            "the video ends before the last step's action does: no picture shows what it led to; "
            "record the video until after the last action"
        )


def check_trajectory(folder: Path, demonstration: str) -> list[Problem]:
    """The written folder is a valid OSWorld-Desktopd trajectory of `demonstration`.

    The warnings about trees are told by the stage that wrote them.
    """
    found = validate_trajectory(folder, demonstration)
    return [
        one
        for one in found
        if one.severity is Severity.ERROR or not one.file.endswith("/ui_tree.json")
    ]


def check_provenance(folder: Path) -> list[Problem]:
    """provenance.parquet and hidden_actions.parquet have their schemas."""
    return [
        *schema_problems(folder / PROVENANCE_FILE, PROVENANCE_SCHEMA),
        *schema_problems(folder / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA),
    ]


def check_every_action_shown(folder: Path) -> list[Problem]:
    """Every action of the demonstration is a step; otherwise a problem with counts by reason."""
    hidden = read_hidden_actions(folder)
    if not hidden:
        return []
    reasons = ", ".join(f"{reason} {count}" for reason, count in hidden.by_reason().items())
    message = f"{len(hidden)} actions are in no screenshot: {reasons}"
    remedy = (
        "a step is used if at most 30 % of the actions before it are hidden; record one display, "
        "and the video from the first action to the last"
    )
    return [Problem("hidden_actions", HIDDEN_ACTIONS_FILE, message, remedy=remedy)]
