"""The commands `demo-pipeline init` and `demo-pipeline ui`.

Belongs here: a project outside of a checkout: its folders, its settings, Dagster's instance.
"""

import os
import shlex
import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline.cli.console import print_error, print_line
from demo_pipeline.cli.environment import USAGE, set_dagster_home


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that is empty or does not exist.")
    ],
) -> None:
    """Make a project: folders for recordings and outputs, settings, Dagster's home, a sample.

    Commands that run in it, or in a folder below, use it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        print_error(f"demo-pipeline: {folder} is not empty")
        raise typer.Exit(USAGE)
    recordings, home = folder / "data" / "recordings", folder / "dagster"
    for made in (recordings, home):
        made.mkdir(parents=True)
    with as_file(files("demo_pipeline") / "project") as template:
        for source in template.iterdir():
            if source.is_dir():
                shutil.copytree(source, recordings / source.name)
            else:
                place = home if source.name == "dagster.yaml" else folder
                shutil.copyfile(source, place / source.name)
    print_line(f"{folder}: a project with one recording in {recordings}")
    print_line(f"cd {shlex.quote(str(folder))}; demo-pipeline run; demo-pipeline ui")


def ui(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of this machine alone.")] = 3000,
) -> None:
    """Open Dagster's UI over the project, with its sensors: new recordings are processed."""
    home = set_dagster_home()
    dagster = Path(sys.executable).with_name("dagster")
    module = ["-m", "demo_pipeline.definitions"]
    os.chdir(home)  # Dagster leaves folders where it starts
    os.execv(  # noqa: S606 - Ctrl-C has to reach Dagster itself
        dagster, [str(dagster), "dev", *module, "--host", "127.0.0.1", "--port", str(port)]
    )
