"""What every command needs: settings, Dagster's home folder, errors as sentences, and Ctrl-C.

Belongs here: reporting what cannot be used as a usage error; turning errors into a sentence, never
a traceback. Messages of errors that are not ours are left out, since they may quote typed text.
"""

import json
import os
import shlex
import signal
import threading
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from demo_pipeline.cli.console import print_error
from demo_pipeline.settings import PREFIX, Section, Settings, dagster_home, is_project

if TYPE_CHECKING:
    from demo_pipeline.runs.workspace import Workspace

OK, INVALID, USAGE = 0, 1, 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def usable_settings(*, anywhere: bool = False) -> Settings:
    """The settings; errors in them end the command, each with variable, value and an example.

    Unless the command works `anywhere`, it is refused where there is neither a project nor a store.
    """
    lines = list[str]()
    try:
        settings = Settings()
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            message = detail["msg"].removeprefix("Value error, ")
            if place := tuple(map(str, detail["loc"][:2])):
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
    """The roots that the settings name."""
    from demo_pipeline.runs.workspace import Workspace

    return Workspace.open(usable_settings())


def _assigned(place: tuple[str, ...], value: object) -> str:
    """A setting's variable, with its value if that cannot be a secret."""
    name = f"{PREFIX}{'__'.join(place).upper()}"
    plain = isinstance(value, str | int | float) and len(place) > 1
    return f"{name}={value}" if plain and not {*":@"} & {*str(value)} else name


def _default(place: tuple[str, ...]) -> tuple[Any, str]:
    """Default of a setting or a section, and the description; (None, "") when there is none."""
    fields, default, description = Settings.model_fields, None, ""
    for name in place:
        if name not in fields:
            return None, ""
        default = fields[name].get_default(call_default_factory=True)
        description = fields[name].description or ""
        fields = type(default).model_fields if isinstance(default, Section) else {}
    return default, description


def _example(place: tuple[str, ...]) -> str:
    """What a setting may be: its default, or what it is for."""
    default, description = _default(place)
    if default is None or isinstance(default, Section):
        return ""
    if default in {"", ()}:
        return f"; it is {description}"
    text = default if isinstance(default, str) else json.dumps(default)
    return f"; for example {_assigned(place, None)}={shlex.quote(text)}"


def _not_json(message: str) -> Iterator[str]:
    """Yield a sentence for each variable that has to be JSON and is not."""
    top = f"{PREFIX}{message.partition(chr(34))[2].partition(chr(34))[0]}".upper()
    for name in sorted(name for name in os.environ if name.upper().startswith(top)):
        place = tuple(name.upper().removeprefix(PREFIX).lower().split("__"))
        default, _ = _default(place)
        try:
            json.loads(os.environ[name])
        except ValueError:
            if isinstance(default, Section):  # of its first setting
                place = (*place, next(iter(type(default).model_fields)))
            if isinstance(default, Section | tuple):
                yield f"setting {name}: is not valid JSON{_example(place)}"


def set_dagster_home() -> Path:
    """Set DAGSTER_HOME, by default to that of the project, whether or not Dagster can use it."""
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


def print_refused(workspace: "Workspace") -> bool:
    """Say which folders of the uploads are refused for their names; whether there are any."""
    from demo_pipeline.store.uploads import NAME_RULE

    if names := workspace.uploads.misnamed():
        print_error(f"refused: {', '.join(names)} in {workspace.uploads.url}: {NAME_RULE}")
    return bool(names)


@contextmanager
def dagster_instance(home: Path) -> Iterator[Any]:
    """Dagster's instance in this folder; the command ends unless it can record runs there."""
    from demo_pipeline.defs.local_instance import opened_instance
    from demo_pipeline.runs.failures import InstanceError

    with ExitStack() as stack:
        try:
            instance = stack.enter_context(opened_instance(home))
        except InstanceError as error:
            refuse(str(error))
        yield instance


def failure_sentence(error: Exception) -> str:
    """Why a command cannot go on, and what to do."""
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
    return f"{place}{reason}; what is done is kept, and the next run goes on when that is over"


class CommandInterrupt(BaseException):
    """A person pressed Ctrl-C. Unlike `KeyboardInterrupt`, no library answers it itself."""


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
    """Let the command end in peace: from now on, Ctrl-C does nothing."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise(*_: Any) -> None:
    raise CommandInterrupt
