"""Writes the images of a CUDAG dataset, and annotated copies for people.

Belongs here: links, copies, JPEG and annotation. Which screenshot belongs to which record is
decided in `cudag_records`.
"""

import shutil
from pathlib import Path

import cv2

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.hardlinks import link_or_copy
from demo_pipeline.common.png import PngWriter, read_png
from demo_pipeline.datasets.cudag_actions import DRAG
from demo_pipeline.formats.cudag.models import CudagMetadata
from demo_pipeline.formats.cudag.tool_calls import RU_MAX

_POINT = (255, 0, 0)
_BOX = (0, 200, 0)


def image_suffix(settings: DatasetSettings) -> str:
    """The file extension of training images."""
    return ".jpg" if settings.image_mode == "jpeg" else ".png"


def write_training_image(source: Path, target: Path, settings: DatasetSettings) -> bool:
    """Write a training image as `image_mode` says.

    Returns:
        Whether it was written; a screenshot that cannot be decoded gives no JPEG.
    """
    if settings.image_mode != "jpeg":
        link_or_copy_png(source, target, copy=settings.image_mode == "copy")
        return True
    picture = cv2.imread(str(source), cv2.IMREAD_COLOR)
    if picture is None:
        return False
    return bool(
        cv2.imwrite(str(target), picture, [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality])
    )


def link_or_copy_png(source: Path, target: Path, *, copy: bool = False) -> None:
    """Write a PNG unchanged: as a hard link when possible and `copy` is false, else as a copy."""
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
    picture = read_png(source)
    if picture is None:
        picture = cv2.imread(str(source), cv2.IMREAD_COLOR_RGB)
    if picture is None:
        return False
    x, y = metadata.real_coords
    if metadata.task_type == DRAG:
        x, y = metadata.end_coords
    width, height = metadata.image_size
    half_x = round(metadata.tolerance[0] * width / RU_MAX)
    half_y = round(metadata.tolerance[1] * height / RU_MAX)
    cv2.rectangle(picture, (x - half_x, y - half_y), (x + half_x, y + half_y), _BOX, 2)
    if metadata.task_type == DRAG:
        cv2.arrowedLine(picture, metadata.real_coords, (x, y), _POINT, 2)
    cv2.circle(picture, (x, y), 4, _POINT, -1)
    PngWriter().write(target, picture)
    return True
