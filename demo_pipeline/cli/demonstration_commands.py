"""The commands `demo-pipeline inspect` and `demo-pipeline quarantine`.

Belongs here: what people read about single demonstrations.
"""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import dagster_home, failure_sentence, usable_settings
from demo_pipeline.cli.run_commands import print_hidden

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace


def inspect(
    demonstration: Annotated[str, typer.Argument(help="Id of a processed demonstration.")],
) -> None:
    """Show what happened in a demonstration: actions, repairs, rejected lines, event accounting.

    Typed text is not shown, only its length.
    """
    from demo_pipeline.actions.action_stages import ACTIONS_STAGE
    from demo_pipeline.actions.timeline import build_timeline, render
    from demo_pipeline.recording.manifest import read_manifest
    from demo_pipeline.recording.recording_stages import EVENTS_STAGE, RAW_RECORDINGS_STAGE
    from demo_pipeline.runs.workspace import Workspace
    from demo_pipeline.store.names import safe_id

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
    """List the quarantined demonstrations, with the reasons and what to do, and those that wait.

    Uploads that lack a file are listed last: the daemon waits for it.
    """
    from demo_pipeline.runs.quarantine import list_quarantine
    from demo_pipeline.runs.workspace import Workspace

    workspace = Workspace.open(usable_settings())
    records = list_quarantine(workspace.store)
    for record in records:
        for problem in record.problems:
            line = f":{problem['line']}" if problem.get("line") else ""
            remedy = problem.get("remedy") or "correct the upload"
            attempts = f" [{record.attempts} attempts]" if record.attempts > 1 else ""
            reason = f"{problem['message']} ({remedy}){attempts}"
            print_line(f"{record.demonstration} {record.stage} {problem['file']}{line}: {reason}")
    print_line(f"{len(records)} quarantined")
    _show_waiting(workspace)
    _show_incomplete(workspace)


def _show_incomplete(workspace: "Workspace") -> None:
    """List the uploads that lack a file."""
    from demo_pipeline.runs.health import incomplete_uploads

    try:
        incomplete = incomplete_uploads(workspace)
        print_hidden(workspace)
    except Exception as error:  # noqa: BLE001 - the quarantine itself was shown
        print_error(f"incomplete uploads cannot be listed: {failure_sentence(error)}")
        return
    for key, reason in incomplete.items():
        print_line(f"{key} incomplete: {reason}")
    if incomplete:
        print_line(f"{len(incomplete)} incomplete: the daemon processes each when it has its files")


def _show_waiting(workspace: "Workspace") -> None:
    """List what is tried again by itself."""
    from demo_pipeline.runs.discovery_table import DiscoveryTable, table_path

    path = table_path(dagster_home() / "storage", workspace.uploads.url)
    if not path.is_file():
        return
    try:
        with DiscoveryTable.open(path) as table:
            waiting = table.waiting()
    except Exception as error:  # noqa: BLE001 - the quarantine itself was shown
        print_error(f"what waits cannot be read: {failure_sentence(error)}")
        return
    for found in waiting:
        attempts = f" [{found.attempts} attempts]" if found.attempts > 1 else ""
        print_line(f"{found.id} waiting: {found.reason}{attempts}")
    if waiting:
        print_line(f"{len(waiting)} waiting: tried again by the daemon and by `demo-pipeline run`")
