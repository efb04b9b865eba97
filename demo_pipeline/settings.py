"""The settings: paths and thresholds that users can change, and some constants of stages.

A setting is read from the environment (`DEMO_PIPELINE_STORE`,
`DEMO_PIPELINE_DATASETS__HISTORY_IMAGES=2`, …) or, if it is not set there, from a TOML file. The
file is `demo_pipeline.toml` in the project root, unless `DEMO_PIPELINE_CONFIG` names another file.
A setting that is in neither has its default value. Unknown names are errors.

The class variables of a section are constants.
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
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

PREFIX = "DEMO_PIPELINE_"  # start of the names of all environment variables


class Section(BaseModel):
    """A group of settings on which the output of a stage depends.

    If the fingerprint of the section changes, the stage is built again.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )
    # Settings outside the fingerprint, because they do not change any output.
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    # Settings that are part of the fingerprint only if they differ from their default. They were
    # added later, and a fingerprint with their defaults would make older outputs stale.
    HASHED_WHEN_SET: ClassVar[frozenset[str]] = frozenset()
    # Maps removed settings to their values, which are now fixed. The values remain in the
    # fingerprint, so that older outputs stay up to date.
    REMOVED: ClassVar[Mapping[str, Any]] = {}
    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {}  # removed settings that were `UNHASHED`

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the section's values."""
        fields = type(self).model_fields
        unset = {n for n in self.HASHED_WHEN_SET if getattr(self, n) == fields[n].default}
        values = self.model_dump(mode="json", exclude={*self.UNHASHED, *unset})
        values |= self.REMOVED
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# Maps removed settings to phrases about their replacements. Other removed settings have a fixed
# value.
_INSTEAD = {
    "datasets.test_ratio": "test gets the share that train_ratio and val_ratio leave",
    "execution.screens_in_reports": "`demo-pipeline report --no-screens` leaves screens out",
    "datasets.embed_images": "`demo-pipeline export --hub-layout` has the images in the tables",
}


def unknown_names(names: Iterable[str], fields: Mapping[str, type]) -> Iterator[str]:
    """Yields a sentence for each name that is not a setting, and suggests a similar setting.

    Args:
        names: names in the environment and the file, in the form `name` or `section.name`.
        fields: maps the name of every setting and section to its type.
    """
    setting_names = set(fields)
    removed: dict[str, Any] = {}
    for section, kind in fields.items():
        if issubclass(kind, Section):
            setting_names |= {f"{section}.{name}" for name in kind.model_fields}
            values = {**kind.REMOVED, **kind.REMOVED_UNHASHED}
            removed |= {f"{section}.{name}": value for name, value in values.items()}
    for name in sorted(set(names) - setting_names):
        if name.lower() in removed:
            rule = f"its value is always {json.dumps(removed[name.lower()])}"
            rule = _INSTEAD.get(name.lower(), rule)
            yield f"setting {_both(name)} no longer exists: {rule}; remove the setting"
            continue
        near = difflib.get_close_matches(name.lower(), setting_names, 1, 0.5)
        hint = f"; the nearest is {_both(near[0])}" if near else ""
        yield f"setting {_both(name)} does not exist{hint}"


def _both(name: str) -> str:
    """Returns the name of a setting in the file, followed by its name in the environment."""
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
"""Entry point group for the exports of other packages.

An entry point maps the name of an export to `module:FORM`.
"""
EXPORT_NAME = r"[a-z][a-z0-9_]*"


class OwnExportError(ValueError):
    """Raised if an export from another installed package cannot be used; the message says why."""


def package_of(export: EntryPoint) -> str:
    """Returns the name of the installed package that provides an export."""
    return export.dist.name if export.dist else "of unknown name"


@cache
def own_exports() -> Mapping[str, EntryPoint]:
    """Returns a dictionary from the names of other packages' exports to their entry points.

    Raises:
        OwnExportError: a name is malformed, or two exports have the same name.
    """
    exports: dict[str, EntryPoint] = {}
    for export in sorted(entry_points(group=EXPORTS_GROUP), key=lambda export: export.name):
        subject = f"the export {export.name!a} of the package {package_of(export)}"
        if not re.fullmatch(EXPORT_NAME, export.name):
            raise OwnExportError(f"{subject}: a name consists of a-z, 0-9 and _; rename it")
        if export.name in BUILT_IN_EXPORTS or export.name in exports:
            other = exports.get(export.name)
            owner = f"the package {package_of(other)}" if other else "demo_pipeline"
            raise OwnExportError(f"{subject}: {owner} has an export of this name; rename it")
        exports[export.name] = export
    return exports


