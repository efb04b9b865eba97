"""Checks a written trajectory: compares its files with each other and with its inputs."""

from collections.abc import Iterator, Mapping, Sequence
from filecmp import cmp
from pathlib import Path
from typing import Any

from demo_pipeline.actions.action_tables import (
    AFTER_LONG_REST,
    CONTINUED,
    Action,
    read_actions,
)
from demo_pipeline.desktopd.trajectory_reader import native_of
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.observation.frames.final_frame import FINAL_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    HIDDEN_ACTIONS_SCHEMA,
    PROVENANCE_SCHEMA,
)
from demo_pipeline.trajectories.trajectories import DIFFERING_TREES_FILE, PROVENANCE_FILE

_FINAL_SCREENSHOT = "final_screenshot.png"
_FILES = {"task.json", "result.json", "steps", _FINAL_SCREENSHOT}
_TABLES = {PROVENANCE_FILE, HIDDEN_ACTIONS_FILE}


def check_against_inputs(
    out: Path, demonstration: str, folders: Mapping[str, Path], failure: str | None
) -> list[Problem]:
    """Reports how a trajectory differs from the actions and screenshots in its inputs.

    Args:
        out: the folder of the trajectory, in valid OSWorld-Desktopd format.
        folders: maps the name of each stage to the folder of its output.
        failure: why the recording is not a success; None if it is a success.
    """
    rows = read_rows(out / PROVENANCE_FILE, PROVENANCE_SCHEMA)
    hidden = read_rows(out / HIDDEN_ACTIONS_FILE, HIDDEN_ACTIONS_SCHEMA)
    try:
        return [
            *_check_rows(out, demonstration, rows),
            *_check_result(out, failure),
            *_check_actions(rows, hidden, demonstration, folders["actions"]),
            *_check_files(out, rows, folders["screenshots"]),
        ]
    except JsonFileError as error:
        return [_problem(error.file, error.message)]


def _check_rows(out: Path, demonstration: str, rows: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yields differences between provenance.parquet and the folders of the steps."""
    steps = sorted(path.name for path in (out / "steps").iterdir())
    if [f"{row['step_index']:03d}" for row in rows] != steps:
        yield _problem(PROVENANCE_FILE, f"does not have a row for each of {len(steps)} steps")
        return
    for row, step in zip(rows, steps, strict=True):
        file = f"steps/{step}/action.json"
        if row["trajectory_id"] != demonstration:
            yield _problem(PROVENANCE_FILE, f"step {step} has the id of another trajectory")
        if load_json(out / file, file).get("action_type") != row["action_type"]:
            yield _problem(file, f"has another action_type than its row in {PROVENANCE_FILE}")
    expected_steps = load_json(out / "task.json").get("expected_steps")
    if expected_steps != len(steps):
        yield _problem("task.json", f"expects {expected_steps} steps, not {len(steps)}")


def _check_result(out: Path, failure: str | None) -> Iterator[Problem]:
    """Yields a problem if the outcome in result.json differs from the recording's outcome."""
    result = load_json(out / "result.json")
    if result.get("success") is not (failure is None) or result.get("error_message") != failure:
        yield _problem("result.json", "has another outcome than the recording")


def scans_of_typing(actions: Sequence[Action]) -> Mapping[int, set[int]]:
    """Returns, for each typing action, the log lines of the scans that show its text.

    Actions that may become one step share their scans.
    """
    scans: dict[int, set[int]] = {}
    scans_of_joined: set[int] = set()
    for action in actions:
        if action.action_type != "type":
            continue
        if not {CONTINUED, AFTER_LONG_REST}.intersection(action.flags):
            scans_of_joined = set()
        if action.text_scan_event is not None:
            scans_of_joined.add(action.text_scan_event)
        scans[action.action_index] = scans_of_joined
    return scans


def _check_actions(
    rows: list[dict[str, Any]], hidden: list[dict[str, Any]], demonstration: str, actions: Path
) -> Iterator[Problem]:
    """Yields problems about steps and hidden actions that differ from the recorded actions."""
    all_actions = read_actions(actions)
    times = {action.action_index: action.press_ms for action in all_actions}
    scans = scans_of_typing(all_actions)
    for row in rows:
        scan = row["text_scan_event"]
        if scan is not None and scan not in scans.get(row["action_index"], ()):
            yield _problem(
                PROVENANCE_FILE, f"step {row['step_index']} names another scan than its action"
            )
        if row["opened_by_hover"] not in {None, row["hover_x"] is not None}:
            yield _problem(
                PROVENANCE_FILE,
                f"step {row['step_index']}: opened_by_hover and hover_x contradict each other",
            )
        # `end_ms` is not compared, because a step that joins typing actions ends with the last one.
        if times.get(row["action_index"]) != row["press_ms"]:
            message = f"step {row['step_index']} is not at the time of its action"
            yield _problem(PROVENANCE_FILE, message)
    for action in hidden:
        if action["trajectory_id"] != demonstration:
            yield _problem(HIDDEN_ACTIONS_FILE, "has an action of another trajectory")
        if times.get(action["action_index"]) != action["press_ms"]:
            yield _problem(HIDDEN_ACTIONS_FILE, "has an action at another time than the actions")
    order = [action["action_index"] for action in hidden]
    if order != sorted(set(order)):
        yield _problem(HIDDEN_ACTIONS_FILE, "is not in the order of the actions")


def _check_files(out: Path, rows: list[dict[str, Any]], screenshots: Path) -> Iterator[Problem]:
    """Yields missing and unexpected files, and files that differ from their inputs."""
    differing = [row["step_index"] for row in rows if row["tree_agreement"] == "differs"]
    expected = _FILES | _TABLES
    if differing:
        expected |= {DIFFERING_TREES_FILE}
        is_written = (out / DIFFERING_TREES_FILE).is_file()
        if is_written and load_json(out / DIFFERING_TREES_FILE) != {"steps": differing}:
            yield _problem(DIFFERING_TREES_FILE, f"lists other steps than {PROVENANCE_FILE}")
    native = native_of(out / _FINAL_SCREENSHOT).name
    names = {path.name for path in out.iterdir()} - {native}
    for name in sorted(names ^ expected):
        message = "is missing" if name in expected else "is not a file of the format"
        yield _problem(name, message)
    for row in rows:
        file = f"steps/{row['step_index']:03d}/screenshot.png"
        picture = screenshots / f"{row['action_index']:03d}.png"
        if picture.is_file() and not _is_same(out / file, picture):
            yield _problem(file, f"is not the screenshot of action {row['action_index']}")
    if not _is_same(out / _FINAL_SCREENSHOT, screenshots / FINAL_FILE):
        yield _problem(_FINAL_SCREENSHOT, "is not the final screenshot of its input")


def _is_same(picture: Path, other: Path) -> bool:
    return picture.samefile(other) or cmp(picture, other, shallow=False)


def _problem(file: str, message: str) -> Problem:
    remedy = "build it again; if that does not help, this is a defect of the pipeline: report it"
    return Problem("trajectory", file, message, remedy=remedy)
