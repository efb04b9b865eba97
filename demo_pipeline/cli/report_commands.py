"""The command `demo-pipeline report`.

Belongs here: its argument and its output.
"""

from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline.cli.console import byte_text, print_line
from demo_pipeline.cli.environment import usable_settings


def report(
    dest: Annotated[Path, typer.Argument(help="A directory that is empty or does not exist.")],
) -> None:
    """Write a report to send: one folder of static pages about the demonstrations and datasets.

    It opens without a server and without a network. It holds screens, unless
    `execution.screens_in_reports` is off, and never what was typed.
    """
    from demo_pipeline.reports.report import write_report
    from demo_pipeline.runs.workspace import Workspace

    written = write_report(Workspace.open(usable_settings()), dest)
    print_line(
        f"{dest}/index.html: {written.demonstrations} demonstrations, {written.steps} steps, "
        f"{written.pictures} pictures, {byte_text(written.size)}"
    )
