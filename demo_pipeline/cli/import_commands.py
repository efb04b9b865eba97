"""The command `demo-pipeline import`: recordings of other tools become upload folders."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import INVALID, open_workspace, refuse, usable_settings

if TYPE_CHECKING:
    from demo_pipeline.importers.source_recording import FoundRecording, Importer
    from demo_pipeline.importers.upload_folder import Given


def import_from(
    paths: Annotated[
        list[Path], typer.Argument(help="Recordings of other tools, or folders that hold some.")
    ],
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder for the uploads.", show_default="the uploads' folder"),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", help="What the person was to do, where nothing says it.")
    ] = "",
    status: Annotated[
        str, typer.Option("--status", help="How it ended: completed, failed or aborted.")
    ] = "",
) -> None:
    """Make recordings of OWAMcap, AgentNet, DuckTrack and other tools into uploads.

    Each becomes a folder that `demo-pipeline run` processes like any other, with a `source.json`
    that says what was not carried over. What is there already is left as it is.

    `import.json` in a recording's folder (or NAME.import.json beside a file) says `task`, `status`
    and `application` of that recording, and counts before the options.
    """
    from demo_pipeline.importers.import_recordings import find_recordings
    from demo_pipeline.importers.source_recording import UnreadableSourceError
    from demo_pipeline.importers.upload_folder import OUTCOMES, Given

    if status and status not in OUTCOMES:
        refuse(f"--status {status}: expected one of {', '.join(OUTCOMES)}")
    uploads = to or _uploads_folder()
    try:
        found = list(find_recordings(paths))
    except UnreadableSourceError as error:
        print_error(f"demo-pipeline: {error}")
        raise typer.Exit(INVALID) from None
    if not _import_all(found, uploads, Given(task, status)):
        raise typer.Exit(INVALID)


def _import_all(
    found: "list[tuple[Importer, FoundRecording]]", uploads: Path, options: "Given"
) -> bool:
    """Import each, with a bar and a sentence for what is wrong; whether nothing is."""
    from demo_pipeline.cli.tables import progress_bar
    from demo_pipeline.importers.import_recordings import ImportState, import_recording
    from demo_pipeline.runs.imported_trajectories import import_trajectory

    notes, counts, workspace = Counter[str](), Counter[ImportState](), None
    with progress_bar() as bar:
        for importer, recording in bar.track(found, description="importing"):
            if importer.read is None:
                workspace = workspace or open_workspace()
                outcome = import_trajectory(workspace, recording, options)
            else:
                outcome = import_recording(importer, recording, uploads, options)
            counts[outcome.state] += 1
            if outcome.state is ImportState.IMPORTED:
                notes.update(outcome.sentences)
            elif outcome.state is not ImportState.KNOWN:
                for sentence in outcome.sentences:
                    print_error(f"{outcome.place}: {sentence.removeprefix(f'{outcome.place}: ')}")
    for note, count in sorted(notes.items()):
        print_error(f"{count} of {len(found)}: {note}")
    print_line(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    return not (counts[ImportState.REFUSED] or counts[ImportState.DAMAGED])


def _uploads_folder() -> Path:
    """The folder of uploads that the settings name; a bucket is refused."""
    from demo_pipeline.store.names import is_bucket

    uploads = usable_settings().uploads
    if is_bucket(uploads):
        refuse("the uploads are in a bucket: import --to a folder, and copy it there")
    return Path(uploads)
