"""The grounding export: one row per named element of a screenshot.

Belongs here: the models of a row of `<split>.parquet` and of an entry of `screenspot/<split>.json`,
and the box convention of ScreenSpot-Pro: [x1, y1, x2, y2] in pixels, both ends inside the element.
"""

from typing import Annotated, Literal

from pydantic import Field

from demo_pipeline.formats.base_model import Document

GROUNDING_SCHEMA_FILE = "grounding.schema.json"
SCREENSPOT_FOLDER = "screenspot"
LITE_FOLDER = "cua_lite"  # the root of the rows in CUA-Lite's form

_Pixels = Annotated[int, Field(ge=0)]
InclusiveBox = tuple[int, int, int, int]


class GroundingRow(Document):
    """An element that can be seen, and that no other element of the screen is named like."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]+$")
    trajectory_id: str
    step_index: int = Field(ge=0, description="0-based, of the screenshot")
    application: str
    platform: str = Field(description="windows, macos, linux")
    text: str = Field(min_length=1, description="names the element, as in `the Save button`")
    role: str = Field(description="OSWorld-Desktopd role")
    box: list[_Pixels] = Field(
        min_length=4, max_length=4, description="[x1, y1, x2, y2], inclusive"
    )
    point: list[_Pixels] = Field(min_length=2, max_length=2, description="[x, y], the centre")
    image_size: list[_Pixels] = Field(min_length=2, max_length=2, description="[width, height]")
    image: str = Field(description="screenshot: a path below the folder")


class ScreenSpotEntry(Document):
    """An entry of a task file in the form of ScreenSpot-Pro."""

    id: str
    img_filename: str
    img_size: list[_Pixels]
    bbox: list[_Pixels]
    instruction: str
    platform: str
    application: str
    group: str
    ui_type: Literal["text", "icon", "unknown"]


def inclusive_box(x: int, y: int, width: int, height: int) -> InclusiveBox:
    """A box of whole pixels with both ends inside."""
    return x, y, x + width - 1, y + height - 1


def box_centre(box: InclusiveBox) -> tuple[int, int]:
    """The middle pixel of a box; of two the upper left one."""
    return (box[0] + box[2]) // 2, (box[1] + box[3]) // 2
