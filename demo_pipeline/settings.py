"""The paths and adjustable thresholds of the pipeline, in one frozen model.

Belongs here: defaults, their units and where each comes from. Other thresholds are constants of the
module that uses them. Values are read from the environment (`DEMO_PIPELINE_STORE`,
`DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX=8`, …), then from a TOML file (`DEMO_PIPELINE_CONFIG`,
default `demo_pipeline.toml` in the project root), then from the defaults. Names that are not
settings are refused, in the environment as in the file.
"""

import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

PREFIX = "DEMO_PIPELINE_"  # of the variables in the environment


class Section(BaseModel):
    """The settings that one stage depends on."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )
    SIGNED: ClassVar[frozenset[str]] = frozenset()  # numbers that may be negative
    UNHASHED: ClassVar[frozenset[str]] = frozenset()  # they change no byte of any one output
    # Hashed where they are not their default: without them outputs are what they were before them.
    HASHED_WHEN_SET: ClassVar[frozenset[str]] = frozenset()
    WERE_SETTINGS: ClassVar[frozenset[str]] = frozenset()  # constants, hashed for the same reason

    @field_validator("*")
    @classmethod
    def _not_negative(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float) and value < 0 and info.field_name not in cls.SIGNED:
            raise ValueError("Input should be greater than or equal to 0")
        return value

    def fingerprint(self) -> str:
        """SHA-256 over the values, for the manifests of the outputs that depend on them."""
        fields = type(self).model_fields
        unset = {n for n in self.HASHED_WHEN_SET if getattr(self, n) == fields[n].default}
        values = self.model_dump(mode="json", exclude={*self.UNHASHED, *unset})
        values |= {name: getattr(self, name) for name in self.WERE_SETTINGS}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def unknown_names(names: Iterable[str], fields: Mapping[str, type]) -> Iterator[str]:
    """A sentence for each name that is not a setting, with the nearest one.

    Args:
        names: of settings, `name` or `section.name`, in the environment or the file.
        fields: name of every setting or section → its type.
    """
    known = set(fields)
    for section, kind in fields.items():
        if issubclass(kind, Section):
            known |= {f"{section}.{name}" for name in kind.model_fields}
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name.lower(), known, 1, 0.5)
        hint = f"; the nearest is {_both(near[0])}" if near else ""
        yield f"setting {_both(name)} does not exist{hint}"


def _both(name: str) -> str:
    return f"{name} ({PREFIX}{name.replace('.', '__').upper()})"


BUILT_IN_EXPORTS = (
    "sft",
    "messages",
    "cudag",
    "cua_lite",
    "agentnet",
    "atif",
    "grounding",
    "transitions",
    "step_labels",
    "cua_folder",
    "agentnetbench",
)
EXPORTS_GROUP = "demo_pipeline.exports"
"""The entry points of other packages: name of an export → its `Form`, as `module:FORM`."""
EXPORT_NAME = r"[a-z][a-z0-9_]*"


class OwnExportError(ValueError):
    """An export of another installed package cannot be used; the message says why."""


def package_of(export: EntryPoint) -> str:
    """Name of the installed package that brings an export."""
    return export.dist.name if export.dist else "of unknown name"


@cache
def own_exports() -> Mapping[str, EntryPoint]:
    """Name → entry point of each export that another installed package brings.

    Raises:
        OwnExportError: a name is malformed, or another export has it.
    """
    exports: dict[str, EntryPoint] = {}
    for export in sorted(entry_points(group=EXPORTS_GROUP), key=lambda export: export.name):
        place = f"the export {export.name!a} of the package {package_of(export)}"
        if not re.fullmatch(EXPORT_NAME, export.name):
            raise OwnExportError(f"{place}: a name consists of a-z, 0-9 and _; rename it")
        if export.name in BUILT_IN_EXPORTS or export.name in exports:
            other = exports.get(export.name)
            owner = f"the package {package_of(other)}" if other else "demo_pipeline"
            raise OwnExportError(f"{place}: {owner} has an export of this name; rename it")
        exports[export.name] = export
    return exports


def export_names() -> tuple[str, ...]:
    """Names that `datasets.exports` may have: built-in ones, then those of other packages."""
    return (*BUILT_IN_EXPORTS, *own_exports())


def _existing_export(name: str) -> str:
    if name not in BUILT_IN_EXPORTS and name not in own_exports():
        names = ", ".join(map(repr, export_names()))
        raise ValueError(
            f"each name should be one of {names}, or of an export that an installed package brings"
        )
    return name


ExportName = Annotated[str, AfterValidator(_existing_export)]
NAME_PART = r"^[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"  # no `--`, which joins the parts


class DatasetSettings(Section):
    """How trajectories become training files."""

    SIGNED: ClassVar[frozenset[str]] = frozenset({"seed"})
    UNHASHED: ClassVar[frozenset[str]] = frozenset({"exports"})
    HASHED_WHEN_SET: ClassVar[frozenset[str]] = frozenset(
        {
            *("min_alignment", "exclude_steps", "include_duplicates"),
            *("coordinates", "max_pixels", "include_unproven_clock", "sft_keys"),
        }
    )

    # Tolerances of CUDAG in RU (1000 per axis), see docs/reference/output-formats.md: smallest and
    # largest, and of a point without a target, of a scroll, of both ends of a drag.
    tolerance_min: ClassVar[int] = 1
    tolerance_max: ClassVar[int] = 50
    default_tolerance: ClassVar[int] = 10
    scroll_tolerance: ClassVar[int] = 50
    drag_tolerance: ClassVar[int] = 5
    grounding_min_side: ClassVar[int] = 8  # pixels; narrower and lower elements are left out
    grounding_per_screen: ClassVar[int] = 10  # elements of a screenshot, at most
    jpeg_quality: ClassVar[int] = 90  # OpenCV's scale, 100 is best

    exports: tuple[ExportName, ...] = Field(
        ("sft", "messages", "cudag"),
        description="the training exports that are built: some of "
        + ", ".join(f"`{name}`" for name in BUILT_IN_EXPORTS)
        + ", and those of [your own packages](../guides/own-export.md)",
    )
    name_prefix: str = Field(
        "demonstrations", pattern=NAME_PART, description="`<prefix>--<user>--<timestamp>` (CUDAG)"
    )
    user: str = Field("demo-pipeline", pattern=NAME_PART, description="in CUDAG's directory name")
    timestamp: str = Field(
        "",
        pattern=r"^([0-9]{8}_[0-9]{6})?$",
        description="in CUDAG's directory name, YYYYMMDD_HHMMSS; empty: newest recording's, UTC",
    )
    seed: int = Field(0, description="of the hash that assigns task groups to splits")
    train_ratio: float = Field(0.8, ge=0, le=1, description="share of task groups")
    val_ratio: float = Field(0.1, ge=0, le=1, description="share of task groups")
    test_ratio: float = Field(0.1, ge=0, le=1, description="share of task groups")
    held_out_applications: tuple[str, ...] = Field((), description="those of the split held_out")
    require_review: Literal["none", "not_rejected", "approved"] = Field(
        "not_rejected", description="of a demonstration; none: it does not matter"
    )
    exclude: tuple[str, ...] = Field((), description="ids that no training export takes")
    include_failed: bool = Field(False, description="completed, but the task was not done")
    include_aborted: bool = Field(False, description="ended before they were completed")
    include_duplicates: bool = Field(False, description="the same film or log under another id")
    include_contaminated: bool = Field(False, description="demonstrations of benchmark tasks")
    include_avoidable_leaks: bool = Field(False, description="the pointer is shown at its target")
    include_unavoidable_leaks: bool = Field(True, description="the same, but it was there before")
    include_unproven_clock: bool = Field(
        False, description="screenshots that may show another state: the clock is that unsure"
    )
    include_stale_trees: bool = Field(False, description="trees unlike the screenshot")
    max_hidden_share: float = Field(
        0.3, ge=0, le=1, description="of the actions before a step; above: no sample of it"
    )
    min_alignment: int = Field(
        0, ge=0, le=10, description="grade of a demonstration, at least; above 0: ungraded ones not"
    )
    exclude_steps: Literal["none", "incorrect"] = Field(
        "none", description="steps annotated as incorrect give no sample"
    )
    min_steps: int = Field(3, ge=1, description="in a row, of a whole trajectory with hidden ones")
    prompt_style: Literal["history", "instruction", "grounding"] = Field(
        "history",
        description="instruction and previous actions, the instruction alone, or the target named",
    )
    history_actions: int = Field(
        30, ge=1, description="in prompts: the last ones in full, those before as their number"
    )
    history_images: int = Field(
        0, ge=0, le=10, description="in messages: screenshots of that many steps before"
    )
    coordinates: Literal["relative", "absolute"] = Field(
        "relative", description="in messages: 0 to 1000, or pixels of the resized picture"
    )
    max_pixels: int = Field(
        16_384 * 28 * 28, ge=56 * 56, description="of a picture as the model sees it"
    )
    image_mode: Literal["link", "copy", "jpeg"] = Field(
        "link", description="hard links (copies where impossible), copies, JPEG; tests stay PNG"
    )
    license: str = Field("unknown", description="in the dataset cards, e.g. cc-by-4.0")
    sft_trees: Literal["path", "object"] = Field(
        "path", description="`ui_tree` of SFT samples: the file's path, or the tree itself"
    )
    sft_keys: Literal["extended", "documented"] = Field(
        "extended",
        description="keys of SFT samples: with ours, or only the format document's; actions that "
        "need ours, such as a click with Ctrl, then give no sample",
    )
    action_line: bool = Field(
        False, description="messages: `Action: …` before the calls, for OSWorld's Qwen3-VL agent"
    )
    embed_images: bool = Field(False, description="messages: pictures in the Parquet files")
    cudag_scroll_sign: Literal["up", "down"] = Field("up", description="of positive `pixels`")
    cudag_scroll_unit: Literal["pixels", "notches"] = Field(
        "pixels", description="of `pixels`; notches for executors that turn the wheel by clicks"
    )
    cudag_pixels_per_notch: int = Field(
        100, gt=0, description="`pixels` for one notch, if unit pixels"
    )
    keep_previous: bool = Field(False, description="older CUDAG directories stay published")

    @model_validator(mode="after")
    def _values_agree(self) -> Self:
        total = self.train_ratio + self.val_ratio + self.test_ratio
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train_ratio, val_ratio and test_ratio must add up to 1, not {total}")
        return self


class HubSettings(Section):
    """What `demo-pipeline export --hub-layout` writes, besides `datasets.license`."""

    max_shard_bytes: ClassVar[int] = 500_000_000  # of a Parquet file

    language: tuple[str, ...] = Field(
        (), description='ISO 639-1 codes of the tasks\' languages, e.g. ["en"]; needed'
    )


CONFIG_VARIABLE = f"{PREFIX}CONFIG"  # the only variable with the prefix that is not a setting


SETTINGS_FILE = "demo_pipeline.toml"


def project_root() -> Path:
    """The nearest folder, from the current one upwards, with a settings file; else the checkout.

    Without either it is the current folder.
    """
    here = Path.cwd()
    checkout = Path(__file__).resolve().parents[1]
    made = (folder for folder in (here, *here.parents) if (folder / SETTINGS_FILE).is_file())
    return next(made, checkout if (checkout / "pyproject.toml").is_file() else here)


def is_project() -> bool:
    """Whether the current folder is in a project or a checkout."""
    return any((project_root() / name).is_file() for name in (SETTINGS_FILE, "pyproject.toml"))


def project_home() -> Path:
    """Where Dagster records runs unless DAGSTER_HOME is set: `dagster/` of what `init` made."""
    made = project_root() / "dagster"
    return made if (made / "dagster.yaml").is_file() else project_root()


def dagster_home() -> Path:
    """The folder in which Dagster records runs."""
    return Path(os.environ.get("DAGSTER_HOME") or project_home()).expanduser().absolute()


def _in_data(name: str, description: str) -> Any:
    return Field(default_factory=lambda: f"{project_root()}/data/{name}", description=description)


class RecordingSettings(Section):
    """What a recording may look like; larger ones are refused before they cost memory and time."""

    WERE_SETTINGS: ClassVar[frozenset[str]] = frozenset({"max_video_pixels", "max_video_seconds"})
    max_video_pixels: ClassVar[int] = 7680 * 4320
    max_video_seconds: ClassVar[float] = 6 * 3600.0


class ActionSettings(Section):
    """How raw input becomes actions (Event Processing of Training Gym recordings)."""

    WERE_SETTINGS: ClassVar[frozenset[str]] = frozenset({"split_typing_at_pauses"})
    split_typing_at_pauses: ClassVar[bool] = False
    click_max_ms: ClassVar[int] = 500  # a longer press in one place is flagged long
    multi_click_ms: ClassVar[int] = 500  # between presses; the default of Windows and GTK
    scroll_gap_ms: ClassVar[int] = 1000  # a longer gap starts a new scroll
    # Between presses of a navigation key: a longer gap leaves time to look and starts a new action
    # (tapping is faster, seeing and deciding takes about as long).
    key_run_gap_ms: ClassVar[int] = 400
    pointer_rest_ms: ClassVar[int] = 300  # a rest this long ends a pointer movement
    duplicate_window_ms: ClassVar[int] = 3  # between copies by a recorder's hooks
    macos_pixels_per_notch: ClassVar[int] = 100  # that macOS logs per wheel notch
    drag_path_points: ClassVar[int] = 64  # of a drag's path that are kept, at most

    click_radius_px: float = Field(5.0, description="screen pixels at scale 1; farther is a drag")
    pause_ms: int = Field(
        2000, gt=0, description="ms; no input but idle moves for this long is a pause"
    )
    stop_shortcut: tuple[str, ...] = Field(
        (), description="keys that stop the recorder, left out at the end; empty: none"
    )
    keyboard_layout: Literal["auto", "us", "uk", "us-intl", "de", "es", "fr", "it", "ru"] = Field(
        "auto", description="for logs without characters; auto: by meta.json"
    )
    wheel_sign: Literal["auto", "positive_down", "positive_up"] = Field(
        "auto", description="direction of a positive delta; auto: by video, else by its unit"
    )


class ObservationSettings(Section):
    """Which frame and which tree a step gets."""

    recorder_windows: tuple[str, ...] = Field(
        ("Training Gym", "OBS", "SimpleScreenRecorder", "Kazam", "Bandicam", "Screen Recorder"),
        description="words of window names; a first or last action on such a window is left out",
    )


class ScreenshotSettings(Section):
    """What is kept beside screenshots."""

    native: bool = Field(
        False,
        description="the screen in its own size; grounding, messages, CUA-Lite, AgentNet, ATIF and "
        "Cua's folders take it",
    )


class TrajectorySettings(Section):
    """How observations and actions become an OSWorld-Desktopd trajectory."""

    easy_steps: ClassVar[int] = 5  # of an easy task, at most
    medium_steps: ClassVar[int] = 15  # of a medium task, at most; more: hard

    max_avoidable_leak_rate: float = Field(
        0.02, ge=0, le=1, description="share of pointing actions; a check warns above it"
    )
    max_leak_rate: float = Field(
        0.25, ge=0, le=1, description="the same, unavoidable leaks included"
    )
    keep_doubtful_text: bool = Field(
        False, description="write typed text that may be another one, as the keys were read"
    )


PrivacyKind = Literal[
    "password",
    "email",
    "phone",
    "card",
    "iban",
    "ip_address",
    "aws_key",
    "github_token",
    "slack_token",
    "jwt",
    "private_key",
    "word",
    "expression",
    "window",
    "region",
]
PrivacyPolicy = Literal["off", "flag", "redact", "drop"]


class PrivacySettings(Section):
    """What is looked for in what people recorded, and what happens to it."""

    policy: PrivacyPolicy = Field(
        "flag", description="off, flag (count it), redact (replace it), drop (the demonstration)"
    )
    kinds: dict[PrivacyKind, PrivacyPolicy] = Field(
        default_factory=dict, description='other policies of kinds: {"email": "redact"}'
    )
    words: tuple[str, ...] = Field((), description="private words, in any case")
    expressions: tuple[str, ...] = Field((), description="private regular expressions")
    windows: tuple[str, ...] = Field(
        (), description="words of the titles of private windows, e.g. an application's name"
    )
    regions: tuple[tuple[int, int, int, int], ...] = Field(
        (), description="x, y, width, height of private parts of the screen, canvas pixels"
    )

    def policy_of(self, kind: PrivacyKind) -> PrivacyPolicy:
        """What happens to a kind. Passwords are always redacted, unless they shall drop it all."""
        if kind == "password":
            return "drop" if self.kinds.get(kind) == "drop" else "redact"
        return self.kinds.get(kind, self.policy)

    def removes(self, kind: PrivacyKind) -> bool:
        """Whether what is found of a kind must not leave."""
        return self.policy_of(kind) in {"redact", "drop"}

    @property
    def reads_pictures(self) -> bool:
        """Whether texts in pictures matter: whether something that is found must not leave."""
        return {"redact", "drop"} & {self.policy, *self.kinds.values()} != set()

    @field_validator("expressions")
    @classmethod
    def _compile(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return values


class DiscoverySettings(Section):
    """How uploads are noticed, and what one tick may cost."""

    max_dataset_age_seconds: ClassVar[float] = 900  # that new trajectories wait for others

    stable_seconds: float = Field(
        20, ge=0, description="seconds without a change that make an upload complete; 0: at once"
    )
    complete_marker: str = Field(
        "", description="an object that ends a first upload at once, e.g. _COMPLETE; empty: none"
    )
    interval_seconds: int = Field(15, ge=1, description="seconds between two ticks")


class ExecutionSettings(Section):
    """How work is spread: it must never change a byte."""

    workers: int = Field(
        default_factory=lambda: max(1, os.cpu_count() or 1),
        ge=1,
        description="processes; one per core",
    )
    screens_in_reports: bool = Field(True, description="false keeps screens out of reports")


class Settings(BaseSettings):
    """All settings. The module's docstring says where values come from."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    uploads: str = _in_data("recordings", "a path or an s3:// URL; input")
    store: str = _in_data("store", "a path or an s3:// URL; everything built")
    osworld_tasks: str = _in_data("osworld", "a folder of task files; may be missing")
    cache: str = _in_data(".cache", "a folder for downloads; may be removed")
    actions: ActionSettings = ActionSettings()
    observation: ObservationSettings = ObservationSettings()
    screenshots: ScreenshotSettings = ScreenshotSettings()
    trajectories: TrajectorySettings = TrajectorySettings()
    privacy: PrivacySettings = PrivacySettings()
    datasets: DatasetSettings = DatasetSettings()
    hub: HubSettings = HubSettings()
    discovery: DiscoverySettings = DiscoverySettings()
    execution: ExecutionSettings = ExecutionSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then the TOML file."""
        chosen = os.environ.get(CONFIG_VARIABLE)
        file = Path(chosen) if chosen else project_root() / SETTINGS_FILE
        toml = TomlConfigSettingsSource(settings_cls, toml_file=file)
        return init_settings, env_settings, toml

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_names(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        variables = {name.upper() for name in os.environ} - {CONFIG_VARIABLE}
        ours = (name.removeprefix(PREFIX) for name in variables if name.startswith(PREFIX))
        names = {name.lower().replace("__", ".") for name in ours}
        for name, value in values.items():
            inner = value if isinstance(value, Mapping) else ()
            names |= {f"{name}.{key}" for key in inner} or {name}
        fields = {name: type(field.default) for name, field in cls.model_fields.items()}
        if refusals := "\n".join(unknown_names(names, fields)):
            raise ValueError(refusals)
        return values
