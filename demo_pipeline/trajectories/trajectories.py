"""The `trajectories` stage: writes and checks a demonstration as an OSWorld-Desktopd trajectory.

Two tables are added: provenance.parquet with the origin of each step, and hidden_actions.parquet.
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
from demo_pipeline.osworld.task_text import Assignment, assignment_of, visible_text
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
# Lists the steps whose UI tree contradicts the screenshot.
DIFFERING_TREES_FILE = "differing_trees.json"
MODEL_VERSION = "1"
_LATEST_MS = 2**63  # first time that does not fit into a column of type int64
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
    task_match: TaskMatch = NO_CATALOG,
) -> dict[str, Any]:
    """Writes the files and tables of a trajectory into `out`, and returns a summary.

    If the UI trees of steps contradict the screenshots, differing_trees.json lists these steps.

    Raises:
        DemonstrationError: there is no instruction, or no action can be a step.
    """
    frames = read_frames(screenshots_folder)
    trees = read_tree_rows(trees_folder)
    actions, passwords = hide_passwords(read_actions(actions_folder), trees)
    evidence = read_evidence(screenshots_folder)
    manifest = manifest.model_copy(update={"meta": without_texts(manifest.meta, passwords)})
    assignment = assignment_of(manifest.parsed_meta())
    video_span = Span(manifest.video.first_pts_s, manifest.video.last_pts_s)
    built = build_steps(actions, frames, trees, evidence, video_span)
    if not built.steps:
        raise DemonstrationError(_no_steps(manifest, built))
    task = trajectory_task(assignment, len(built.steps), task_match)
    events = read_events(events_folder)
    result = _result(manifest, built, _duration_ms(events))
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
    differing = [row["step_index"] for row in rows if row["tree_agreement"] == "differs"]
    if differing:
        dump_json(out / DIFFERING_TREES_FILE, {"steps": differing})
    return _summary(task, result, built, rows)


def _write_step(step: Step, screenshots: Path, trees: Path, out: Path) -> None:
    """Writes the folder of a step: action.json, and links to the screenshot and UI tree."""
    folder = out / "steps" / f"{step.written.step_index:03d}"
    folder.mkdir(parents=True)
    _link_picture(screenshots / step.frame["file"], folder / "screenshot.png")
    link_or_copy(trees / step.tree["file"], folder / "ui_tree.json")
    dump_json(folder / "action.json", step.written)


def _link_picture(picture: Path, to: Path) -> None:
    """Links a screenshot and, if it exists, the copy in the resolution of the screen."""
    link_or_copy(picture, to)
    if native_of(picture).is_file():
        link_or_copy(native_of(picture), native_of(to))


def _changes(
    built: Steps, screenshots: Path, events: pa.Table, evidence: Evidence
) -> Iterator[dict[str, Any]]:
    """Yields for each step the columns about its effect and about hidden actions before it."""
    taken_back = steps_taken_back(built.steps)
    facts = read_screenshot_facts(screenshots)
    placed = [item for item in inputs_of(events) if item.x is not None and item.y is not None]
    times = [item.time for item in placed]

    def screen_of(step: Step) -> ShownScreen | None:
        """Returns a step's screenshot with the possible positions of the pointer.

        There can be several positions, because the screenshot's time is uncertain. Returns None
        if the step has no screenshot.
        """
        screenshot = facts.get(step.frame["file"])
        if screenshot is None:
            return None
        canvas = evidence.screen().at(step.action.press_ms).canvas or evidence.canvas
        shown_ms = evidence.clock.event_time(step.frame["pts"])
        uncertainty_ms = evidence.clock.uncertainty_ms
        first = max(0, bisect_right(times, shown_ms - uncertainty_ms) - 1)
        last = max(first + 1, bisect_right(times, shown_ms + uncertainty_ms))
        pointers = [canvas.to_canvas(item.x or 0.0, item.y or 0.0) for item in placed[first:last]]
        return ShownScreen(screenshot, pointers, max(1.0, canvas.scale))

    screens = [None, *map(screen_of, built.steps), None, None]
    for number, step in enumerate(built.steps):
        index = step.written.step_index
        earlier, before, after, later = screens[number : number + 4]
        if built.hidden.before(index + 1):
            after = None  # a hidden action may have changed the screen, too
        yield {
            **change_between(before, after, earlier, later),
            "taken_back_by": taken_back.get(index),
            "hidden_before": len(built.hidden.before(index)),
            "complete": not built.hidden,
        }


def _shows_erased_text(step: Step, erased: Sequence[tuple[int, int]], clock: Clock) -> bool:
    """Returns whether a step's screenshot may show text that was typed and erased again.

    Args:
        erased: first and last time of each erased text on the screen, in epoch milliseconds.
        clock: maps video times to log times.
    """
    if step.frame["pts"] is None:
        return False
    shown_ms = clock.event_time(step.frame["pts"])
    uncertainty_ms = clock.uncertainty_ms
    for first, last in erased:
        if first - uncertainty_ms <= shown_ms <= last + uncertainty_ms:
            return True
    return False


def _no_steps(manifest: RecordingManifest, built: Steps) -> Problem:
    reasons = ", ".join(f"{name}: {count}" for name, count in built.left_out.items() if count)
    return Problem(
        "no_steps",
        LOG_FILE,
        f"no action became a step ({reasons or 'the log holds no action'})",
        remedy="check that the log and the video belong together",
        demonstration=manifest.id,
    )


def trajectory_task(assignment: Assignment, steps: int, task_match: TaskMatch) -> Task:
    """Returns the content of task.json; the number of steps decides the difficulty."""
    difficulty = Difficulty.HARD
    if steps <= TrajectorySettings.medium_steps:
        difficulty = Difficulty.MEDIUM
    if steps <= TrajectorySettings.easy_steps:
        difficulty = Difficulty.EASY
    return Task(
        task_id=assignment.task_id,
        instruction=assignment.instruction,
        osworld_task_id=task_match.task_id,
        application=assignment.application,
        difficulty=difficulty,
        expected_steps=steps,
    )


def _duration_ms(events: pa.Table) -> int:
    """Returns the time from the first to the last event, in milliseconds."""
    span = pc.min_max(events["time_ms"]).as_py()
    return int(span["max"] - span["min"]) if events.num_rows else 0


def recorded_failure(manifest: RecordingManifest) -> str | None:
    """Returns the status and reason in meta.json; None if the recording is a success."""
    meta = manifest.parsed_meta()
    if meta.status == COMPLETED and meta.reason == DONE:
        return None
    return f"status {meta.status or 'unknown'}, reason {meta.reason or 'none'}"


def _result(manifest: RecordingManifest, built: Steps, milliseconds: int) -> Result:
    """Returns the content of result.json. Hidden actions do not affect the outcome."""
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
    """Returns the columns about the origin of a step: action, frame, clock, tree and recording."""
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
    """Returns the columns about a typed text: its source, evidence, and whether it is doubtful."""
    is_doubtful = DOUBTFUL_TEXT in action.flags
    return {
        "doubtful_text": is_doubtful or None,
        "text_evidence": action.text_evidence,
        "text_scan_event": action.text_scan_event,
        "text_source": action.text_source,
        "keyboard_layout": action.keyboard_layout,
    }


def _hover_row(step: Step) -> dict[str, Any]:
    """Returns the columns about the hover that opened the pressed element.

    The positions are null if no hover opened the element.
    """
    if not step.hovered:
        empty = dict.fromkeys(("hover_x", "hover_y", "hover_ms", "hovered_before"))
        return {"opened_by_hover": False, **empty}
    *earlier, last = step.hovered
    coordinates: list[int] = []
    for place in earlier:
        coordinates += [place.x, place.y]
    return {
        "opened_by_hover": True,
        "hover_x": last.x,
        "hover_y": last.y,
        "hover_ms": last.since_ms,
        "hovered_before": coordinates or None,
    }


def _quest_row(meta: Meta) -> dict[str, Any]:
    """Returns the columns `QUEST_COLUMNS`; all are null if meta.json has no quest."""
    columns: dict[str, Any] = dict.fromkeys(QUEST_NAMES)
    quest = meta.quest
    if quest is None:
        return columns
    columns["objectives"] = [replace_surrogates(visible_text(text)) for text in quest.objectives]
    if quest.reward is not None:
        max_reward = quest.reward.max_reward
        time_ms = quest.reward.time
        if max_reward is not None:
            columns["max_reward"] = float(max_reward)
        if time_ms is not None and 0 <= time_ms < _LATEST_MS:
            columns["reward_time_ms"] = int(time_ms)
    return columns


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
        "warnings": [*_wheel_warnings(built), *_video_warnings(rows)],
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
    """Returns the number of typed texts for each kind of evidence."""
    counts = Counter(row["text_evidence"] for row in rows if row["text_evidence"])
    return {str(evidence): counts[evidence] for evidence in TextEvidence}


def _wheel_warnings(built: Steps) -> Iterator[str]:
    """Yields warnings about scrolls whose direction in the video is unexpected.

    The expected direction follows from the wheel's unit and the platform.
    """
    count = sum(step.wheel_disagrees is True for step in built.steps)
    if count:
        yield (
            f"the video shows the opposite direction of {counted(count, 'scrolls')} "
            "than the wheel's unit and platform imply; the video decides unless actions.wheel_sign "
            "is set"
        )
    if built.doubtful_scrolls:
        scrolls = counted(built.doubtful_scrolls, "scrolls")
        yield (
            f"{scrolls} left out (`unclear_scroll`): the wheel's "
            "unit and platform imply one direction, and the only scroll that the video shows goes "
            "the other way; set actions.wheel_sign if you know the recorder's convention"
        )


def is_end_filmed(action: Action, clock: Clock, video: VideoProbe) -> bool:
    """Returns whether the video lasts until the end of an action.

    The last frame may precede the end by up to one frame interval plus the clock's uncertainty.
    """
    frame_s = 1 / video.mean_fps if video.mean_fps else 0.0
    latest_s = video.last_pts_s + frame_s + clock.uncertainty_ms / 1000
    return clock.video_time(action.end_ms) <= latest_s


def _video_warnings(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields a warning if the video ends before the end of the last action."""
    acting = [row for row in rows if row["action_type"] != ActionType.WAIT]
    if acting and not acting[-1]["end_filmed"]:
        yield (
            "the video ends before the last step's action does: no frame shows its result; "
            "record the video until after the last action"
        )


def check_trajectory(folder: Path, demonstration: str) -> list[Problem]:
    """Checks that a folder is a valid OSWorld-Desktopd trajectory of a demonstration.

    Warnings about trees are left out, because an earlier stage reports them.
    """
    return [
        problem
        for problem in validate_trajectory(folder, demonstration)
        if problem.severity is Severity.ERROR or not problem.file.endswith("/ui_tree.json")
    ]


def check_provenance(folder: Path) -> list[Problem]:
    """Checks the schemas of provenance.parquet and hidden_actions.parquet."""
    return [
        *schema_problems(folder / PROVENANCE_FILE, PROVENANCE_SCHEMA),
        *schema_problems(folder / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA),
    ]


def check_every_action_shown(folder: Path) -> list[Problem]:
    """Reports the number of hidden actions for each reason."""
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
