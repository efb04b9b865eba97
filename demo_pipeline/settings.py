"""The paths and adjustable thresholds of the pipeline, in one frozen model.

Belongs here: defaults, their units and where each comes from. Other thresholds are constants of the
module that uses them. Values are read from the environment (`DEMO_PIPELINE_STORE`,
`DEMO_PIPELINE_DATASETS__HISTORY_IMAGES=2`, …), then from a TOML file (`DEMO_PIPELINE_CONFIG`,
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
    # Settings of earlier versions with the value that holds now: it is hashed, as it was before.
    REMOVED: ClassVar[Mapping[str, Any]] = {}
    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {}

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
        values |= self.REMOVED
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# Removed settings for which more is to be said than the value that holds now.
_INSTEAD = {
    "datasets.test_ratio": "test gets the share that train_ratio and val_ratio leave",
    "execution.screens_in_reports": "`demo-pipeline report --no-screens` leaves screens out",
    "datasets.embed_images": "`demo-pipeline export --hub-layout` has the images in the tables",
}


def unknown_names(names: Iterable[str], fields: Mapping[str, type]) -> Iterator[str]:
    """A sentence for each name that is not a setting, with the nearest one.

    Args:
        names: of settings, `name` or `section.name`, in the environment or the file.
        fields: name of every setting or section → its type.
    """
    known = set(fields)
    removed: dict[str, Any] = {}
    for section, kind in fields.items():
        if issubclass(kind, Section):
            known |= {f"{section}.{name}" for name in kind.model_fields}
            values = {**kind.REMOVED, **kind.REMOVED_UNHASHED}
            removed |= {f"{section}.{name}": value for name, value in values.items()}
    for name in sorted(set(names) - known):
        if name.lower() in removed:
            rule = f"{json.dumps(removed[name.lower()])} holds always"
            rule = _INSTEAD.get(name.lower(), rule)
            yield f"setting {_both(name)} is gone: {rule}; remove the setting"
            continue
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
_ROUNDING = 1e-9
NAME_PART = r"^[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"  # no `--`, which joins the parts


class DatasetSettings(Section):
    """How trajectories become training files."""

    SIGNED: ClassVar[frozenset[str]] = frozenset({"seed"})
    UNHASHED: ClassVar[frozenset[str]] = frozenset({"exports"})
    HASHED_WHEN_SET: ClassVar[frozenset[str]] = frozenset(
        {
            *("min_alignment", "exclude_steps"),
            *("coordinates", "max_pixels", "sft_keys"),
        }
    )
    REMOVED: ClassVar[Mapping[str, Any]] = {
        "user": "demo-pipeline",
        "timestamp": "",  # the directory is named after its newest recording
        "test_ratio": 0.1,
        "include_stale_trees": False,
        "max_hidden_share": 0.3,
        "min_steps": 3,
        "history_actions": 30,
        "sft_trees": "path",
        "embed_images": False,
        "cudag_pixels_per_notch": 100,
        "keep_previous": False,
    }
    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {
        "include_duplicates": False,
        "include_unproven_clock": False,
    }

    user: ClassVar[str] = "demo-pipeline"  # in the name of CUDAG's directory
    # Share of hidden actions before a step, above which it gives no record: up to a third of its
    # history may be words in place of a screenshot.
    max_hidden_share: ClassVar[float] = 0.3
    min_steps: ClassVar[int] = 3  # of a whole trajectory that was cut; fewer show no course
    # The last actions that a prompt tells in full, those before as their number: with a screenshot
    # of 2,700 tokens such a prompt fits into the 8,192 tokens that the pages recommend.
    history_actions: ClassVar[int] = 30
    cudag_pixels_per_notch: ClassVar[int] = 100  # as browsers scroll for a notch

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
        "demonstrations",
        pattern=NAME_PART,
        description="first part of the name of CUDAG's directory",
    )
    seed: int = Field(0, description="changes the hash that assigns task groups to splits")
    train_ratio: float = Field(
        0.8, ge=0, le=1, description="share of the task groups that go to train"
    )
    val_ratio: float = Field(
        0.1, ge=0, le=1, description="share that goes to val; the rest goes to test"
    )
    held_out_applications: tuple[str, ...] = Field(
        (), description="their tasks form the split held_out"
    )
    require_review: Literal["none", "not_rejected", "approved"] = Field(
        "not_rejected", description="review that a demonstration needs to take part"
    )
    exclude: tuple[str, ...] = Field(
        (), description="ids of demonstrations that no training export takes"
    )
    include_failed: bool = Field(
        False, description="include demonstrations whose task was not done"
    )
    include_aborted: bool = Field(False, description="include demonstrations that ended early")
    include_contaminated: bool = Field(
        False, description="include demonstrations of benchmark tasks"
    )
    include_avoidable_leaks: bool = Field(
        False,
        description="include steps whose screenshot shows the pointer at its target although an "
        "earlier frame does not",
    )
    include_unavoidable_leaks: bool = Field(
        True, description="include steps whose pointer was at the target before already"
    )
    min_alignment: int = Field(
        0, ge=0, le=10, description="lowest grade that takes part; above 0 it needs a grade"
    )
    exclude_steps: Literal["none", "incorrect"] = Field(
        "none", description="steps that give no sample"
    )
    prompt_style: Literal["history", "instruction", "grounding"] = Field(
        "history",
        description="instruction and previous actions, the instruction alone, or the target's name",
    )
    history_images: int = Field(
        0, ge=0, le=10, description="messages: number of earlier screenshots in a prompt"
    )
    coordinates: Literal["relative", "absolute"] = Field(
        "relative", description="messages: 0 to 1000, or pixels of the resized screenshot"
    )
    max_pixels: int = Field(
        16_384 * 28 * 28,
        ge=56 * 56,
        description="largest screenshot that the model sees, in pixels",
    )
    image_mode: Literal["link", "copy", "jpeg"] = Field(
        "link",
        description="how screenshots get into datasets: hard links (copies where links are "
        "impossible), copies, or JPEG; those of the test split stay PNG",
    )
    sft_keys: Literal["extended", "documented"] = Field(
        "extended",
        description="keys of SFT samples: with ours, or only the format document's; actions that "
        "need ours, such as a click with Ctrl, then give no sample",
    )
    license: str = Field("unknown", description="licence in the dataset cards, e.g. cc-by-4.0")
    action_line: bool = Field(
        False,
        description="messages: a line `Action: …` before the calls, for OSWorld's Qwen3-VL agent",
    )
    cudag_scroll_sign: Literal["up", "down"] = Field(
        "up", description="direction of a scroll with positive `pixels`"
    )
    cudag_scroll_unit: Literal["pixels", "notches"] = Field(
        "pixels",
        description="unit of `pixels` (100 for a notch of the wheel), or notches for executors "
        "that turn the wheel by clicks",
    )

    @model_validator(mode="after")
    def _values_agree(self) -> Self:
        total = self.train_ratio + self.val_ratio
        if total > 1 + _ROUNDING:
            raise ValueError(f"train_ratio and val_ratio must add up to at most 1, not {total:g}")
        return self

    @property
    def test_ratio(self) -> float:
        """Share of task groups that are in neither of the splits train and val."""
        return round(1 - self.train_ratio - self.val_ratio, 9)


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

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "max_video_pixels": 7680 * 4320,
        "max_video_seconds": 6 * 3600.0,
    }
    max_video_pixels: ClassVar[int] = 7680 * 4320
    max_video_seconds: ClassVar[float] = 6 * 3600.0


class ActionSettings(Section):
    """How raw input becomes actions (Event Processing of Training Gym recordings)."""

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "split_typing_at_pauses": False,
        "click_radius_px": 5.0,
        "pause_ms": 2000,
    }
    # Screen pixels at scale 1 between press and release; farther is a drag. Windows and GTK begin a
    # drag at 4 to 8 pixels.
    click_radius_px: ClassVar[float] = 5.0
    # Without input but idle moves for this long is a pause. A person who reads a screen takes
    # longer, and one who goes on typing or clicking does not.
    pause_ms: ClassVar[int] = 2000
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

    stop_shortcut: tuple[str, ...] = Field(
        (), description="keys that stop the recorder; left out at the end of a recording"
    )
    keyboard_layout: Literal["auto", "us", "uk", "us-intl", "de", "es", "fr", "it", "ru"] = Field(
        "auto", description="layout of the keyboard; auto: by the scans and meta.json"
    )
    wheel_sign: Literal["auto", "positive_down", "positive_up"] = Field(
        "auto",
        description="direction of a positive wheel delta; auto: by the video, else by its unit",
    )


class ObservationSettings(Section):
    """Which frame and which tree a step gets."""

    recorder_windows: tuple[str, ...] = Field(
        ("Training Gym", "OBS", "SimpleScreenRecorder", "Kazam", "Bandicam", "Screen Recorder"),
        description="words of the titles of the recorder's own windows; a first or last action on "
        "such a window is left out",
    )


class ScreenshotSettings(Section):
    """What is kept beside screenshots."""

    native: bool = Field(
        False,
        description="keep the screen in its own size, too; grounding, messages, CUA-Lite, "
        "AgentNet, ATIF and Cua's folders use it",
    )


class TrajectorySettings(Section):
    """How observations and actions become an OSWorld-Desktopd trajectory."""

    easy_steps: ClassVar[int] = 5  # of an easy task, at most
    medium_steps: ClassVar[int] = 15  # of a medium task, at most; more: hard

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "max_avoidable_leak_rate": 0.02,
        "max_leak_rate": 0.25,
        "keep_doubtful_text": False,
    }
    # Shares of pointing actions above which the check `leak_rate` warns: of avoidable leaks, and of
    # all. The sample recordings have 0 and 0.07.
    max_avoidable_leak_rate: ClassVar[float] = 0.02
    max_leak_rate: ClassVar[float] = 0.25


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
        "flag", description="ignore it, count it, replace it, or leave out the demonstration"
    )
    kinds: dict[PrivacyKind, PrivacyPolicy] = Field(
        default_factory=dict, description='other policies for some kinds, e.g. {"email": "redact"}'
    )
    words: tuple[str, ...] = Field((), description="private words; case does not matter")
    expressions: tuple[str, ...] = Field((), description="private regular expressions")
    windows: tuple[str, ...] = Field(
        (), description="words of the titles of private windows, e.g. an application's name"
    )
    regions: tuple[tuple[int, int, int, int], ...] = Field(
        (), description="private parts of the screen: x, y, width, height in canvas pixels"
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
        20,
        ge=0,
        description="seconds without a change after which an upload is complete; 0: at once",
    )
    complete_marker: str = Field(
        "", description="name of an object that completes a first upload, e.g. _COMPLETE"
    )
    interval_seconds: int = Field(
        15, ge=1, description="seconds between two evaluations of a sensor"
    )


class ExecutionSettings(Section):
    """How work is spread: it must never change a byte."""

    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {"screens_in_reports": True}

    workers: int = Field(
        default_factory=lambda: max(1, os.cpu_count() or 1),
        ge=1,
        description="worker processes; one per core",
    )


class Settings(BaseSettings):
    """All settings. The module's docstring says where values come from."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    uploads: str = _in_data("recordings", "where recordings arrive: a path or an s3:// URL")
    store: str = _in_data("store", "everything that is built: a path or an s3:// URL")
    osworld_tasks: str = _in_data("osworld", "folder of OSWorld task files; may be missing")
    cache: str = _in_data(".cache", "folder for downloads; may be removed when nothing runs")
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