def export_names() -> tuple[str, ...]:
    """Returns the names of all exports: the built-in exports, then those of other packages."""
    return (*BUILT_IN_EXPORTS, *own_exports())


def _existing_export(name: str) -> str:
    if name not in BUILT_IN_EXPORTS and name not in own_exports():
        names = ", ".join(map(repr, export_names()))
        raise ValueError(
            f"each name should be one of {names}, or an export that an installed package provides"
        )
    return name


ExportName = Annotated[str, AfterValidator(_existing_export)]
_ROUNDING = 1e-9  # tolerance for rounding errors in the sum of two ratios
# Pattern of each part of the name of a CUDAG directory. It forbids `--`, which separates the parts.
NAME_PART = r"^[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"


class DatasetSettings(Section):
    """Which demonstrations and steps the datasets contain, and how training files are written."""

    UNHASHED: ClassVar[frozenset[str]] = frozenset({"exports"})
    HASHED_WHEN_SET: ClassVar[frozenset[str]] = frozenset(
        {
            *("min_alignment", "exclude_steps"),
            *("coordinates", "max_pixels", "sft_keys"),
        }
    )
    REMOVED: ClassVar[Mapping[str, Any]] = {
        "timestamp": "",  # a CUDAG directory's name now contains the newest recording's time
        "test_ratio": 0.1,
        "include_stale_trees": False,
        "max_hidden_share": 0.3,
        "min_steps": 3,
        "history_actions": 30,
        "sft_trees": "path",
        "embed_images": False,
        "cudag_scroll_sign": "up",
        "cudag_pixels_per_notch": 100,
        "keep_previous": False,
    }
    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {
        "include_duplicates": False,
        "include_unproven_clock": False,
    }

    # Largest share of hidden actions (without a screenshot) among the actions before a step. Steps
    # with a larger share are left out.
    max_hidden_share: ClassVar[float] = 0.3
    # Minimum number of successive steps without a gap. A gap is a hidden action or, in AgentNet and
    # CUA-Lite, a step that cannot be exported. If a trajectory with gaps has no run of this length,
    # exports of whole trajectories leave it out.
    min_steps: ClassVar[int] = 3
    # Maximum number of previous actions that a prompt lists. Older actions are only counted. With a
    # screenshot of 2,700 tokens, the prompt fits into the 8,192 tokens that the guides recommend.
    history_actions: ClassVar[int] = 30
    cudag_scroll_sign: ClassVar[str] = "up"  # scroll direction for positive `pixels`
    cudag_pixels_per_notch: ClassVar[int] = 100  # browsers scroll 100 pixels for a notch

    # Tolerances of coordinates in the export `cudag`, in RU: thousandths of the width or height.
    # See docs/reference/output-formats.md.
    tolerance_min: ClassVar[int] = 1
    tolerance_max: ClassVar[int] = 50
    default_tolerance: ClassVar[int] = 10  # for a point without a target element
    scroll_tolerance: ClassVar[int] = 50
    drag_tolerance: ClassVar[int] = 5  # for both ends of a drag

    grounding_min_side: ClassVar[int] = 8  # pixels; elements with a shorter side are left out
    grounding_per_screen: ClassVar[int] = 10  # maximum number of elements per screenshot
    jpeg_quality: ClassVar[int] = 90  # OpenCV's scale; 100 is best

    exports: tuple[ExportName, ...] = Field(
        ("sft", "messages", "cudag"),
        description="the training exports to build: any of "
        + ", ".join(f"`{name}`" for name in BUILT_IN_EXPORTS)
        + ", or [an export of your own](../guides/own-export.md)",
    )
    name_prefix: str = Field(
        "demonstrations",
        pattern=NAME_PART,
        description="first part of the name of the CUDAG directory; also the name of the datasets "
        "in their cards and in CUA-Lite",
    )
    user: str = Field(
        "demo-pipeline",
        pattern=NAME_PART,
        description="user in the name of the CUDAG directory; the default names no person",
    )
    seed: int = Field(0, description="number that changes which tasks go to which split")
    train_ratio: float = Field(0.8, ge=0, le=1, description="share of the tasks that go to train")
    val_ratio: float = Field(
        0.1, ge=0, le=1, description="share of the tasks that go to val; the rest goes to test"
    )
    held_out_applications: tuple[str, ...] = Field(
        (), description="applications whose tasks form the split held_out"
    )
    require_review: Literal["none", "not_rejected", "approved"] = Field(
        "not_rejected",
        description="demonstrations to include: all, those that no reviewer rejected, or only "
        "approved ones",
    )
    exclude: tuple[str, ...] = Field(
        (), description="ids of demonstrations that all training exports leave out"
    )
    include_failed: bool = Field(
        False, description="include demonstrations whose task was not completed"
    )
    include_aborted: bool = Field(
        False, description="include demonstrations that were aborted or have no status"
    )
    include_contaminated: bool = Field(
        False, description="include demonstrations of benchmark tasks"
    )
    include_avoidable_leaks: bool = Field(
        False,
        description="include steps whose screenshot shows the pointer at the target although an "
        "earlier frame does not",
    )
    include_unavoidable_leaks: bool = Field(
        True,
        description="include steps whose screenshot shows the pointer at the target because it "
        "was there before",
    )
    min_alignment: int = Field(
        0,
        ge=0,
        le=10,
        description="lowest grade of alignment (an annotation, 0 to 10) of included "
        "demonstrations; if the setting is above 0, those without a grade are left out",
    )
    exclude_steps: Literal["none", "incorrect"] = Field(
        "none", description="steps to leave out: none, or those that are annotated as incorrect"
    )
    prompt_style: Literal["history", "instruction", "grounding"] = Field(
        "history",
        description="content of a prompt: instruction and previous actions, only the instruction, "
        "or the name of the target",
    )
    history_images: int = Field(
        0, ge=0, le=10, description="number of earlier screenshots in each prompt of `messages`"
    )
    coordinates: Literal["relative", "absolute"] = Field(
        "relative",
        description="coordinates in `messages`: 0 to 1000, or pixels of the resized screenshot",
    )
    max_pixels: int = Field(
        16_384 * 28 * 28,
        ge=56 * 56,
        description="largest number of pixels to which the model's image processor resizes a "
        "screenshot; with absolute coordinates, the trainer needs the same value",
    )
    image_mode: Literal["link", "copy", "jpeg"] = Field(
        "link",
        description="how datasets get their screenshots: as hard links (copies where links are "
        "impossible), as copies, or as JPEG; screenshots of the test split stay PNG",
    )
    sft_keys: Literal["extended", "documented"] = Field(
        "extended",
        description="keys of SFT samples: all keys, or only those of the format document; with "
        "`documented`, actions that need another key, such as a click with Ctrl, are left out",
    )
    license: str = Field("unknown", description="licence in the dataset cards, e.g. cc-by-4.0")
    action_line: bool = Field(
        False,
        description="write a line `Action: …` before the calls in `messages`, as OSWorld's "
        "Qwen3-VL agent expects",
    )
    cudag_scroll_unit: Literal["pixels", "notches"] = Field(
        "pixels",
        description="unit of `pixels` in a scroll: pixels (100 for a notch of the wheel), or "
        "notches",
    )

    @model_validator(mode="after")
    def _values_agree(self) -> Self:
        total = self.train_ratio + self.val_ratio
        if total > 1 + _ROUNDING:
            raise ValueError(f"train_ratio and val_ratio must add up to at most 1, not {total:g}")
        return self

    @property
    def test_ratio(self) -> float:
        """The share of task groups that go to the test split."""
        return round(1 - self.train_ratio - self.val_ratio, 9)


