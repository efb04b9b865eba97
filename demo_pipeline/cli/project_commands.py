"""The commands `demo-pipeline init`, `demo-pipeline ui` and `demo-pipeline doctor`."""

import os
import shlex
import shutil
import socket
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

import typer

from demo_pipeline.cli.console import AsJson, print_json, print_line
from demo_pipeline.cli.environment import (
    INVALID,
    OK,
    dagster_instance,
    open_workspace,
    refuse,
    set_dagster_home,
    usable_settings,
)
from demo_pipeline.files.processes import reduced_python_gc, spare_existing_objects
from demo_pipeline.settings import project_home, project_root

_TOKEN_FILE = "ui-token"  # noqa: S105 - a file's name


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that is empty or does not exist.")
    ],
) -> None:
    """Create a project: settings, an inbox with a sample recording, and Dagster's home.

    Run the other commands in the folder of the project, or in a folder inside it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        refuse(f"{folder} is not empty")
    recordings = folder / "data" / "recordings"
    home = folder / "dagster"
    for new_folder in (recordings, home):
        new_folder.mkdir(parents=True)
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
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the UI on this machine (127.0.0.1).")
    ] = 3000,
) -> None:
    """Start Dagster's UI and daemon, which process new recordings until you press Ctrl-C.

    The UI listens on this machine only. The command prints two addresses: a short one, and a long
    one that contains a secret. The short address works in browsers on this machine. If you reach
    the machine under another name, for example through a forwarded port, open the long address.
    """
    from demo_pipeline.cli.ui_guard import private_address, start_guard
    from demo_pipeline.files.web_requests import kept_token

    home = set_dagster_home()
    settings = usable_settings(anywhere=True)
    own = project_root() / "workspace.yaml"
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError:
        refuse(f"port {port} is taken; end what uses it, or give --port")
    with dagster_instance(home):
        pass  # create the databases now, so that daemon and webserver do not both create them
    token = kept_token(Path(settings.cache).expanduser(), _TOKEN_FILE)
    upstream = private_address()
    # The guard process ends when its standard input is closed. This variable keeps the pipe open.
    _guard = start_guard(listening, upstream, token)
    listening.close()
    print_line(f"http://127.0.0.1:{port} (under another name: …:{port}/{token}/)")
    with as_file(files("demo_pipeline") / "project" / "workspace.yaml") as shipped:
        workspace = own if own.is_file() else shipped
    os.chdir(project_home())  # Dagster creates folders in the current folder
    os.environ["DAGSTER_WEBSERVER_PATH_PREFIX"] = f"/{token}"
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace)]
    command += ["--host", upstream[0], "--port", str(upstream[1])]
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - Dagster itself has to receive Ctrl-C


# With this threshold, the garbage collector never runs in `doctor`.
_ALL_OBJECTS = 10**8


def _import_without(library: str, optional: str) -> None:
    """Imports a library as if one of its optional dependencies were not installed.

    Python treats a module whose entry in `sys.modules` is None as missing.
    """
    if optional not in sys.modules:
        sys.modules[optional] = None  # type: ignore[assignment]
        with suppress(ImportError):
            import_module(library)
        del sys.modules[optional]


@reduced_python_gc(_ALL_OBJECTS)  # garbage collection takes a quarter of Dagster's import time
def doctor(
    *,
    as_json: AsJson = False,
    strict: Annotated[bool, typer.Option(help="Exit with 1 for warnings, too.")] = False,
    expect_daemon: Annotated[
        bool, typer.Option("--expect-daemon", help="Treat a missing daemon as an error.")
    ] = False,
) -> None:
    """Check folders, free space, outputs, quarantine, unfinished files and Dagster; change nothing.

    Exits with 0 if there are no errors, 1 if there are errors, and 2 if the settings cannot be
    used.
    """
    # Leaving out rich, which structlog uses for colors, saves 0.05 CPU s.
    _import_without("structlog", "rich")
    _import_without("mako.exceptions", "pygments")
    from demo_pipeline.defs.instance_health import examine_instance
    from demo_pipeline.runs.health import HealthLevel, examine_workspace

    workspace = open_workspace()
    set_dagster_home()
    findings = [
        *examine_workspace(workspace),
        examine_instance(workspace, expect_daemon=expect_daemon),
    ]
    levels = [finding.level for finding in findings]
    errors = levels.count(HealthLevel.ERROR)
    warnings = levels.count(HealthLevel.WARNING)
    if as_json:
        report = {
            "healthy": not errors,
            "errors": errors,
            "warnings": warnings,
            "findings": [asdict(finding) for finding in findings],
        }
        print_json(report)
    else:
        for finding in findings:
            print_line(f"{finding.level.value:<8}{finding.check}: {finding.message}")
        print_line(f"{errors} errors, {warnings} warnings")
    spare_existing_objects()  # otherwise the many new objects would start a garbage collection
    raise typer.Exit(INVALID if errors or (strict and warnings) else OK)
