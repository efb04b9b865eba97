"""The paths and adjustable thresholds of the pipeline, in one frozen model.

Belongs here: defaults, their units and where each comes from. Other thresholds are constants of the
module that uses them. Values are read from the environment (`DEMO_PIPELINE_STORE`,
`DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX=8`, …), then from a TOML file
(`DEMO_PIPELINE_CONFIG`, default `demo_pipeline.toml` in the project root), then from the defaults.
Names that are not settings are refused, in the environment as in the file.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hub_settings import HubSettings
from demo_pipeline.common.settings_section import PREFIX, Section, refused_names

CONFIG_VARIABLE = f"{PREFIX}CONFIG"  # the only variable with the prefix that is not a setting


def project_root() -> Path:
    """The checkout when the package runs from one, else the current directory."""
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def _in_data(name: str, description: str) -> Any:
    return Field(default_factory=lambda: f"{project_root()}/data/{name}", description=description)


class RecordingSettings(Section):
    """What a recording may look like; larger ones are refused before they cost memory and time."""

    max_line_bytes: int = Field(
        256 * 2**20, gt=0, description="bytes; longer log lines are rejected"
    )
    max_video_pixels: int = Field(
        7680 * 4320, gt=0, description="pixels; larger frames are refused"
    )
    max_video_seconds: float = Field(
        6 * 3600, gt=0, description="seconds; longer videos are refused"
    )


class LimitSettings(Section):
    """What one demonstration may cost; more is quarantined. In no fingerprint, like execution."""

    max_meta_bytes: int = Field(4 * 2**20, gt=0, description="bytes; recorders write a few kB")
    max_log_bytes: int = Field(4 * 2**30, gt=0, description="bytes; real: 10 MB a minute")
    max_video_bytes: int = Field(32 * 2**30, gt=0, description="bytes; 6 hours of 12 Mbit/s")
    max_log_lines: int = Field(5_000_000, gt=0, description="a 125 Hz mouse, 6 hours: 2.7 million")
    max_actions: int = Field(10_000, gt=0, description="each costs 22 ms and 70 kB (measured)")
    min_video_side: int = Field(64, ge=1, description="pixels; less shows no screen to work on")
    max_memory_bytes: int = Field(4 * 2**30, ge=2**28, description="resident; usual: 0.25 GB")
    cpu_seconds: float = Field(300, gt=0, description="that a stage may use, besides the next two")
    cpu_seconds_per_video_second: float = Field(4, ge=0, description="1080p needs 0.02, 8K 1")
    cpu_seconds_per_action: float = Field(2, ge=0, description="0.1 is needed (measured)")


DEFAULT_LIMITS = LimitSettings()


class ActionSettings(Section):
    """How raw input becomes actions (Event Processing of Training Gym recordings)."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "pre_move_gap_ms": "pointer_rest_ms",
        "pixels_per_notch": "macos_pixels_per_notch",
    }

    click_radius_px: float = Field(5.0, description="screen pixels at scale 1; farther is a drag")
    click_max_ms: int = Field(500, description="ms; a longer press in one place is flagged long")
    multi_click_ms: int = Field(500, description="ms between presses; Windows' and GTK's default")
    scroll_gap_ms: int = Field(1000, description="ms; a longer gap starts a new scroll")
    key_run_gap_ms: int = Field(
        400,
        description="ms between presses of a navigation key; a longer gap leaves time to look and "
        "starts a new action (tapping is faster, seeing and deciding takes about as long)",
    )
    pointer_rest_ms: int = Field(300, description="ms; a rest this long ends a pointer movement")
    pause_ms: int = Field(
        2000, gt=0, description="ms; no input but idle moves for this long is a pause"
    )
    split_typing_at_pauses: bool = Field(False, description="a pause starts a new `type` action")
    typing_pause_ms: int = Field(2000, description="ms between keys, for split_typing_at_pauses")
    duplicate_window_ms: int = Field(3, description="ms between copies by a recorder's hooks")
    stop_shortcut: tuple[str, ...] = Field(
        (), description="keys that stop the recorder, left out at the end; empty: none"
    )
    keyboard_layout: Literal["us", "uk"] = Field("us", description="for logs without characters")
    wheel_sign: Literal["auto", "positive_down", "positive_up"] = Field(
        "auto", description="direction of a positive delta; auto: by video, else by its unit"
    )
    macos_pixels_per_notch: int = Field(
        100, gt=0, description="pixels that macOS logs per wheel notch"
    )
    drag_path_points: int = Field(64, ge=2, description="points kept of a drag's path, at most")


