"""The commands `demo-pipeline review` and `demo-pipeline reviews`.

Typed text is never printed. For a correction, only kind and step are printed. `reviews export`
writes corrections in full, to a file that only the owner of the file can read.
"""

import getpass
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import (
    INVALID,
    open_workspace,
    refuse,
)

_Ids = Annotated[list[str] | None, typer.Argument(help="Ids of demonstrations. [default: all]")]


def review(
    demonstration: Annotated[
        str, typer.Argument(help="Id of the demonstration to show first.")
    ] = "",
    *,
    author: Annotated[
        str, typer.Option(help="Your name, stored with your decisions. [default: your login]")
    ] = "",
    port: Annotated[
        int, typer.Option(min=1024, max=65535, help="Port of the page on this machine (127.0.0.1).")
    ] = 8770,
) -> None:
    """Serve a page on which you watch, judge and correct demonstrations, until you press Ctrl-C.

    Open the address that the command prints in a browser on this machine; other machines cannot
    reach the page. Your decisions are stored under `reviews/` in the store. The daemon or the next
    `demo-pipeline run` applies them to the datasets.
    """
    import uvicorn

    from demo_pipeline.files.web_requests import kept_token
    from demo_pipeline.review.review_data import ReviewData
    from demo_pipeline.review.server import TOKEN_FILE, build_app

    workspace = open_workspace()
    token = kept_token(Path(workspace.settings.cache).expanduser(), TOKEN_FILE)
    try:
        connection = socket.create_server(("127.0.0.1", port))
    except OSError:
        refuse(f"port {port} is taken; end what uses it, or give --port")
    data = ReviewData(workspace.store, workspace.uploads)
    fragment = f"#{demonstration}" if demonstration else ""
    print_line(f"http://127.0.0.1:{port}/{token}/{fragment}")
    app = build_app(data, author or getpass.getuser(), token, port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[connection])


reviews_app = typer.Typer(no_args_is_help=True, help="List, export and import decisions of people.")


@reviews_app.command("list")
def list_reviews(ids: _Ids = None) -> None:
    """List reviewers' decisions with time, author, kind, step and state, then count the states.

    The state is `holds` (the decision applies), `replaced` (by a later decision), `stale` (the
    judged step has changed since), `undone`, `undo` (the decision undoes another one), or
    `no trajectory`.
    """
    from demo_pipeline.review.review_store import judged_decisions

    counts = Counter({"holds": 0})
    for decision, state in judged_decisions(open_workspace().store, ids or ()):
        counts[state] += 1
        step = "" if decision.step is None else f" step {decision.step}"
        summary = f"{decision.time} {decision.author}: {decision.kind}{step} [{state}]"
        print_line(f"{decision.demonstration} {summary} {decision.id}")
    print_line(", ".join(f"{number} {state}" for state, number in counts.items()))


@reviews_app.command("export")
def export_reviews(
    dest: Annotated[Path, typer.Argument(help="File to create, .jsonl or .csv.")],
    ids: _Ids = None,
) -> None:
    """Write reviewers' decisions to a file. The file may contain typed text."""
    from demo_pipeline.review.review_store import Reviews, exchanged

    if dest.suffix.lower() not in {".jsonl", ".csv"} or dest.exists():
        refuse(f"{dest}: give a new file that ends in .jsonl or .csv")
    reviews = Reviews(open_workspace().store)
    reviews.refresh()
    for key in reviews.damaged():
        print_error(f"{key} is not a decision and is ignored; remove it")
    decisions = [decision for decision in reviews.all() if not ids or decision.demonstration in ids]
    handle = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
        file.write(exchanged(decisions, dest.suffix.lower()))
    print_line(f"decisions written to {dest}: {len(decisions)}")


@reviews_app.command("import")
def import_reviews(
    source: Annotated[Path, typer.Argument(help="A file that `reviews export` wrote.")],
) -> None:
    """Add the decisions in a file to the store, except those that the store already has.

    Exits with 1 if a line is not a decision; the other lines are added.
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
