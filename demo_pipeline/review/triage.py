"""The stage `triage`: writes tables with the doubt signals of a demonstration and its steps.

The module `signals` derives the signals from the facts that this module reads.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from demo_pipeline.actions.action_tables import CONTINUED, Action, read_actions
from demo_pipeline.actions.inputs import Input, inputs_of
from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.desktopd.trajectory_reader import StepFiles, Trajectory, read_trajectory
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import (
    JsonFileError,
    dump_json,
    load_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.files.parquet import (
    COUNT,
    TEXT,
    between,
    described_schema,
    fitting,
    one_of,
    read_rows,
    schema_problems,
    write_rows,
)
from demo_pipeline.observation.frames.evidence import Evidence, read_evidence
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.observation.frames.screenshot_files import read_screenshot, read_screenshot_facts
from demo_pipeline.observation.trees.recorder_control import unmentioned
from demo_pipeline.privacy.redaction_stage import REDACTIONS
from demo_pipeline.problems import Problem
from demo_pipeline.recording.events import read_events
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.review.signals import (
    DEMONSTRATION_SIGNALS,
    FLAGGED,
    STEP_SIGNALS,
    Facts,
    Signal,
    SignalsFound,
    StepFacts,
    demonstration_signals,
    doubt,
    step_signals,
)
from demo_pipeline.stage import Check, Stage, Summary
from demo_pipeline.trajectories.provenance import read_hidden_actions, read_provenance
from demo_pipeline.trajectories.steps import joined_typing

TRIAGE_STEPS_FILE = "steps.parquet"
DEMONSTRATION_FILE = "demonstration.parquet"
# The row of DEMONSTRATION_FILE as JSON. Reading 1,000 rows takes 0.1 s from JSON files, but 2.7 s
# from Parquet files.
QUEUE_FILE = "demonstration.json"
_TYPE = "action_type"
_TYPED = ("type",)
_POINTED = ("click", "double_click", "right_click")


def _definition_with_points(signal: Signal) -> str:
    """Returns the description of a signal's column."""
    unit = "point" if signal.points == 1 else "points"
    return f"{signal.definition} ({signal.points:g} {unit})"


