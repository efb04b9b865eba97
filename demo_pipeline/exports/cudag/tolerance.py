"""How far from the recorded point a prediction may be: the tolerance of a CUDAG record.

Belongs here: what it follows from. RU are thousandths of a side of the screenshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo_pipeline.desktopd.models import (
    DragParameters,
    ScrollParameters,
    StepAction,
    points,
)
from demo_pipeline.exports.cudag.actions import (
    ImageSize,
)
from demo_pipeline.exports.cudag.models import (
    box_to_ru,
    tolerance_ru,
)
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

LARGEST_SHARE = 0.1  # of the screen; in a larger area not every point is the one that was meant
AREAS = frozenset(
    {
        *("panel", "unknown", "window", "dialog", "table", "treeview", "listbox", "tabpanel"),
        *("toolbar", "menu", "menubar", "statusbar", "taskbar", "textarea", "image"),
    }
)  # roles of containers, documents, tables and text areas


@dataclass(frozen=True, slots=True)
class TargetTolerance:
    """The tolerance of a prediction and the target's box [x0, y0, x1, y1], both in RU."""

    tolerance: ImageSize
    box: tuple[int, int, int, int]


def target_tolerance(
    action: StepAction, row: ProvenanceRow, size: ImageSize, settings: DatasetSettings
) -> TargetTolerance:
    """From the point to the target's nearer edge; scrolls and drags have settings of their own.

    A large area is not a target. A drag's target is known at its start only, and the tolerance is
    also that of its end.
    """
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    known = None not in target and not _is_large_area(action, target, size)
    box = box_to_ru(target[0], target[1], target[2], target[3], size) if known else (0, 0, 0, 0)
    if isinstance(action.parameters, ScrollParameters):
        return TargetTolerance((settings.scroll_tolerance, settings.scroll_tolerance), box)
    if isinstance(action.parameters, DragParameters):
        return TargetTolerance((settings.drag_tolerance, settings.drag_tolerance), box)
    positions = points(action)
    if not known or not positions:
        return TargetTolerance((settings.default_tolerance, settings.default_tolerance), box)
    limits = (settings.tolerance_min, settings.tolerance_max)
    left, top, width, height = target
    tolerance = tolerance_ru(positions[0], (left, top, width, height), size, limits)
    return TargetTolerance(tolerance, box)


def _is_large_area(action: StepAction, target: Sequence[int], size: ImageSize) -> bool:
    """Whether a target is an area that a point in it does not single out."""
    element, (_, _, width, height) = action.target_element, target
    is_area = element is not None and element.role in AREAS
    return is_area and width * height > LARGEST_SHARE * size[0] * size[1]
