"""Declares the pipeline stage `actions`, which groups input events into actions."""

from pathlib import Path

from demo_pipeline.actions import build_actions as actions
from demo_pipeline.actions import typed_text
from demo_pipeline.actions.action_tables import ACCOUNTING_FILE, ACTIONS_FILE, ACTIONS_SCHEMA
from demo_pipeline.actions.text_evidence import typing_language
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.stage import Check, Need, Stage, Summary, joined


def _run_actions(inputs: RecordingInputs, out: Path) -> Summary:
    """Writes the table of actions, and the table that accounts for every log line."""
    meta = inputs.recording.parsed_meta()
    settings = inputs.settings.actions
    folder = inputs.folders["events"]
    return actions.build_actions(
        folder,
        out,
        meta.platform,
        settings,
        language=typing_language(
            settings.keyboard_layout, meta.usual_layout, meta.locale, named=meta.names_keyboard
        ),
        log=inputs.file(LOG_FILE),
    )


def _check_tables(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """Checks the file names, then the tables, then the event accounting.

    Returns the problems of the first check that fails.
    """
    events = inputs.folders["events"]
    return (
        differing_files(out, {}, {ACTIONS_FILE, ACCOUNTING_FILE})
        or actions.check_action_tables(out)
        or actions.check_event_accounting(out, events)
    )


ACTIONS_STAGE: Stage[RecordingInputs] = Stage(
    name="actions",
    folder="actions",
    description="The actions of the person: clicks, drags, scrolls, typed text, hotkeys and "
    "pauses, each with the log lines of its input events. A second table says for "
    "every log line which action contains it, or why none does.",
    kinds=frozenset({"parquet"}),
    code_version="16",
    inputs=("raw_recordings", "events"),
    section=lambda settings: settings.actions,
    build=_run_actions,
    checks=(
        Check(
            "actions_schema",
            "The tables have the declared columns and values, and every log line is in "
            "exactly one bucket of ledger.parquet.",
            _check_tables,
            compared=("actions", "pauses", "ledger"),
        ),
        Check(
            "known_input",
            "Every key and button and the unit of the wheel are known, and no typed text "
            "is in doubt. Typing is split at an unknown key. Exports leave out steps with "
            "doubtful text, and scrolls of unknown size may be hidden.",
            joined(
                lambda inputs, out: typed_text.check_known_input(out, inputs.folders["events"]),
                lambda _, out: typed_text.check_keyboard_layout(out),
            ),
            blocking=False,
            compared=("actions",),
        ),
    ),
    columns=ACTIONS_SCHEMA,
    needs=frozenset({Need.UPLOADS}),
)