TRIAGE_STEPS_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        ("step_index", pa.int32(), False, "0-based number of the step, as in steps/NNN"),
        (_TYPE, pa.string(), False, "action type of OSWorld-Desktopd"),
        ("doubt", pa.float64(), False, "sum of the points of the step's signals"),
        *(
            (signal.name, pa.bool_(), False, _definition_with_points(signal))
            for signal in STEP_SIGNALS
        ),
        (
            "undone_by",
            pa.string(),
            True,
            (
                "how the next step takes this one back: undo, back, escape or again; "
                "null if it does not"
            ),
        ),
        (
            "changed_share",
            pa.float64(),
            False,
            "share of the screen that changed until the next screenshot, 0 to 1",
        ),
        (
            "idle_s",
            pa.float64(),
            True,
            (
                "seconds between the previous action and this one; null for the first "
                "step and next to a wait"
            ),
        ),
        (
            "path_efficiency",
            pa.float64(),
            True,
            (
                "distance to the target, divided by the length of the pointer's path; "
                "null for short paths"
            ),
        ),
        (
            "characters",
            pa.int32(),
            True,
            "number of typed characters; null if the action is not typing",
        ),
        (
            "deletions",
            pa.int32(),
            True,
            (
                "number of presses of Backspace and Delete while typing; null if the "
                "action is not typing"
            ),
        ),
        (
            "characters_per_second",
            pa.float64(),
            True,
            "typed and deleted characters per second; null for texts of fewer than 10 characters",
        ),
        (
            "picture_hash",
            pa.string(),
            False,
            "hash of 64 bits of the screenshot; similar screenshots differ in few bits",
        ),
    ),
    {
        "trajectory_id": TEXT,
        "step_index doubt": COUNT,
        _TYPE: one_of(*ActionType),
        "undone_by": one_of("undo", "back", "escape", "again"),
        "changed_share": between(0, 1),
        "path_efficiency": between(0, 1).only_where(_TYPE, *_POINTED, "drag", "scroll"),
        "idle_s": COUNT,
        "characters deletions": COUNT.where(_TYPE, *_TYPED),
        "characters_per_second": COUNT.only_where(_TYPE, *_TYPED),
        "picture_hash": fitting(r"[0-9a-f]{16}"),
    },
)
TRIAGE_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "id of the demonstration"),
        (
            "task_group",
            pa.string(),
            False,
            "group of tasks within which near-duplicates are searched",
        ),
        ("application", pa.string(), False, "application of the task, as in task.json"),
        ("instruction", pa.string(), False, "instruction of the task, as in task.json"),
        ("success", pa.bool_(), False, "whether the task was completed, as recorded"),
        ("steps", pa.int32(), False, "number of steps"),
        (
            "doubt",
            pa.float64(),
            False,
            (
                "sum of the points of all signals; a signal of steps counts once for "
                "each step, but at most 3 times"
            ),
        ),
        ("flagged", pa.bool_(), False, f"whether the doubt is at least {FLAGGED:g}"),
        *(
            (signal.name, pa.bool_(), False, _definition_with_points(signal))
            for signal in DEMONSTRATION_SIGNALS
        ),
        *(
            (
                f"{signal.name}_steps",
                pa.int32(),
                False,
                f"number of steps with this signal: {signal.definition}",
            )
            for signal in STEP_SIGNALS
        ),
        (
            "unused_s",
            pa.float64(),
            False,
            "seconds of video before the first and after the last action, together",
        ),
        (
            "film_s",
            pa.float64(),
            False,
            "time from the first to the last frame of the video, seconds",
        ),
        (
            "meta_s",
            pa.float64(),
            False,
            "duration of the recording according to meta.json, seconds; 0 if unknown",
        ),
        ("action_types", pa.list_(pa.string()), False, "action type of each step, in order"),
        ("picture_hashes", pa.list_(pa.string()), False, "picture_hash of each step, in order"),
    ),
    {
        "trajectory_id task_group application instruction": TEXT,
        "steps doubt unused_s film_s": COUNT,
        " ".join(f"{signal.name}_steps" for signal in STEP_SIGNALS): COUNT,
        "action_types": one_of(*ActionType),
        "picture_hashes": fitting(r"[0-9a-f]{16}"),
    },
)


