"""The basis of every command: settings, Dagster's home folder, errors as sentences, and Ctrl-C.

An error becomes one sentence, never a traceback. Messages of other libraries' errors are left out,
because they may quote typed text.
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
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_VIDEOS = (".mp4", ".mkv", ".mov", ".webm", ".avi", ".flv")
_LISTED = 5  # names in one sentence


def usable_settings(*, anywhere: bool = False) -> Settings:
    """The settings; wrong ones end the command with their variable, value and an example.

    Args:
        anywhere: the command needs neither a project nor a configured store.
    """
    lines = list[str]()
    try:
        settings = Settings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            message = detail["msg"].removeprefix("Value error, ")
            place = tuple(map(str, detail["loc"][:2]))
            if place:
                message = f"setting {_assigned(place, detail['input'])}: {message}{_example(place)}"
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
    """The uploads, the store and the settings."""
    from demo_pipeline.runs.workspace import Workspace

    return Workspace.open(usable_settings())


def _assigned(place: tuple[str, ...], value: object) -> str:
    """`VARIABLE=value`, or only the variable if the value may hold a secret."""
    name = f"{PREFIX}{'__'.join(place).upper()}"
    is_plain = isinstance(value, str | int | float) and len(place) > 1
    if is_plain and not {":", "@"} & set(str(value)):
        return f"{name}={value}"
    return name


def _default(place: tuple[str, ...]) -> tuple[Any, str]:
    """Default and description of a setting or a section; (None, "") for an unknown name."""
    fields = Settings.model_fields
    default = None
    description = ""
    for name in place:
        if name not in fields:
            return None, ""
        default = fields[name].get_default(call_default_factory=True)
        description = fields[name].description or ""
        fields = type(default).model_fields if isinstance(default, Section) else {}
    return default, description


def _example(place: tuple[str, ...]) -> str:
    """An example of a setting's value: its default, or its description if that is empty."""
    default, description = _default(place)
    if default is None or isinstance(default, Section):
        return ""
    if default in {"", ()}:
        return f"; it is {description}"
    text = default if isinstance(default, str) else json.dumps(default)
    return f"; for example {_assigned(place, None)}={shlex.quote(text)}"


def _not_json(message: str) -> Iterator[str]:
    """Yield a sentence for each variable that must be JSON and is not."""
    top = f"{PREFIX}{message.partition(chr(34))[2].partition(chr(34))[0]}".upper()
    for name in sorted(name for name in os.environ if name.upper().startswith(top)):
        place = tuple(name.upper().removeprefix(PREFIX).lower().split("__"))
        default, _ = _default(place)
        try:
            json.loads(os.environ[name])
        except ValueError:
            if isinstance(default, Section):  # the example is for its first setting
                place = (*place, *list(type(default).model_fields)[:1])
            if isinstance(default, Section | tuple):
                yield f"setting {name}: is not valid JSON{_example(place)}"


def set_dagster_home() -> Path:
    """Set DAGSTER_HOME, by default to the project's; Dagster may still be unable to use it."""
    home = dagster_home()
    if not is_project() and not os.environ.get("DAGSTER_HOME"):
        _refuse_outside("DAGSTER_HOME to a folder in which Dagster records runs")
    if not home.is_dir():
        refuse(f"DAGSTER_HOME {home}: no such directory; create it, or unset the variable")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def refuse(*lines: str) -> NoReturn:
    """End the command with a usage error."""
    for line in lines:
        print_error(f"demo-pipeline: {line}")
    raise typer.Exit(USAGE)


def _refuse_outside(needed: str) -> NoReturn:
    refuse(
        f"{Path.cwd()} is not in a project; make one with `demo-pipeline init DIR` "
        f"and go there, or set {needed}"
    )


def print_ignored_uploads(workspace: "Workspace") -> bool:
    """Print what is ignored in the uploads, with remedies.

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
    """Yield a sentence for each kind of file in the inbox that belongs into a folder.

    A bucket is not examined, because it can have a million objects.
    """
    from demo_pipeline.store.names import is_bucket, local_path

    if is_bucket(inbox):
        return
    with suppress(OSError):  # a missing inbox has an error of its own
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
    """Dagster's instance in a folder; the command ends if Dagster cannot record runs there."""
    from demo_pipeline.defs.local_instance import opened_instance
    from demo_pipeline.runs.failures import InstanceError

    with ExitStack() as stack:
        try:
            instance = stack.enter_context(opened_instance(home))
        except InstanceError as error:
            refuse(str(error))
        yield instance


def failure_sentence(error: Exception) -> str:
    """A sentence that says why a command failed, and what to do."""
    if isinstance(error, OwnExportError):  # the imports below would raise it again
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
    return f"{place}{reason}; finished work is kept, and the next run goes on when that is over"


class CommandInterrupt(BaseException):
    """A person pressed Ctrl-C. Unlike `KeyboardInterrupt`, no library catches it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `CommandInterrupt` on Ctrl-C while the context is open."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore_interrupts() -> None:
    """From now on, Ctrl-C does nothing, so that the command can end in order."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise(*_: Any) -> None:
    raise CommandInterrupt
