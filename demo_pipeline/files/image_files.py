"""PNG and JPEG files: kind, size and completeness without decoding pixels, and writing PNG.

Decoding a 1080p PNG takes some 20 ms, and a small file can demand gigabytes; walking its chunks and
their checksums takes less than 1 ms and misses only damage with a correct checksum.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_HEAD = len(PNG_SIGNATURE) + 8 + 13  # length, type and data of the IHDR chunk
_JPEG = b"\xff\xd8\xff"
_DECODES: ContextVar[Callable[[bytes], bool] | None] = ContextVar("decodes an image", default=None)
_MOST_DECODED = 64_000_000  # pixels; a few bytes can ask for gigabytes
_NOT_FRAMES = (0xC4, 0xC8, 0xCC)  # DHT, JPG, DAC: tables, not frame headers
_HEADER = struct.Struct(">IIBBBBB")  # width, height, then the form of all our images
_FORM = (8, 2, 0, 0, 0)  # bits a channel, RGB, deflate, row filters, not interlaced
_UP = 2
_BAND = 64  # rows, which fit into the processor's cache
_HEAD = 8  # bytes, deflated by themselves; ISA-L's loop for short rests takes 4 to 15

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


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
    view = memoryview(data)
    position = len(PNG_SIGNATURE)
    info = None
    pixels = False
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


class PngWriter:
    """Encodes RGB images of shape (height, width, 3); equal images have equal bytes.

    The Up filter with a level-1 deflate, which releases the GIL, was four times as fast as OpenCV's
    default in a measurement on screenshots, and the files were 27 % smaller.
    """

    def __init__(self) -> None:
        self._filtered = np.empty((0, 0), np.uint8)

    def write(self, path: Path, rgb: Pixels) -> None:
        """Write an image to a file. Raises ValueError unless there are three channels."""
        with path.open("wb") as file:
            file.writelines(self._encoded(rgb))

    def encode(self, rgb: Pixels) -> bytes:
        """The bytes of the file; raises as `write` does."""
        return b"".join(self._encoded(rgb))

    def _encoded(self, rgb: Pixels) -> list[bytes]:
        """The bytes of the file, in pieces.

        ISA-L's fast loop takes its own address for pixels at the third byte of a stream
        (`write_first_byte` in igzip_icf_body_h1_gr_bt.asm hashes rcx), so that one picture in some
        thousands got other bytes in another process. The loop for short rests has no such fault.
        """
        height, width, channels = rgb.shape
        if channels != 3:
            raise ValueError(f"expected 3 channels, got {channels}")
        deflate = isal_zlib.compressobj(1)
        data = list[bytes]()
        for band in self._bands(np.ascontiguousarray(rgb).reshape(height, width * 3)):
            rows = band.reshape(-1).data
            if not data:
                data += [deflate.compress(rows[:_HEAD]), deflate.flush(isal_zlib.Z_SYNC_FLUSH)]
                rows = rows[_HEAD:]
            data.append(deflate.compress(rows))
        data.append(deflate.flush())
        head = _chunk(b"IHDR", [_HEADER.pack(width, height, *_FORM)])
        return [PNG_SIGNATURE, *head, *_chunk(b"IDAT", data), *_chunk(b"IEND", [])]

    def _bands(self, flat: Pixels) -> Iterator[Pixels]:
        """Yield bands of filtered rows, in the same memory: each row's filter type comes first."""
        if self._filtered.shape[1] != 1 + flat.shape[1]:
            self._filtered = np.full((_BAND, 1 + flat.shape[1]), _UP, np.uint8)
        above = np.zeros_like(flat[0])
        for top in range(0, len(flat), _BAND):
            rows = flat[top : top + _BAND]
            filtered = self._filtered[: len(rows)]
            np.subtract(rows[0], above, out=filtered[0, 1:])
            np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
            above = rows[-1]
            yield filtered


def _chunk(kind: bytes, body: Sequence[bytes]) -> list[bytes]:
    """A chunk in pieces: its length, its kind, its body and their checksum."""
    checksum = reduce(lambda so_far, piece: isal_zlib.crc32(piece, so_far), (kind, *body), 0)
    size = sum(map(len, body))
    return [struct.pack(">I", size), kind, *body, struct.pack(">I", checksum)]
