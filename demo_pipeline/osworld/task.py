"""Models of OSWorld task files: ordinary tasks and risk tasks.

A task that was read is written back with its original values, although the fields are normalised.
The models accept all values in OSWorld's 369 ordinary and 492 risk tasks, including undocumented
ones.
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

_SYNONYMS = {  # the normalised name of each application, and its synonyms
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
APP_NAMES: dict[str, str] = {}
"""Maps each synonym to the normalised name of the application."""
for _name, _names in _SYNONYMS.items():
    APP_NAMES |= dict.fromkeys(_names, _name)
_RISK_KEYS = ("halfway_config", "risk_evaluator")  # keys that only risk tasks have
_DOCUMENTED_KEYS = ("snapshot", "source", "config", "related_apps", "evaluator")
RISK_FOLDER = "evaluation_risk_examples"  # the folder of risk tasks in OSWorld's repository


def normalise_app(name: str) -> str:
    """Returns the normalised name of an application, for example `chrome` for `Google Chrome`.

    The result is `unknown` if the name has neither letters nor digits. Normalised names stay
    unchanged.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    slug = re.sub(r"[\W_]+", "_", folded.removesuffix(".exe")).strip("_")
    slug = slug.replace("libre_office", "libreoffice")
    return APP_NAMES.get(slug, slug) or "unknown"


def _as_list(value: Any) -> Any:
    """Wraps a single object in a list; None and an empty object become an empty list.

    OSWorld documents one object, but publishes lists.
    """
    if not value and (value is None or isinstance(value, dict)):
        return []
    if isinstance(value, dict):
        return [value]
    return value


def _app_list(value: Any) -> Any:
    """Returns normalised names of applications without duplicates.

    A single name is accepted, too. Values of a wrong type are returned for pydantic to reject.
    """
    names = value
    if value is None:
        names = []
    elif isinstance(value, str):
        names = [value]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return names
    return list(dict.fromkeys(map(normalise_app, names)))


class _SetupStep(Document):
    """A step that prepares the environment before the task starts."""

    type: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)


Setup = Annotated[list[_SetupStep], BeforeValidator(_as_list)]
Evaluator = dict[str, Any] | str | None
"""How success is evaluated: an object, or the name of the evaluator's folder.

None if success is not evaluated.
"""


class OsworldTask(Document):
    """A task file: the instruction, the initial state, and the evaluation.

    Attributes:
        snapshot: name of the initial state. Published tasks use the name of the main application.
        source: where the task comes from, such as URLs; may be None.
        config: the steps that prepare the initial state.
        related_apps: normalised names of applications, without duplicates.
        trajectory, proxy, fixed_ip, possibility_of_env_change: copied, but not used here.
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
        """The texts in `source` as a tuple."""
        if isinstance(self.source, str):
            return (self.source,)
        return tuple(self.source or ())

    def members(self) -> dict[str, Any]:
        """Returns the keys and values to write, in the order of the file that was read.

        Unchanged fields have their original values from the file.
        """
        if self._raw is None:
            return super().members()
        original = type(self).model_validate(self._raw)
        members = dict(self._raw)
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value != getattr(original, name):
                members[name] = value
        return members


class RiskTask(OsworldTask):
    """A task in which a risk occurs halfway, and the agent's reaction to it is evaluated.

    Attributes:
        halfway_config: the steps that create the risk.
        risk_evaluator: how the reaction is evaluated.
    """

    halfway_config: Setup = Field(default_factory=list)
    risk_evaluator: Evaluator = None


def examine_task_file(path: Path) -> tuple[OsworldTask | RiskTask | None, list[Problem]]:
    """Reads and checks a task file as `examine_task` does; a missing file is a problem.

    Files below a folder `RISK_FOLDER` are read as risk tasks.
    """
    try:
        data = read_bytes(path, path.name)
    except JsonFileError as error:
        code = "invalid_json" if path.is_file() else "missing_file"
        remedy = "restore the task file"
        return None, [Problem(code, path.name, error.message, error.line, remedy=remedy)]
    return examine_task(data, path.name, risk=RISK_FOLDER in path.parts)


def write_task(path: Path, task: OsworldTask) -> None:
    """Writes a task file, with the original values if the task was read from a file."""
    dump_json(path, task)


def examine_task(
    data: bytes, file: str, *, risk: bool
) -> tuple[OsworldTask | RiskTask | None, list[Problem]]:
    """Reads and checks the content of a task file.

    Args:
        file: the path to report in problems, separated by `/`. Its stem should be the task's id.
        risk: whether to read the file as a risk task. A file with a key that only risk tasks have
            is always read as a risk task.

    Returns:
        The task, or None if the task is invalid; and the problems and warnings.
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
    task._raw = dict(value)  # noqa: SLF001 - the class is in this module
    return task, problems + _warnings(task, file)


def _warnings(task: OsworldTask, file: str) -> list[Problem]:
    """Returns warnings about oddities of a valid task, with `file` as their path."""
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
