"""The command `demo-pipeline forget`: removes demonstrations for ever, by id or by person."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    INVALID,
    dagster_instance,
    open_workspace,
    refuse,
    set_dagster_home,
)
from demo_pipeline.files.shown_text import counted

if TYPE_CHECKING:
    from demo_pipeline.runs.forgetting import Removal
    from demo_pipeline.runs.workspace import Workspace


def forget(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of demonstrations.")
    ] = None,
    *,
    person: Annotated[
        str,
        typer.Option(help="Choose the demonstrations whose meta.json names this person."),
    ] = "",
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="Choose the demonstrations with KEY=VALUE in meta.json; may be repeated."
        ),
    ] = None,
    delete_upload: Annotated[
        bool, typer.Option(help="Also delete the uploaded files; required if they still exist.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; list what would be removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove demonstrations for ever, and every dataset that contains them.

    The outputs, decisions, caches and Dagster partitions of the demonstrations are removed, and so
    are all versions of the datasets. The command first lists everything and asks for confirmation.
    The next `demo-pipeline run` builds the datasets again, without the demonstrations. To keep a
    demonstration in the store but out of the datasets, reject it in `demo-pipeline review`.

    `--person NAME` searches the fields of meta.json that name the person who recorded, such as
    `user`, `recorder.name` or `email`. NAME must be the whole value of a field; case is ignored.
    With `--field KEY=VALUE`, the value must be exactly equal; a nested key is written with dots.
    """
    from demo_pipeline.runs.forgetting import plan_removals

    workspace = open_workspace()
    home = set_dagster_home()
    chosen = _chosen_ids(workspace, ids or (), person, field or ())
    removals = plan_removals(workspace, chosen)
    for removal in removals:
        _print_removal(removal)
    datasets = sorted({name for removal in removals for name in removal.datasets})
    if datasets:
        print_line(f"datasets that contain them, all versions: {', '.join(datasets)}")
    if dry_run:
        print_line(f"nothing was removed: {counted(len(removals), 'demonstrations')} listed")
        return
    _require_removable(workspace, home, removals, delete_upload=delete_upload)
    if not yes and not all(removal.is_empty for removal in removals):
        names = chosen[0] if len(chosen) == 1 else counted(len(chosen), "demonstrations")
        typer.confirm(f"Remove {names} for ever, as listed?", abort=True)
    missing = [
        removal.demonstration for removal in removals if not _remove(workspace, home, removal)
    ]
    for demonstration in missing:
        print_error(f"{demonstration}: not found")
    if missing:
        raise typer.Exit(INVALID)


def _chosen_ids(
    workspace: "Workspace", ids: Sequence[str], person: str, fields: Sequence[str]
) -> Sequence[str]:
    """Returns the ids on the command line, or the ids of the person's demonstrations.

    Ends the command if ids or options are not usable, or if no demonstration matches.
    """
    from demo_pipeline.store.names import is_safe_id

    if bool(ids) == bool(person or fields):
        refuse("name demonstrations by their ids, or by --person or --field")
    if not ids:
        ids = _ids_of_person(workspace, person, fields)
        if not ids:
            print_line("no demonstration matches")
            raise typer.Exit(INVALID)
    if not all(map(is_safe_id, ids)):
        refuse("this cannot be the id of a demonstration")
    return ids


def _ids_of_person(workspace: "Workspace", person: str, fields: Sequence[str]) -> list[str]:
    """Returns the ids of the person's demonstrations.

    Prints the demonstrations that could not be searched.
    """
    from demo_pipeline.runs.forgetting import PersonSearch, find_demonstrations

    values = {}
    for text in fields:
        name, separator, value = text.partition("=")
        if not (name and separator):
            refuse(f"--field {text}: expected KEY=VALUE, e.g. --field user=anna")
        values[name] = value
    result = find_demonstrations(workspace, PersonSearch(person, values))
    if result.unreadable:
        print_error(
            f"not searched, because meta.json is missing or cannot be read: "
            f"{', '.join(result.unreadable)}; look into them, and forget them by their ids"
        )
    return result.matching


