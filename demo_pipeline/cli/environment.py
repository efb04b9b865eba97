"""What every command reads from its environment: the settings, and Dagster's home folder.

Belongs here: reporting what cannot be used as a usage error.
"""

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from demo_pipeline.cli.console import print_error
from demo_pipeline.settings import PREFIX, Settings, project_root

if TYPE_CHECKING:
    from demo_pipeline.pipeline.context import Workspace

OK, INVALID, USAGE = 0, 1, 2


def usable_settings() -> Settings:
    """The settings; errors in them are printed without their values and end the command."""
    try:
        return Settings()
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            name = PREFIX + "__".join(map(str, detail["loc"])).upper()
            message = detail["msg"].removeprefix("Value error, ")
            message = f"setting {name}: {message}" if detail["loc"] else message
            for line in message.splitlines():
                print_error(f"demo-pipeline: {line}")
    except SettingsError as error:
        print_error(f"demo-pipeline: {error}")
    except tomllib.TOMLDecodeError as error:
        print_error(f"demo-pipeline: the settings file is not valid TOML: {error}")
    raise typer.Exit(USAGE)


def dagster_home() -> Path:
    """The folder in which Dagster records runs."""
    return Path(os.environ.get("DAGSTER_HOME") or project_root()).expanduser().absolute()


def set_dagster_home() -> Path:
    """Set DAGSTER_HOME, by default to the checkout, whether or not Dagster can use it."""
    home = dagster_home()
    if not home.is_dir():
        print_error(f"DAGSTER_HOME {home}: no such directory; create it, or unset the variable")
        raise typer.Exit(USAGE)
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def require_store(workspace: "Workspace") -> None:
    """End the command unless the store can be written."""
    from demo_pipeline.pipeline.health import HealthLevel, store_finding

    finding = store_finding(workspace)
    if finding.level is HealthLevel.ERROR:
        print_error(f"demo-pipeline: the store {finding.message}")
        raise typer.Exit(USAGE)


def require_dagster_home(home: Path) -> None:
    """End the command unless Dagster can record runs in this folder."""
    from demo_pipeline.defs.instance_check import InstanceError, require_instance

    try:
        require_instance(home)
    except InstanceError as error:
        print_error(f"demo-pipeline: {error}")
        raise typer.Exit(USAGE) from None
