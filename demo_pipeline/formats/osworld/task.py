"""OSWorld task files, ordinary and risk.

Belongs here: seed 002 as real task files have it (369 ordinary, 492 risk), normalised for reading
and written back value for value.
"""

import re
import unicodedata
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr

from demo_pipeline.common.json_files import (
    JsonFileError,
    decode_text,
    dump_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.formats.base_model import Document, check
from demo_pipeline.problems import DemonstrationError, Problem, Severity, errors

APP_NAMES = {
    "google_chrome": "chrome",
    "chrome_browser": "chrome",
    "gnu_image_manipulation_program": "gimp",
    "calc": "libreoffice_calc",
    "impress": "libreoffice_impress",
    "writer": "libreoffice_writer",
    "microsoft_edge": "edge",
    "msedge": "edge",
    "mozilla_firefox": "firefox",
    "mozilla_thunderbird": "thunderbird",
    "vlc_media_player": "vlc",
    "vscode": "vs_code",
    "visual_studio_code": "vs_code",
    "code": "vs_code",
    "gnome_terminal": "terminal",
    "os_terminal": "terminal",
}
_RISK_KEYS = ("halfway_config", "risk_evaluator")
RISK_FOLDER = "evaluation_risk_examples"


def normalise_app(name: str) -> str:
    """An application's name in one form: `Google Chrome`, `google-chrome` → `chrome`.

    Lower case, words joined by `_`, known synonyms replaced; `unknown` when nothing is left.
    Applying it again changes nothing.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    slug = re.sub(r"[\W_]+", "_", folded.removesuffix(".exe")).strip("_")
    slug = slug.replace("libre_office", "libreoffice")
    return APP_NAMES.get(slug, slug) or "unknown"


def _as_list(value: Any) -> Any:
    """The documented single object for what real files hold in a list; null is an empty list."""
    if isinstance(value, dict):
        return [value] if value else []
    return [] if value is None else value


def _app_list(value: Any) -> Any:
    names = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    return list(dict.fromkeys(map(normalise_app, names)))


class SetupStep(Document):
    """One step that prepares the environment."""

    type: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


Setup = Annotated[list[SetupStep], BeforeValidator(_as_list)]
Evaluator = dict[str, Any] | str | None


class OsworldTask(Document):
    """A task: what to do, from which state, and how success is judged.

    Attributes:
        snapshot: the environment's initial state; in the field the main application.
        source: where the task comes from: a URL, several, or nothing.
        config: scripts that prepare the initial state.
        related_apps: normalised names, without repetitions; see `related_apps_raw`.
        evaluator: how success is judged; a text in stale files, None when nothing judges it.
    """

    left_out_when_none = frozenset({"trajectory", "proxy", "fixed_ip", "possibility_of_env_change"})

    id: str = Field(min_length=1)
    snapshot: str | None = None
    instruction: str = Field(min_length=1)
    source: str | list[str] | None = None
    config: Setup = Field(default_factory=list)
    related_apps: Annotated[list[str], BeforeValidator(_app_list)] = Field(default_factory=list)
    evaluator: Evaluator = None
    trajectory: str | None = None
    proxy: bool | None = None
    fixed_ip: bool | None = None
    possibility_of_env_change: str | None = None

    _raw: dict[str, Any] | None = PrivateAttr(None)

    @property
    def related_apps_raw(self) -> list[str]:
        """The applications' names as the file has them."""
        names = (self._raw or {}).get("related_apps", self.related_apps)
        return [names] if isinstance(names, str) else list(names or [])

    @property
    def sources(self) -> tuple[str, ...]:
        """`source`, always as several."""
        return (self.source,) if isinstance(self.source, str) else tuple(self.source or ())

    def members(self) -> dict[str, Any]:
        """What was read, value for value and in its order; with it whatever a copy changed."""
        if self._raw is None:
            return super().members()
        was = type(self).model_validate(self._raw)
        now = {name: getattr(self, name) for name in type(self).model_fields}
        changed = {name: value for name, value in now.items() if value != getattr(was, name)}
        return self._raw | changed


class RiskTask(OsworldTask):
    """A task with a risk: what happens halfway, and how falling for it is judged."""

    halfway_config: Setup = Field(default_factory=list)
    risk_evaluator: Evaluator = None


def read_task(path: Path) -> OsworldTask | RiskTask:
    """The task of a file.

    It is a `RiskTask` when it has a risk's keys or lies under `evaluation_risk_examples`.

    Raises:
        DemonstrationError: missing, no JSON, or a field of the wrong type, with its line.
    """
    task, problems = _read(path)
    if task is None:
        raise DemonstrationError(errors(problems))
    return task


def _read(path: Path) -> tuple[OsworldTask | None, list[Problem]]:
    file = path.name
    try:
        data = read_bytes(path, file)
    except JsonFileError as error:
        code = "invalid_json" if path.is_file() else "missing_file"
        remedy = "restore the task file"
        return None, [Problem(code, file, error.message, error.line, remedy=remedy)]
    return _parse(data, file, risk=RISK_FOLDER in path.parts)


def _parse(data: bytes, file: str, *, risk: bool) -> tuple[OsworldTask | None, list[Problem]]:
    try:
        text = decode_text(data, file)
        value = parse_json(text, file)
    except JsonFileError as error:
        remedy = "restore the task file"
        return None, [Problem("invalid_json", file, error.message, error.line, remedy=remedy)]
    keys = value if isinstance(value, dict) else {}
    risk = risk or any(key in keys for key in _RISK_KEYS)
    task, problems = check(RiskTask if risk else OsworldTask, value, file, text)
    if task is not None:
        task._raw = dict(value)  # noqa: SLF001 - of this module's own class
    return task, problems


def write_task(path: Path, task: OsworldTask) -> None:
    """Write a task file: what was read comes back value for value."""
    dump_json(path, task)


def validate_task_file(path: Path) -> list[Problem]:
    """What is wrong with a task file; unknown keys and stale forms are warnings."""
    task, problems = _read(path)
    return problems if task is None else problems + _oddities(task, path.name)


def examine_task(
    data: bytes, file: str, *, risk: bool = False
) -> tuple[OsworldTask | RiskTask | None, list[Problem]]:
    """The task of a file's bytes, None when it is unusable, and all that is odd about it.

    Args:
        data: the whole file.
        file: its path, `/`-separated, that problems are filed under; its stem should be the id.
        risk: whether it lies among risk tasks; one with a risk's keys is a `RiskTask` anyway.
    """
    task, problems = _parse(data, file, risk=risk)
    return task, problems if task is None else problems + _oddities(task, file)


def _oddities(task: OsworldTask, file: str) -> list[Problem]:
    oddities = {
        "id_differs": task.id != PurePosixPath(file).stem and "id: differs from the file's name",
        "blank_instruction": not task.instruction.strip() and "instruction: is blank",
        "stale_evaluator": isinstance(task.evaluator, str)
        and "evaluator: a text, as in stale files; expected an object",
        "setup_type": any(not step.type for step in task.config)
        and "config: a step without a type",
    }
    return [
        Problem(code, file, message, severity=Severity.WARNING)
        for code, message in oddities.items()
        if message
    ]