class HubSettings(Section):
    """Settings of the layout for the Hugging Face Hub (`demo-pipeline export --hub-layout`)."""

    max_shard_bytes: ClassVar[int] = 500_000_000  # largest size of a Parquet file

    language: tuple[str, ...] = Field(
        (),
        description='ISO 639-1 codes of the languages of the tasks, e.g. ["en"]; required for '
        "`export --hub-layout`",
    )


CONFIG_VARIABLE = f"{PREFIX}CONFIG"  # the only variable with the prefix that is not a setting
SETTINGS_FILE = "demo_pipeline.toml"


def project_root() -> Path:
    """Returns the folder of the project.

    This is the nearest folder with a settings file, from the current folder upwards. Without such a
    folder, it is the checkout of this package or, if there is no checkout, the current folder.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / SETTINGS_FILE).is_file():
            return folder
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    return here


def is_project() -> bool:
    """Whether the current folder is in a project or a checkout."""
    return any((project_root() / name).is_file() for name in (SETTINGS_FILE, "pyproject.toml"))


def project_home() -> Path:
    """Returns the folder in which Dagster records runs if DAGSTER_HOME is not set.

    This is `dagster/` in a project created by `demo-pipeline init`, otherwise the project's folder.
    """
    created_by_init = project_root() / "dagster"
    if (created_by_init / "dagster.yaml").is_file():
        return created_by_init
    return project_root()


def dagster_home() -> Path:
    """Returns the folder in which Dagster records runs: DAGSTER_HOME or `project_home`."""
    return Path(os.environ.get("DAGSTER_HOME") or project_home()).expanduser().absolute()


def _in_data(name: str, description: str) -> Any:
    return Field(default_factory=lambda: f"{project_root()}/data/{name}", description=description)


class RecordingSettings(Section):
    """The limits above which recordings are rejected before they are decoded."""

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "max_video_pixels": 7680 * 4320,
        "max_video_seconds": 6 * 3600.0,
    }
    max_video_pixels: ClassVar[int] = 7680 * 4320
    max_video_seconds: ClassVar[float] = 6 * 3600.0


class ActionSettings(Section):
    """How raw input events become actions. Training Gym calls this Event Processing."""

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "split_typing_at_pauses": False,
        "click_radius_px": 5.0,
        "pause_ms": 2000,
    }
    # Largest distance between press and release of a click, in screen pixels at scale 1. Windows
    # and GTK begin a drag at 4 to 8 pixels.
    click_radius_px: ClassVar[float] = 5.0
    # Minimum duration of a pause: a time without keys, clicks and scrolls. Reading a screen takes
    # longer than this. The gaps in continued typing or clicking are shorter.
    pause_ms: ClassVar[int] = 2000
    click_max_ms: ClassVar[int] = 500  # a longer press without movement gets the flag `long`
    # Longest time between the presses of a double click. It is the default of Windows; the default
    # of GTK is 400 ms.
    multi_click_ms: ClassVar[int] = 500
    scroll_gap_ms: ClassVar[int] = 1000  # a longer gap between wheel events starts a new scroll
    # Presses of the same key or shortcut become separate actions if at least this time lies between
    # them. A person needs about 400 ms to look at the result and to decide.
    key_run_gap_ms: ClassVar[int] = 400
    pointer_rest_ms: ClassVar[int] = 300  # a movement ends when the pointer rests for this time
    # Longest time between an event and its duplicate from another hook of the recorder. It is
    # longer for kinds of events that were logged several times: see `LATE_WINDOWS` in repair.py.
    duplicate_window_ms: ClassVar[int] = 3
    macos_pixels_per_notch: ClassVar[int] = 100  # delta that macOS logs for a notch
    drag_path_points: ClassVar[int] = 64  # maximum number of points stored for a drag's path

    stop_shortcut: tuple[str, ...] = Field(
        (),
        description="keys of the shortcut that stops the recorder; this shortcut is left out at "
        "the end of a recording",
    )
    keyboard_layout: Literal["auto", "us", "uk", "us-intl", "de", "es", "fr", "it", "ru"] = Field(
        "auto",
        description="keyboard layout; `auto` finds it from accessibility scans and meta.json",
    )
    wheel_sign: Literal["auto", "positive_down", "positive_up"] = Field(
        "auto",
        description="direction in which a positive wheel delta scrolls; `auto` measures it in the "
        "video, or else derives it from the platform and the deltas",
    )


class ObservationSettings(Section):
    """How the video frame and the UI tree for each step are selected."""

    recorder_windows: tuple[str, ...] = Field(
        ("Training Gym", "OBS", "SimpleScreenRecorder", "Kazam", "Bandicam", "Screen Recorder"),
        description="words in the titles of the recorder's own windows; a first or last action on "
        "such a window is left out",
    )


class ScreenshotSettings(Section):
    """Which images are stored in addition to the screenshots in canvas size."""

    native: bool = Field(
        False,
        description="also store screenshots in the size of the recorded screen, for grounding, "
        "messages, CUA-Lite, AgentNet, ATIF and Cua's folders",
    )


class TrajectorySettings(Section):
    """How observations and actions become an OSWorld-Desktopd trajectory."""

    easy_steps: ClassVar[int] = 5  # maximum number of steps of an easy task
    medium_steps: ClassVar[int] = 15  # maximum number for a medium task; tasks with more are hard

    REMOVED: ClassVar[Mapping[str, Any]] = {
        "max_avoidable_leak_rate": 0.02,
        "max_leak_rate": 0.25,
        "keep_doubtful_text": False,
    }
    # Limits above which the check `leak_rate` warns, as shares of the pointing actions. A leak is a
    # screenshot that already shows the pointer at the target. The first limit is for leaks that an
    # earlier frame would avoid, the second for all leaks. In the sample recordings, the shares are
    # 0 and 0.07.
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
    """Which private data is searched for in recordings, and what happens to it."""

    policy: PrivacyPolicy = Field(
        "flag",
        description="what happens to private data: it is ignored, counted, or replaced, or the "
        "demonstration is left out",
    )
    kinds: dict[PrivacyKind, PrivacyPolicy] = Field(
        default_factory=dict,
        description='policies of some kinds of private data, e.g. {"email": "redact"}; they '
        "override `policy`",
    )
    words: tuple[str, ...] = Field((), description="words to treat as private; case is ignored")
    expressions: tuple[str, ...] = Field((), description="regular expressions of private text")
    windows: tuple[str, ...] = Field(
        (), description="words in the titles of private windows, e.g. an application's name"
    )
    regions: tuple[tuple[int, int, int, int], ...] = Field(
        (), description="private parts of the screen: x, y, width, height in canvas pixels"
    )

    def policy_of(self, kind: PrivacyKind) -> PrivacyPolicy:
        """Returns the policy of a kind of private data.

        Passwords are always redacted, unless their policy is to drop the demonstration.
        """
        if kind == "password":
            return "drop" if self.kinds.get(kind) == "drop" else "redact"
        return self.kinds.get(kind, self.policy)

    def removes(self, kind: PrivacyKind) -> bool:
        """Whether private data of a kind must be kept out of all exports."""
        return self.policy_of(kind) in {"redact", "drop"}

    @property
    def reads_pictures(self) -> bool:
        """Whether text in screenshots must be read, to find private data that must be removed."""
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
    """How sensors notice new uploads."""

    # Maximum time that new trajectories wait for a build of the datasets while other demonstrations
    # are being processed.
    max_dataset_age_seconds: ClassVar[float] = 900

    stable_seconds: float = Field(
        20,
        ge=0,
        description="seconds without a change after which an upload is complete; 0: immediately",
    )
    complete_marker: str = Field(
        "",
        description="name of a file, e.g. _COMPLETE; a new upload is complete as soon as it has "
        "this file",
    )
    interval_seconds: int = Field(
        15, ge=1, description="seconds between two evaluations of a sensor"
    )


class ExecutionSettings(Section):
    """How work is distributed; no output depends on it."""

    REMOVED_UNHASHED: ClassVar[Mapping[str, Any]] = {"screens_in_reports": True}

    workers: int = Field(
        default_factory=lambda: max(1, os.cpu_count() or 1),
        ge=1,
        description="number of worker processes",
    )


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    uploads: str = _in_data("recordings", "folder of new recordings: a path or an s3:// URL")
    store: str = _in_data("store", "folder of all outputs: a path or an s3:// URL")
    osworld_tasks: str = _in_data("osworld", "folder of OSWorld task files; may be missing")
    cache: str = _in_data(".cache", "folder for downloads; may be removed while no command runs")
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
        """Returns the sources of settings, highest priority first."""
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
