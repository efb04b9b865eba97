"""Kind and size of PNG and JPEG images, and whether a file is complete, without decoding pixels.

Belongs here: parsing image containers. Decoding a 1080p PNG takes some 20 ms, and a small file can
demand gigabytes; walking its chunks and their checksums takes less than 1 ms and misses only damage
with a correct checksum.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD = len(PNG_SIGNATURE) + 8 + 13  # length, type and data of the IHDR chunk
_JPEG = b"\xff\xd8\xff"
_DECODES: ContextVar[Callable[[bytes], bool] | None] = ContextVar("decodes an image", default=None)
_MOST_DECODED = 64_000_000  # pixels; a few bytes can ask for gigabytes
_NOT_FRAMES = (0xC4, 0xC8, 0xCC)  # DHT, JPG, DAC: tables, not frame headers


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What an image declares: kind (`png` or `jpeg`), width and height in pixels."""

    kind: str
    width: int
    height: int


def probe_image(data: bytes) -> ImageInfo:
    """Kind and size of a complete image, from the bytes of its file.

    Raises:
        ValueError: neither PNG nor JPEG, cut off, or damaged; the message says which.
    """
    if data.startswith(PNG_SIGNATURE):
        info = _png(data)
    elif data.startswith(_JPEG):
        info = _jpeg(data)
    else:
        raise ValueError("neither PNG nor JPEG" if data else "empty file")
    decodes = _DECODES.get()
    if decodes and info.width * info.height <= _MOST_DECODED and not decodes(data):
        raise ValueError("pixels that cannot be decoded")
    return info


@contextmanager
def decoding_images(decodes: Callable[[bytes], bool]) -> Iterator[None]:
    """Inside, images are also decoded: by a function that tells whether that is possible."""
    token = _DECODES.set(decodes)
    try:
        yield
    finally:
        _DECODES.reset(token)


def probe_image_file(path: Path) -> ImageInfo:
    """Kind and size of a complete image file; raises as `probe_image`, or `OSError`."""
    return probe_image(path.read_bytes())


def png_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the header of a PNG file, which alone is read.

    Raises `OSError` when the file cannot be read, `ValueError` when it is not a PNG file.
    """
    with path.open("rb") as file:
        head = file.read(_PNG_HEAD)
    if not head.startswith(PNG_SIGNATURE):
        raise ValueError("not a PNG file")
    info = _header(head[12:16], head[16:])
    return info.width, info.height


def _png(data: bytes) -> ImageInfo:
    """Walk the chunks (PNG specification, 5.3): length, type, data, CRC of type and data."""
    view, position, info, pixels = memoryview(data), len(PNG_SIGNATURE), None, False
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        kind = data[position + 4 : position + 8]
        checksum = isal_zlib.crc32(view[position + 4 : end - 4])
        if checksum != struct.unpack_from(">I", data, end - 4)[0]:
            raise ValueError("damaged PNG (checksum of a chunk)")
        if info is None:
            info = _header(kind, data[position + 8 : end - 4])
        pixels = pixels or kind == b"IDAT"
        if kind == b"IEND":
            if not pixels:
                raise ValueError("PNG without pixels")
            return info
        position = end
    raise ValueError("PNG is cut off")


def _header(kind: bytes, body: bytes) -> ImageInfo:
    if kind != b"IHDR" or len(body) != 13:
        raise ValueError("PNG without a header")
    width, height = struct.unpack_from(">II", body)
    if not width or not height:
        raise ValueError("PNG without width or height")
    return ImageInfo("png", width, height)


def _jpeg(data: bytes) -> ImageInfo:
    """Walk the segments to the frame header (ITU T.81, B.2.2) and look for the end marker."""
    if data.rfind(b"\xff\xd9") < 0:
        raise ValueError("JPEG is cut off")
    position = 2
    while position + 9 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            if not width or not height:
                raise ValueError("JPEG without width or height")
            return ImageInfo("jpeg", width, height)
        position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    raise ValueError("JPEG without a frame header")
