"""The commands `demo-pipeline inspect` and `demo-pipeline quarantine`."""

from dataclasses import replace
from typing import Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    USAGE,
    failure_sentence,
    open_workspace,
    print_ignored_uploads,
    refuse,
)


def inspect(
    demonstration: Annotated[str, typer.Argument(help="Id of a processed demonstration.")],
) -> None:
    """Show a demonstration: its actions, repairs, rejected log lines, steps and dataset records.

    Also shows why the demonstration is quarantined, or why a dataset leaves it out. Typed text is
    never shown, only its length.
    """
    from demo_pipeline.actions.action_stages import ACTIONS_STAGE
    from demo_pipeline.recording.manifest import read_manifest
    from demo_pipeline.recording.recording_stages import EVENTS_STAGE, RAW_RECORDINGS_STAGE
    from demo_pipeline.runs.demonstration_outputs import has_imported_trajectory
    from demo_pipeline.runs.graph import Graph
    from demo_pipeline.runs.inspection import (
        absence,
        dataset_lines,
        pending_lines,
        quarantine_lines,
        step_lines,
        timeline_lines,
    )
    from demo_pipeline.store.names import is_bucket, is_safe_id
    from demo_pipeline.store.uploads import NAME_RULE
    from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

    workspace = open_workspace()
    store = workspace.store
    key = demonstration
    if not is_safe_id(key):
        refuse(f"{key!r} cannot be a demonstration: {NAME_RULE}")
    reasons = list(quarantine_lines(store, key))
    for line in reasons:
        print_line(line)
    stages = (RAW_RECORDINGS_STAGE, EVENTS_STAGE, ACTIONS_STAGE)
    is_recorded = all(store.current(stage.output(key)) for stage in stages)
    if not is_recorded and not has_imported_trajectory(Graph(workspace), key):
        if not reasons:
            refuse(absence(workspace, key))
        raise typer.Exit(USAGE)
    if reasons:
        print_line("")
    if is_recorded:
        raw, events, actions = (store.open(stage.output(key))[0] for stage in stages)
        lines = list(timeline_lines(events, actions, read_manifest(raw)))
    else:
        lines = ["no recording: the trajectory was imported"]
    output = TRAJECTORIES_STAGE.output(key)
    if store.current(output):
        folder = store.open(output)[0]
        shown_folder = str(folder) if is_bucket(store.url) else f"{store.url}/{output}"
        lines += ["", *step_lines(folder, shown_folder), "", *dataset_lines(store, key)]
    lines += pending_lines(workspace, key)
    for line in lines:
        print_line(line)
    print_line(f"to watch, judge or correct it: demo-pipeline review {key}")


def show_quarantine() -> None:
    """List the quarantined demonstrations, with the reasons and what to do.

    The command also lists incomplete uploads. The daemon processes such an upload when the missing
    file has arrived.
    """
    from demo_pipeline.runs.health import incomplete_uploads
    from demo_pipeline.runs.quarantine import list_quarantine

    workspace = open_workspace()
    records = list_quarantine(workspace.store)
    for record in records:
        attempts = f" [{record.attempts} attempts]" if record.attempts > 1 else ""
        for problem in record.known_problems():
            remedy = problem.remedy or "correct the upload"
            reason = replace(problem, demonstration="", remedy=remedy)
            print_line(f"{record.demonstration} {record.stage} {reason}{attempts}")
    print_line(f"{len(records)} quarantined")
    try:
        incomplete = incomplete_uploads(workspace)
        print_ignored_uploads(workspace)
    # Several libraries may raise errors here. The command still succeeds, because the quarantine is
    # already listed.
    except Exception as error:  # noqa: BLE001
        print_error(f"incomplete uploads cannot be listed: {failure_sentence(error)}")
        return
    for demonstration, missing in incomplete.items():
        print_line(f"{demonstration} incomplete: {missing}")
    if incomplete:
        print_line(f"{len(incomplete)} incomplete: the daemon processes each when it has its files")
