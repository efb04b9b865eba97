"""Generates pages of the documentation from the code: settings, commands and the asset graph.

`make docs` writes the pages. A test compares them with the files in `docs/`.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from demo_pipeline.cli.app import app
from demo_pipeline.runs.stages import STAGES, dataset_stages
from demo_pipeline.settings import Section, Settings, project_root
from demo_pipeline.stage import Stage
from demo_pipeline_tests.asset_graph import asset_graph

DOCS = Path(__file__).resolve().parents[1] / "docs"
_NOTE = "<!-- Written by `make docs`; change the code that it describes instead. -->\n"


def generated_pages() -> dict[str, str]:
    """Returns the text of each generated file, by its name in `docs/`."""
    return {
        "reference/settings.md": "".join(_settings()),
        "reference/commands.md": "".join(_commands()),
        "images/assets.svg": asset_graph(),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |\n"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"


def _settings() -> Iterator[str]:
    yield f"# Settings\n\n{_NOTE}\n"
    yield (
        "Every setting of the pipeline, for people who want to change how it works. You can set a"
        " value in an environment variable or in the settings\nfile. If both have a value, the"
        " value of the environment variable is used. If neither has a value, the default is used."
        " The settings file is\n`demo_pipeline.toml` in the folder of the project, or the file"
        " that `DEMO_PIPELINE_CONFIG` names. For example:\n\n"
        '```toml\n[actions]\nkeyboard_layout = "de"\n\n[datasets]\nheld_out_applications = ["gimp"]'
        "\n```\n\nThe name of an environment variable has two underscores after the section, and"
        " lists are written as JSON:\n\n"
        "```bash\nexport DEMO_PIPELINE_ACTIONS__KEYBOARD_LAYOUT=de\n"
        "export DEMO_PIPELINE_DATASETS__HELD_OUT_APPLICATIONS='[\"gimp\"]'\n```\n\n"
        "If the file or an environment variable (with the prefix `DEMO_PIPELINE_`) names a setting"
        " that does not exist, every command stops with an\nerror. If you change a setting, the"
        " outputs that depend on its section are built again; each section below names these"
        " outputs.\n\n"
        "Credentials are not settings. The S3 client reads them from its own environment variables"
        " ([operations](../guides/operations.md#uploads-in-a-bucket)).\nThe options of single"
        " commands are on the page of the [commands](commands.md).\n"
    )
    roots = {
        name: field
        for name, field in Settings.model_fields.items()
        if not isinstance(field.default, Section)
    }
    yield (
        "\n## Roots\n\nThe folders that the pipeline reads and writes. These settings do not"
        " change any output.\n\n"
    )
    yield from _setting_rows(roots, "")
    defaults = Settings.model_construct()
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, Section) and type(field.default).model_fields:
            kind = type(field.default)
            yield f"\n## {name}\n\n{inspect.getdoc(kind)}\n\n{_depending(name, defaults)}\n\n"
            yield from _setting_rows(kind.model_fields, f"{name}.")


def _depending(section: str, settings: Settings) -> str:
    """Returns a sentence that names the outputs that depend on a section of the settings."""
    value = getattr(settings, section)
    stages: list[Stage] = [*STAGES, *dataset_stages()]
    names = [
        f"`{stage.name}`"
        for stage in stages
        if stage.name == section or any(read(settings) is value for read in _sections_read(stage))
    ]
    if not names:
        return "After a change, nothing is built again."
    outputs = ", ".join(names)
    return f"A change of these settings rebuilds {outputs}, and the outputs that depend on them."


def _sections_read(stage: Stage) -> list[Callable[[Settings], Section]]:
    return [stage.section] if stage.section else []


def _setting_rows(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[str]:
    rows = [
        (f"`{prefix}{name}`", _default(field), _meaning(field)) for name, field in fields.items()
    ]
    yield from _table(("setting", "default", "meaning"), rows)


def _default(field: FieldInfo) -> str:
    if field.default_factory is None:
        return f"`{_toml(field.default)}`"
    value = field.default_factory()  # type: ignore[call-arg]
    if isinstance(value, str):
        return f"`{Path(value).relative_to(project_root())}`"
    return "number of processors" if isinstance(value, int) else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _meaning(field: FieldInfo) -> str:
    assert field.description is not None
    kind = field.annotation
    few = "one"
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        few = "some"
    if get_origin(kind) is Literal:
        choices = ", ".join(f"`{choice}`" for choice in get_args(kind))
        return f"{field.description} ({few} of {choices})"
    return field.description


def _commands() -> Iterator[str]:
    """Yields the text of the page about all commands, with their arguments and options."""
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    yield f"# Commands\n\n{_NOTE}\n"
    yield (
        "Every command of `demo-pipeline` with its arguments and options, for people who know which"
        " command they need. `demo-pipeline COMMAND --help`\nprints the same. The guides show how"
        " to use the commands.\n\n"
        "Every command exits with 0 after success, with 1 if something is invalid, failed or was"
        " not found, with 2 after a usage error, and with 130 if it\nwas interrupted by Ctrl-C.\n"
    )
    listed = [(f"[`{name}`](#{_anchor(name)})", _first_line(it)) for name, it in _leaves(root)]
    yield "\n"
    yield from _table(("command", "purpose"), listed)
    for name, command in _leaves(root):
        yield f"\n## demo-pipeline {name}\n\n{inspect.cleandoc(command.help or '')}\n\n"
        parameters = [it for it in command.params if isinstance(it, TyperArgument | TyperOption)]
        rows = [_parameter_row(it) for it in parameters]
        if rows:
            yield from _table(("argument or option", "default", "meaning"), rows)


def _leaves(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """Yields the full name of each command, and the command. Groups of commands are left out."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _leaves(command, f"{prefix}{name} ")
        elif isinstance(command, TyperCommand):
            yield f"{prefix}{name}", command


def _anchor(name: str) -> str:
    return f"demo-pipeline-{name.replace(' ', '-')}"


def _first_line(command: TyperCommand) -> str:
    return inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")


def _parameter_row(parameter: TyperArgument | TyperOption) -> tuple[str, str, str]:
    """Returns the name, the default and the meaning of an argument or option."""
    if isinstance(parameter, TyperOption):
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        value = parameter.default
        default = "" if value in (None, False, "") or parameter.required else f"`{value}`"
        return names, "required" if parameter.required else default, parameter.help or ""
    metavar = parameter.metavar or str(parameter.name).upper()
    return f"`{metavar}`", "required" if parameter.required else "", parameter.help or ""


if __name__ == "__main__":
    for name, text in generated_pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
