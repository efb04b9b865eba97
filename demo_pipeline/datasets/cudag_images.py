"""Writes the images of a CUDAG dataset, and annotated copies for people.

Belongs here: links, copies, JPEG and annotation. Which screenshot belongs to which record is
decided in `cudag_records`.
"""

import math
import shutil
from pathlib import Path

import cv2

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.png import Pixels, PngRows, PngWriter
from demo_pipeline.datasets.cudag_actions import DRAG
from demo_pipeline.formats.cudag.models import CudagMetadata
from demo_pipeline.formats.cudag.tool_calls import RU_MAX

_POINT = (255, 0, 0)
_BOX = (0, 200, 0)
_MARGIN = 8  # pixels that lines and the point reach beyond the places they are drawn at
_ARROW_TIP = 0.1  # of the arrow's length


def image_suffix(settings: DatasetSettings) -> str:
    """The file extension of training images."""
    return ".jpg" if settings.image_mode == "jpeg" else ".png"


def write_training_image(source: Path, target: Path, settings: DatasetSettings) -> bool:
    """Write a training image as `image_mode` says.

    Returns:
        Whether it was written; a screenshot that cannot be decoded gives no JPEG.
    """
    if settings.image_mode != "jpeg":
        link_or_copy_image(source, target, copy=settings.image_mode == "copy")
        return True
    picture = cv2.imread(str(source), cv2.IMREAD_COLOR)
    if picture is None:
        return False
    return bool(
        cv2.imwrite(str(target), picture, [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])
    )


def link_or_copy_image(source: Path, target: Path, *, copy: bool = False) -> None:
    """Write an image unchanged: as a hard link if possible and `copy` is false, else as a copy."""
    if copy:
        shutil.copyfile(source, target)
    else:
        link_or_copy(source, target)


def annotate(source: Path, target: Path, metadata: CudagMetadata) -> bool:
    """Draw the target point, its tolerance and the path of a drag on a copy of the screenshot.

    The target point of a drag is its end.

    Returns:
        Whether it was written; a screenshot that cannot be decoded is left out.
    """
    ours = PngRows.read(source)
    if ours is None:
        picture = cv2.imread(str(source), cv2.IMREAD_COLOR_RGB)
        if picture is None:
            return False
        _draw(picture, metadata)
        PngWriter().write(target, picture)
        return True
    height = ours.size[1]
    top, bottom = (min(max(0, row), height) for row in _drawn_rows(metadata))
    if top < bottom:
        rows = ours.rows(top, bottom)
        _draw(rows, metadata, top)
        ours.put(top, rows)
    ours.write(target)
    return True


def _drawn_rows(metadata: CudagMetadata) -> tuple[int, int]:
    """The first row that `_draw` may change, and the one after the last; maybe outside."""
    ys = [metadata.real_coords[1]]
    reach = max(_half(metadata)[1], 0) + _MARGIN
    if metadata.task_type == DRAG:
        ys.append(metadata.end_coords[1])
        length = math.dist(metadata.real_coords, metadata.end_coords)
        reach += math.ceil(length * _ARROW_TIP)
    return min(ys) - reach, max(ys) + reach + 1


def _draw(picture: Pixels, metadata: CudagMetadata, top: int = 0) -> None:
    """Draw on the rows of a screenshot from `top` on, of shape (rows, width, 3)."""
    start = (metadata.real_coords[0], metadata.real_coords[1] - top)
    x, y = start
    if metadata.task_type == DRAG:
        x, y = metadata.end_coords[0], metadata.end_coords[1] - top
    half_x, half_y = _half(metadata)
    cv2.rectangle(picture, (x - half_x, y - half_y), (x + half_x, y + half_y), _BOX, 2)
    if metadata.task_type == DRAG:
        cv2.arrowedLine(picture, start, (x, y), _POINT, 2, tipLength=_ARROW_TIP)
    cv2.circle(picture, (x, y), 4, _POINT, -1)


def _half(metadata: CudagMetadata) -> tuple[int, int]:
    """The tolerance in pixels, to each side."""
    width, height = metadata.image_size
    x, y = metadata.tolerance
    return round(x * width / RU_MAX), round(y * height / RU_MAX)
