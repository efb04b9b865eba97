"""Models of OSWorld task files: ordinary tasks and risk tasks.

Values are normalised for reading, and written back unchanged. The models accept more than the
documented form: everything that occurs in the 369 ordinary and 492 risk tasks of OSWorld.
"""

import re
import unicodedata
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr

from demo_pipeline.files.base_model import Document, check
from demo_pipeline.files.json_files import (
    JsonFileError,
    decode_text,
    dump_json,
    parse_json,
    read_bytes,
)
from demo_pipeline.problems import Problem, warning

_APP_NAMES = {  # normalised name → synonyms
    "chrome": ("google_chrome", "chrome_browser"),
    "gimp": ("gnu_image_manipulation_program",),
    "libreoffice_calc": ("calc",),
    "libreoffice_impress": ("impress",),
    "libreoffice_writer": ("writer",),
    "edge": ("microsoft_edge", "msedge"),
    "firefox": ("mozilla_firefox",),
    "thunderbird": ("mozilla_thunderbird",),
    "vlc": ("vlc_media_player",),
    "vs_code": ("vscode", "visual_studio_code", "code"),
    "terminal": ("gnome_terminal", "os_terminal"),
}
APP_NAMES = {synonym: name for name, synonyms in _APP_NAMES.items() for synonym in synonyms}
"""Synonym → normalised name of an application."""
_RISK_KEYS = ("halfway_config", "risk_evaluator")
_DOCUMENTED_KEYS = ("snapshot", "source", "config", "related_apps", "evaluator")
RISK_FOLDER = "evaluation_risk_examples"


def normalise_app(name: str) -> str:
    """Returns the normalised name of an application: `Google Chrome` becomes `chrome`.

    The name has lower case, words joined by `_`, and no synonyms; it is `unknown` if nothing is
    left. Normalising a normalised name changes nothing.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    slug = re.sub(r"[\W_]+", "_", folded.removesuffix(".exe")).strip("_")
    slug = slug.replace("libre_office", "libreoffice")
    return APP_NAMES.get(slug, slug) or "unknown"


def _as_list(value: Any) -> Any:
    """Returns a list: the documentation has a single object, but published files have lists."""
    if not value and (value is None or isinstance(value, dict)):
        return []
    if isinstance(value, dict):
        return [value]
    return value


def _app_list(value: Any) -> Any:
    names = value
    if value is None:
        names = []
    elif isinstance(value, str):
        names = [value]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    return list(dict.fromkeys(map(normalise_app, names)))


class _SetupStep(Document):
    """A step that prepares the environment."""

    type: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


Setup = Annotated[list[_SetupStep], BeforeValidator(_as_list)]
Evaluator = dict[str, Any] | str | None


class OsworldTask(Document):
    """A task: the instruction, the initial state, and the evaluation.

    Attributes:
        snapshot: the initial state of the environment; in published tasks the main application.
        source: where the task comes from: a URL, several, or None.
        config: steps that prepare the initial state.
        related_apps: normalised names without duplicates; see `related_apps_raw`.
        evaluator: how success is evaluated; a text is the name of its folder; None: it is not.
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
        """The names of the applications as written in the file."""
        names = (self._raw or {}).get("related_apps", self.related_apps)
        if isinstance(names, str):
            return [names]
        return list(names or [])

    @property
    def sources(self) -> tuple[str, ...]:
        """`source` as a tuple."""
        if isinstance(self.source, str):
            return (self.source,)
        return tuple(self.source or ())

    def members(self) -> dict[str, Any]:
        """Returns the keys and values in the order of the file, with the changes of a copy."""
        if self._raw is None:
            return super().members()
        before = type(self).model_validate(self._raw)
        now = {name: getattr(self, name) for name in type(self).model_fields}
        changed = {name: value for name, value in now.items() if value != getattr(before, name)}
        return self._raw | changed


class RiskTask(OsworldTask):
    """A task with a risk that occurs halfway, and with an evaluation of the agent's reaction."""

    halfway_config: Setup = Field(default_factory=list)
    risk_evaluator: Evaluator = None


def examine_task_file(path: Path) -> tuple[OsworldTask | RiskTask | None, list[Problem]]:
    """Examines a task file, which may be missing. Its folder may show that it is a risk task."""
    try:
        data = read_bytes(path, path.name)
    except JsonFileError as error:
        code = "invalid_json" if path.is_file() else "missing_file"
        remedy = "restore the task file"
        return None, [Problem(code, path.name, error.message, error.line, remedy=remedy)]
    return examine_task(data, path.name, risk=RISK_FOLDER in path.parts)


def write_task(path: Path, task: OsworldTask) -> None:
    """Writes a task file; values that were read are written unchanged."""
    dump_json(path, task)


def examine_task(
    data: bytes, file: str, *, risk: bool
) -> tuple[OsworldTask | RiskTask | None, list[Problem]]:
    """Returns the task in a file (None: it is invalid), and its problems and warnings.

    Args:
        data: the whole file.
        file: the `/`-separated path in the problems; its stem should be the task's id.
        risk: whether it is a risk task. A task with a key of risk tasks always is.
    """
    try:
        text = decode_text(data, file)
        value = parse_json(text, file)
    except JsonFileError as error:
        remedy = "restore the task file"
        problem = Problem("invalid_json", file, error.message, error.line, remedy=remedy)
        return None, [replace(problem, column=error.column)]
    risk = risk or (isinstance(value, dict) and any(key in value for key in _RISK_KEYS))
    task, problems = check(RiskTask if risk else OsworldTask, value, file, text)
    if task is None:
        return None, problems
    task._raw = dict(value)  # noqa: SLF001 - of this module's own class
    return task, problems + _warnings(task, file)


def _warnings(task: OsworldTask, file: str) -> list[Problem]:
    documented_keys = list(_DOCUMENTED_KEYS)
    if isinstance(task, RiskTask):
        documented_keys += _RISK_KEYS
    missing = ", ".join(key for key in documented_keys if key not in task.members())
    warnings: list[Problem] = []
    if missing:
        message = f"the documented keys {missing} are missing"
        warnings.append(warning("missing_field", file, message))
    if task.id != PurePosixPath(file).stem:
        warnings.append(warning("id_differs", file, "id: differs from the file's name"))
    if not task.instruction.strip():
        warnings.append(warning("blank_instruction", file, "instruction: is blank"))
    if not isinstance(task.members().get("related_apps", []), list):
        warnings.append(warning("no_list", file, "related_apps: is no list"))
    if any(not step.type for step in task.config):
        warnings.append(warning("setup_type", file, "config: a step has no type"))
    return warnings
