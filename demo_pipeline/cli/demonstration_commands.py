"""The commands `demo-pipeline inspect` and `demo-pipeline quarantine`.

Belongs here: what people read about single demonstrations.
"""

from contextlib import ExitStack
from typing import Annotated

import typer

from demo_pipeline.cli.console import print_line
from demo_pipeline.cli.environment import usable_settings


def inspect(
    demonstration: Annotated[str, typer.Argument(help="Id of a processed demonstration.")],
) -> None:
    """Show what happened in a demonstration: actions, repairs, rejected lines, event accounting.

    Typed text is not shown, only its length.
    """
    from demo_pipeline.actions.timeline import build_timeline
    from demo_pipeline.actions.timeline_text import render
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.demonstration_stages import (
        ACTIONS_STAGE,
        EVENTS_STAGE,
        RAW_RECORDINGS_STAGE,
    )
    from demo_pipeline.recording.manifest import read_manifest
    from demo_pipeline.storage.ids import safe_id

    store = Workspace.open(usable_settings()).store
    key = safe_id(demonstration)
    with ExitStack() as stack:
        raw, events, actions = (
            stack.enter_context(store.open(stage.output(key)))[0]
            for stage in (RAW_RECORDINGS_STAGE, EVENTS_STAGE, ACTIONS_STAGE)
        )
        for line in render(build_timeline(events, actions, read_manifest(raw))):
            print_line(line)


def show_quarantine() -> None:
    """List the quarantined demonstrations, with the reasons and what to do."""
    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.quarantine import list_quarantine

    records = list_quarantine(Workspace.open(usable_settings()).store)
    for record in records:
        for problem in record.problems:
            line = f":{problem['line']}" if problem.get("line") else ""
            remedy = problem.get("remedy") or "correct the upload"
            attempts = f" [{record.attempts} attempts]" if record.attempts > 1 else ""
            reason = f"{problem['message']} ({remedy}){attempts}"
            print_line(f"{record.demonstration} {record.stage} {problem['file']}{line}: {reason}")
    print_line(f"{len(records)} quarantined")
