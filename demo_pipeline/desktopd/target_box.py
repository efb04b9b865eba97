"""The columns of the tables `ui_trees` and `provenance` that contain the box of the target."""

import pyarrow as pa

TARGET_BOX = ("target_x", "target_y", "target_width", "target_height")
_MEASURED = ("left edge", "top edge", "width", "height")

TARGET_BOX_COLUMNS = tuple(
    (
        name,
        pa.int32(),
        True,
        f"{measured} of the target element, canvas pixels; null if the target is unknown",
    )
    for name, measured in zip(TARGET_BOX, _MEASURED, strict=True)
)
"""Name, type, whether the column may be null, and description of each column."""