def _print_removal(removal: "Removal") -> None:
    """Prints which parts of a demonstration exist and would be removed."""
    print_line(f"{removal.demonstration}:")
    if removal.is_uploaded:
        print_line(f"  upload: {', '.join(removal.upload)}")
    if removal.outputs:
        folders = [name.partition("/")[0] for name in removal.outputs]
        print_line(f"  outputs, all versions: {', '.join(folders)}")
    if removal.documents:
        print_line(f"  decisions, annotations and quarantine records: {removal.documents}")
    for export, count in removal.records.items():
        print_line(f"  {export}: {counted(count, 'records')}")


def _require_removable(
    workspace: "Workspace", home: Path, removals: "Sequence[Removal]", *, delete_upload: bool
) -> None:
    """Ends the command if a demonstration cannot be removed now.

    Possible reasons are a run that processes the demonstration, a store that is not writable, and
    an upload that still exists although `delete_upload` is not set.
    """
    from demo_pipeline.defs.maintenance import is_being_processed
    from demo_pipeline.review.review_store import require_idle
    from demo_pipeline.runs.health import HealthLevel, store_finding
    from demo_pipeline.store.errors import StorageError

    for removal in removals:
        try:
            require_idle(workspace.store, removal.demonstration)
        except StorageError as error:
            refuse(str(error))
    finding = store_finding(workspace)
    if finding.level is HealthLevel.ERROR:
        refuse(f"nothing was removed: the store {finding.message}")
    uploaded = [removal.demonstration for removal in removals if removal.is_uploaded]
    if uploaded and not delete_upload:
        verb = "is" if len(uploaded) == 1 else "are"
        refuse(
            f"{', '.join(uploaded)} {verb} still in the uploads, so that the next run would "
            "process it again; give --delete-upload to delete its files too"
        )
    if _has_history(home):
        with dagster_instance(home) as instance:
            for removal in removals:
                if is_being_processed(instance, removal.demonstration):
                    refuse(
                        f"{removal.demonstration} is being processed; wait until its run has ended"
                    )


def _has_history(home: Path) -> bool:
    """Whether a folder contains files of a Dagster instance."""
    return (home / "history").exists() or (home / "dagster.yaml").exists()


def _remove(workspace: "Workspace", home: Path, removal: "Removal") -> bool:
    """Removes a demonstration, and prints the counts. Returns whether anything existed.

    The upload is removed last, so that the demonstration can be rebuilt after an error.
    """
    from demo_pipeline.defs.maintenance import forget_partition
    from demo_pipeline.review.review_store import forget_demonstration
    from demo_pipeline.runs.stages import STAGES
    from demo_pipeline.store.bucket import Bucket

    demonstration = removal.demonstration
    outputs, datasets, documents = forget_demonstration(
        workspace.store, demonstration, [stage.name for stage in STAGES]
    )
    runs = 0
    if _has_history(home):
        with dagster_instance(home) as instance:
            runs = forget_partition(instance, demonstration)
    upload_removed = removal.is_uploaded and workspace.uploads.remove(demonstration)
    if not (upload_removed or outputs or datasets or documents or runs):
        return False
    upload = "its upload, " if upload_removed else ""
    print_line(
        f"{demonstration} removed: {upload}{counted(len(outputs), 'outputs')}, "
        f"{counted(documents, 'documents')}, {counted(runs, 'runs')} of Dagster"
    )
    for name in datasets:
        print_line(f"{name} removed: it contained {demonstration}; the next run builds it again")
    objects = workspace.store.objects
    if isinstance(objects, Bucket) and objects.keeps_old():
        print_line("the bucket keeps old versions of its objects: remove them with its own tools")
    return True
