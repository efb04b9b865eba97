"""The commands `demo-pipeline review`, `demo-pipeline reviews` and `demo-pipeline forget`.

Belongs here: their arguments, output and exit codes. What was typed is in no line: a correction is
named by its kind and its step; `reviews export` writes it to a file that only its owner can read.
"""

import getpass
import os
import socket
from collections import Counter
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

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace

_Ids = Annotated[list[str] | None, typer.Argument(help="Ids of demonstrations; none: all.")]


def review(
    demonstration: Annotated[str, typer.Argument(help="The demonstration to begin with.")] = "",
    *,
    author: Annotated[str, typer.Option(help="Your name in the decisions. [default: login]")] = "",
    port: Annotated[int, typer.Option(min=1024, max=65535, help="On this machine only.")] = 8770,
) -> None:
    """Open a page on which people watch, judge and correct demonstrations; Ctrl-C ends it.

    It answers this machine only, at the address it prints. Decisions are kept in the store, under
    `reviews/`; the daemon, or the next `demo-pipeline run`, applies them.
    """
    import uvicorn

    from demo_pipeline.files.web_requests import kept_token
    from demo_pipeline.review.material import Material
    from demo_pipeline.review.server import TOKEN_FILE, build_app

    workspace = open_workspace()
    token = kept_token(Path(workspace.settings.cache).expanduser(), TOKEN_FILE)
    try:
        connection = socket.create_server(("127.0.0.1", port))
    except OSError:
        refuse(f"port {port} is taken; end what uses it, or give --port")
    material = Material(workspace.store, workspace.uploads)
    place = f"#{demonstration}" if demonstration else ""
    print_line(f"http://127.0.0.1:{port}/{token}/{place}")
    app = build_app(material, author or getpass.getuser(), token, port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[connection])


reviews_app = typer.Typer(no_args_is_help=True, help="List, export and import decisions of people.")


@reviews_app.command("list")
def list_reviews(ids: _Ids = None) -> None:
    """List the decisions: time, author, what, and whether it holds; then counts."""
    from demo_pipeline.review.review_store import judged_decisions

    counts = Counter({"holds": 0})
    # Of an undone decision and its undo, and of what a later one replaces, nothing holds.
    for decision, state in judged_decisions(open_workspace().store, ids or ()):
        counts[state] += 1
        step = "" if decision.step is None else f" step {decision.step}"
        told = f"{decision.time} {decision.author}: {decision.kind}{step} [{state}]"
        print_line(f"{decision.demonstration} {told} {decision.id}")
    print_line(", ".join(f"{number} {state}" for state, number in counts.items()))


@reviews_app.command("export")
def export_reviews(
    dest: Annotated[Path, typer.Argument(help="A new file: .jsonl, or .csv for a table.")],
    ids: _Ids = None,
) -> None:
    """Write the decisions to a file, corrections in full: they may hold what was typed."""
    from demo_pipeline.review.review_store import Reviews, exchanged

    if dest.suffix.lower() not in {".jsonl", ".csv"} or dest.exists():
        refuse(f"{dest}: give a new file that ends in .jsonl or .csv")
    reviews = Reviews(open_workspace().store)
    reviews.refresh()
    for key in reviews.damaged():
        print_error(f"{key} is not a decision, and counts for nothing; remove it")
    decisions = [one for one in reviews.all() if not ids or one.demonstration in ids]
    handle = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(exchanged(decisions, dest.suffix.lower()))
    print_line(f"decisions written to {dest}: {len(decisions)}")


@reviews_app.command("import")
def import_reviews(
    source: Annotated[Path, typer.Argument(help="A file that `reviews export` wrote, or alike.")],
) -> None:
    """Add the decisions of a file to the store; those that are there already stay as they are.

    Exit code 1 when a line holds no decision; the others are added all the same.
    """
    from demo_pipeline.files.json_files import JsonFileError
    from demo_pipeline.review.review_store import import_decisions, read_exchange

    try:
        decisions, problems = read_exchange(source)
    except JsonFileError as error:
        refuse(f"{error.file}: {error.message}")
    added, refused = import_decisions(open_workspace().store, decisions)
    for problem in (*problems, *refused):
        print_error(str(problem))
    print_line(f"{added} added, {len(decisions) - added - len(refused)} known before")
    if problems or refused:
        raise typer.Exit(INVALID)


def _uploaded(workspace: "Workspace", demonstration: str, *, delete_upload: bool) -> bool:
    """Whether a demonstration that may be forgotten is in the uploads."""
    from demo_pipeline.review.review_store import require_idle
    from demo_pipeline.runs.health import HealthLevel, store_finding
    from demo_pipeline.store.errors import StorageError
    from demo_pipeline.store.names import is_safe_id

    if not is_safe_id(demonstration):
        refuse("this cannot be the id of a demonstration")
    try:
        require_idle(workspace.store, demonstration)
    except StorageError as error:
        refuse(str(error))
    if (finding := store_finding(workspace)).level is HealthLevel.ERROR:
        refuse(f"nothing was removed: the store {finding.message}")
    uploaded = workspace.uploads.find(demonstration) is not None
    if uploaded and not delete_upload:
        refuse(
            f"{demonstration} is still in the uploads, so that the next run would process it "
            "again; give --delete-upload to delete its files too"
        )
    return uploaded


def forget(
    demonstration: Annotated[str, typer.Argument(help="Id of the demonstration.")],
    *,
    delete_upload: Annotated[
        bool, typer.Option(help="Delete the uploaded files too; needed while they are there.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a demonstration for ever: outputs, decisions, caches, partition, and its datasets.

    Every version of every dataset that holds it goes at once; the next `demo-pipeline run` builds
    them again without it. To leave out one that stays, reject it.
    """
    from demo_pipeline.defs.maintenance import forget_partition, is_being_processed
    from demo_pipeline.review.review_store import forget_demonstration
    from demo_pipeline.runs.stages import STAGES
    from demo_pipeline.store.bucket import Bucket

    workspace, home = open_workspace(), set_dagster_home()
    uploaded = _uploaded(workspace, demonstration, delete_upload=delete_upload)
    has_history = (home / "history").exists() or (home / "dagster.yaml").exists()
    if has_history:
        with dagster_instance(home) as instance:
            if is_being_processed(instance, demonstration):
                refuse(f"{demonstration} is being processed; wait until its run has ended")
    if not yes:
        what = "its upload, its outputs" if uploaded else "its outputs"
        typer.confirm(f"Remove {demonstration} for ever: {what} and its datasets?", abort=True)
    own, datasets, documents = forget_demonstration(
        workspace.store, demonstration, [stage.name for stage in STAGES]
    )
    runs = 0
    if has_history:
        with dagster_instance(home) as instance:
            runs = forget_partition(instance, demonstration)
    if uploaded:  # last: after an error before it, the demonstration can be built again
        workspace.uploads.remove(demonstration)
    if not (uploaded or own or datasets or documents or runs):
        print_error(f"{demonstration}: not found")
        raise typer.Exit(INVALID)
    print_line(f"outputs removed: {len(own)}, documents: {documents}")
    for name in datasets:
        print_line(f"{name} removed: it held the demonstration; the next run builds it again")
    objects = workspace.store.objects
    if isinstance(objects, Bucket) and objects.keeps_old():
        print_line("the bucket keeps old versions of its objects: remove those by its own rules")
    if has_history:
        print_line(f"partition removed from Dagster, and its runs: {runs}")
