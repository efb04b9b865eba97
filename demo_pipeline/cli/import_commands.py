"""The command `demo-pipeline import`: imports recordings of other tools.

Recordings with a video become uploads. Recordings with screenshots and no video become
trajectories.
"""

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import INVALID, open_workspace, refuse, usable_settings
from demo_pipeline.files.recording_files import RECORDING_FILES

if TYPE_CHECKING:
    from demo_pipeline.importers.source_facts import SourceFiles
    from demo_pipeline.importers.source_recording import Importer
    from demo_pipeline.importers.upload_folder import Given


def import_from(
    paths: Annotated[
        list[Path], typer.Argument(help="Recordings, or folders that contain recordings.")
    ],
    *,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="Folder for the new uploads.", show_default="the uploads' folder"
        ),
    ] = None,
    task: Annotated[
        str, typer.Option("--task", help="Task of the person; replaces the recording's own.")
    ] = "",
    status: Annotated[
        str, typer.Option("--status", help="Outcome: completed, failed or aborted.")
    ] = "",
    application: Annotated[
        str, typer.Option("--application", help="Main application, such as chrome.")
    ] = "",
    platform: Annotated[
        str,
        typer.Option("--platform", help="windows, macos or linux, if the recording names none."),
    ] = "",
) -> None:
    """Import recordings of OWAMcap, AgentNet, OSWorld's runner and other tools.

    A recording with a video becomes an upload, which `demo-pipeline run` processes like any other.
    A recording with screenshots and no video becomes a trajectory in the store. Both get a file
    `source.json`, which lists everything that could not be imported. Recordings that were imported
    before and have not changed are skipped.

    The options apply to all recordings of the command. To give `task`, `status`, `application` and
    `platform` of a single recording, write a file `import.json` into its folder, or
    `NAME.import.json` next to its log. The file overrides the options.
    """
    from demo_pipeline.importers.import_recordings import find_recordings
    from demo_pipeline.importers.source_values import UnreadableSourceError
    from demo_pipeline.importers.upload_folder import OUTCOMES, PLATFORMS, Given

    if platform and platform not in PLATFORMS:
        refuse(f"--platform {platform}: expected one of {', '.join(PLATFORMS)}")
    if status and status not in OUTCOMES:
        refuse(f"--status {status}: expected one of {', '.join(OUTCOMES)}")
    uploads = to or _uploads_folder()
    native = {path: list(_native_recordings(path)) for path in paths}
    for path, folders in native.items():
        if folders:
            print_error(f"demo-pipeline: {_copy_instruction(path, folders, uploads)}")
    others = [path for path in paths if not native[path]]
    try:
        recordings = list(find_recordings(others))
    except UnreadableSourceError as error:
        print_error(f"demo-pipeline: {error}")
        raise typer.Exit(INVALID) from None
    given = Given(task, status, application, platform)
    succeeded = not recordings or _import_all(recordings, uploads, given)
    if not succeeded or len(others) < len(paths):
        raise typer.Exit(INVALID)


def _native_recordings(path: Path) -> Iterator[Path]:
    """Yields the folders at or below a path that already have the files of an upload."""
    if path.is_file() and path.name in RECORDING_FILES:
        path = path.parent
    for folder, below, names in os.walk(path):
        below.sort()
        if set(RECORDING_FILES) <= set(names):
            yield Path(folder)


def _copy_instruction(path: Path, folders: Sequence[Path], uploads: Path) -> str:
    inbox = shlex.quote(str(uploads))
    if len(folders) == 1:
        source = shlex.quote(str(folders[0]))
        return f"{path}: this is an upload already: copy it to the inbox: cp -R {source} {inbox}/"
    return (
        f"{path}: these {len(folders)} recordings are uploads already: copy their folders to the "
        f"inbox {inbox}"
    )


def _import_all(
    recordings: "Sequence[tuple[Importer, SourceFiles]]", uploads: Path, options: "Given"
) -> bool:
    """Imports recordings, and prints problems and counts. Returns whether all could be read."""
    from demo_pipeline.cli.tables import progress_bar
    from demo_pipeline.importers.import_recordings import ImportState, import_recording
    from demo_pipeline.runs.imported_trajectories import import_trajectory, renew_catalog

    notes = Counter[str]()
    counts = Counter[ImportState]()
    workspace = None
    with progress_bar() as bar:
        for importer, recording in bar.track(recordings, description="importing"):
            if importer.read is None:
                if workspace is None:
                    workspace = open_workspace()
                    renew_catalog(workspace)
                outcome = import_trajectory(workspace, importer, recording, options)
            else:
                outcome = import_recording(importer, recording, uploads, options)
            counts[outcome.state] += 1
            if outcome.state is ImportState.IMPORTED:
                notes.update(outcome.sentences)
            elif outcome.state is not ImportState.KNOWN:
                for sentence in outcome.sentences:
                    print_error(f"{outcome.place}: {sentence.removeprefix(f'{outcome.place}: ')}")
    for note, count in sorted(notes.items()):
        print_error(f"{count} of {len(recordings)}: {note}")
    print_line(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
    return not (counts[ImportState.REFUSED] or counts[ImportState.DAMAGED])


def _uploads_folder() -> Path:
    """Returns the folder of the uploads. Ends the command if the uploads are in a bucket."""
    from demo_pipeline.store.names import is_bucket

    uploads = usable_settings().uploads
    if is_bucket(uploads):
        refuse("the uploads are in a bucket: import --to a folder, and copy it there")
    return Path(uploads)
