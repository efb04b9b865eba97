"""The name and `config.json` of a CUDAG dataset.

Belongs here: what a dataset says about itself. All of it follows from settings and input; the time
is the newest recording's unless the settings give one.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from demo_pipeline.datasets.prompts import scroll_rule, system_prompt
from demo_pipeline.datasets.selection import EPOCH, DatasetTrajectory, newest_recording
from demo_pipeline.datasets.splits import SplitPlan
from demo_pipeline.formats.cudag.models import DIRECTORY_PATTERN, GENERATOR
from demo_pipeline.settings import NAME_PART, DatasetSettings

_STAMP = "%Y%m%d_%H%M%S"


def generated_at(newest: datetime, settings: DatasetSettings) -> datetime:
    """The time a dataset carries, UTC, whole seconds: that of the settings, else of `newest`.

    Raises:
        ValueError: `timestamp` in the settings is no time.
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
    """`{prefix}--{user}--{YYYYMMDD_HHMMSS}` (seed 003, Directory Naming Convention).

    Raises:
        ValueError: a part is not fit for a name; says which and what to write.
    """
    newest = EPOCH if settings.timestamp else newest_recording(trajectories)
    return directory_name(generated_at(newest, settings), settings)


def directory_name(made: datetime, settings: DatasetSettings) -> str:
    """The same for a time that is already known."""
    parts = {"name_prefix": settings.name_prefix, "user": settings.user}
    for key, part in parts.items():
        if not re.fullmatch(NAME_PART.strip("^$"), part):
            raise ValueError(
                f"datasets.{key} is {part!r}; use letters, digits, . _ and single - inside"
            )
    name = f"{settings.name_prefix}--{settings.user}--{made:%Y%m%d_%H%M%S}"
    if not DIRECTORY_PATTERN.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a dataset; choose other parts")
    return name


def configuration(
    settings: DatasetSettings,
    made: datetime,
    counts: Mapping[str, int],
    plan: SplitPlan,
    escaped: Mapping[str, int],
) -> dict[str, Any]:
    """`config.json` (formats notes, section 4).

    Args:
        settings: what the dataset was made with.
        made: see `generated_at`.
        counts: records of train, val, held_out and test together, by task type.
        plan: for groups moved to fill a split.
        escaped: markers made harmless, in prompts and in tool calls.
    """
    total = sum(counts.values())
    types = sorted(counts)
    return {
        "generator": GENERATOR,
        "name_prefix": settings.name_prefix,
        "user": settings.user,
        "generated_at": f"{made:%Y-%m-%dT%H:%M:%SZ}",
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
        "include_leaky": settings.include_leaky,
        "prompt_style": settings.prompt_style,
        "images": _images(settings),
        **_rules(settings),
        "escaped_markers": dict(sorted(escaped.items())),
        "system_prompt": system_prompt(settings),
    }


def split_ratios(settings: DatasetSettings) -> dict[str, float]:
    """The share of groups wanted in each split that a hash decides."""
    return {
        "train": settings.train_ratio,
        "val": settings.val_ratio,
        "test": settings.test_ratio,
    }


def _images(settings: DatasetSettings) -> dict[str, Any]:
    """Links and copies are the same bytes: only the kind of file is told."""
    if settings.image_mode == "jpeg":
        return {"format": "jpeg", "quality": settings.jpeg_quality}
    return {"format": "png"}


def _rules(settings: DatasetSettings) -> dict[str, Any]:
    """How scrolls are counted and tolerances found."""
    return {
        "scroll": {
            "unit": "pixels",
            "positive": settings.cudag_scroll_sign,
            "hscroll_positive": "right",
            "pixels_per_notch": settings.cudag_pixels_per_notch,
            "rule": scroll_rule(settings),
        },
        "tolerance": {
            "unit": "RU",
            "rule": "half the target's size an axis, within min and max",
            "min": settings.tolerance_min,
            "max": settings.tolerance_max,
            "without_target": settings.default_tolerance,
            "scroll": settings.scroll_tolerance,
        },
    }
