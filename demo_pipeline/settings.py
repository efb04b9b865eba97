"""Every path and threshold of the pipeline, in one frozen model.

Belongs here: defaults, their units and where each comes from. Values are read from the environment
(`DEMO_PIPELINE_STORE`, `DEMO_PIPELINE_ACTIONS__CLICK_RADIUS_PX=8`, …), then from a TOML file
(`DEMO_PIPELINE_CONFIG`, default `demo_pipeline.toml` in the project root), then from the defaults.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

NAME_PART = r"^[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"  # no `--`: it parts the parts


def project_root() -> Path:
    """The checkout when the package runs from one, else the current directory."""
    checkout = Path(__file__).resolve().parents[1]
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


class Section(BaseModel):
    """A part of the settings that one stage depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def fingerprint(self) -> str:
        """SHA-256 over the values, so that a manifest can say what a stage was made with."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class RecordingSettings(Section):
    """What a recording may look like."""

    max_line_bytes: int = Field(256 * 2**20, description="longer log lines are rejected")
    max_video_pixels: int = Field(7680 * 4320, description="larger frames are refused undecoded")
    max_video_seconds: float = Field(6 * 3600, description="longer videos are refused")


class ActionSettings(Section):
    """How raw input becomes actions (seed 000, Event Processing; formats notes)."""

    click_radius_px: float = Field(5.0, description="at scale 1; farther is a drag")
    click_max_ms: int = Field(500, description="a longer still press is a click, flagged long")
    multi_click_ms: int = Field(500, description="between presses; Windows' and GTK's default")
    scroll_gap_ms: int = Field(1000, description="a longer gap starts a new scroll")
    pointer_rest_ms: int = Field(300, description="a pause this long breaks a pointer run")
    pause_ms: int = Field(2000, description="no input of any kind for this long is a pause")
    split_typing_at_pauses: bool = False
    typing_pause_ms: int = Field(2000, description="only with split_typing_at_pauses")
    duplicate_window_ms: int = Field(3, description="copies by several hooks lie this close")
    stop_shortcut: tuple[str, ...] = Field(
        (), description="a recorder's own stop keys, left out at the end; empty: none"
    )
    keyboard_layout: Literal["us", "uk"] = "us"
    wheel_sign: Literal["auto", "positive_down", "positive_up"] = "auto"
    pixels_per_notch: int = Field(100, description="macOS counts the wheel in pixels")
    drag_path_points: int = Field(64, description="most points kept of a drag's path")


class ObservationSettings(Section):
    """Which frame and which tree a step sees."""

    min_lead_ms: int = Field(50, description="a frame lies at least this long before its press")
    max_clock_offset_s: float = Field(3.5, description="how far the video's clock may be off")
    pointer_radius_px: int = Field(40, description="closer than this to the target is near")


class TrajectorySettings(Section):
    """How observations and actions are written down (seed 001)."""

    easy_steps: int = Field(5, description="at most this many steps: easy")
    medium_steps: int = Field(15, description="at most this many steps: medium")
    max_avoidable_leak_rate: float = Field(
        0.02, ge=0, le=1, description="of pointing actions; above it a check warns"
    )
    max_leak_rate: float = Field(
        0.25, ge=0, le=1, description="the same, with the leaks that no picture could avoid"
    )


class DatasetSettings(Section):
    """How trajectories become training files (seeds 001 section 6 and 003)."""

    name_prefix: str = Field("demonstrations", pattern=NAME_PART)
    user: str = Field("demo-pipeline", pattern=NAME_PART)
    timestamp: str = Field(
        "",
        pattern=r"^([0-9]{8}_[0-9]{6})?$",
        description="YYYYMMDD_HHMMSS; empty: the newest recording's, UTC",
    )
    seed: int = 0
    train_ratio: float = Field(0.8, ge=0, le=1)
    val_ratio: float = Field(0.1, ge=0, le=1)
    test_ratio: float = Field(0.1, ge=0, le=1)
    held_out_applications: tuple[str, ...] = ()
    include_failed: bool = Field(False, description="completed, and the task was not done")
    include_aborted: bool = Field(False, description="ended before they were completed")
    include_contaminated: bool = Field(False, description="demonstrations of benchmark tasks")
    include_leaky: bool = Field(
        False, description="steps whose picture shows the pointer at its target, avoidably or not"
    )
    prompt_style: Literal["history", "instruction", "grounding"] = Field(
        "history",
        description="instruction and previous actions, the instruction alone, or the target named",
    )
    image_mode: Literal["link", "copy", "jpeg"] = Field(
        "link", description="hard links (copies where they cannot be), copies, JPEG; tests stay PNG"
    )
    jpeg_quality: int = Field(90, ge=1, le=100)
    license: str = Field("unknown", description="in the dataset cards, e.g. cc-by-4.0")
    tool_call_format: Literal["text", "structured"] = Field(
        "text", description="messages: calls as text of the turn, or as its `tool_calls`"
    )
    cudag_scroll_sign: Literal["up", "down"] = "up"
    pixels_per_notch: int = 100
    tolerance_min: int = Field(5, description="RU")
    tolerance_max: int = Field(100, description="RU")
    default_tolerance: int = Field(10, description="RU, a point without a target")
    scroll_tolerance: int = Field(50, description="RU")

    @model_validator(mode="after")
    def _ratios_add_up(self) -> Self:
        total = self.train_ratio + self.val_ratio + self.test_ratio
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train_ratio, val_ratio and test_ratio must add up to 1, not {total}")
        return self


class DiscoverySettings(Section):
    """How uploads are noticed, and what one look may cost. In no fingerprint, like execution."""

    stable_seconds: float = Field(
        60, ge=0, description="unchanged for so long by our own clock: complete; 0: at once"
    )
    complete_marker: str = Field(
        "", description="an object that ends a first upload at once, e.g. _COMPLETE; empty: none"
    )
    pages_per_tick: int = Field(30, ge=2, description="of listings, 1,000 names each")
    seconds_per_tick: float = Field(20, gt=0, description="after which a look ends early")
    polls_per_tick: int = Field(500, ge=1, description="demonstrations listed by themselves")
    requests_per_tick: int = Field(100, ge=1, description="Dagster's sensors time out on more")
    interval_seconds: int = Field(30, ge=1, description="between two looks")
    max_dataset_age_seconds: float = Field(
        900, ge=0, description="new trajectories wait no longer for those still being made"
    )


class ExecutionSettings(Section):
    """How work is spread. In no fingerprint: it must never change a byte."""

    workers: int = Field(default_factory=lambda: max(1, os.cpu_count() or 1))
    partitions_per_run: int = Field(1, description="of a backfill; one keeps verdicts apart")
    contact_sheets_in_ui: bool = Field(True, description="they show what was on the screen")


class Settings(BaseSettings):
    """All settings. See the module's sentence for where values come from."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="DEMO_PIPELINE_",
        env_nested_delimiter="__",
    )

    uploads: str = Field(
        default_factory=lambda: str(project_root() / "data" / "recordings"),
        description="where recordings arrive: a path or an s3:// URL",
    )
    store: str = Field(
        default_factory=lambda: str(project_root() / "data" / "store"),
        description="what the pipeline makes: a path or an s3:// URL",
    )
    osworld_tasks: str = Field(
        default_factory=lambda: str(project_root() / "data" / "osworld"),
        description="a folder of OSWorld task files; it need not be there",
    )
    cache: str = Field(
        default_factory=lambda: str(project_root() / "data" / ".cache"),
        description="a local folder for what is downloaded; may be removed when nothing runs",
    )
    recording: RecordingSettings = RecordingSettings()
    actions: ActionSettings = ActionSettings()
    observation: ObservationSettings = ObservationSettings()
    trajectories: TrajectorySettings = TrajectorySettings()
    datasets: DatasetSettings = DatasetSettings()
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
        chosen = os.environ.get("DEMO_PIPELINE_CONFIG")
        file = Path(chosen) if chosen else project_root() / "demo_pipeline.toml"
        toml = TomlConfigSettingsSource(settings_cls, toml_file=file)
        return init_settings, env_settings, toml