def build_triage(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the tables of the triage, and returns the summary of the stage.

    The summary contains no text of the task.
    """
    manifest = inputs.recording
    trajectory, facts = read_facts(inputs)
    results = step_signals(facts)
    whole = demonstration_signals(facts)
    rows = list[dict[str, Any]]()
    counts = Counter[str]()
    for step, result in zip(facts.steps, results, strict=True):
        rows.append(_step_row(manifest.id, step, result))
        counts.update(result.signals)
    row = {
        "trajectory_id": manifest.id,
        "task_group": facts.steps[0].row["split_group"],
        "application": trajectory.task.application,
        "instruction": trajectory.task.instruction,
        "success": trajectory.result.success,
        "steps": len(rows),
        "doubt": round(doubt(counts, whole.signals), 6),
        **{signal.name: signal.name in whole.signals for signal in DEMONSTRATION_SIGNALS},
        **{f"{signal.name}_steps": counts[signal.name] for signal in STEP_SIGNALS},
        **whole.values,
        "action_types": [step_row["action_type"] for step_row in rows],
        "picture_hashes": [step_row["picture_hash"] for step_row in rows],
    }
    row["flagged"] = row["doubt"] >= FLAGGED
    write_rows(out / TRIAGE_STEPS_FILE, rows, TRIAGE_STEPS_SCHEMA)
    write_rows(out / DEMONSTRATION_FILE, [row], TRIAGE_SCHEMA)
    dump_json(out / QUEUE_FILE, row, compact=True)
    signals = {**dict.fromkeys(sorted(whole.signals), 1), **dict(sorted(counts.items()))}
    return {"steps": len(rows), "doubt": row["doubt"], "signals": signals}


def _step_row(demonstration: str, step: StepFacts, result: SignalsFound) -> dict[str, Any]:
    """Returns the row of a step in steps.parquet."""
    row = {
        "trajectory_id": demonstration,
        "step_index": step.written.step_index,
        "action_type": str(step.kind),
        "doubt": round(doubt(dict.fromkeys(result.signals, 1), ()), 6),
        **{signal.name: signal.name in result.signals for signal in STEP_SIGNALS},
    }
    for name, value in result.values.items():
        row[name] = round(value, 6) if isinstance(value, float) else value
    return {**row, "picture_hash": f"{step.screenshot.hash:016x}"}


def read_facts(inputs: RecordingInputs) -> tuple[Trajectory, Facts]:
    """Reads the trajectory, and the facts from which its signals are derived.

    Facts about screenshots are read from a table of the stage `screenshots`. If a screenshot has no
    row in the table, its facts are computed from the image.
    """
    folders = inputs.folders
    manifest = inputs.recording
    # The table is read first, while little memory is in use, because reading takes twice the memory
    # of the result.
    screenshot_facts = read_screenshot_facts(folders["screenshots"])
    trajectory = read_trajectory(folders["trajectories"])
    provenance = read_provenance(folders["trajectories"] / "provenance.parquet")
    row_of_step = {row["step_index"]: row for row in provenance}
    hidden = read_hidden_actions(folders["trajectories"]).actions
    listed = {row["action_index"] for row in provenance}
    listed |= {action.action_index for action in hidden}
    actions = dict[int, Action]()
    for action in whole_actions(read_actions(folders["actions"]), listed):
        actions[action.action_index] = action
    events = inputs_of(read_events(folders["events"]))
    evidence = read_evidence(folders["screenshots"])
    clock = evidence.clock
    video = manifest.video
    meta = manifest.parsed_meta()
    pointer_events = [event for event in events if event.x is not None and event.y is not None]
    steps = []
    for step in trajectory.steps:
        row = row_of_step[step.index]
        screenshot = screenshot_facts.get(f"{row['action_index']:03d}.png")
        steps.append(
            StepFacts(
                step.action,
                row,
                actions[row["action_index"]],
                screenshot or read_screenshot(step.screenshot),
                target_window(step),
                _pointer(pointer_events, row, evidence),
            )
        )
    quest = meta.quest
    words = [trajectory.task.instruction, trajectory.task.application, meta.title, meta.description]
    words += [quest.title, quest.app, *quest.objectives] if quest else []
    return trajectory, Facts(
        steps,
        screenshot_facts.get(FINAL_FILE) or read_screenshot(trajectory.final_screenshot),
        events,
        sorted(clock.event_time(time_s) for time_s in evidence.screen_changes_s),
        " ".join(words),
        unmentioned(inputs.settings.observation.recorder_windows, meta),
        float(meta.duration_seconds),
        (clock.event_time(video.first_pts_s), clock.event_time(video.last_pts_s)),
        clock.score,
    )


def whole_actions(actions: Sequence[Action], listed: Collection[int]) -> Iterator[Action]:
    """Yields the actions, with typing after a pause joined to the typing before the pause.

    Args:
        listed: indexes of actions that are not joined to an earlier action, because they have a row
            of their own in the tables of steps or hidden actions.
    """
    rows = []
    for action in actions:
        is_continuation = CONTINUED in action.flags and action.action_index not in listed
        rows.append({"reason_code": CONTINUED if is_continuation else ""})
    for action, *_ in joined_typing(zip(actions, rows, rows, strict=True)):
        yield action


def _pointer(
    pointer_events: Sequence[Input], row: Mapping[str, Any], evidence: Evidence
) -> tuple[tuple[float, float], ...]:
    """Returns a tuple with the position of the pointer in a step's screenshot.

    The position is x and y in screenshot pixels. The tuple is empty if the position is unknown.

    Args:
        pointer_events: events with positions, in time order.
        row: row of the step in provenance.parquet.
        evidence: evidence of the stage `screenshots`, with the clock.
    """
    if row["pts"] is None:
        return ()
    frame_ms = evidence.clock.event_time(row["pts"])
    number = bisect_right(pointer_events, frame_ms, key=attrgetter("time"))
    if number == 0:
        return ()
    event = pointer_events[number - 1]
    if event.x is None or event.y is None:
        return ()
    return ((event.x * row["scale"] + row["pad_x"], event.y * row["scale"] + row["pad_y"]),)


def target_window(step: StepFiles) -> str:
    """Returns the name of the top-level window with a step's target, or an empty string."""
    if step.action.target_element is None:
        return ""
    tree = parse_json(read_bytes(step.ui_tree, "ui_tree.json"), "ui_tree.json")
    target_id = step.action.target_element.id
    for window in tree["root"].get("children", ()):
        pending = [window]
        while pending:
            node = pending.pop()
            if node["id"] == target_id:
                return str(window["name"])
            pending += node.get("children", ())
    return ""


def read_demonstration(folder: Path) -> dict[str, Any]:
    """Reads the demonstration's row from an output of the stage `triage`."""
    row: dict[str, Any] = msgspec.json.decode((folder / QUEUE_FILE).read_bytes())
    return row


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Reads the steps' rows from an output of the stage `triage`."""
    return read_rows(folder / TRIAGE_STEPS_FILE, TRIAGE_STEPS_SCHEMA)


def _check(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks that both tables and the JSON file are valid and agree with the trajectory."""
    problems = differing_files(out, {}, {TRIAGE_STEPS_FILE, DEMONSTRATION_FILE, QUEUE_FILE})
    problems = problems or schema_problems(out / TRIAGE_STEPS_FILE, TRIAGE_STEPS_SCHEMA)
    problems = problems or schema_problems(out / DEMONSTRATION_FILE, TRIAGE_SCHEMA)
    if problems:
        return problems
    steps_of_triage = read_steps(out)
    steps = [f"{row['step_index']:03d}" for row in steps_of_triage]
    if steps != sorted(path.name for path in (inputs.folders["trajectories"] / "steps").iterdir()):
        problems.append(_problem(TRIAGE_STEPS_FILE, "does not have one row for each step"))
    provenance = inputs.folders["trajectories"] / "provenance.parquet"
    kinds = [row["action_type"] for row in read_provenance(provenance, ["action_type"])]
    if [row["action_type"] for row in steps_of_triage] != kinds:
        problems.append(_problem(TRIAGE_STEPS_FILE, "has other actions than the trajectory"))
    rows = read_rows(out / DEMONSTRATION_FILE, TRIAGE_SCHEMA)
    try:
        if rows != [load_json(out / QUEUE_FILE)]:
            message = f"differs from the row of {DEMONSTRATION_FILE}"
            problems.append(_problem(QUEUE_FILE, message))
    except JsonFileError as error:
        problems.append(_problem(QUEUE_FILE, error.message))
    return problems


def _problem(file: str, message: str) -> Problem:
    return Problem("triage", file, message, remedy="build it again")


TRIAGE_STAGE: Stage[RecordingInputs] = Stage(
    name="triage",
    folder="triage",
    description="Signals that a step or a demonstration may be wrong, such as steps without "
    "effect or undone steps, hesitation, an uncertain clock, or black and frozen "
    "screenshots. Their points add up to a score of doubt, which orders the "
    "review queue and filters nothing. There is a row for each step and for the "
    "demonstration.",
    kinds=frozenset({"parquet", "opencv"}),
    code_version="7",
    inputs=("raw_recordings", "events", "actions", "screenshots", "trajectories", REDACTIONS),
    section=lambda settings: settings.observation,
    build=build_triage,
    checks=(
        Check(
            "triage_tables",
            "The tables have the declared columns and values, and a row for every step.",
            _check,
            blocking=False,
            compared=("steps",),
        ),
    ),
    columns=TRIAGE_STEPS_SCHEMA,
)
