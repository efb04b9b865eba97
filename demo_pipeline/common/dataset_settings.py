"""The settings of the datasets: splits, exports, and what each export writes.

Belongs here: one section of demo_pipeline/settings.py, in a module of its own for its length.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from demo_pipeline.common.settings_section import Section

_CALLS_ARE_TEXT = (
    "calls are the text of the turn; most chat templates and loaders drop structured ones, and"
    " leave nothing to learn"
)
ExportName = Literal[
    "sft",
    "messages",
    "cudag",
    "cua_lite",
    "agentnet",
    "atif",
    "grounding",
    "transitions",
    "step_labels",
    "agentnetbench",
]
NAME_PART = r"^[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*$"  # no `--`, which joins the parts


class DatasetSettings(Section):
    """How trajectories become training files."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "images": "image_mode",
        "licence": "license",
        "scroll_positive": "cudag_scroll_sign",
        "pixels_per_notch": "cudag_pixels_per_notch",
    }
    REMOVED: ClassVar[Mapping[str, tuple[JsonValue, str]]] = {
        "include_leaky": (False, "use include_avoidable_leaks and include_unavoidable_leaks"),
        "message_calls": ("text", _CALLS_ARE_TEXT),
        "tool_call_format": (None, _CALLS_ARE_TEXT),
    }
    SIGNED: ClassVar[frozenset[str]] = frozenset({"seed"})
    UNHASHED: ClassVar[frozenset[str]] = frozenset({"exports"})

    exports: tuple[ExportName, ...] = Field(
        ("sft", "messages", "cudag"), description="the training exports that are built"
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
    include_failed: bool = Field(False, description="completed, but the task was not done")
    include_aborted: bool = Field(False, description="ended before they were completed")
    include_contaminated: bool = Field(False, description="demonstrations of benchmark tasks")
    include_avoidable_leaks: bool = Field(False, description="the pointer is shown at its target")
    include_unavoidable_leaks: bool = Field(True, description="the same, but it was there before")
    include_stale_trees: bool = Field(False, description="trees unlike the screenshot")
    max_hidden_share: float = Field(
        0.3, ge=0, le=1, description="of the actions before a step; above: no sample of it"
    )
    min_steps: int = Field(3, ge=1, description="in a row, of a whole trajectory with hidden ones")
    prompt_style: Literal["history", "instruction", "grounding"] = Field(
        "history",
        description="instruction and previous actions, the instruction alone, or the target named",
    )
    image_mode: Literal["link", "copy", "jpeg"] = Field(
        "link", description="hard links (copies where impossible), copies, JPEG; tests stay PNG"
    )
    jpeg_quality: int = Field(90, ge=1, le=100, description="OpenCV's scale, 100 is best")
    license: str = Field("unknown", description="in the dataset cards, e.g. cc-by-4.0")
    sft_trees: Literal["path", "object"] = Field(
        "path", description="`ui_tree` of SFT samples: the file's path, or the tree itself"
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
    tolerance_min: int = Field(1, ge=0, description="smallest tolerance, RU (1000 per axis)")
    tolerance_max: int = Field(50, ge=0, description="largest tolerance, RU")
    default_tolerance: int = Field(10, ge=0, description="RU, of a point without a target")
    scroll_tolerance: int = Field(50, ge=0, description="RU, of a scroll")
    drag_tolerance: int = Field(5, ge=0, description="RU, of both ends of a drag")
    grounding_per_screen: int = Field(10, ge=1, description="grounding: elements of a screenshot")
    grounding_min_side: int = Field(
        8, ge=1, description="grounding: pixels; narrower and lower elements are left out"
    )
    keep_previous: bool = Field(False, description="older CUDAG directories stay published")

    @model_validator(mode="after")
    def _values_agree(self) -> Self:
        total = self.train_ratio + self.val_ratio + self.test_ratio
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train_ratio, val_ratio and test_ratio must add up to 1, not {total}")
        if self.tolerance_min > self.tolerance_max:
            raise ValueError("tolerance_min must not be above tolerance_max")
        return self
