"""Reads the meta.json of a Training Gym recording, and tolerates deviations from its format."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from demo_pipeline.files.base_model import Document, Number, check
from demo_pipeline.files.json_files import JsonFileError, decode_text, parse_json
from demo_pipeline.files.recording_files import META_FILE
from demo_pipeline.problems import DemonstrationError, Problem, warning
from demo_pipeline.recording.key_names import layout_of_keyboard, layout_of_locale

STATUSES = ("completed", "in-progress", "aborted", "recording")
_PLATFORMS = ("windows", "macos", "linux")
# Maps the platform names of Node.js and Tauri to the names that this package uses.
_OTHER_NAMES = {"win32": "windows", "darwin": "macos"}

_MOST_PIXELS = 1_000_000  # largest width and height of the display
# Times outside 1970 to 2999 are rejected. Times in input_log.jsonl have the same limits.
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_TIME = datetime(3000, 1, 1, tzinfo=UTC)
_MOST_LEVELS = 64  # maximum depth of nested objects and lists; documented files have 3 levels

_DISPLAY_LISTS = ("monitors", "displays", "screens")  # keys under which recorders list displays

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG_FRACTION = re.compile(r"(\.[0-9]{6})[0-9]+")
# Matches a JSON string, with or without its closing quote, or a comment up to the end of the line.
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*')


def _timestamp_text(value: Any) -> Any:
    """Truncates a timestamp to microseconds, the precision of `datetime`, and rejects numbers."""
    if isinstance(value, int | float):
        raise ValueError("Input should be ISO 8601 text with an offset, not a number")  # noqa: TRY004
    return _LONG_FRACTION.sub(r"\1", value) if isinstance(value, str) else value


def _platform(value: str) -> str:
    """Returns `windows`, `macos` or `linux`; empty for a missing or unknown platform."""
    name = value.strip().casefold()
    name = _OTHER_NAMES.get(name, name)
    if name not in _PLATFORMS:
        return ""
    return name


def _possible_time(value: datetime) -> datetime:
    """Rejects times outside 1970 to 2999, because converting their time zone might overflow."""
    if not _FIRST_TIME <= value < _LAST_TIME:
        raise ValueError("Input should be a time from 1970 to 2999")
    return value


class _Tolerant(Document):
    """Base of the models of meta.json. Ignores null fields, and accepts numbers in text fields."""

    model_config = ConfigDict(strict=False, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _clean(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        # UTF-8 cannot encode lone surrogates. They are replaced, so that a bad character does not
        # make the whole file invalid.
        return {
            key: _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
            for key, value in data.items()
            if value is not None or key not in cls.model_fields
        }


class _Monitor(_Tolerant):
    """Size of the main display in pixels. Newer recorders add `scale_factor`, pixels per point."""

    width: int = Field(gt=0, le=_MOST_PIXELS)
    height: int = Field(gt=0, le=_MOST_PIXELS)
    scale_factor: Any = None  # any type is accepted, but unusual values are ignored later
    left_out_when_none = frozenset({"scale_factor"})


class _Reward(_Tolerant):
    """The reward for a task: `time` in epoch milliseconds, `max_reward` in $VIRAL."""

    time: Number | None = None
    max_reward: Number | None = None


class _Quest(_Tolerant):
    """The task given to the person. `content` is the request in natural language."""

    title: str = ""
    app: str = ""
    icon_url: str = ""
    objectives: list[str] = Field(default_factory=list)
    content: str = ""
    pool_id: str = ""
    reward: _Reward | None = None


class Meta(_Tolerant):
    """The content of meta.json. Only `timestamp` is required.

    Attributes:
        timestamp: time of the recording, to the microsecond.
        timestamp_raw: the text of `timestamp` in the file, with all digits.
        duration_seconds: length of the recording.
        status: `completed`, `in-progress` or `aborted`; some recorders write `recording`.
        primary_monitor: from the key `primary_monitor` or `monitor`; None if missing.
        platform: `windows`, `macos` or `linux`; empty if missing or unknown.
        platform_raw: the text of `platform` in the file.
        reason: why the recording ended, `done` or `fail`; None if missing.
        quest: the task; None if the person had no task.
    """

    id: str = ""
    timestamp: Annotated[
        AwareDatetime, BeforeValidator(_timestamp_text), AfterValidator(_possible_time)
    ]
    timestamp_raw: str = Field("", exclude=True)
    duration_seconds: Number = 0
    status: str = ""
    title: str = ""
    description: str = ""
    platform: Annotated[str, AfterValidator(_platform)] = ""
    platform_raw: str = Field("", exclude=True)
    arch: str = ""
    version: str = ""
    locale: str = ""
    primary_monitor: _Monitor | None = Field(
        None, validation_alias=AliasChoices("primary_monitor", "monitor")
    )
    reason: str | None = None
    quest: _Quest | None = None

    @model_validator(mode="before")
    @classmethod
    def _keep_raw(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        written = {name: data.get(name) for name in ("timestamp", "platform")}
        return {
            f"{name}_raw": text for name, text in written.items() if isinstance(text, str)
        } | data

    @property
    def usual_layout(self) -> str | None:
        """The person's likely keyboard layout, as a value that `layout_of_locale` can return.

        It comes from the field `keyboard_layout` if a Windows recorder wrote it, otherwise from
        `locale`. Recorders on macOS always write US, which is ignored.
        """
        layout_name = (self.model_extra or {}).get("keyboard_layout")
        if self.platform == "windows" and layout_name and isinstance(layout_name, str):
            return layout_of_keyboard(layout_name)
        return layout_of_locale(self.locale)

    @property
    def names_keyboard(self) -> bool:
        """Whether a recorder on Windows wrote the active keyboard layout into meta.json."""
        layout = (self.model_extra or {}).get("keyboard_layout")
        return self.platform == "windows" and isinstance(layout, str) and bool(layout)

    @property
    def has_several_displays(self) -> bool:
        """Whether the recorder lists more than one display, under any key of `_DISPLAY_LISTS`."""
        extra = self.model_extra or {}
        lists = [extra.get(name) for name in _DISPLAY_LISTS]
        return any(isinstance(displays, list) and len(displays) > 1 for displays in lists)

    def members(self) -> dict[str, Any]:
        """Returns meta.json as a dictionary, with `timestamp` and `platform` as recorded."""
        return super().members() | {
            "timestamp": self.timestamp_raw or self.timestamp.isoformat(),
            "platform": self.platform_raw,
        }


def read_meta(data: bytes) -> tuple[Meta, list[Problem]]:
    """Parses and validates meta.json, and returns the model and warnings.

    `//` comments are accepted, because the documented example contains comments. Unknown keys are
    kept without a warning.

    Args:
        data: the file's bytes, UTF-8, with or without a byte order mark.

    Raises:
        DemonstrationError: the content is not a JSON object, or a field has a wrong type. The error
            names the line.
    """
    remedy = "restore meta.json from the recorder"
    try:
        value, problems, text = _parse_with_comments(decode_text(data, META_FILE))
    except JsonFileError as error:
        problem = Problem(
            "invalid_json",
            META_FILE,
            error.message,
            error.line,
            remedy=remedy,
            column=error.column,
        )
        raise DemonstrationError(problem) from None
    if _is_deep(value, _MOST_LEVELS):
        message = f"is nested more than {_MOST_LEVELS} levels deep"
        remedy = "restore meta.json from the recorder, or remove the nested key"
        raise DemonstrationError(Problem("nested_too_deeply", META_FILE, message, remedy=remedy))
    meta, findings = check(Meta, value, META_FILE, text)
    if meta is None:
        raise DemonstrationError(findings)
    if meta.status and meta.status not in STATUSES:
        expected = ", ".join(STATUSES)
        problems.append(warning("unknown_status", META_FILE, f"status: expected one of {expected}"))
    return meta, problems


def _is_deep(value: Any, levels: int) -> bool:
    """Returns whether objects and lists are nested more than `levels` levels deep."""
    if not isinstance(value, dict | list):
        return False
    children = list(value)
    if isinstance(value, dict):
        children = list(value.values())
    return not levels or any(_is_deep(child, levels - 1) for child in children)


def _parse_with_comments(text: str) -> tuple[dict[str, Any], list[Problem], str]:
    """Parses JSON that may have `//` comments.

    Returns:
        The object, a warning if there are comments, and the text without comments.
    """
    try:
        return _object(text), [], text
    except JsonFileError:
        bare = _STRING_OR_COMMENT.sub(lambda m: "" if m[0].startswith("//") else m[0], text)
        if bare == text:
            raise
    first = next(m for m in _STRING_OR_COMMENT.finditer(text) if m[0].startswith("//"))
    line = text.count("\n", 0, first.start()) + 1
    message = "`//` comments are not JSON; they were ignored"
    return _object(bare), [warning("json_comments", META_FILE, message, line=line)], bare


def _object(text: str) -> dict[str, Any]:
    value = parse_json(text, META_FILE)
    if not isinstance(value, dict):
        raise JsonFileError(META_FILE, 1, "expected a JSON object")
    return value
