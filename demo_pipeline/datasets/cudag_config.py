"""The name and `config.json` of a CUDAG dataset.

Belongs here: how both follow from the settings and the input. The time is that of the newest
recording unless the settings give one.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from demo_pipeline.common.dataset_settings import NAME_PART, DatasetSettings
from demo_pipeline.datasets.prompts import scroll_rule, system_prompt, units_per_notch
from demo_pipeline.datasets.selection import EPOCH, DatasetTrajectory, newest_recording
from demo_pipeline.datasets.splits import SplitPlan
from demo_pipeline.formats.cudag.models import DIRECTORY_PATTERN, GENERATOR

_STAMP = "%Y%m%d_%H%M%S"
SETTINGS_DETAIL = "settings"  # of the build's summary: what `decisive_settings` returns
_DECISIVE = (
    *("seed", "train_ratio", "val_ratio", "test_ratio", "held_out_applications"),
    *("include_failed", "include_aborted", "include_contaminated"),
    *("include_avoidable_leaks", "include_unavoidable_leaks", "max_hidden_share", "prompt_style"),
    *("cudag_scroll_sign", "cudag_scroll_unit", "cudag_pixels_per_notch"),
    *("tolerance_min", "tolerance_max", "default_tolerance", "scroll_tolerance", "drag_tolerance"),
)


def generated_at(newest: datetime, settings: DatasetSettings) -> datetime:
    """The dataset's time in UTC, whole seconds: that of the settings, else `newest`.

    Raises:
        ValueError: `timestamp` in the settings is not a valid time.
    """
    if not settings.timestamp:
        return newest.replace(microsecond=0)
    try:
        return datetime.strptime(settings.timestamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(
            f"datasets.timestamp is {settings.timestamp!r}; give YYYYMMDD_HHMMSS or leave it empty"
        ) from None


def dataset_directory_name(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> str:
    """The dataset's directory name, `{prefix}--{user}--{YYYYMMDD_HHMMSS}`, as CUDAG requires.

    Raises:
        ValueError: a part cannot be used in a name; the message says which and what to write.
    """
    newest = EPOCH if settings.timestamp else newest_recording(trajectories)
    return directory_name(generated_at(newest, settings), settings)


def directory_name(time: datetime, settings: DatasetSettings) -> str:
    """The directory name for a known time; raises as `dataset_directory_name` does."""
    parts = {"name_prefix": settings.name_prefix, "user": settings.user}
    for key, part in parts.items():
        if not re.fullmatch(NAME_PART.strip("^$"), part):
            raise ValueError(
                f"datasets.{key} is {part!r}; use letters, digits, . _ and single - inside"
            )
    name = f"{settings.name_prefix}--{settings.user}--{time:%Y%m%d_%H%M%S}"
    if not DIRECTORY_PATTERN.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid dataset name; choose other parts")
    return name


def configuration(
    settings: DatasetSettings,
    time: datetime,
    counts: Mapping[str, int],
    plan: SplitPlan,
    escaped: Mapping[str, int],
) -> dict[str, Any]:
    """The content of `config.json`.

    Args:
        settings: the settings that the dataset is made with.
        time: see `generated_at`.
        counts: records of all splits together, by task type.
        plan: the split plan, for the groups that were moved to fill a split.
        escaped: number of escaped markers, in prompts and in tool calls.
    """
    total = sum(counts.values())
    types = sorted(counts)
    return {
        "generator": GENERATOR,
        "name_prefix": settings.name_prefix,
        "user": settings.user,
        "generated_at": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "seed": settings.seed,
        "task_types": types,
        "task_counts": {kind: counts[kind] for kind in types},
        "task_distributions": {kind: round(counts[kind] / total, 6) for kind in types},
        "train_split": settings.train_ratio,
        "split_ratios": split_ratios(settings),
        "split_rule": "SHA-256 of seed and task group against the cumulative ratios",
        "split_filled": [{"group": group, "split": split.value} for group, split in plan.filled],
        "held_out_applications": list(settings.held_out_applications),
        "include_failed": settings.include_failed,
        "include_aborted": settings.include_aborted,
        "include_contaminated": settings.include_contaminated,
        "include_avoidable_leaks": settings.include_avoidable_leaks,
        "include_unavoidable_leaks": settings.include_unavoidable_leaks,
        "max_hidden_share": settings.max_hidden_share,
        "prompt_style": settings.prompt_style,
        "images": _images(settings),
        **_rules(settings),
        "escaped_markers": dict(sorted(escaped.items())),
        "system_prompt": system_prompt(settings),
    }


def decisive_settings(settings: DatasetSettings) -> dict[str, JsonValue]:
    """The settings that decide the records of a dataset: name → value, as JSON has it."""
    values: dict[str, JsonValue] = settings.model_dump(mode="json", include=set(_DECISIVE))
    return {name: values[name] for name in _DECISIVE} | {"image_mode": _images(settings)}


def split_ratios(settings: DatasetSettings) -> dict[str, float]:
    """The wanted share of groups in each split that is assigned by hash."""
    return {
        "train": settings.train_ratio,
        "val": settings.val_ratio,
        "test": settings.test_ratio,
    }


def _images(settings: DatasetSettings) -> dict[str, Any]:
    """The kind of image file. Links and copies have the same bytes and are not told apart."""
    if settings.image_mode == "jpeg":
        return {"format": "jpeg", "quality": settings.jpeg_quality}
    return {"format": "png"}


def _rules(settings: DatasetSettings) -> dict[str, Any]:
    """The rules for scrolls and tolerances."""
    return {
        "scroll": {
            "unit": settings.cudag_scroll_unit,
            "positive": settings.cudag_scroll_sign,
            "hscroll_positive": "right",
            "pixels_per_notch": units_per_notch(settings),
            "rule": scroll_rule(settings),
        },
        "tolerance": {
            "unit": "RU",
            "rule": "from the point to the target's nearer edge on each axis, within min and max",
            "min": settings.tolerance_min,
            "max": settings.tolerance_max,
            "without_target": settings.default_tolerance,
            "scroll": settings.scroll_tolerance,
            "drag": settings.drag_tolerance,
        },
    }
