"""How far from the recorded point a prediction may be: the tolerance of a CUDAG record.

Belongs here: what it follows from. RU are thousandths of a side of the screenshot.
"""

from collections.abc import Sequence

from demo_pipeline.desktopd.models import DragParameters, ScrollParameters, StepAction, points
from demo_pipeline.exports.cudag.models import Pair, RuBox, to_ru
from demo_pipeline.exports.cudag.tool_calls import RU_MAX
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

_LARGEST_SHARE = 0.1  # of the screen; in a larger area not every point is the one that was meant
_AREAS = frozenset(
    {
        *("panel", "unknown", "window", "dialog", "table", "treeview", "listbox", "tabpanel"),
        *("toolbar", "menu", "menubar", "statusbar", "taskbar", "textarea", "image"),
    }
)  # roles of containers, documents, tables and text areas


def target_tolerance(
    action: StepAction, row: ProvenanceRow, size: Pair, settings: DatasetSettings
) -> tuple[Pair, RuBox]:
    """The tolerance of a prediction, and the target's box [x0, y0, x1, y1], both in RU.

    The tolerance reaches from the point to the target's nearer edge; scrolls and drags have
    settings of their own. A large area is not a target. A drag's target is known at its start only,
    and the tolerance is also that of its end.
    """
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    known = None not in target and not _is_large_area(action, target, size)
    box = box_to_ru(target, size) if known else (0, 0, 0, 0)
    positions = points(action)
    if isinstance(action.parameters, ScrollParameters):
        tolerance = settings.scroll_tolerance
    elif isinstance(action.parameters, DragParameters):
        tolerance = settings.drag_tolerance
    elif known and positions:
        limits = (settings.tolerance_min, settings.tolerance_max)
        return tolerance_ru(positions[0], target, size, limits), box
    else:
        tolerance = settings.default_tolerance
    return (tolerance, tolerance), box


def _is_large_area(action: StepAction, target: Sequence[int], size: Pair) -> bool:
    """Whether a target is an area that a point in it does not single out."""
    element, (_, _, width, height) = action.target_element, target
    is_area = element is not None and element.role in _AREAS
    return is_area and width * height > _LARGEST_SHARE * size[0] * size[1]


def box_to_ru(box: Sequence[float], size: Pair) -> RuBox:
    """A box (left, top, width, height, pixels) as [x0, y0, x1, y1] in RU, within the image."""
    left, top, width, height = box
    return (*to_ru(left, top, size), *to_ru(left + width, top + height, size))


def tolerance_ru(point: Pair, box: Sequence[float], size: Pair, limits: Pair) -> Pair:
    """The distance from a point to the nearer edge of a box on each axis, in RU, rounded down.

    Args:
        point: x and y, pixels.
        box: left, top, width and height of the target, pixels.
        size: width and height of the image, pixels.
        limits: minimum and maximum, RU. A point at an edge, or outside the box, has the minimum.
    """
    low, high = limits
    nearer = (min(point[n] - box[n], box[n] + box[n + 2] - point[n]) for n in (0, 1))
    reach = (int(off / side * RU_MAX) for off, side in zip(nearer, size, strict=True))
    x, y = (min(max(part, low), high) for part in reach)
    return x, y
