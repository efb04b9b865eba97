"""The stage `actions`: its declaration."""

from pathlib import Path

from demo_pipeline.actions import build_actions as actions
from demo_pipeline.actions import typed_text
from demo_pipeline.actions.action_tables import ACTIONS_SCHEMA
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.stage import Check, Stage, Summary, built_again, joined


def _run_actions(inputs: RecordingInputs, out: Path) -> Summary:
    """The actions and the event accounting."""
    platform, settings = inputs.recording.parsed_meta().platform, inputs.settings
    folder, most = inputs.folders["events"], settings.limits.max_actions
    return actions.build_actions(folder, out, platform, settings.actions, most)


def _verify_keyboard_layout(inputs: RecordingInputs, out: Path) -> list[Problem]:
    """The keyboard layout of the settings against the one usual for meta.locale."""
    meta, layout = inputs.recording.parsed_meta(), inputs.settings.actions.keyboard_layout
    known = (meta.locale, layout, meta.platform)
    return typed_text.check_keyboard_layout(out, inputs.folders["events"], *known)


ACTIONS_STAGE: Stage[RecordingInputs] = Stage(
    name="actions",
    folder="actions",
    description="What the person did: clicks, drags, scrolls, typed text, hotkeys and pauses, "
    "each with the input events it was built from; the accounting of every input event.",
    kinds=frozenset({"parquet"}),
    code_version="10",
    inputs=("raw_recordings", "events"),
    section=lambda settings: settings.actions,
    build=_run_actions,
    checks=(
        Check(
            "actions_schema",
            "The tables have the declared columns and values, and are what the events give; every "
            "input event is in exactly one bucket of the event accounting.",
            joined(
                built_again(_run_actions, lambda _, out: actions.check_action_tables(out)),
                lambda inputs, out: actions.check_event_accounting(out, inputs.folders["events"]),
            ),
            compared=("actions", "pauses", "ledger"),
        ),
        Check(
            "known_input",
            "Every key and button is known, else typing is split there; what was typed reads the "
            "same with the keyboard layout usual for the locale.",
            joined(
                lambda inputs, out: typed_text.check_known_input(out, inputs.folders["events"]),
                _verify_keyboard_layout,
            ),
            blocking=False,
            compared=("actions",),
        ),
    ),
    columns=ACTIONS_SCHEMA,
)
