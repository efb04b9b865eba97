"""Provides the settings, Dagster's home, error messages and Ctrl-C handling for all commands.

An error is printed as one sentence, without messages of other libraries, which may quote typed
text.
"""

import json
import os
import shlex
import signal
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from demo_pipeline.cli.console import print_error
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.settings import (
    PREFIX,
    OwnExportError,
    Section,
    Settings,
    dagster_home,
    is_project,
)

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace

OK = 0
INVALID = 1
USAGE = 2
INTERRUPTED = 130  # exit code after Ctrl-C, 128 + SIGINT as in shells
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_VIDEOS = (".mp4", ".mkv", ".mov", ".webm", ".avi", ".flv")
_LISTED = 5  # maximum number of names that a sentence lists; further names are only counted


def usable_settings(*, anywhere: bool = False) -> Settings:
    """Reads the settings from the environment and the settings file.

    Ends the command if a setting is not valid.

    Args:
        anywhere: whether the command also works without a project and without a configured store.
    """
    lines = list[str]()
    try:
        settings = Settings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            message = detail["msg"].removeprefix("Value error, ")
            names = tuple(map(str, detail["loc"][:2]))
            if names:
                message = f"setting {_assigned(names, detail['input'])}: {message}{_example(names)}"
            lines += message.splitlines()
    except SettingsError as error:
        lines = [*_not_json(str(error))] or [str(error)]
    except tomllib.TOMLDecodeError as error:
        lines = [f"the settings file is not valid TOML: {error}"]
    if lines:
        refuse(*lines)
    if not (anywhere or is_project() or "store" in settings.model_fields_set):
        _refuse_outside(f"{PREFIX}UPLOADS and {PREFIX}STORE")
    return settings


def open_workspace() -> "Workspace":
    """Opens the uploads and the store that the settings name."""
    from demo_pipeline.runs.workspace import Workspace

    return Workspace.open(usable_settings())


def _assigned(names: tuple[str, ...], value: object) -> str:
    """Returns `VARIABLE=value`, or only the variable if the value may be a secret.

    `names` is the name of a setting, preceded by the name of its section, if any.
    """
    name = f"{PREFIX}{'__'.join(names).upper()}"
    is_plain = isinstance(value, str | int | float) and len(names) > 1
    if is_plain and not {":", "@"} & set(str(value)):
        return f"{name}={value}"
    return name


def _default(names: tuple[str, ...]) -> tuple[Any, str]:
    """Returns default and description of a setting or section, or (None, "") for a wrong name."""
    fields = Settings.model_fields
    default = None
    description = ""
    for name in names:
        if name not in fields:
            return None, ""
        default = fields[name].get_default(call_default_factory=True)
        description = fields[name].description or ""
        fields = type(default).model_fields if isinstance(default, Section) else {}
    return default, description


def _example(names: tuple[str, ...]) -> str:
    """Returns the default of a setting, or its description, as the example in an error message."""
    default, description = _default(names)
    if default is None or isinstance(default, Section):
        return ""
    if default in {"", ()}:
        return f"; it is {description}"
    text = default if isinstance(default, str) else json.dumps(default)
    return f"; for example {_assigned(names, None)}={shlex.quote(text)}"


def _not_json(message: str) -> Iterator[str]:
    """Yields a sentence for each environment variable whose value should be JSON but is not.

    `message` is the error of the settings library, which quotes the section or setting.
    """
    quoted = message.partition('"')[2].partition('"')[0]
    prefix = f"{PREFIX}{quoted}".upper()
    for name in sorted(name for name in os.environ if name.upper().startswith(prefix)):
        names = tuple(name.upper().removeprefix(PREFIX).lower().split("__"))
        default, _ = _default(names)
        try:
            json.loads(os.environ[name])
        except ValueError:
            if isinstance(default, Section):  # use the first setting of the section as an example
                names = (*names, *list(type(default).model_fields)[:1])
            if isinstance(default, Section | tuple):
                yield f"setting {name}: is not valid JSON{_example(names)}"


