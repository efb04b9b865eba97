"""Declares the stages `trajectories` and `contact_sheets`."""

from pathlib import Path

from demo_pipeline.osworld import task_matching
from demo_pipeline.problems import Problem, errors
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.settings import Section
from demo_pipeline.stage import Check, Need, Stage, Summary, joined
from demo_pipeline.trajectories import contact_sheets, trajectories
from demo_pipeline.trajectories.pointer_leaks import check_leak_rates
from demo_pipeline.trajectories.provenance import PROVENANCE_SCHEMA
from demo_pipeline.trajectories.trajectory_checks import check_against_inputs


def _run_contact_sheets(inputs: RecordingInputs, out: Path) -> Summary:
    """Builds the contact sheets of a trajectory."""
    trajectory = inputs.folders["trajectories"]
    # Thumbnails are made before redaction, and may show private data.
    is_redacted = trajectory == inputs.folders["redactions"]
    screenshots = None if is_redacted else inputs.folders["screenshots"]
    return contact_sheets.build_contact_sheets(inputs.demonstration, trajectory, screenshots, out)


def _run_trajectories(inputs: RecordingInputs, out: Path) -> Summary:
    """Builds the trajectory of a demonstration."""
    return trajectories.build_trajectory(
        inputs.recording,
        inputs.folders["events"],
        inputs.folders["actions"],
        inputs.folders["screenshots"],
        inputs.folders["ui_trees"],
        out,
        inputs.source,
    )


def _check_trajectory(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks the files of a trajectory, and compares valid files with the inputs."""
    key = inputs.demonstration
    problems = trajectories.check_trajectory(out, key) + trajectories.check_provenance(out)
    if errors(problems):
        return problems
    failure = trajectories.recorded_failure(inputs.recording)
    return problems + check_against_inputs(out, key, inputs.folders, failure)


TRAJECTORIES_STAGE: Stage[RecordingInputs] = Stage(
    name="trajectories",
    folder="trajectories",
    description="The demonstration as an OSWorld-Desktopd trajectory: the task, numbered "
    "steps with screenshot, accessibility tree and action, and the result. "
    "provenance.parquet describes the origin of each step. hidden_actions.parquet "
    "lists the actions that no screenshot shows.",
    kinds=frozenset({"json", "parquet"}),
    code_version="21",
    inputs=("raw_recordings", "events", "actions", "screenshots", "ui_trees"),
    section=lambda settings: settings.trajectories,
    build=_run_trajectories,
    checks=(
        Check(
            "desktopd_trajectory",
            "The folder follows the OSWorld-Desktopd format: files, sizes, bounds, ids "
            "and targets. The two tables have the declared columns and values, and "
            "provenance.parquet has a row for each step with the time of its action.",
            _check_trajectory,
            compared=("steps", "targets"),
        ),
        Check(
            "nothing_missing",
            "Every action is a step: none is off the screen, outside the video or in "
            "frames that cannot be decoded. The shares of screenshots that already show "
            "the pointer at its target are within limits. The task was compared with a "
            "catalog of OSWorld tasks.",
            joined(
                lambda _, out: trajectories.check_every_action_shown(out),
                lambda inputs, out: check_leak_rates(
                    out / trajectories.PROVENANCE_FILE, inputs.settings.trajectories
                ),
                lambda inputs, _out: task_matching.require_catalog(inputs.source),
            ),
            blocking=False,
            compared=("steps", "pointer_actions"),
        ),
    ),
    columns=PROVENANCE_SCHEMA,
    needs=frozenset({Need.TASK}),
)


CONTACT_SHEETS_STAGE: Stage[RecordingInputs] = Stage(
    name="contact_sheets",
    folder="contact_sheets",
    description="JPEG sheets for people, with a tile for each step: the screenshot with "
    "action and target drawn on it, how the frame was chosen, its time before the "
    "press, and how current the tree is. Screenshots that already show the "
    "pointer at the target are marked LEAK or UNAVOIDABLE.",
    kinds=frozenset({"jpeg", "opencv"}),
    code_version="8",
    inputs=("screenshots", "trajectories", "redactions"),
    section=lambda _: Section(),  # no setting affects contact sheets
    build=_run_contact_sheets,
    checks=(
        Check(
            "sheets_whole",
            "The sheets are complete images with a title, and with a tile for every step.",
            lambda inputs, out: contact_sheets.check_contact_sheets(
                inputs.folders["trajectories"], out
            ),
            blocking=False,
            compared=("sheets", "tiles"),
        ),
    ),
)
