"""The images of a CUDAG dataset: opening one, and comparing it with what its record declares.

Belongs here: rules for one image. Which images a dataset has is up to validator.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.common.image_header import ImageInfo, probe_image
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.formats.cudag.cross_checks import short_digest
from demo_pipeline.formats.cudag.fault import CudagFault, Scope, printable


@dataclass(frozen=True, slots=True)
class OpenedImage:
    """What is known of an image.

    Attributes:
        info: its kind and size; None when it cannot be opened.
        fault: why not.
        digest: of its bytes; None when it cannot be read.
    """

    info: ImageInfo | None
    fault: str
    digest: bytes | None


def is_kind(path: Path, wanted: str) -> bool:
    """Whether a path is a `file` or a `dir`; a path that the system rejects is neither."""
    try:
        return path.is_file() if wanted == "file" else path.is_dir()
    except (OSError, ValueError):
        return False


def open_image(folder: Path, name: str) -> OpenedImage:
    """Open an image; its name is relative to the folder."""
    if not is_kind(folder / name, "file"):
        return OpenedImage(None, "Image not found", None)
    try:
        data = (folder / name).read_bytes()
        return OpenedImage(probe_image(data), "", short_digest(data))
    except (OSError, ValueError) as error:
        raise_system_trouble(error)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return OpenedImage(None, f"Image does not open ({reason})", None)


def image_faults(info: ImageInfo, name: str, metadata: object) -> Iterator[CudagFault]:
    """Yield how an image differs from its name and from what its record declares."""
    size = [info.width, info.height]
    declared = metadata.get("image_size") if isinstance(metadata, dict) else None
    if isinstance(declared, list) and declared != size:
        message = f"metadata.image_size {_sizes(declared)} is not the size of the image, {size}"
        yield CudagFault("image_size", message, "set it to the size of the file", Scope.SHARED)
    if name.endswith(".png") != (info.kind == "png"):
        message = f"image is a {info.kind.upper()}, but its name is {printable(name)}"
        yield CudagFault("image_kind", message, "convert or rename it", Scope.SHARED)


def _sizes(values: list[Any]) -> str:
    return str(values) if all(isinstance(v, int) for v in values[:3]) else "(not numbers)"
