"""What every command takes from its environment: settings, and where Dagster remembers runs.

Belongs here: refusing what cannot be used as a usage error. A leaf of the command line.
"""

import os
import tomllib
from pathlib import Path

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from demo_pipeline.cli.console import print_error
from demo_pipeline.settings import Settings, project_root

OK, INVALID, USAGE = 0, 1, 2


def usable_settings() -> Settings:
    """The settings; what is wrong with them is said without their values, and ends the command."""
    try:
        return Settings()
    except ValidationError as error:
        for one in error.errors(include_url=False, include_input=False):
            name = "__".join(map(str, one["loc"])).upper()
            print_error(f"demo-pipeline: setting DEMO_PIPELINE_{name}: {one['msg']}")
    except SettingsError as error:
        print_error(f"demo-pipeline: {error}")
    except tomllib.TOMLDecodeError as error:
        print_error(f"demo-pipeline: the settings file is no TOML: {error}")
    raise typer.Exit(USAGE)


def use_dagster_home() -> None:
    """Let Dagster remember runs in DAGSTER_HOME, by default the checkout."""
    home = Path(os.environ.get("DAGSTER_HOME") or project_root()).expanduser().absolute()
    if not home.is_dir():
        print_error(f"DAGSTER_HOME {home}: no such directory; create it, or unset the variable")
        raise typer.Exit(USAGE)
    os.environ["DAGSTER_HOME"] = str(home)