class ObservationSettings(Section):
    """Which frame and which tree a step gets."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "guard_ms": "min_lead_ms",
        "search_lag_s": "max_clock_offset_s",
    }
    REMOVED: ClassVar[Mapping[str, tuple[JsonValue, str]]] = {
        "canvas_width": (1920, "every screenshot is 1920 x 1080 pixels"),
        "canvas_height": (1080, "every screenshot is 1920 x 1080 pixels"),
    }

    min_lead_ms: int = Field(50, description="ms from a frame to its press, at least")
    max_clock_offset_s: float = Field(3.5, description="seconds searched around meta.timestamp")
    pointer_radius_px: int = Field(40, description="screen pixels; a nearer pointer is at a target")
    recorder_windows: tuple[str, ...] = Field(
        ("Training Gym", "OBS", "SimpleScreenRecorder", "Kazam", "Bandicam", "Screen Recorder"),
        description="words of window names; a first or last action on such a window is left out",
    )


class TrajectorySettings(Section):
    """How observations and actions become an OSWorld-Desktopd trajectory."""

    easy_steps: int = Field(5, description="steps of an easy task, at most")
    medium_steps: int = Field(15, description="steps of a medium task, at most; more: hard")
    max_avoidable_leak_rate: float = Field(
        0.02, ge=0, le=1, description="share of pointing actions; a check warns above it"
    )
    max_leak_rate: float = Field(
        0.25, ge=0, le=1, description="the same, unavoidable leaks included"
    )

    @model_validator(mode="after")
    def _grades_ascend(self) -> Self:
        if self.easy_steps > self.medium_steps:
            raise ValueError("easy_steps must not be above medium_steps")
        return self


class DiscoverySettings(Section):
    """How uploads are noticed, and what one tick may cost. In no fingerprint, like execution."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "quiet_seconds": "stable_seconds",
        "rebuild_after_seconds": "max_dataset_age_seconds",
    }

    stable_seconds: float = Field(
        60, ge=0, description="seconds without a change that make an upload complete; 0: at once"
    )
    complete_marker: str = Field(
        "", description="an object that ends a first upload at once, e.g. _COMPLETE; empty: none"
    )
    pages_per_tick: int = Field(30, ge=2, description="pages of listings, 1,000 names each")
    seconds_per_tick: float = Field(20, gt=0, description="seconds after which a tick ends early")
    polls_per_tick: int = Field(500, ge=1, description="demonstrations listed one by one")
    requests_per_tick: int = Field(
        100, ge=1, description="demonstrations requested in a tick, in one run or many"
    )
    interval_seconds: int = Field(30, ge=1, description="seconds between two ticks")
    max_dataset_age_seconds: float = Field(
        900, ge=0, description="seconds that new trajectories wait for others, at most"
    )


class ExecutionSettings(Section):
    """How work is spread. In no fingerprint: it must never change a byte."""

    workers: int = Field(
        default_factory=lambda: max(1, os.cpu_count() or 1),
        ge=1,
        description="processes; one per core",
    )
    partitions_per_run: int = Field(
        500, ge=1, description="of a backfill or batch, at most; 1: own check results for each"
    )
    batch_from: int = Field(
        8, ge=2, description="uploads at once that share a run, which then says little of each"
    )
    contact_sheets_in_ui: bool = Field(True, description="false keeps screens out of the event log")


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
    recording: RecordingSettings = RecordingSettings()
    limits: LimitSettings = LimitSettings()
    actions: ActionSettings = ActionSettings()
    observation: ObservationSettings = ObservationSettings()
    trajectories: TrajectorySettings = TrajectorySettings()
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
        file = Path(chosen) if chosen else project_root() / "demo_pipeline.toml"
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
        if refusals := "\n".join(refused_names(names, fields)):
            raise ValueError(refusals)
        return values
