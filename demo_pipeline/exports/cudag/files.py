"""The images of a CUDAG dataset: links, copies, JPEGs and annotated screenshots.

Not here: what a record holds (records.py).
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import cv2

from demo_pipeline.datasets.record_forms import KeptRecord
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split, split_at, split_intervals, stable_position
from demo_pipeline.exports.cudag.models import CudagMetadata
from demo_pipeline.exports.cudag.records import DRAG
from demo_pipeline.exports.cudag.tool_calls import RU_MAX
from demo_pipeline.files.image_files import Pixels, PngWriter
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

MADE = "cudag"  # the folder of images beside the kept records
_POINT = (255, 0, 0)
_BOX = (0, 200, 0)
_ARROW_TIP = 0.1  # of the arrow's length


def image_suffix(settings: DatasetSettings) -> str:
    """The file extension of training images."""
    return ".jpg" if settings.image_mode == "jpeg" else ".png"


def cudag_pictures(
    candidate: Candidate, split: Split, record: KeptRecord, settings: DatasetSettings
) -> Mapping[str, str]:
    """The pictures of a record; see `Form.pictures`. A JPEG may be made of a screenshot."""
    (path,) = record.files.values()
    source = candidate.source
    screenshot = f"{source.folder}/{path}"
    if split is not Split.TEST:
        image = f"{record.id}{image_suffix(settings)}"
        return {f"images/{image}": _first(source, image, screenshot)}
    found = {f"test/images/{record.id}.png": screenshot}
    if record.counts["places"]:
        drawn = f"{record.id}_annotated.png"
        found[f"test/annotated/{drawn}"] = _first(source, drawn, screenshot)
    return found


def _first(source: DatasetTrajectory, image: str, screenshot: str) -> str:
    """The image beside the kept records if there is one, else the screenshot."""
    kept = f"{MADE}/{image}"
    return f"{source.records}/{kept}" if kept in source.digests else screenshot


def make_cudag_picture(
    source: str, target: str, record: KeptRecord, settings: DatasetSettings
) -> bool | None:
    """Write what is not a link; see `Form.make`.

    A screenshot that cannot be decoded gives no JPEG, and no annotated picture.
    """
    draws = target.endswith("_annotated.png") and not source.endswith("_annotated.png")
    converts = target.endswith(".jpg") and not source.endswith(".jpg")
    if not (draws or converts or settings.image_mode == "copy"):
        return None
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if draws:
        metadata = json.loads(record.parts["line"])["metadata"]
        annotate(Path(source), Path(target), CudagMetadata(**metadata))
    elif converts:
        picture = cv2.imread(source, cv2.IMREAD_COLOR)
        quality = [cv2.IMWRITE_JPEG_QUALITY, settings.jpeg_quality]
        return picture is not None and bool(cv2.imwrite(target, picture, quality))
    else:
        shutil.copyfile(source, target)
    return True


def prepare_cudag_pictures(
    candidate: Candidate, records: Sequence[KeptRecord], settings: DatasetSettings, out: Path
) -> None:
    """Make the JPEGs, and what the hash of the task puts into the test split; see `Form.prepare`.

    A dataset makes those itself that it lacks since its tasks are joined, or fill an empty split.
    """
    known = replace(candidate, source=replace(candidate.source, digests={}))
    position = stable_position(settings.seed, candidate.split_groups[0])
    split = split_at(position, split_intervals(settings))
    for record in records:
        for name, screenshot in cudag_pictures(known, split, record, settings).items():
            target = f"{out}/{MADE}/{Path(name).name}"
            if target.endswith((".jpg", "_annotated.png")):
                make_cudag_picture(screenshot, target, record, settings)


def annotate(source: Path, target: Path, metadata: CudagMetadata) -> bool:
    """Draw the target point, its tolerance and the path of a drag on a copy of the screenshot.

    The target point of a drag is its end.

    Returns:
        Whether it was written; a screenshot that cannot be decoded is left out.
    """
    picture = cv2.imread(str(source), cv2.IMREAD_COLOR_RGB)
    if picture is None:
        return False
    _draw(picture, metadata)
    PngWriter().write(target, picture)
    return True


def _draw(picture: Pixels, metadata: CudagMetadata) -> None:
    start = x, y = metadata.real_coords
    if metadata.task_type == DRAG:
        x, y = metadata.end_coords
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
