"""Fixtures: a recording to write in the formats of other tools, and the command `import`."""

from pathlib import Path
from typing import Any, Protocol

import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline_tests.made_once import made_once
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, drag, hotkey, scroll, type_text


class Import(Protocol):
    """A function that imports a source with options, and returns the folder of the only upload."""

    def __call__(self, source: Path, *options: str) -> Path: ...


@pytest.fixture(scope="session")
def form(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An upload on Windows with clicks, typing, a hotkey, a drag and a scroll."""
    acts = [click("Agree"), click("Name"), type_text("ab c"), hotkey("ctrl", "a")]
    acts += [scroll("Rows", 2), drag("Form/title bar", 60, 40)]

    def make(root: Path) -> None:
        write_recording(root / "form", script(*acts), SMALL)

    return made_once(tmp_path_factory, "foreign", make) / "form"


def run_import(*arguments: str | Path) -> Any:
    """Runs the command `import` with arguments."""
    return run_command("import", *map(str, arguments))


def run_command(*arguments: str) -> Any:
    """Runs a command. Returns its output and exit code."""
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def bring(tmp_path: Path) -> Import:
    """A function that imports a source into a new folder of uploads."""

    def call(source: Path, *options: str) -> Path:
        uploads = tmp_path / "uploads" / source.stem
        result = run_import(source, "--to", uploads, *options)
        assert result.exit_code == 0, result.output
        [folder] = uploads.iterdir()
        return folder

    return call
