"""The commands `demo-pipeline inspect` and `demo-pipeline quarantine`.

Belongs here: what people read about single demonstrations.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    USAGE,
    failure_sentence,
    open_workspace,
    print_refused,
    refuse,
)

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace


def inspect(
    demonstration: Annotated[str, typer.Argument(help="Id of a processed demonstration.")],
) -> None:
    """Show a demonstration: actions, repairs, rejected lines, steps, datasets; or why it has none.

    Typed text is not shown, only its length.
    """
    from demo_pipeline.actions.action_stages import ACTIONS_STAGE
    from demo_pipeline.recording.manifest import read_manifest
    from demo_pipeline.recording.recording_stages import EVENTS_STAGE, RAW_RECORDINGS_STAGE
    from demo_pipeline.runs.demonstration_outputs import has_imported_trajectory
    from demo_pipeline.runs.graph import Graph
    from demo_pipeline.runs.inspection import (
        absence,
        dataset_lines,
        quarantine_lines,
        step_lines,
        timeline_lines,
    )
    from demo_pipeline.store.names import is_bucket, is_safe_id
    from demo_pipeline.store.uploads import NAME_RULE
    from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

    workspace = open_workspace()
    store, key = workspace.store, demonstration
    if not is_safe_id(key):
        refuse(f"{key!r} cannot be a demonstration: {NAME_RULE}")
    quarantined = [*quarantine_lines(store, key)]
    for line in quarantined:
        print_line(line)
    stages = (RAW_RECORDINGS_STAGE, EVENTS_STAGE, ACTIONS_STAGE)
    output = TRAJECTORIES_STAGE.output(key)
    recorded = all(store.current(stage.output(key)) for stage in stages)
    if not recorded and not has_imported_trajectory(Graph(workspace), key):
        if not quarantined:
            refuse(absence(workspace, key))
        raise typer.Exit(USAGE)
    if quarantined:
        print_line("")
    lines = ["no recording: the trajectory was imported"]
    if recorded:
        raw, events, actions = (store.open(s.output(key))[0] for s in stages)
        lines = [*timeline_lines(events, actions, read_manifest(raw))]
    if store.current(output):
        folder = store.open(output)[0]
        shown = f"{folder}" if is_bucket(store.url) else f"{store.url}/{output}"
        lines += ["", *step_lines(folder, shown), "", *dataset_lines(store, key)]
    for line in lines:
        print_line(line)
    print_line(f"look at it, judge it, correct it: demo-pipeline review {key}")


def show_quarantine() -> None:
    """List the quarantined demonstrations, with the reasons and what to do.

    Uploads that lack a file are listed last: the daemon waits for it.
    """
    from demo_pipeline.runs.quarantine import list_quarantine

    workspace = open_workspace()
    records = list_quarantine(workspace.store)
    for record in records:
        for problem in record.known_problems():
            remedy = problem.remedy or "correct the upload"
            reason = replace(problem, demonstration="", remedy=remedy)
            attempts = _attempts(record.attempts)
            print_line(f"{record.demonstration} {record.stage} {reason}{attempts}")
    print_line(f"{len(records)} quarantined")
    _print_all(
        _incomplete(workspace),
        "incomplete: the daemon processes each when it has its files",
        "incomplete uploads cannot be listed",
    )


def _attempts(number: int) -> str:
    return f" [{number} attempts]" if number > 1 else ""


def _print_all(lines: Iterator[str], closing: str, trouble: str) -> None:
    """Print lines and how many there are, or why they cannot be had."""
    try:
        found = list(lines)
    except Exception as error:  # noqa: BLE001 - the quarantine itself was shown
        print_error(f"{trouble}: {failure_sentence(error)}")
        return
    for line in found:
        print_line(line)
    if found:
        print_line(f"{len(found)} {closing}")


def _incomplete(workspace: "Workspace") -> Iterator[str]:
    from demo_pipeline.runs.health import incomplete_uploads

    found = incomplete_uploads(workspace)
    print_refused(workspace)
    yield from (f"{key} incomplete: {reason}" for key, reason in found.items())