def set_dagster_home() -> Path:
    """Sets DAGSTER_HOME to the project's Dagster home, unless the variable is already set.

    Returns the folder. Ends the command if the folder does not exist.
    """
    home = dagster_home()
    if not is_project() and not os.environ.get("DAGSTER_HOME"):
        _refuse_outside("DAGSTER_HOME to a folder in which Dagster records runs")
    if not home.is_dir():
        refuse(f"DAGSTER_HOME {home}: no such directory; create it, or unset the variable")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def refuse(*lines: str) -> NoReturn:
    """Ends the command with these lines on standard error and exit code 2."""
    for line in lines:
        print_error(f"demo-pipeline: {line}")
    raise typer.Exit(USAGE)


def _refuse_outside(needed: str) -> NoReturn:
    refuse(
        f"{Path.cwd()} is not in a project; make one with `demo-pipeline init DIR` "
        f"and go there, or set {needed}"
    )


def print_ignored_uploads(workspace: "Workspace") -> bool:
    """Prints which folders and files in the uploads are ignored, and what to do.

    Returns whether a folder is ignored because its name cannot be an id.
    """
    from demo_pipeline.store.uploads import NAME_RULE

    names = workspace.uploads.misnamed()
    if names:
        print_error(f"refused: {', '.join(names)} in {workspace.uploads.url}: {NAME_RULE}")
    for line in _loose_files(workspace.uploads.url):
        print_error(line)
    return bool(names)


def _loose_files(inbox: str) -> Iterator[str]:
    """Yields sentences about archives and recorded files that are directly in the uploads folder.

    Such files are ignored. A bucket is not examined, because it may contain a million objects.
    """
    from demo_pipeline.store.names import is_bucket, local_path

    if is_bucket(inbox):
        return
    with suppress(OSError):  # another check reports a missing folder
        entries = sorted(local_path(inbox).iterdir())
        names = [path.name for path in entries if path.is_file() and path.name[0] != "."]
        archives = [name for name in names if name.lower().endswith(_ARCHIVES)]
        loose = [
            name
            for name in names
            if name.lower().endswith(_VIDEOS) or name in RECORDING_FILES or name.endswith(".mcap")
        ]
        if archives:
            yield (
                f"ignored: {_listed(archives)} in {inbox}: archives are not read; unpack each, so "
                "that every recording is a folder of its own"
            )
        if loose:
            yield (
                f"ignored: {_listed(loose)} in {inbox}: a recording is a folder with "
                f"{', '.join(RECORDING_FILES)}; make a folder and move its files there. "
                "Recordings of other tools: `demo-pipeline import`"
            )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


@contextmanager
def dagster_instance(home: Path) -> Iterator[Any]:
    """Opens the Dagster instance in a folder, or ends the command if this is not possible."""
    from demo_pipeline.defs.local_instance import opened_instance
    from demo_pipeline.runs.failures import InstanceError

    with ExitStack() as stack:
        try:
            instance = stack.enter_context(opened_instance(home))
        except InstanceError as error:
            refuse(str(error))
        yield instance


def failure_sentence(error: Exception) -> str:
    """Returns a sentence that says why a command failed, and what to do."""
    # If the user's own exports are broken, the imports below would fail in the same way.
    if isinstance(error, OwnExportError):
        return str(error)
    from demo_pipeline.runs.damage import storage_message
    from demo_pipeline.runs.failures import place_of, transient_reason
    from demo_pipeline.store.errors import StorageError

    if isinstance(error, StorageError):
        return storage_message(error)
    reason = transient_reason(error)
    if reason is None:
        name = type(error).__name__
        return f"a defect of the pipeline: {name}{place_of(error)}; please report it"
    file = getattr(error, "filename", None)
    place = f"{ascii(os.fsdecode(file))[1:-1]}: " if isinstance(file, str | bytes) else ""
    return f"{place}{reason}; finished work is kept: run the command again when the cause is gone"


class CommandInterrupt(BaseException):
    """Raised on Ctrl-C instead of `KeyboardInterrupt`, which some libraries catch."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises `CommandInterrupt` on Ctrl-C while the context is open."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """Makes the process ignore Ctrl-C from now on, so that the command can clean up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise(*_: Any) -> None:
    raise CommandInterrupt
